//! Tests of the filter program in our own interpreter and in the kernel.

use super::*;
use proptest::prelude::*;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

/// What the kernel knows of a packet beside its bytes.
#[derive(Debug, Clone, Copy)]
struct PacketMetadata {
    protocol: u32,
    kind: u32,
    hardware: u32,
}

const IP_COMING: PacketMetadata = PacketMetadata { protocol: 0x0800, kind: 0, hardware: 1 };

/// Classic BPF (Documentation/networking/filter.rst): as much of it as programs here use. A load beyond the packet
/// ends the program with 0.
fn run(program: &[Instruction], packet: &[u8], about: PacketMetadata) -> u32 {
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; 16], 0usize);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        let code = u32::from(code);
        at += 1;
        let load = |from: u32, bytes: usize| {
            let from = from as usize;
            let found = packet.get(from..from + bytes)?;
            Some(found.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
        };
        let loaded = match code & 0x07 {
            0 | 1 => match (code & 0xe0, code & 0x18) {
                (0x20, 0) if k == (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL).cast_unsigned() => {
                    Some(about.protocol)
                }
                (0x20, 0) if k == (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned() => {
                    Some(about.kind)
                }
                (0x20, 0) if k == (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE).cast_unsigned() => {
                    Some(about.hardware)
                }
                (0x20, 0x10) => load(k, 1),
                (0x20, 0x08) => load(k, 2),
                (0x40, 0x10) => load(x + k, 1),
                (0x40, 0x08) => load(x + k, 2),
                (0x80, 0) => Some(packet.len() as u32),
                (0x60, 0) => Some(memory[k as usize]),
                (0x00, 0) => Some(k),
                (0xa0, 0x10) => load(k, 1).map(|byte| (byte & 0x0f) * 4),
                other => panic!("no such load: {other:?}"),
            },
            2 => {
                memory[k as usize] = a;
                continue;
            }
            4 => {
                let operand = if code & BPF_X != 0 { x } else { k };
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x50 => a & operand,
                    0x70 => a >> operand,
                    other => panic!("no such arithmetic: {other:#x}"),
                };
                continue;
            }
            5 => {
                let operand = if code & BPF_X != 0 { x } else { k };
                let holds = match code & 0xf0 {
                    0x00 => {
                        at += k as usize;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x40 => a & operand != 0,
                    other => panic!("no such comparison: {other:#x}"),
                };
                at += usize::from(if holds { jt } else { jf });
                continue;
            }
            6 => return if code & 0x18 == BPF_A { a } else { k },
            _ => {
                if code & 0x80 != 0 {
                    a = x;
                } else {
                    x = a;
                }
                continue;
            }
        };
        let Some(loaded) = loaded else { return 0 };
        if code & 0x07 == 1 { x = loaded } else { a = loaded }
    }
}

/// The same decision in plain words: bytes kept, 0 for a packet that is left out.
fn expect_decision(filter: &PacketFilter, family: IpFamily, packet: &[u8], about: PacketMetadata) -> u32 {
    decide(filter, family, packet, about).unwrap_or(0)
}

fn decide(filter: &PacketFilter, family: IpFamily, packet: &[u8], about: PacketMetadata) -> Option<u32> {
    let half = |at: usize| packet.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let byte = |at: usize| packet.get(at).copied();
    if family == IpFamily::BothOnAnyDevice && about.kind == 4 && about.hardware == 772 {
        return None;
    }
    let version = match family {
        IpFamily::V4 => 4,
        IpFamily::V6 => 6,
        IpFamily::Both | IpFamily::BothOnAnyDevice
            if [0x0800, 0x86dd, 0x8100, 0x88a8].contains(&about.protocol) =>
        {
            byte(0)? >> 4
        }
        IpFamily::Both | IpFamily::BothOnAnyDevice => return None,
    };
    let (header, said) = match version {
        4 => {
            if byte(9)? != 6 || half(6)? & 0x1fff != 0 {
                return None;
            }
            (usize::from(byte(0)? & 0x0f) * 4, usize::from(half(2)?))
        }
        6 if byte(6)? == 6 => {
            let said = usize::from(half(4)?);
            (40, if said == 0 { 0 } else { said + 40 })
        }
        _ => return None,
    };
    let length = if said == 0 { packet.len() } else { said };
    let is_ours = |port: u16| filter.ports.contains(&port);
    let to_server = is_ours(half(header + 2)?);
    if !to_server && !is_ours(half(header)?) {
        return None;
    }
    let begins_or_ends = byte(header + 13)? & 0x07 != 0;
    if to_server && begins_or_ends {
        return Some(MAX_SNAP_LEN);
    }
    let payload = header + usize::from(byte(header + 12)? >> 4) * 4;
    if length <= payload {
        return begins_or_ends.then_some(MAX_SNAP_LEN);
    }
    if to_server {
        return Some(MAX_SNAP_LEN);
    }
    let kept = match filter.responses {
        ResponseSnap::Bytes(bytes) => bytes,
        ResponseSnap::ByKind if length - payload < 5 => return Some(MAX_SNAP_LEN),
        ResponseSnap::ByKind => match (byte(payload + 3)?, byte(payload + 4)) {
            (0, _) => 560,
            (_, None) => return None,
            (_, Some(0xff)) => 560,
            (_, Some(0xfe | 0)) => 128,
            _ => 32,
        },
    };
    Some(payload as u32 + kept)
}

