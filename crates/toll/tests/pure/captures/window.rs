//! Tests that the lab's counter finds the queries answered in a stretch of a capture.

use toll_digest::Type;
use toll_digest::count::{CountWindow, count_queries};
use toll_testkit::wire::{
    Conversation, column_packets, ok, pcap, prepare_response, protocol_packet, result, row_packets,
};

/// A capture, and the moments at which its queries count.
struct ExpectedEvents {
    capture: Vec<u8>,
    moments_ns: Vec<u64>,
    frames_ns: Vec<u64>,
}

fn query(text: &str) -> Vec<u8> {
    protocol_packet(0, &[b"\x03", text.as_bytes()].concat())
}

/// Queries with answers of every shape among commands that are no queries.
fn expected_events() -> ExpectedEvents {
    let mut talk = Conversation::logged_in();
    let mut moments_ns = Vec::new();
    for n in 0..12 {
        talk.client(&query(&format!("select {n} from t")));
        moments_ns.push(match n % 4 {
            0 => talk.server(&result(&["1"])),
            1 => talk.server(&protocol_packet(1, &ok(3))),
            2 => talk.server(&protocol_packet(1, b"\xff\x7a\x04#42S02no such table")),
            _ => {
                talk.server(&column_packets());
                talk.server(&row_packets(4, &["1", "2"]))
            }
        });
        // A ping is no query.
        talk.client(&protocol_packet(0, b"\x0e"));
        talk.server(&protocol_packet(1, &ok(0)));
    }
    // Nor is a PREPARE; its execution is one.
    talk.client(&protocol_packet(0, b"\x16select 1"));
    talk.server(&prepare_response(7, 0, 1));
    talk.client(&protocol_packet(0, &[0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0]));
    moments_ns.push(talk.server(&result(&["1"])));
    // One that takes its time to arrive counts when it is answered.
    for part in query(&"select long ".repeat(50)).chunks(60) {
        talk.client(part);
    }
    moments_ns.push(talk.server(&result(&["1"])));
    // One whose response is lost counts when it was sent.
    moments_ns.push(talk.client(&query("select lost")));
    talk.server(&result(&["1"]));
    let lost = talk.frames().len() - 1;
    talk.client(&protocol_packet(0, b"\x0e"));
    talk.server(&protocol_packet(1, &ok(0)));
    // One that is not answered does not count.
    talk.client(&query("select running"));
    let mut frames = talk.frames().to_vec();
    frames.remove(lost);
    ExpectedEvents {
        capture: pcap(&frames),
        moments_ns,
        frames_ns: frames.iter().map(|(ns, _)| *ns).collect(),
    }
}

#[test]
fn a_stretch_of_a_capture_holds_the_queries_answered_in_it() {
    let truth = expected_events();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("capture");
    std::fs::write(&file, &truth.capture).unwrap();
    let counted = |since_ns, until_ns| {
        let window = CountWindow::Time { since_ns, until_ns };
        count_queries(&file, Some(Type::Pcap), window, &[3306]).unwrap()
    };
    let due = |since_ns, until_ns| {
        truth.moments_ns.iter().filter(|ns| (since_ns..until_ns).contains(*ns)).count() as u64
    };
    assert_eq!(due(0, u64::MAX), 15);
    // Bounds on a packet, just behind it, and stretches of some packets from there.
    for (at, &ns) in truth.frames_ns.iter().enumerate() {
        let later = truth.frames_ns.get(at + 7).copied().unwrap_or(u64::MAX);
        for (since_ns, until_ns) in [(0, ns), (0, ns + 1), (ns, u64::MAX), (ns + 1, u64::MAX), (ns, later)] {
            let queries = counted(since_ns, until_ns).queries;
            assert_eq!(queries, due(since_ns, until_ns), "from {since_ns} until {until_ns}");
        }
    }
    let all = counted(0, u64::MAX);
    assert_eq!((all.queries, all.tainted), (15, 1));
    assert!(all.accounting.adds_up());
    let whole = count_queries(&file, Some(Type::Pcap), CountWindow::Whole, &[3306]).unwrap();
    assert_eq!(whole.queries, 16, "with the one that is still running");
}
