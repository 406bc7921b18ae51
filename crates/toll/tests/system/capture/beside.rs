//! Tests of `toll capture` against tcpdump, on a real server under load: the same queries in a fraction of
//! the bytes.

use super::live::{Dir, LiveCapture, Packet, lacks, packets_in, program_output, read};
use crate::captures::printed::digest;
use crate::captures::server::Server;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};
use toll_wire::frame::{FIN, SYN};

/// Counts that both captures must agree on, by fingerprint: queries, and queries with an error.
fn classes(digest: &Value) -> Vec<(String, u64)> {
    let classes = digest["classes"].as_array().unwrap();
    let mut classes: Vec<(String, u64)> = classes
        .iter()
        .map(|class| (class["fingerprint"].as_str().unwrap().to_owned(), class["count"].as_u64().unwrap()))
        .collect();
    classes.sort();
    classes
}

/// pt-query-digest's number of queries in a capture, by fingerprint.
fn by_pt_query_digest(file: &Path, port: u16) -> BTreeMap<String, u64> {
    let mut tcpdump = Command::new("tcpdump")
        .args(["-s", "0", "-x", "-nn", "-q", "-tttt", "-r"])
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // All classes by number: "100%" of the time leaves out those that took none, or not, as the sums round.
    let counted = Command::new("pt-query-digest")
        .args(["--type", "tcpdump", "--watch-server", &format!("127.0.0.1:{port}"), "--output", "json"])
        .args(["--limit", "1000", "--filter", "$event->{cmd} eq 'Query'"])
        .stdin(tcpdump.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(tcpdump.wait().unwrap().success());
    // Before it comes that standard input is read.
    let said = String::from_utf8_lossy(&counted.stdout).into_owned();
    let found: Value = serde_json::from_str(&said[said.find('{').unwrap_or(0)..]).expect(&said);
    let of_class = |class: &Value| {
        let (fingerprint, count) = (class["fingerprint"].as_str().unwrap(), &class["query_count"]);
        (fingerprint.to_owned(), count.as_u64().unwrap())
    };
    found["classes"].as_array().unwrap().iter().map(of_class).collect()
}

/// Number of server packets that acknowledge bytes of no earlier packet.
fn count_reordered_answers(packets: &[Packet], port: u16) -> usize {
    let mut heard: HashMap<u16, u32> = HashMap::new();
    let mut early = 0;
    for packet in packets {
        let segment = packet.segment();
        if segment.to == port {
            let begins = segment.flags & SYN != 0;
            // What begins and what ends a connection has a number too.
            let bare = u32::from(begins) + u32::from(segment.flags & FIN != 0);
            let end = segment.seq.wrapping_add(segment.length as u32 + bare);
            let known = heard.entry(segment.from).or_insert(end);
            if begins || end.wrapping_sub(*known) < u32::MAX / 2 {
                *known = end;
            }
            continue;
        }
        let beyond = heard.get(&segment.to).map_or(0, |heard| segment.ack.wrapping_sub(*heard));
        early += usize::from(beyond > 0 && beyond < u32::MAX / 2);
    }
    early
}

#[test]
fn the_same_queries_as_in_tcpdumps_in_a_fifth_of_its_bytes() {
    let Some(server) = Server::installed(&["tcpdump", "sysbench"], &[]) else { return };
    let port = server.port();
    let loads = [
        ("text", &["--db-ps-mode=disable", "--threads=8", "--events=200", "--time=60"][..]),
        ("prepared", &["--db-ps-mode=auto", "--threads=8", "--events=200", "--time=60"]),
        ("64 connections", &["--db-ps-mode=auto", "--threads=64", "--events=400", "--time=60"]),
    ];
    for (case, load) in loads {
        let dir = Dir::new();
        let file = dir.path("toll.pcapng");
        let (theirs, (captured, file)) = server.capture_while(|| {
            let _ = std::fs::remove_file(&file);
            let capture = LiveCapture::start(&["-w", &file, "--port", &port.to_string()]);
            server.sysbench(load);
            server.wait_until_alone();
            (capture.end().assert_whole(), file.clone())
        });
        let (ours, _) = read(&file);
        assert_eq!(ours.len() as u64, captured, "{case}");

        let (found, expected) = (digest(Path::new(&file), port), digest(&server.capture_file(), port));
        assert_eq!(classes(&found), classes(&expected), "{case}");
        assert_eq!(found["totals"]["queries"], expected["totals"]["queries"], "{case}");
        assert!(found["totals"]["queries"].as_u64().unwrap() > 3000, "{case}: too little to tell anything");
        assert_eq!(
            (&found["totals"]["tainted"], &found["ledger"]["adds_up"]),
            (&0.into(), &true.into()),
            "{case}"
        );

        let bytes = std::fs::metadata(&file).unwrap().len();
        assert!(bytes * 5 < theirs.len() as u64, "{case}: {bytes} bytes, tcpdump's {}", theirs.len());
        eprintln!("{case}: {bytes} bytes, {:.1}% of tcpdump's", bytes as f64 * 100.0 / theirs.len() as f64);

        let (theirs, _) = packets_in(&theirs);
        assert!(theirs.iter().any(Packet::is_bare), "{case}: tcpdump saw no bare acknowledgement either");
        assert!(!ours.iter().any(Packet::is_bare), "{case}");
        assert_eq!(count_reordered_answers(&ours, port), 0, "{case}");

        for (program, arguments) in [("tcpdump", &["-nn", "-r"][..]), ("tshark", &["-n", "-r"])] {
            if !lacks(program) {
                let lines = program_output(program, &[arguments, &[&file]].concat()).lines().count();
                assert_eq!(lines as u64, captured, "{case}: {program}");
            }
        }
        if !lacks("pt-query-digest") {
            let counts =
                [Path::new(&file), &server.capture_file()].map(|file| by_pt_query_digest(file, port));
            assert_eq!(counts[0], counts[1], "{case}: pt-query-digest");
            let found: u64 = counts[0].values().sum();
            assert!(found > 500, "{case}: pt-query-digest found {found}");
        }
    }
}
