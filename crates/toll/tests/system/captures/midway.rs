//! Tests of captures that begin during sessions: they hold everything sent from then on.

use super::loss::is_same_statement;
use super::server::Server;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use toll_load::summary::Summary;
use toll_testkit::tcpdump::{Tcpdump, capture_without_drops};
use toll_testkit::wire::{DecodedEvent, EventCollector};

/// Two captures at once stamp the same packet one after the other.
const STAMPED_APART_NS: u64 = 1_000_000;
/// tcpdump opens its ring before it sets its filter: packets of the first moments pass it or do not.
const OPENED_WITHIN_NS: u64 = 300_000_000;

fn by_port(events: &EventCollector) -> BTreeMap<u16, Vec<&DecodedEvent>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in &events.list {
        found.entry(event.port).or_default().push(event);
    }
    found
}

/// The load captured from its beginning, the same from its middle, and `toll load`'s summary.
fn captured_twice(server: &Server, options: &[&str]) -> (EventCollector, Vec<u8>, Summary) {
    capture_without_drops(|| capture_twice(server, options))
}

/// `None` if the kernel dropped packets.
fn capture_twice(server: &Server, options: &[&str]) -> Option<(EventCollector, Vec<u8>, Summary)> {
    let all = Tcpdump::listen(server.port(), server.capture_file());
    let options: Vec<String> =
        ["point-select", "--time=60s", "--rate=3000"].iter().chain(options).map(|o| (*o).into()).collect();
    let mut load = server.load_command(&options).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(load.stdout.take().unwrap()).lines().map_while(Result::ok);
    // A line each second: by the first the load is under way.
    lines.next().unwrap();
    let late = Tcpdump::listen(server.port(), server.path("late"));
    lines.next().unwrap();
    let sent = Command::new("kill").arg(load.id().to_string()).status().unwrap();
    assert!(sent.success());
    let last = lines.last().unwrap();
    assert!(load.wait().unwrap().success());
    server.wait_until_alone();
    let (late, all) = (late.stop(), all.stop());
    Some((EventCollector::decode_with(&all?, &server.config()), late?, serde_json::from_str(&last).unwrap()))
}

/// Timestamp of the first packet of a capture.
fn first_ns(capture: &[u8]) -> u64 {
    let word = |at: usize| u64::from(u32::from_le_bytes(capture[at..at + 4].try_into().unwrap()));
    word(24) * 1_000_000_000 + word(28) * 1_000
}

fn all_from_then_on_is_there(server: &Server) {
    for (connections, options) in [
        (8, &["--threads=8", "--text"][..]),
        (64, &["--threads=64"]),
        (8, &["--threads=8", "--compress=zlib"]),
    ] {
        let (whole, late, said) = captured_twice(server, options);
        let is_statement =
            |event: &&DecodedEvent| event.text.starts_with("SELECT") && event.query_ns.is_some();
        let prepares = connections * 2 * u64::from(!options.contains(&"--text"));
        let statements = whole.list.iter().filter(is_statement).count() as u64 - prepares;
        assert_eq!(statements, said.statements, "{options:?}: {:?}", whole.ledger);

        let begun_ns = first_ns(&late) + OPENED_WITHIN_NS;
        let late = EventCollector::decode_with(&late, &server.config());
        let commands = late.ledger.commands;
        assert_eq!(commands.complete + commands.tainted, commands.seen, "{options:?}: {:?}", late.ledger);
        let (whole, late) = (by_port(&whole), by_port(&late));
        assert_eq!((whole.len() as u64, late.len() as u64), (connections, connections), "{options:?}");
        for (port, all) in whole {
            let found: Vec<_> = late[&port].iter().filter(|event| event.start_ns >= begun_ns).collect();
            let due = |from_ns| all.iter().filter(|event| event.start_ns >= from_ns).count();
            let due = due(begun_ns + STAMPED_APART_NS)..=due(begun_ns - STAMPED_APART_NS);
            assert!(due.contains(&found.len()), "{options:?}: {} of {due:?}", found.len());
            for (seen, truth) in found.iter().zip(&all[all.len() - found.len()..]) {
                let same = is_same_statement(seen, truth) && seen.rows_sent == truth.rows_sent;
                assert!(same && !seen.tainted, "{options:?}: {seen:?} for {truth:?}");
            }
        }
    }
}

#[test]
fn a_capture_that_begins_midway_holds_all_from_then_on() {
    let Some(server) = Server::installed(&["tcpdump"], &[]) else { return };
    all_from_then_on_is_there(&server);
}

#[test]
fn a_capture_of_mysql_that_begins_midway_holds_all_from_then_on() {
    let Some(server) = Server::mysql(&["tcpdump"], &[]) else { return };
    all_from_then_on_is_there(&server);
}
