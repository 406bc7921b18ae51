//! Tests of the bytes of a conversation that a capture keeps.

use super::live::{
    Dir, LiveCapture, Packet, converse, free_port, lacks, lacks_root, payloads_to, program_output, read,
    send_query,
};
use std::net::SocketAddr;
use toll_wire::frame::SYN;
use toll_wire::pcap::Link;

/// Answers of a server: a greeting, an OK, an error, a result, each in a write of its own.
fn answers() -> [(&'static str, Vec<u8>, usize); 4] {
    let answer = |sequence: u8, first: u8, length: usize| {
        let mut answer = vec![b'.'; length];
        (answer[3], answer[4]) = (sequence, first);
        answer
    };
    [
        ("a greeting", answer(0, 10, 300), 300),
        ("an OK", answer(1, 0, 300), 128),
        ("an error", answer(1, 0xff, 400), 400),
        ("a result", answer(1, 3, 40_000), 32),
    ]
}

#[test]
fn what_clients_say_is_kept_whole_and_of_answers_the_head() {
    if lacks_root() {
        return;
    }
    let question: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    for (address, name) in [("127.0.0.1", "v4"), ("::1", "v6")] {
        for (kind, answer, kept) in answers() {
            for snap in [None, Some("50")] {
                let dir = Dir::new();
                let file = dir.path("kept.pcapng");
                let port = free_port(address);
                let port_text = port.to_string();
                let mut arguments = vec!["-w", &file, "--port", &port_text];
                if let Some(snap) = snap {
                    arguments.extend(["--snap-server", snap]);
                }
                let capture = LiveCapture::start(&arguments);
                let at = SocketAddr::new(address.parse().unwrap(), port);
                converse(at, &question, &answer);
                let captured = capture.end().assert_whole();
                let case = format!("{name}, {kind}, {snap:?}");
                let (packets, dropped) = read(&file);
                assert_eq!((packets.len() as u64, dropped), (captured, Some(0)), "{case}");
                let segments: Vec<_> = packets.iter().map(Packet::segment).collect();
                assert!(packets.iter().all(|packet| packet.link == Link::Raw && !packet.is_bare()), "{case}");
                let opened = segments.iter().filter(|segment| segment.flags & SYN != 0).count();
                assert_eq!(opened, 2, "{case}: each packet is seen once");
                assert!(payloads_to(port, &segments) == [&question[..]], "{case}");
                let kept = snap.map_or(kept, |snap| snap.parse().unwrap()).min(answer.len());
                let heard: Vec<_> = segments.iter().filter(|s| s.from == port && s.length > 0).collect();
                assert_eq!(heard[0].payload, answer[..kept.min(heard[0].length)], "{case}");
                assert!(heard.iter().map(|segment| segment.length).sum::<usize>() >= answer.len(), "{case}");
            }
        }
    }
}

#[test]
fn several_ports_are_watched_at_once_and_no_other() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let file = dir.path("ports.pcapng");
    let [a, b, other] = ["127.0.0.1"; 3].map(free_port);
    let capture = LiveCapture::start(&["-w", &file, "--port", &format!("{a},{b}")]);
    for port in [a, b, other] {
        send_query(port, b"question");
    }
    let captured = capture.end().assert_whole();
    let (packets, _) = read(&file);
    assert_eq!(packets.len() as u64, captured);
    let servers: Vec<u16> = packets
        .iter()
        .map(|packet| {
            let segment = packet.segment();
            if [a, b, other].contains(&segment.to) { segment.to } else { segment.from }
        })
        .collect();
    assert!(servers.contains(&a) && servers.contains(&b) && !servers.contains(&other), "{servers:?}");
}

#[test]
fn times_are_the_hosts_and_tools_find_nothing_to_complain_of() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let file = dir.path("times.pcapng");
    let port = free_port("127.0.0.1");
    let now_ns = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let before = now_ns();
    let capture = LiveCapture::start(&["-w", &file, "--port", &port.to_string()]);
    send_query(port, b"question");
    capture.end().assert_whole();
    let (packets, _) = read(&file);
    let times: Vec<u64> = packets.iter().map(|packet| packet.time_ns).collect();
    assert!(times.is_sorted() && times[0] > before && times[times.len() - 1] < now_ns(), "{times:?}");
    for (program, arguments) in
        [("tcpdump", &["-nn", "-r"][..]), ("tshark", &["-n", "-r"]), ("capinfos", &[])]
    {
        if !lacks(program) {
            program_output(program, &[arguments, &[&file]].concat());
        }
    }
}
