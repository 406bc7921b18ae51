//! Check of the events decoded from a small capture.

use toll_testkit::wire::{
    Conversation, EventCollector, column_packets, greeting, login, ok, pcap, protocol_packet, result,
    row_packets,
};
use toll_wire::decoder::{CaptureDecoder, Config};
use toll_wire::event::CommandKind;
use toll_wire::pcap::Format;

#[test]
fn a_query_is_reported_with_user_schema_rows_and_both_latencies() {
    let mut talk = Conversation::new();
    talk.open();
    talk.server(&greeting());
    talk.client(&login("app", "shop"));
    talk.server(&protocol_packet(2, &ok(0)));
    let sent_ns = talk.client(&protocol_packet(0, b"\x03select id from items"));
    let first_ns = talk.server(&column_packets());
    let last_ns = talk.server(&row_packets(4, &["1", "2"]));
    talk.client(&protocol_packet(0, b"\x01"));
    let events = EventCollector::decode(&pcap(talk.frames()));
    let query = events.find_only("select id from items");
    assert_eq!((query.user.as_str(), query.schema.as_str()), ("app", "shop"));
    assert_eq!(query.first_byte_ns, Some(first_ns - sent_ns));
    assert_eq!(query.query_ns, Some(last_ns - sent_ns));
    assert_eq!(query.rows_sent, Some(2));
    assert_eq!(
        events.statement_texts(),
        ["administrator command: Connect", "select id from items", "administrator command: Quit"]
    );
    assert!(events.ledger.is_consistent());
    assert_eq!(events.ledger.commands.complete, 3);
}

#[test]
fn a_capture_may_arrive_byte_by_byte() {
    let mut talk = Conversation::new();
    talk.open();
    talk.server(&greeting());
    talk.client(&login("app", "shop"));
    talk.server(&protocol_packet(2, &ok(0)));
    talk.client(&protocol_packet(0, b"\x03select 1"));
    talk.server(&result(&["1"]));
    let capture = pcap(talk.frames());
    let whole = EventCollector::decode(&capture);
    let mut decoder = CaptureDecoder::new(Format::Pcap, &Config::default());
    let mut events = EventCollector::default();
    for byte in &capture {
        decoder.feed(std::slice::from_ref(byte), &mut events).unwrap();
    }
    decoder.finish(&mut events);
    assert_eq!(events.list, whole.list);
    assert_eq!(whole.list.last().unwrap().kind, CommandKind::Query);
}

/// Fuzzing begins from these: were they of another port, it would stop at the first header.
#[test]
fn the_captures_that_fuzzing_begins_from_hold_commands() {
    let seeds: [(Format, &[u8]); 3] = [
        (Format::Pcap, include_bytes!("../../../../fuzz/corpus/pcap/sysbench")),
        (Format::PcapNg, include_bytes!("../../../../fuzz/corpus/pcapng/sysbench")),
        (Format::TcpdumpText, include_bytes!("../../../../fuzz/corpus/tcpdump_text/sysbench")),
    ];
    for (format, seed) in seeds {
        let mut decoder = CaptureDecoder::new(format, &Config::default());
        decoder.feed(seed, &mut EventCollector::default()).unwrap();
        decoder.finish(&mut EventCollector::default());
        assert_eq!(decoder.accounting().commands.seen, 7, "{format:?}");
    }
}