/// A packet that may well be of interest: headers mostly right, now and then not.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let ports = prop_oneof![Just(3306u16), Just(3307), Just(44_000), any::<u16>()];
    let flags =
        prop_oneof![Just(0x10u8), Just(0x18), Just(0x02), Just(0x12), Just(0x11), Just(0x04), any::<u8>()];
    let first = prop_oneof![Just(0u8), Just(0xff), Just(0xfe), Just(3), any::<u8>()];
    let payload = (prop_oneof![Just(0usize), 0usize..700], any::<u8>(), 0u8..3, first);
    let shape = (any::<bool>(), 5u8..=15, 5u8..=15, 0u8..4, any::<u16>(), 0usize..8);
    (ports.clone(), ports, flags, payload, shape).prop_map(
        |(source, destination, flags, (length, filler, sequence, first), shape)| {
            let (is_v6, ip_words, tcp_words, odd, noise, cut) = shape;
            let mut tcp = vec![0u8; usize::from(tcp_words) * 4];
            tcp[..2].copy_from_slice(&source.to_be_bytes());
            tcp[2..4].copy_from_slice(&destination.to_be_bytes());
            tcp[12] = tcp_words << 4;
            tcp[13] = flags;
            let mut payload = vec![filler; length];
            if length > 4 {
                payload[3] = sequence;
                payload[4] = first;
            }
            let mut packet = if is_v6 {
                let mut ip = vec![0u8; 40];
                ip[0] = 0x60;
                ip[4..6].copy_from_slice(&((tcp.len() + length) as u16).to_be_bytes());
                ip[6] = 6;
                ip
            } else {
                let mut ip = vec![0u8; usize::from(ip_words) * 4];
                ip[0] = 0x40 | ip_words;
                let total = (ip.len() + tcp.len() + length) as u16;
                ip[2..4].copy_from_slice(&total.to_be_bytes());
                ip[9] = 6;
                ip
            };
            match odd {
                // The length is not said.
                0 => packet[if is_v6 { 4..6 } else { 2..4 }].copy_from_slice(&[0, 0]),
                // Another protocol, a fragment, anything.
                1 if noise < 8_000 => packet[if is_v6 { 6 } else { 9 }] = noise as u8,
                1 if noise < 16_000 => packet[if is_v6 { 0 } else { 6 }] = noise as u8,
                1 if noise < 24_000 => {
                    let at = usize::from(noise) % packet.len();
                    packet[at] = (noise >> 4) as u8;
                }
                _ => {}
            }
            packet.extend(tcp);
            packet.extend(payload);
            if odd == 2 && noise < 8_000 {
                packet.truncate(packet.len().saturating_sub(cut * 17));
            }
            packet
        },
    )
}

fn filters() -> impl Strategy<Value = PacketFilter> {
    let answers = prop_oneof![Just(ResponseSnap::ByKind), (0u32..300).prop_map(ResponseSnap::Bytes)];
    let ports = prop_oneof![Just(vec![3306]), Just(vec![3306, 3307]), Just(vec![3307, 44_000, 1])];
    (ports, answers).prop_map(|(ports, answers)| PacketFilter { ports, responses: answers })
}

