//! Tests that a capture is read alike in every file format, compression and link layer.

use super::printed::{events, report};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use toll_testkit::wire::{CapturedFrame, Conversation, ok, prepare_response, protocol_packet, result};

/// Byte order of a file.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, n: u16) -> [u8; 2] {
        match self {
            Order::Little => n.to_le_bytes(),
            Order::Big => n.to_be_bytes(),
        }
    }

    fn u32(self, n: u32) -> [u8; 4] {
        match self {
            Order::Little => n.to_le_bytes(),
            Order::Big => n.to_be_bytes(),
        }
    }
}

/// Link layer below IP.
#[derive(Debug, Clone, Copy)]
pub enum Link {
    Ethernet,
    Vlan,
    LinuxSll,
    LinuxSll2,
    Null,
}

impl Link {
    const ALL: [Link; 5] = [Link::Ethernet, Link::Vlan, Link::LinuxSll, Link::LinuxSll2, Link::Null];

    /// Number in file headers (<https://www.tcpdump.org/linktypes.html>).
    fn number(self) -> u16 {
        match self {
            Link::Ethernet | Link::Vlan => 1,
            Link::LinuxSll => 113,
            Link::LinuxSll2 => 276,
            Link::Null => 0,
        }
    }

    fn frame(self, ip: &[u8]) -> Vec<u8> {
        let is_v6 = ip[0] >> 4 == 6;
        let kind: [u8; 2] = if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let addresses: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let head = match self {
            Link::Ethernet => [&addresses[..], &kind].concat(),
            Link::Vlan => [&addresses[..], &[0x81, 0, 0, 7], &kind].concat(),
            // Kind of packet and of device, length of the address, address, protocol.
            Link::LinuxSll => [&[0, 0, 0, 1, 0, 6][..], &addresses[..8], &kind].concat(),
            // Protocol, two unused bytes, interface, kinds, length of the address, address.
            Link::LinuxSll2 => [&kind[..], &[0, 0, 0, 0, 0, 3, 0, 1, 0, 6], &addresses[..8]].concat(),
            // The address family, as Linux numbers it.
            Link::Null => vec![if is_v6 { 10 } else { 2 }, 0, 0, 0],
        };
        [head.as_slice(), ip].concat()
    }
}

/// A pcap file whose times count `unit_ns` (1000 or 1).
pub fn pcap(order: Order, unit_ns: u32, link: Link, frames: &[CapturedFrame]) -> Vec<u8> {
    let magic = if unit_ns == 1 { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut file = [&order.u32(magic)[..], &order.u16(2), &order.u16(4), &[0; 8]].concat();
    file.extend(order.u32(262_144));
    file.extend(order.u32(u32::from(link.number())));
    for (time_ns, ip) in frames {
        let frame = link.frame(ip);
        let length = frame.len() as u32;
        let units = (time_ns % 1_000_000_000) as u32 / unit_ns;
        for field in [(time_ns / 1_000_000_000) as u32, units, length, length] {
            file.extend(order.u32(field));
        }
        file.extend(frame);
    }
    file
}

/// A pcapng file with timestamps of that many decimal digits (`if_tsresol`: 6 or 9).
fn pcapng(order: Order, digits: u8, link: Link, frames: &[CapturedFrame]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len().next_multiple_of(4)) as u32;
        let mut block = [order.u32(kind), order.u32(length)].concat();
        block.extend(body);
        block.resize(length as usize - 4, 0);
        block.extend(order.u32(length));
        block
    };
    // Byte order, version, no length; link, snap length, option 9 of one byte, end of options.
    let section = [&order.u32(0x1a2b_3c4d)[..], &order.u16(1), &order.u16(0), &[0xff; 8]].concat();
    let interface = [
        &order.u16(link.number())[..],
        &[0; 2],
        &order.u32(262_144),
        &order.u16(9),
        &order.u16(1),
        &[digits, 0, 0, 0],
        &[0; 4],
    ]
    .concat();
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
    for (time_ns, ip) in frames {
        let frame = link.frame(ip);
        let length = frame.len() as u32;
        let ticks = time_ns / 10_u64.pow(9 - u32::from(digits));
        let fields = [0, (ticks >> 32) as u32, ticks as u32, length, length];
        let mut body: Vec<u8> = fields.into_iter().flat_map(|field| order.u32(field)).collect();
        body.extend(frame);
        file.extend(block(6, &body));
    }
    file
}

