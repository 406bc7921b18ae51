//! Tests on devices other than loopback: both directions, once each, with VLAN tags; and devices that go
//! away.
//!
//! Between two network namespaces of the test's own.

use super::live::{
    Dir, EndedCapture, LiveCapture, Packet, Segment, lacks, lacks_root, payloads_to, program_output, read,
};
use std::process::{Child, Command, Stdio};
use toll_wire::frame::SYN;
use toll_wire::packet_builder::{self, AddressPair, IpHeader, TcpHeader};
use toll_wire::pcap::Link as Form;

const DEVICE: &str = "link0";
const PORT: u16 = 3306;

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A client's namespace and a server's, joined by a veth pair; gone with the test.
struct Pair {
    client: String,
    server: String,
    dir: Dir,
}

/// The server's addresses.
const PLAIN: &str = "10.198.0.2";
const HERE: &str = "127.0.0.1";

impl Pair {
    /// `None`, with a message, if this cannot be made.
    fn new(name: &str) -> Option<Self> {
        if lacks_root() || lacks("nc") {
            return None;
        }
        let [client, server] = ["c", "s"].map(|end| format!("tolltest-{}-{name}-{end}", std::process::id()));
        let pair = Self { client, server, dir: Dir::new() };
        for namespace in [&pair.client, &pair.server] {
            ip(&["netns", "add", namespace]);
            let quiet = "net.ipv6.conf.default.disable_ipv6=1";
            ip(&["netns", "exec", namespace, "sysctl", "-q", "-w", quiet]);
        }
        let (client, server) = (&pair.client, &pair.server);
        ip(&["-n", client, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", server]);
        for (namespace, end) in [(client, "1"), (server, "2")] {
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
            ip(&["-n", namespace, "link", "set", DEVICE, "up"]);
            ip(&["-n", namespace, "address", "add", &format!("10.198.0.{end}/24"), "dev", DEVICE]);
        }
        Some(pair)
    }

    /// Starts a capture in the server's namespace.
    fn capture(&self, device: &str, file: &str) -> LiveCapture {
        LiveCapture::start_by(&["ip", "netns", "exec", &self.server], &["-i", device, "-w", file])
    }

    fn nc(&self, namespace: &str, says: &[u8], arguments: &[&str]) -> Child {
        let words = self.dir.path(&format!("says-{}", says.len()));
        std::fs::write(&words, says).unwrap();
        Command::new("ip")
            .args(["netns", "exec", namespace, "nc", "-N"])
            .args(arguments)
            .stdin(std::fs::File::open(&words).unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// A conversation with the server at `address`, from `namespace`.
    fn converse(&self, namespace: &str, address: &str, question: &[u8], answer: &[u8]) {
        let mut server = self.nc(&self.server, answer, &["-l", address, &PORT.to_string()]);
        // It may not listen yet.
        while !self.nc(namespace, question, &[address, &PORT.to_string()]).wait().unwrap().success() {
            assert!(server.try_wait().unwrap().is_none(), "the server has ended");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(server.wait().unwrap().success());
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for namespace in [&self.client, &self.server] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

fn question() -> Vec<u8> {
    (0..100_000u32).map(|i| (i % 251) as u8).collect()
}

fn answer() -> Vec<u8> {
    let mut answer = vec![b'.'; 40_000];
    (answer[3], answer[4]) = (1, 3);
    answer
}

/// Checks the packets of that many conversations: each once, questions whole, answers cut.
#[track_caller]
fn assert_captured(packets: &[Packet], conversations: usize) {
    let segments: Vec<Segment> = packets.iter().map(Packet::segment).collect();
    assert!(segments.iter().all(|segment| segment.to == PORT || segment.from == PORT));
    assert!(!packets.iter().any(Packet::is_bare));
    // Of those that came before the server listened nothing was said.
    let mut said = payloads_to(PORT, &segments);
    said.retain(|bytes| !bytes.is_empty());
    assert!(said == vec![question(); conversations], "{} conversations", said.len());
    let answers = || segments.iter().filter(|segment| segment.from == PORT);
    assert_eq!(answers().filter(|segment| segment.flags & SYN != 0).count(), conversations);
    let length: usize = answers().map(|segment| segment.length).sum();
    let kept: usize = answers().map(|segment| segment.payload.len()).sum();
    assert!(length >= answer().len() * conversations && kept > 0 && kept < length / 2, "{kept} of {length}");
}

/// VLAN tags of all packets, 0 for none.
fn tags(packets: &[Packet]) -> Vec<u16> {
    let tag = |packet: &Packet| match packet.bytes[14..16] {
        [0x81, 0] => u16::from_be_bytes([packet.bytes[16], packet.bytes[17]]) & 0xfff,
        _ => 0,
    };
    let mut tags: Vec<u16> = packets.iter().map(tag).collect();
    tags.dedup();
    tags
}

#[test]
fn a_real_device_shows_questions_and_answers_once_each() {
    let Some(pair) = Pair::new("veth") else { return };
    let run = |name: &str, device: &str, conversations: &[(&str, &str)]| {
        let file = pair.dir.path(name);
        let capture = pair.capture(device, &file);
        for (namespace, address) in conversations {
            pair.converse(namespace, address, &question(), &answer());
        }
        let captured = capture.end().assert_whole();
        let (packets, _) = read(&file);
        assert_eq!(packets.len() as u64, captured, "{name}");
        assert!(packets.iter().all(|packet| packet.link == Form::LinuxSll), "{name}");
        assert_captured(&packets, conversations.len());
        for (program, arguments) in [("tcpdump", &["-nn", "-r"][..]), ("tshark", &["-n", "-r"])] {
            if !lacks(program) {
                program_output(program, &[arguments, &[&file]].concat());
            }
        }
        packets
    };
    let (client, server) = (pair.client.as_str(), pair.server.as_str());
    let packets = run("plain", DEVICE, &[(client, PLAIN)]);
    assert_eq!(tags(&packets), [0]);
    // On all devices at once loopback shows each packet twice, of which one is taken.
    let packets = run("any", "any", &[(client, PLAIN), (server, HERE)]);
    assert_eq!(tags(&packets), [0]);
}

/// Program that sends frames through the queue disciplines. Taps miss frames that bypass them, as `toll
/// replay` does.
const SENDER: &str = "
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    out.send(bytes.fromhex(frame))
";

/// A question and an answer on VLAN 100, as frames on the wire.
fn tagged() -> [String; 2] {
    let ends = ["10.198.0.1:44000", "10.198.0.2:3306"].map(|end| end.parse().unwrap());
    [(ends[0], ends[1], question()), (ends[1], ends[0], answer())].map(|(source, destination, payload)| {
        let mut bytes = Vec::new();
        packet_builder::append_ethernet(
            &mut bytes,
            [0xff; 6],
            [2; 6],
            Some(100),
            packet_builder::ETHERTYPE_V4,
        );
        let ip = IpHeader { addresses: AddressPair { source, destination }, ttl: 64, id: 1 };
        let tcp = TcpHeader { seq: 1, ack: 1, flags: 0x18, window: 500, options: &[] };
        packet_builder::append_tcp(&mut bytes, &ip, &tcp, &payload[..1000]);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    })
}

#[test]
fn tags_that_the_kernel_took_off_are_there_again_whichever_way_a_packet_goes() {
    let Some(pair) = Pair::new("vlan") else { return };
    if lacks("python3") {
        return;
    }
    let [forth, back] = tagged();
    // What comes loses its tag before it is seen; what leaves has it in the frame still.
    for (namespace, way) in [(&pair.client, "comes"), (&pair.server, "leaves")] {
        let file = pair.dir.path(&format!("tagged-{way}"));
        let capture = pair.capture(DEVICE, &file);
        ip(&["netns", "exec", namespace, "python3", "-c", SENDER, DEVICE, &forth, &back]);
        assert_eq!(capture.end().assert_whole(), 2, "{way}");
        let (packets, _) = read(&file);
        assert_eq!(tags(&packets), [100], "{way}");
        let segments: Vec<Segment> = packets.iter().map(Packet::segment).collect();
        assert_eq!((segments[0].to, &segments[0].payload[..]), (PORT, &question()[..1000]), "{way}");
        assert_eq!((segments[1].from, &segments[1].payload[..]), (PORT, &answer()[..32]), "{way}");
        if !lacks("tshark") {
            let ids =
                program_output("tshark", &["-r", &file, "-T", "fields", "-e", "vlan.id", "-e", "tcp.len"]);
            assert_eq!(ids, "100\t1000\n100\t1000\n", "{way}");
        }
    }
}

#[track_caller]
fn assert_ended_with(ended: &EndedCapture, text: &str) {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.said);
    assert!(ended.said.contains(text), "{}", ended.said);
}

#[test]
fn a_device_that_goes_away_ends_the_capture_and_one_that_comes_back_does_not() {
    let Some(pair) = Pair::new("gone") else { return };
    let file = pair.dir.path("gone.pcapng");
    let capture = pair.capture(DEVICE, &file);
    pair.converse(&pair.client, PLAIN, &question(), &answer());
    for state in ["down", "up"] {
        ip(&["-n", &pair.server, "link", "set", DEVICE, state]);
    }
    pair.converse(&pair.client, PLAIN, &question(), &answer());
    ip(&["-n", &pair.server, "link", "del", DEVICE]);
    let ended = capture.wait();
    assert_ended_with(&ended, "the device link0 is gone; what was captured until then is whole");
    let captured = ended.ledger()["captured"].as_u64().unwrap();
    let (packets, _) = read(&file);
    assert_eq!(packets.len() as u64, captured);
    assert_captured(&packets, 2);
}

#[test]
fn a_device_that_is_down_is_said_to_be() {
    let Some(pair) = Pair::new("down") else { return };
    ip(&["-n", &pair.server, "link", "set", DEVICE, "down"]);
    let file = pair.dir.path("down.pcapng");
    let before = ["ip", "netns", "exec", &pair.server];
    let output = super::live::command(&before, &["-i", DEVICE, "-w", &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("link0 is down: ip link set link0 up"), "{said}");
}
