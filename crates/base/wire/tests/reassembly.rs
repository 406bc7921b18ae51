//! Reassembly tests: the order and cuts of packets do not change the decoded events.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use toll_testkit::wire::{
    self, CapturedFrame, Conversation, EventCollector, column_packets, ok, pcap, prepare_response,
    protocol_packet, result, row_packets,
};
use toll_wire::decoder::{CaptureDecoder, Config, Shard};
use toll_wire::pcap::Format;

fn query(text: &str) -> Vec<u8> {
    protocol_packet(0, &[b"\x03", text.as_bytes()].concat())
}

/// A session with queries, a prepared statement and an error, whose messages are cut at `cuts`.
fn talk(cuts: &[usize]) -> Conversation {
    let mut cuts = cuts.iter().copied().cycle();
    let mut talk = Conversation::logged_in();
    let mut say = |from_client: bool, message: &[u8]| {
        let mut rest = message;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
            if from_client {
                talk.client(head)
            } else {
                talk.server(head)
            };
            rest = tail;
        }
    };
    for round in 0..6u8 {
        say(true, &query(&format!("select {round} from a_table_with_a_name")));
        say(false, &result(&vec!["some value"; usize::from(round) * 3]));
        say(true, &protocol_packet(0, b"\x16select ?, ?"));
        say(false, &prepare_response(round, 2, 2));
        say(
            true,
            &protocol_packet(0, &[0x17, round, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 0, 253, 0, round, 0, 0, 0]),
        );
        say(false, &result(&["prepared"]));
        say(true, &protocol_packet(0, &[0x19, round, 0, 0, 0]));
        say(true, &query("select nosuch"));
        say(false, &protocol_packet(1, b"\xff\x7a\x04#42S02no such table"));
        say(true, &[query("first of two"), query("second of two")].concat());
        say(false, &[protocol_packet(1, &ok(1)), protocol_packet(1, &ok(2))].concat());
    }
    say(true, &protocol_packet(0, b"\x01"));
    talk.close();
    talk
}

/// Events without what depends on where messages are cut.
fn timeless(events: EventCollector) -> Vec<wire::DecodedEvent> {
    let mut list = events.list;
    for event in &mut list {
        (event.start_ns, event.query_ns, event.first_byte_ns) = (0, None, None);
    }
    list
}

/// Moves each frame up to `window` places from where it was; the first keeps its place, since
/// what comes before the first frame of a capture is not part of it.
fn shuffled(frames: &[CapturedFrame], window: usize, seed: u64) -> Vec<CapturedFrame> {
    let mut state = seed | 1;
    let mut keyed: Vec<_> = frames.iter().cloned().enumerate().collect();
    keyed[1..].sort_by_cached_key(|(place, _)| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        place + (state >> 33) as usize % window
    });
    keyed.into_iter().map(|(_, frame)| frame).collect()
}