/// The same segments between addresses of IPv6.
pub fn to_ipv6(frames: &[CapturedFrame]) -> Vec<CapturedFrame> {
    let packet = |ip: &[u8]| {
        let (addresses, segment) = ip[12..].split_at(8);
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((segment.len() as u16).to_be_bytes());
        packet.extend([6, 64]);
        for address in addresses.chunks(4) {
            packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            packet.extend(address);
        }
        packet.extend(segment);
        packet
    };
    frames.iter().map(|(time_ns, ip)| (*time_ns, packet(ip))).collect()
}

/// A session with a statement of each kind, and eight commands in all.
pub fn conversation() -> Conversation {
    let mut talk = Conversation::logged_in();
    talk.client(&protocol_packet(0, b"\x03select id from items where name = 'a'"));
    talk.server(&result(&["1", "2"]));
    talk.client(&protocol_packet(0, b"\x16select ?"));
    talk.server(&prepare_response(7, 1, 1));
    talk.client(&protocol_packet(0, &[0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 0, 5, 0, 0, 0]));
    talk.server(&result(&["5"]));
    talk.client(&protocol_packet(0, b"\x03update items set a = 1"));
    talk.server(&protocol_packet(1, &ok(3)));
    talk.client(&protocol_packet(0, b"\x03select nosuch"));
    talk.server(&protocol_packet(1, b"\xff\x1e\x04#42S22Unknown column"));
    talk.client(&protocol_packet(0, &[0x19, 7, 0, 0, 0]));
    talk.client(&protocol_packet(0, b"\x01"));
    talk.close();
    talk
}

pub fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_file_format_and_compression_holds_the_same_events_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let talk = conversation();
    let frames = talk.frames();
    let mut forms = Vec::new();
    for order in [Order::Little, Order::Big] {
        for unit_ns in [1000, 1] {
            forms.push((
                format!("pcap, {order:?}, {unit_ns} ns"),
                pcap(order, unit_ns, Link::Ethernet, frames),
            ));
        }
        for digits in [6, 9] {
            forms.push((
                format!("pcapng, {order:?}, {digits} digits"),
                pcapng(order, digits, Link::Ethernet, frames),
            ));
        }
    }
    let expected = events(&write_file(dir.path(), "first", &forms[0].1), "UTC");
    assert_eq!(expected.len(), 8);
    // The seventh packet, answered by the eighth, a microsecond later.
    let select = &expected[1];
    assert_eq!(select["query"], "select id from items where name = 'a'");
    assert_eq!(select["time"], "2023-11-14T22:13:20.000007Z");
    assert_eq!(select["query_time_us"], 1.0);
    assert_eq!(expected[3]["params"], "5");
    for (form, bytes) in &forms {
        for (name, packed) in [
            ("plain", bytes.clone()),
            ("gzip", gzip(bytes)),
            ("zstd", zstd::encode_all(bytes.as_slice(), 3).unwrap()),
        ] {
            assert_eq!(events(&write_file(dir.path(), name, &packed), "UTC"), expected, "{form}, {name}");
        }
    }
}

#[test]
fn every_link_layer_and_both_versions_of_ip_hold_the_same_events_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let talk = conversation();
    let (four, six) = (talk.frames().to_vec(), to_ipv6(talk.frames()));
    let read = |link, frames: &[CapturedFrame]| {
        events(&write_file(dir.path(), "capture", &pcap(Order::Little, 1, link, frames)), "UTC")
    };
    let expected = read(Link::Ethernet, &four);
    assert_eq!(expected.len(), 8);
    for link in Link::ALL {
        assert_eq!(read(link, &four), expected, "{link:?}");
        let mut seen = read(link, &six);
        for event in &mut seen {
            assert_eq!(event["host"], "fd00::a00:1", "{link:?}");
            event["host"] = Value::from("10.0.0.1");
        }
        assert_eq!(seen, expected, "{link:?}, IPv6");
    }
}

#[test]
fn a_capture_of_another_port_says_what_to_name() {
    let dir = tempfile::tempdir().unwrap();
    let talk = conversation();
    let capture =
        write_file(dir.path(), "capture", &pcap(Order::Little, 1000, Link::Ethernet, talk.frames()));
    let hint = "frames goes to or comes from port 3307: name the server's port with --port.";
    assert!(report(&capture, 3307).contains(hint));
    assert!(!report(&capture, 3306).contains("--port"));
}
