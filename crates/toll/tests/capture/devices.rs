//! On devices other than loopback: both directions, once each, with their tags; and devices that go away.
//!
//! Between two network namespaces of the test's own.

use crate::live::{Dir, Ended, Live, Packet, lacks, lacks_root, read, reads};
use std::process::{Child, Command, Stdio};
use toll_wire::frame::{FIN, RST, SYN};
use toll_wire::pcap::Link as Form;

const DEVICE: &str = "link0";
const TAGGED: &str = "link0.100";
const PORT: u16 = 3306;

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A client's namespace and a server's, joined by a veth pair and, on it, by VLAN 100; gone with the test.
struct Pair {
    client: String,
    server: String,
    dir: Dir,
}

/// The server's addresses.
const PLAIN: &str = "10.198.0.2";
const ON_VLAN: &str = "10.198.1.2";
const HERE: &str = "127.0.0.1";

impl Pair {
    /// `None`, said aloud, where this cannot be made.
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
            ip(&[
                "-n", namespace, "link", "add", "link", DEVICE, "name", TAGGED, "type", "vlan", "id", "100",
            ]);
            ip(&["-n", namespace, "link", "set", TAGGED, "up"]);
            ip(&["-n", namespace, "address", "add", &format!("10.198.0.{end}/24"), "dev", DEVICE]);
            ip(&["-n", namespace, "address", "add", &format!("10.198.1.{end}/24"), "dev", TAGGED]);
        }
        Some(pair)
    }

    /// A capture where the server is.
    fn capture(&self, device: &str, file: &str) -> Live {
        Live::start_by(&["ip", "netns", "exec", &self.server], &["-i", device, "-w", file])
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

/// Each packet once, questions whole, answers cut: of so many conversations.
#[track_caller]
fn assert_heard(packets: &[Packet], conversations: usize) {
    let segments: Vec<_> = packets.iter().map(Packet::segment).collect();
    let to_server = || segments.iter().filter(|(_, to, ..)| *to == PORT);
    let from_server = || segments.iter().filter(|(from, ..)| *from == PORT);
    assert_eq!(to_server().count() + from_server().count(), packets.len());
    assert!(segments.iter().all(|(_, _, flags, _, length)| *length > 0 || flags & (FIN | SYN | RST) != 0));
    let opens = |flags: &u8| flags & SYN != 0;
    // Those that nobody answered with SYN, too, came before the server listened.
    assert_eq!(from_server().filter(|(_, _, flags, ..)| opens(flags)).count(), conversations);
    let said: Vec<u8> = to_server().flat_map(|(_, _, _, payload, _)| payload.clone()).collect();
    assert!(said == question().repeat(conversations), "{} bytes", said.len());
    let heard: u32 = from_server().map(|(_, _, _, _, length)| length).sum();
    assert_eq!(heard as usize, answer().len() * conversations);
    let kept: usize = from_server().map(|(_, _, _, payload, _)| payload.len()).sum();
    assert!(kept > 0 && kept < heard as usize / 2, "{kept} of {heard}");
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
fn a_real_device_shows_questions_and_answers_once_each_with_their_tags() {
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
        assert_heard(&packets, conversations.len());
        for (program, arguments) in [("tcpdump", &["-nn", "-r"][..]), ("tshark", &["-n", "-r"])] {
            if !lacks(program) {
                reads(program, &[arguments, &[&file]].concat());
            }
        }
        (file, packets)
    };
    let (client, server) = (pair.client.as_str(), pair.server.as_str());
    let (_, packets) = run("plain", DEVICE, &[(client, PLAIN)]);
    assert_eq!(tags(&packets), [0]);
    let (file, packets) = run("tagged", DEVICE, &[(client, ON_VLAN)]);
    assert_eq!(tags(&packets), [100]);
    if !lacks("tshark") {
        let ids = reads("tshark", &["-r", &file, "-T", "fields", "-e", "vlan.id"]);
        assert!(ids.lines().all(|id| id == "100"), "{ids}");
    }
    // Where the device cannot tag by itself, the tag stands in what leaves.
    if !lacks("ethtool") {
        let off = ["netns", "exec", server, "ethtool", "-K", DEVICE, "tx-vlan-hw-insert", "off"];
        ip(&off);
        let (_, packets) = run("in-software", DEVICE, &[(client, ON_VLAN)]);
        assert_eq!(tags(&packets), [100]);
    }
    // On all devices at once loopback shows each packet twice, of which one is taken.
    let (_, packets) = run("any", "any", &[(client, PLAIN), (server, HERE)]);
    assert_eq!(tags(&packets), [0]);
}

#[track_caller]
fn assert_ended_with(ended: &Ended, text: &str) {
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
    assert_heard(&packets, 2);
}

#[test]
fn a_device_that_is_down_is_said_to_be() {
    let Some(pair) = Pair::new("down") else { return };
    ip(&["-n", &pair.server, "link", "set", DEVICE, "down"]);
    let file = pair.dir.path("down.pcapng");
    let before = ["ip", "netns", "exec", &pair.server];
    let output = crate::live::command(&before, &["-i", DEVICE, "-w", &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("link0 is down: ip link set link0 up"), "{said}");
}