/// Compares event by event: a whole list would bury the one that differs.
fn same(seen: &[wire::DecodedEvent], expected: &[wire::DecodedEvent]) -> Result<(), TestCaseError> {
    for (at, (seen, expected)) in seen.iter().zip(expected).enumerate() {
        prop_assert_eq!(seen, expected, "event {}", at);
    }
    prop_assert_eq!(seen.len(), expected.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn cutting_messages_into_segments_changes_no_event(cuts in prop::collection::vec(1usize..80, 1..20)) {
        let whole = timeless(EventCollector::decode(&pcap(talk(&[]).frames())));
        let cut = EventCollector::decode(&pcap(talk(&cuts).frames()));
        prop_assert_eq!(cut.ledger.commands.tainted, 0);
        same(&timeless(cut), &whole)?;
    }

    #[test]
    fn disorder_changes_no_event_and_no_time(cuts in prop::collection::vec(1usize..80, 1..20), window in 1usize..12, seed: u64) {
        let talk = talk(&cuts);
        let ordered = EventCollector::decode(&pcap(talk.frames()));
        let disordered = EventCollector::decode(&pcap(&shuffled(talk.frames(), window, seed)));
        same(&disordered.list, &ordered.list)?;
        prop_assert_eq!(disordered.ledger.commands, ordered.ledger.commands);
    }

    #[test]
    fn second_copies_change_no_event_and_no_time(
        cuts in prop::collection::vec(1usize..80, 1..20),
        window in 1usize..8,
        seed: u64,
        copied in prop::collection::vec(any::<bool>(), 1..30),
    ) {
        let talk = talk(&cuts);
        let ordered = EventCollector::decode(&pcap(talk.frames()));
        let mut frames = Vec::new();
        for (frame, copied) in shuffled(talk.frames(), window, seed).into_iter().zip(copied.into_iter().cycle()) {
            frames.push(frame.clone());
            if copied {
                // A copy is seen later than the packet; the first time counts.
                frames.push((frame.0 + 500, frame.1));
            }
        }
        let doubled = EventCollector::decode(&pcap(&frames));
        same(&doubled.list, &ordered.list)?;
    }

    #[test]
    fn how_a_capture_is_fed_changes_nothing(chunks in prop::collection::vec(1usize..3000, 1..10)) {
        let capture = pcap(talk(&[17, 60]).frames());
        let whole = EventCollector::decode(&capture);
        let mut decoder = CaptureDecoder::new(Format::Pcap, &Config::default());
        let mut events = EventCollector::default();
        let mut rest = &capture[..];
        for chunk in chunks.into_iter().cycle() {
            let (head, tail) = rest.split_at(chunk.min(rest.len()));
            decoder.feed(head, &mut events).unwrap();
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        decoder.finish(&mut events);
        same(&events.list, &whole.list)?;
    }

    #[test]
    fn whatever_is_lost_no_clean_event_is_wrong(
        cuts in prop::collection::vec(20usize..200, 1..10),
        lost in prop::collection::vec(0usize..600, 1..12),
    ) {
        let talk = talk(&cuts);
        let whole = EventCollector::decode(&pcap(talk.frames()));
        let kept: Vec<_> =
            talk.frames().iter().enumerate().filter(|(at, _)| !lost.contains(at)).map(|(_, frame)| frame.clone()).collect();
        let seen = EventCollector::decode(&pcap(&kept));
        for event in seen.list.iter().filter(|event| !event.tainted && event.query_ns.is_some()) {
            let mut event = event.clone();
            let unseen = event.text.contains("text not seen");
            let truth = whole
                .list
                .iter()
                .find(|truth| truth.start_ns == event.start_ns && (unseen || truth.text == event.text));
            prop_assert!(truth.is_some(), "{:?} was never sent", event);
            let truth = truth.unwrap();
            if unseen {
                event.text.clone_from(&truth.text);
                event.params.clone_from(&truth.params);
            }
            prop_assert_eq!(event.query_ns, truth.query_ns, "{:?}", event);
            prop_assert_eq!(event.rows_sent, truth.rows_sent, "{:?}", event);
            prop_assert_eq!(&event.params, &truth.params);
        }
    }
}

#[test]
fn the_order_of_bytes_outlives_a_wrap_of_sequence_numbers() {
    // The conversation begins 40 and 90 bytes before its numbers wrap.
    let events = EventCollector::decode(&pcap(talk(&[50]).frames()));
    assert_eq!(events.ledger.commands.tainted, 0);
    assert_eq!(events.ledger.bytes.lost_from_client + events.ledger.bytes.lost_from_server, 0);
}

#[test]
fn a_lost_response_taints_its_command_and_no_other() {
    let mut talk = Conversation::logged_in();
    for text in ["one", "two", "three"] {
        talk.client(&query(text));
        talk.server(&result(&["1"]));
    }
    let mut frames = talk.frames().to_vec();
    frames.remove(9);
    let events = EventCollector::decode(&pcap(&frames));
    let tainted: Vec<_> = events.list.iter().map(|event| event.tainted).collect();
    assert_eq!(tainted, [false, false, true, false]);
    assert!(events.list.iter().all(|event| event.query_ns.is_none() == event.tainted));
    assert!(events.ledger.bytes.lost_from_server > 0);
    assert_eq!((events.ledger.commands.complete, events.ledger.commands.tainted), (3, 1));
}

#[test]
fn a_lost_command_leaves_an_orphaned_response() {
    let mut talk = Conversation::logged_in();
    for text in ["one", "two", "three"] {
        talk.client(&query(text));
        talk.server(&result(&["1"]));
    }
    let mut frames = talk.frames().to_vec();
    frames.remove(8);
    let events = EventCollector::decode(&pcap(&frames));
    assert_eq!(events.statement_texts(), ["administrator command: Connect", "one", "three"]);
    assert!(events.list.iter().all(|event| !event.tainted));
    assert_eq!(events.ledger.bytes.lost_from_client, 8);
}

#[test]
fn a_gap_within_a_row_loses_the_time_and_keeps_the_step() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("one"));
    let wide = "w".repeat(200);
    let response = [column_packets(), row_packets(4, &[&wide, &wide])].concat();
    let (head, tail) = response.split_at(column_packets().len() + 50);
    talk.server(head);
    talk.server(&tail[..100]);
    talk.server(&tail[100..]);
    talk.client(&query("two"));
    talk.server(&result(&["1"]));
    let mut frames = talk.frames().to_vec();
    frames.remove(8);
    let events = EventCollector::decode(&pcap(&frames));
    let one = events.find_only("one");
    assert_eq!((one.tainted, one.rows_sent), (true, Some(2)));
    assert!(!events.find_only("two").tainted);
}

