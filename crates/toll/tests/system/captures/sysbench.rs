//! Tests that a capture of sysbench holds exactly the statements that the server counted.

use super::loss::{assert_clean_ones_are_true, cut_between, drop_packets, one_packet_of_a_hundred};
use super::server::Server;
use std::collections::HashMap;
use toll_testkit::wire::{DecodedEvent, EventCollector};
use toll_wire::event::CommandKind;

fn count(events: &EventCollector, kind: CommandKind) -> u64 {
    events.list.iter().filter(|event| event.kind == kind).count() as u64
}

fn assert_all_counted(events: &EventCollector, counts: &HashMap<String, u64>, case: &str) {
    let texts = counts["Com_select"] + counts["Com_begin"] + counts["Com_commit"];
    let executed = counts["Com_stmt_execute"];
    assert_eq!(count(events, CommandKind::Execute), executed, "{case}");
    assert_eq!(count(events, CommandKind::Prepare), counts["Com_stmt_prepare"], "{case}");
    assert_eq!(count(events, CommandKind::Close), counts["Com_stmt_close"], "{case}");
    // An EXECUTE counts as what it runs, too.
    assert_eq!(count(events, CommandKind::Query), texts - executed, "{case}");
    assert_eq!(events.ledger.commands.complete, events.ledger.commands.seen, "{case}");
    assert!(texts > 500, "{case}: too little to tell anything");
}

/// Statements that the server counts while `work` runs.
pub fn counted(server: &Server, work: impl FnOnce()) -> HashMap<String, u64> {
    let before = server.counters();
    work();
    // A CLOSE has no reply: the server may still be at it when its client is gone.
    server.wait_until_alone();
    let mut counts = server.counters();
    for (name, count) in &mut counts {
        *count -= before[name];
    }
    counts
}

#[test]
fn whole_captures_hold_every_statement_and_lossy_ones_no_false_one() {
    let Some(server) = Server::installed(&["tcpdump", "sysbench"], &[]) else { return };
    let cases = [
        ("text", &["--db-ps-mode=disable", "--threads=8", "--events=300"][..]),
        ("prepared", &["--db-ps-mode=auto", "--threads=8", "--events=300"]),
        ("64 connections", &["--db-ps-mode=auto", "--threads=64", "--events=400"]),
        ("compressed", &["--db-ps-mode=disable", "--threads=4", "--events=200", "--mysql-compression=on"]),
        (
            "prepared, compressed",
            &["--db-ps-mode=auto", "--threads=4", "--events=200", "--mysql-compression=on"],
        ),
    ];
    for (case, options) in cases {
        let options = [options, &["--time=30"]].concat();
        let (capture, counts) = server.capture_while(|| counted(&server, || server.sysbench(&options)));
        let whole = EventCollector::decode_with(&capture, &server.config());
        assert_all_counted(&whole, &counts, case);
        one_packet_of_a_hundred(&capture, &whole, &server.config(), case);

        // The capture begins midway.
        let begin = cut_between(&capture, 2000);
        let joined =
            EventCollector::decode_with(&drop_packets(&capture, |number| number < begin), &server.config());
        assert_clean_ones_are_true(&joined, &whole, case);
        // A login of which the first packets are missing has no known beginning.
        let whole_command = |event: &&DecodedEvent| event.text != "administrator command: Connect";
        let begun_ns = joined.list.iter().map(|event| event.start_ns).min().unwrap();
        let due = whole.list.iter().filter(whole_command).filter(|event| event.start_ns >= begun_ns).count();
        let found: Vec<_> = joined.list.iter().filter(whole_command).collect();
        assert_eq!(found.len(), due, "{case}");
        assert!(found.iter().all(|event| !event.tainted), "{case}");
    }
}
