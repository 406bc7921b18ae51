//! Tests that captures are sent on a device completely, and that packets that cannot be sent are reported.
//!
//! Between two network namespaces of the test's own; skipped visibly without root.

use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use toll_wire::packet_builder::{self, AddressPair, ETHERTYPE_V4, IpHeader};
use toll_wire::pcap::{Frame, write};

const TOLL: &str = env!("CARGO_BIN_EXE_toll");
const DEVICE: &str = "link0";

/// Two namespaces joined by a veth pair, removed with the test.
struct Link {
    send: String,
    receive: String,
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Link {
    /// `None`, with a message, if this user may not make one.
    fn new(name: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            toll_testkit::skip!("a link of the test's own needs root");
            return None;
        }
        let [send, receive] = ["s", "r"].map(|end| format!("tolltest-{}-{name}-{end}", std::process::id()));
        for namespace in [&send, &receive] {
            ip(&["netns", "add", namespace]);
            let quiet = "net.ipv6.conf.default.disable_ipv6=1";
            ip(&["netns", "exec", namespace, "sysctl", "-q", "-w", quiet]);
        }
        ip(&["-n", &send, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", &receive]);
        for namespace in [&send, &receive] {
            ip(&["-n", namespace, "link", "set", DEVICE, "up"]);
        }
        Some(Self { send, receive })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.send, TOLL, "replay"]).args(args).stdin(Stdio::null());
        command
    }

    fn replay(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn received(&self) -> u64 {
        let at = format!("/sys/class/net/{DEVICE}/statistics/rx_packets");
        let read = Command::new("ip").args(["netns", "exec", &self.receive, "cat", &at]).output().unwrap();
        String::from_utf8(read.stdout).unwrap().trim().parse().unwrap()
    }

    /// Starts a capture of that many packets at the other end, decoded with all checks.
    fn decoded(&self, packets: u64) -> Child {
        let mut child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.receive,
                "tcpdump",
                "-i",
                DEVICE,
                "-nn",
                "-vv",
                "-c",
                &packets.to_string(),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut words, &mut line).unwrap() > 0, "tcpdump ended early");
        }
        // It counts its packets at the end, and must find somebody to tell.
        std::thread::spawn(move || std::io::copy(&mut words, &mut std::io::sink()));
        child
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for namespace in [&self.send, &self.receive] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

/// A capture of UDP packets with correct checksums, a millisecond apart. `lengths` are those of whole frames.
fn capture(lengths: &[usize], snap: usize) -> Vec<u8> {
    let mut file = write::encode_pcap_header(1).to_vec();
    for (i, &length) in (0..).zip(lengths) {
        let whole = frame(length);
        let frame = Frame {
            time_ns: 1_700_000_000_000_000_000 + i * 1_000_000,
            link: toll_wire::pcap::Link::Ethernet,
            wire_len: length as u32,
            bytes: &whole[..length.min(snap)],
        };
        write::append_pcap_record(&mut file, &frame).unwrap();
    }
    file
}

fn frame(length: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    packet_builder::append_ethernet(&mut frame, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], None, ETHERTYPE_V4);
    let ends = AddressPair {
        source: "10.1.0.1:12345".parse().unwrap(),
        destination: "10.2.0.1:12346".parse().unwrap(),
    };
    let headers = 14 + 20 + 8;
    packet_builder::append_udp(
        &mut frame,
        &IpHeader { addresses: ends, ttl: 64, id: 0 },
        &vec![0x5a; length - headers],
    );
    frame
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr_text(output)))
}

#[test]
fn every_packet_that_is_said_to_be_sent_arrives() {
    let (lab, Some(link)) = (toll_testkit::lab!(), Link::new("all")) else { return };
    let file = lab.path("a.pcap");
    std::fs::write(&file, capture(&[60, 300, 1514, 99], usize::MAX)).unwrap();
    let modes: [&[&str]; 4] = [
        &["--mbps", "20"],
        &["--pps", "5000"],
        // As recorded: 4 packets in 4 ms.
        &["--multiplier", "4"],
        &["--topspeed"],
    ];
    for mode in modes {
        let before = link.received();
        let args = [&[file.as_str(), "-i", DEVICE, "--loop", "250", "--json"], mode].concat();
        let output = link.replay(&args);
        let report = report(&output);
        assert_eq!((&report["packets"], &report["bytes"]), (&1_000.into(), &493_250.into()), "{report}");
        assert_eq!(link.received() - before, 1_000, "{mode:?}: {report}");
        let is_paced = mode != ["--topspeed"];
        assert_eq!(report["lateness_us"].is_object(), is_paced, "{report}");
        assert_eq!(report["window_errors"].as_array().is_some_and(|e| !e.is_empty()), is_paced, "{report}");
    }
    // By count, and by time.
    let limited = report(
        &link.replay(&[&file, "-i", DEVICE, "--loop", "0", "--limit", "7", "--pps", "1000", "--json"]),
    );
    assert_eq!(limited["packets"], 7);
    let timed =
        link.replay(&[&file, "-i", DEVICE, "--loop", "0", "--duration", "200ms", "--pps", "1000", "--json"]);
    let packets = report(&timed)["packets"].as_u64().unwrap();
    assert!((1..=200).contains(&packets), "{packets}");
}