fn families() -> impl Strategy<Value = IpFamily> {
    prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6), Just(IpFamily::Both), Just(IpFamily::BothOnAnyDevice)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_program_decides_as_its_description(
        packet in packets(), filter in filters(), family in families(),
        protocol in prop_oneof![Just(0x0800u32), Just(0x86dd), Just(0x8100), Just(0x0806)],
        kind in prop_oneof![Just(0u32), Just(4)], hardware in prop_oneof![Just(1u32), Just(772)],
    ) {
        let about = PacketMetadata { protocol, kind, hardware };
        let program = filter.program(family).unwrap();
        prop_assert_eq!(run(&program, &packet, about), expect_decision(&filter, family, &packet, about));
    }

    /// The kernel cuts a datagram to what the program answers, and drops it for 0. A Unix socket has no link, so
    /// only the programs that ask for none can be tried.
    #[test]
    fn the_kernel_decides_as_the_description(
        packet in packets(), filter in filters(), family in prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)],
    ) {
        prop_assume!(!packet.is_empty());
        let kept = expect_decision(&filter, family, &packet, IP_COMING) as usize;
        prop_assert_eq!(passed(&filter.program(family).unwrap(), &packet), packet.len().min(kept));
    }
}

/// How many bytes of a packet the kernel lets pass.
fn passed(program: &[Instruction], packet: &[u8]) -> usize {
    let (from, to) = UnixDatagram::pair().unwrap();
    to.set_nonblocking(true).unwrap();
    attach(to.as_fd(), program).unwrap();
    from.send(packet).unwrap();
    let mut room = vec![0; 1 << 17];
    match to.recv(&mut room) {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

fn segment(source: u16, destination: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0u8; 40];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
    packet[9] = 6;
    packet[20..22].copy_from_slice(&source.to_be_bytes());
    packet[22..24].copy_from_slice(&destination.to_be_bytes());
    packet[32] = 0x50;
    packet[33] = flags;
    packet.extend(payload);
    packet
}

#[test]
fn queries_are_whole_answers_are_cut_and_bare_acknowledgements_are_left_out() {
    let filter = PacketFilter { ports: vec![3306], responses: ResponseSnap::ByKind };
    let program = filter.program(IpFamily::V4).unwrap();
    let query = segment(44_000, 3306, 0x18, &[b'x'; 50_000]);
    let mut rows = vec![7; 50_000];
    rows[3] = 1;
    let rows = segment(3306, 44_000, 0x18, &rows);
    let mut error = vec![b'e'; 600];
    (error[3], error[4]) = (1, 0xff);
    let error = segment(3306, 44_000, 0x18, &error);
    let cases = [
        (&query, 50_040, "a query"),
        (&rows, 40 + 32, "rows"),
        (&error, 40 + 560, "an error"),
        (&segment(44_000, 3306, 0x10, b""), 0, "an acknowledgement"),
        (&segment(3306, 44_000, 0x10, b""), 0, "a server's acknowledgement"),
        (&segment(44_000, 3306, 0x02, b""), 40, "what opens a connection"),
        (&segment(3306, 44_000, 0x12, b""), 40, "what accepts it"),
        (&segment(44_000, 3306, 0x11, b""), 40, "an end"),
        (&segment(3306, 44_000, 0x04, b""), 40, "a reset"),
        (&segment(44_000, 3305, 0x18, b"xxxxx"), 0, "another port"),
    ];
    for (packet, expected, what) in cases {
        assert_eq!(passed(&program, packet), expected, "{what}");
        assert_eq!(run(&program, packet, IP_COMING).min(packet.len() as u32), expected as u32, "{what}");
    }
    let all = PacketFilter { ports: vec![3306], responses: ResponseSnap::Bytes(128) }
        .program(IpFamily::V4)
        .unwrap();
    assert_eq!(passed(&all, &rows), 40 + 128);
}

#[test]
fn as_many_ports_as_are_promised_fit_and_no_more() {
    let filter = |n: usize| PacketFilter { ports: (1..=n as u16).collect(), responses: ResponseSnap::ByKind };
    for family in [IpFamily::V4, IpFamily::V6, IpFamily::Both, IpFamily::BothOnAnyDevice] {
        let program = filter(MAX_PORTS).program(family).unwrap();
        assert!(program.len() < 4096);
        let last = segment(44_000, MAX_PORTS as u16, 0x18, b"xxxxx");
        let expected = if family == IpFamily::V6 { 0 } else { MAX_SNAP_LEN };
        assert_eq!(run(&program, &last, IP_COMING), expected, "{family:?}");
    }
    assert_eq!(filter(0).program(IpFamily::Both).err(), Some(TooManyPorts(0)));
    assert_eq!(filter(MAX_PORTS + 1).program(IpFamily::Both).err(), Some(TooManyPorts(65)));
}

#[test]
fn a_closed_filter_lets_nothing_pass() {
    assert_eq!(passed(&reject_all(), &segment(44_000, 3306, 0x18, b"select 1")), 0);
}