#[test]
fn definitions_whose_eof_was_not_captured_are_not_the_end_of_a_response() {
    let answer = prepare_response(7, 0, 1);
    let eof = 9;
    let ended = |talk: &mut Conversation, captured: usize| {
        talk.client(&protocol_packet(0, b"\x16select 1"));
        talk.server(&answer[..captured]);
        EventCollector::decode(&pcap(talk.frames())).find_only("select 1").query_ns.is_some()
    };
    // The login tells that an EOF follows.
    assert!(ended(&mut Conversation::logged_in(), answer.len()));
    assert!(!ended(&mut Conversation::logged_in(), answer.len() - eof));
    // Without it, one that has begun tells.
    assert!(ended(&mut Conversation::new(), answer.len() - eof));
    assert!(!ended(&mut Conversation::new(), answer.len() - eof + 4));
}

#[test]
fn a_port_that_is_used_again_is_another_session() {
    let mut first = Conversation::logged_in();
    first.client(&query("one"));
    first.server(&result(&["1"]));
    let mut second = Conversation::starting_at(first.frames().last().unwrap().0, 7, 9);
    second.log_in();
    second.client(&query("two"));
    second.server(&result(&["1"]));
    let frames = [first.frames(), second.frames()].concat();
    let events = EventCollector::decode(&pcap(&frames));
    assert_eq!(events.ledger.sessions.plain, 2);
    assert_eq!(events.ledger.commands.complete, 4);
}

#[test]
fn shards_share_the_events_and_their_ledgers_add_up() {
    let mut frames = Vec::new();
    for port in 0..40 {
        let mut talk = Conversation::on_port(20_000 + port);
        talk.log_in();
        talk.client(&query("select 1"));
        talk.server(&result(&["1"]));
        frames.extend(talk.frames().iter().cloned());
    }
    // A snap length in the midst of a header: nobody can tell whose frame it was.
    let (time_ns, headers) = frames[0].clone();
    frames.push((time_ns, headers[..30].to_vec()));
    let capture = pcap(&frames);
    let whole = EventCollector::decode(&capture);
    assert_eq!(whole.ledger.frames.truncated, 1);
    let mut sum = toll_wire::accounting::DecodeAccounting::default();
    let mut ports = Vec::new();
    for shard in Shard::split(3) {
        let config = Config { shard, ..Config::default() };
        let part = EventCollector::decode_with(&capture, &config);
        assert!(part.ledger.sessions.seen > 0);
        sum += part.ledger;
        ports.extend(part.list.iter().map(|event| event.port));
    }
    assert_eq!(sum, whole.ledger);
    ports.sort_unstable();
    let mut expected: Vec<_> = whole.list.iter().map(|event| event.port).collect();
    expected.sort_unstable();
    assert_eq!(ports, expected);
}

#[test]
fn connections_beyond_the_limit_end_the_one_idle_for_longest() {
    let mut config = Config::default();
    config.limits.connections = 8;
    let mut frames = Vec::new();
    for port in 0..50 {
        let mut talk = Conversation::on_port(20_000 + port);
        talk.log_in();
        talk.client(&query("select 1"));
        talk.server(&result(&["1"]));
        frames.extend(talk.frames().iter().cloned());
    }
    let events = EventCollector::decode_with(&pcap(&frames), &config);
    assert_eq!(events.ledger.sessions.plain, 50);
    assert_eq!(events.ledger.commands.complete, 100);
}