#[test]
fn each_time_through_has_flows_of_its_own_and_checksums_that_are_right() {
    let (lab, Some(link)) = (toll_testkit::lab!(), Link::new("uniq")) else { return };
    let file = lab.path("a.pcap");
    std::fs::write(&file, capture(&[60, 301, 1514], usize::MAX)).unwrap();
    let seen = link.decoded(9);
    let output = link.replay(&[&file, "-i", DEVICE, "--loop", "3", "--unique-ip", "--pps", "1000"]);
    assert!(output.stdout.starts_with(b"asked 1000.000 packets/s, sent "), "{output:?}");
    let text = String::from_utf8(seen.wait_with_output().unwrap().stdout).unwrap();
    for round in 1..=3 {
        let flow = format!("10.1.0.{round}.12345 > 10.2.0.{round}.12346");
        assert_eq!(text.matches(&flow).count(), 3, "{flow} in {text}");
    }
    assert_eq!(text.matches("[udp sum ok]").count(), 9, "{text}");
    assert!(!text.contains("bad cksum"), "{text}");
}

#[test]
fn stamped_packets_have_checksums_that_are_right_each_time_through() {
    let (lab, Some(link)) = (toll_testkit::lab!(), Link::new("stamp")) else { return };
    let file = lab.path("a.pcap");
    // The first has no room for a stamp.
    std::fs::write(&file, capture(&[61, 62, 301, 1514], usize::MAX)).unwrap();
    let seen = link.decoded(12);
    let args =
        [file.as_str(), "-i", DEVICE, "--loop", "3", "--stamp", "--unique-ip", "--pps", "1000", "--json"];
    assert_eq!(report(&link.replay(&args))["packets"], 12);
    let text = String::from_utf8(seen.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(text.matches("[udp sum ok]").count(), 12, "{text}");
    assert!(!text.contains("bad cksum"), "{text}");
}

#[test]
fn what_cannot_be_sent_is_told_and_nothing_is_sent() {
    let (lab, Some(link)) = (toll_testkit::lab!(), Link::new("bad")) else { return };
    let put = |name: &str, bytes: &[u8]| {
        let path = lab.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let good = capture(&[60, 300], usize::MAX);
    let whole = put("good.pcap", &good);
    let snapped = put("snapped.pcap", &capture(&[60, 300, 700], 96));
    let jumbo = put("jumbo.pcap", &capture(&[60, 9_014, 9_014], usize::MAX));
    let mut cooked = good.clone();
    cooked[20] = 113;
    let cooked = put("cooked.pcap", &cooked);
    let mut hostile = good.clone();
    hostile[24 + 16 + 60 + 8..24 + 16 + 60 + 12].fill(0xff);
    let hostile = put("hostile.pcap", &hostile);
    let text = put("slow.log", b"# Time: 2026-01-01\nnothing\n");
    let empty = put("empty.pcap", &good[..24]);
    let cases: [(&[&str], &str); 11] = [
        (&[&snapped, "-i", DEVICE], "2 of 3 packets were captured only in part: --snapped pad"),
        (
            &[&jumbo, "-i", DEVICE],
            "2 of 3 packets are longer than link0 carries (MTU 1500): --skip-oversized",
        ),
        (&[&cooked, "-i", DEVICE], "its frames are not Ethernet's but LinuxSll"),
        (&[&hostile, "-i", DEVICE], "byte 100 of the capture"),
        (&[&text, "-i", DEVICE], "it is neither pcap nor pcapng"),
        (&[&empty, "-i", DEVICE], "there is no packet to send"),
        (&["/no/such.pcap", "-i", DEVICE], "check the path"),
        (&["/tmp", "-i", DEVICE], "is a directory"),
        (&[&whole, "-i", "nothere0"], "there is no network device nothere0; there are "),
        (&[&whole, "-i", DEVICE, "--loop", "0"], "--loop 0 never ends by itself"),
        (&[&whole, "-i", "lo"], "lo is down: ip link set lo up"),
    ];
    let before = link.received();
    for (args, told) in cases {
        let output = link.replay(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        assert!(stderr_text(&output).contains(told), "{args:?}: {}", stderr_text(&output));
    }
    assert_eq!(link.received(), before);
    for wrong in [
        &[whole.as_str()][..],
        &[&whole, "-i", DEVICE, "--mbps", "0"],
        &[&whole, "-i", DEVICE, "-t", "-M", "1"],
    ] {
        assert_eq!(link.replay(wrong).status.code(), Some(2), "{wrong:?}");
    }
    // By option they are sent, and counted.
    let sent =
        |args: &[&str]| report(&link.replay(&[args, &["-i", DEVICE, "--json", "--pps", "1000"]].concat()));
    let padded = sent(&[&snapped, "--snapped", "pad"]);
    assert_eq!(
        (&padded["packets"], &padded["bytes"], &padded["snapped"]),
        (&3.into(), &1_060.into(), &2.into())
    );
    assert_eq!(sent(&[&snapped, "--snapped", "send"])["bytes"], 60 + 96 + 96);
    let skipped = sent(&[&snapped, "--snapped", "skip"]);
    assert_eq!((&skipped["packets"], &skipped["skipped"]), (&1.into(), &2.into()));
    assert_eq!(sent(&[&jumbo, "--skip-oversized"])["skipped"], 2);
    // Cut short: what is whole is sent.
    let cut = put("cut.pcap", &good[..good.len() - 5]);
    let output = link.replay(&[&cut, "-i", DEVICE, "--json"]);
    assert_eq!(report(&output)["packets"], 1);
    assert!(
        stderr_text(&output).contains("cut.pcap ends within a record, which is left out"),
        "{}",
        stderr_text(&output)
    );
}

#[test]
fn a_device_that_leads_to_other_hosts_is_refused_unless_it_is_meant() {
    let (lab, Some(link)) = (toll_testkit::lab!(), Link::new("route")) else { return };
    let file = lab.path("a.pcap");
    std::fs::write(&file, capture(&[60], usize::MAX)).unwrap();
    ip(&["-n", &link.send, "address", "add", "10.9.9.1/24", "dev", DEVICE]);
    ip(&["-n", &link.send, "route", "add", "default", "via", "10.9.9.2"]);
    let refused = link.replay(&[&file, "-i", DEVICE]);
    assert_eq!(refused.status.code(), Some(1));
    let said = stderr_text(&refused);
    assert!(said.contains("link0 leads to other hosts (it carries the default route)"), "{said}");
    ip(&["-n", &link.send, "route", "del", "default"]);
    ip(&["-n", &link.send, "route", "add", "10.8.0.0/16", "via", "10.9.9.2"]);
    let said = stderr_text(&link.replay(&[&file, "-i", DEVICE]));
    assert!(said.contains("link0 leads to other hosts (a route through it has a gateway)"), "{said}");
    let meant = link.replay(&[&file, "-i", DEVICE, "--yes-this-interface", "--json"]);
    assert_eq!(report(&meant)["packets"], 1);
}

/// Starts a replay of at most a minute, unless something ends it.
fn under_way(link: &Link, file: &str) -> Child {
    let before = link.received();
    let child = link
        .command(&[file, "-i", DEVICE, "--loop", "0", "--duration", "60s", "--pps", "2000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while link.received() < before + 50 {
        assert!(begun.elapsed() < Duration::from_secs(50), "nothing is sent");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn a_device_that_goes_down_or_away_midway_and_an_interrupt_end_it_with_what_was_sent() {
    let (lab, Some(link)) = (toll_testkit::lab!(), Link::new("mid")) else { return };
    let file = lab.path("a.pcap");
    std::fs::write(&file, capture(&[60, 61], usize::MAX)).unwrap();
    let before = link.received();
    let child = under_way(&link, &file);
    // ip execs toll: the child is toll itself.
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let interrupted = child.wait_with_output().unwrap();
    assert_eq!(interrupted.status.code(), Some(130), "{interrupted:?}");
    let said = report(&interrupted);
    assert_eq!(
        (said["packets"].as_u64(), &said["complete"]),
        (Some(link.received() - before), &false.into())
    );

    let child = under_way(&link, &file);
    ip(&["-n", &link.send, "link", "set", DEVICE, "down"]);
    let down = child.wait_with_output().unwrap();
    assert_eq!(down.status.code(), Some(1), "{down:?}");
    assert!(stderr_text(&down).contains("link0 went down; "), "{}", stderr_text(&down));
    ip(&["-n", &link.send, "link", "set", DEVICE, "up"]);

    let child = under_way(&link, &file);
    ip(&["-n", &link.send, "link", "del", DEVICE]);
    let gone = child.wait_with_output().unwrap();
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    assert!(
        stderr_text(&gone).contains("link0 is gone; ") || stderr_text(&gone).contains("link0 went down; "),
        "{}",
        stderr_text(&gone)
    );
}

#[test]
fn without_the_right_to_a_packet_socket_it_says_which_is_lacking() {
    if !nix::unistd::geteuid().is_root() {
        toll_testkit::skip!("taking rights away needs root");
        return;
    }
    let lab = toll_testkit::lab!();
    let file = lab.path("a.pcap");
    std::fs::write(&file, capture(&[60], usize::MAX)).unwrap();
    let output = Command::new("setpriv")
        .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", TOLL, "replay", &file, "-i", "lo"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        stderr_text(&output).contains("run as root, or give the binary cap_net_raw"),
        "{}",
        stderr_text(&output)
    );
}
