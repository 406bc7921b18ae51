//! Equivalence test: socket calls give the same events as the packets of the same conversation.

use std::net::IpAddr;
use toll_testkit::wire::{
    self, Conversation, DecodedEvent, EventCollector, greeting, greeting_with, login, ok, pcap,
    protocol_packet, result, row_packets,
};
use toll_wire::decoder::{CallDirection, Config, Decoder, Limits, Shard, SocketChunk};
use toll_wire::event::{Event, Sink};

const BEGUN_NS: u64 = 1_700_000_000_000_000_000;

/// Connections of one server, each call a microsecond after the one before.
struct SocketCalls {
    decoder: Decoder,
    events: EventCollector,
    now_ns: u64,
    socket: u64,
    /// So far by the client and by the server.
    offsets: [u64; 2],
    deciphered: bool,
}

impl SocketCalls {
    fn new(config: &Config) -> Self {
        let (decoder, events) = (Decoder::new(config), EventCollector::default());
        SocketCalls { decoder, events, now_ns: BEGUN_NS, socket: 7, offsets: [0; 2], deciphered: false }
    }

    fn opened() -> Self {
        let mut calls = SocketCalls::new(&Config::default());
        calls.open(7, None);
        calls
    }

    fn decode_chunk(&mut self, chunk: SocketChunk<'_>) -> u64 {
        self.now_ns += 1000;
        let chunk =
            SocketChunk { time_ns: self.now_ns, socket: self.socket, decrypted: self.deciphered, ..chunk };
        self.decoder.decode_socket_chunk(&chunk, &mut self.events);
        self.now_ns
    }

    fn open(&mut self, socket: u64, client: Option<(IpAddr, u16)>) {
        (self.socket, self.offsets) = (socket, [0; 2]);
        self.decode_chunk(SocketChunk { opened: true, client, ..SocketChunk::default() });
    }

    /// A call of which so many bytes are kept.
    fn call(&mut self, by: CallDirection, bytes: &[u8], keep: usize) -> u64 {
        let [client, server] = self.offsets;
        let (position, after) =
            if by == CallDirection::FromClient { (client, server) } else { (server, client) };
        self.lose(by, bytes);
        let kept = &bytes[..keep.min(bytes.len())];
        self.decode_chunk(SocketChunk {
            direction: by,
            stream_offset: position,
            peer_offset: after,
            full_len: bytes.len() as u64,
            bytes: kept,
            ..SocketChunk::default()
        })
    }

    fn client(&mut self, bytes: &[u8]) -> u64 {
        self.call(CallDirection::FromClient, bytes, usize::MAX)
    }

    fn server(&mut self, bytes: &[u8]) -> u64 {
        self.call(CallDirection::FromServer, bytes, usize::MAX)
    }

    /// A call for which the tap had no room.
    fn lose(&mut self, by: CallDirection, bytes: &[u8]) {
        self.offsets[by as usize] += bytes.len() as u64;
    }

    fn log_in(&mut self) {
        self.server(&greeting());
        self.client(&login("app", "shop"));
        self.server(&protocol_packet(2, &ok(0)));
    }

    fn close(&mut self) {
        self.decode_chunk(SocketChunk { closed: true, ..SocketChunk::default() });
    }

    fn end(mut self) -> EventCollector {
        self.decoder.finish(&mut self.events);
        self.events.ledger = self.decoder.accounting();
        assert!(self.events.ledger.is_consistent(), "{:#?}", self.events.ledger);
        self.events
    }
}

fn query(text: &str) -> Vec<u8> {
    protocol_packet(0, &[b"\x03", text.as_bytes()].concat())
}

#[test]
fn calls_are_decoded_as_packets_are() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("select id from items"));
    talk.server(&result(&["1", "2"]));
    talk.client(&query("delete from items"));
    talk.server(&protocol_packet(1, &ok(3)));
    talk.client(&protocol_packet(0, b"\x01"));
    let mut packets = EventCollector::decode(&pcap(talk.frames()));

    let mut calls = SocketCalls::opened();
    calls.log_in();
    calls.client(&query("select id from items"));
    calls.server(&result(&["1", "2"]));
    calls.client(&query("delete from items"));
    calls.server(&protocol_packet(1, &ok(3)));
    calls.client(&protocol_packet(0, b"\x01"));
    calls.close();
    let events = calls.end();

    // Other moments, and no port: no TCP connection came first.
    let same = |seen: &mut DecodedEvent| (seen.start_ns, seen.port) = (0, 0);
    let mut list = events.list.clone();
    list.iter_mut().for_each(same);
    packets.list.iter_mut().for_each(same);
    assert_eq!(list[1..], packets.list[1..]);
    assert_eq!(list[0].text, "administrator command: Connect");
    assert_eq!(events.ledger.commands, packets.ledger.commands);
    assert_eq!((events.ledger.sessions.plain, events.ledger.frames.parsed), (1, 8));
}

#[test]
fn a_command_may_come_in_several_calls_and_pieces() {
    let text = "x".repeat(70_000);
    let command = query(&text);
    let mut calls = SocketCalls::opened();
    calls.log_in();
    calls.client(&command[..4]);
    for piece in command[4..].chunks(32 << 10) {
        calls.client(piece);
    }
    calls.server(&protocol_packet(1, &ok(0)));
    let events = calls.end();
    let seen = events.find_only(&text);
    assert!(!seen.tainted && seen.query_ns == Some(1000), "{:?}", seen.query_ns);
}

#[test]
fn what_is_cut_of_an_answer_leaves_its_time_and_the_next_command_whole() {
    let mut calls = SocketCalls::opened();
    calls.log_in();
    let sent_ns = calls.client(&query("select name from items"));
    let many: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let answered_ns = calls.call(CallDirection::FromServer, &result(&many), 32);
    calls.client(&query("select 2"));
    calls.server(&result(&["2"]));
    let events = calls.end();
    let seen = events.find_only("select name from items");
    assert_eq!((seen.query_ns, seen.rows_sent, seen.tainted), (Some(answered_ns - sent_ns), None, false));
    assert_eq!(events.find_only("select 2").rows_sent, Some(1));
    assert_eq!(events.ledger.bytes.cut_from_server, result(&many).len() as u64 - 32);
    assert_eq!(events.ledger.frames.truncated, 1);
}

/// Whether a query with a number is believed.
fn is_believed(events: &EventCollector, number: usize) -> bool {
    let seen = events.find_only(&format!("select {number} from items"));
    !seen.tainted && seen.query_ns == Some(1000)
}

#[test]
fn a_response_that_passed_before_the_tap_saw_responses_makes_no_later_one_doubtful() {
    let mut calls = SocketCalls::new(&Config::default());
    calls.offsets = [500, 900];
    calls.client(&query("select 0 from items"));
    // The tap counts what the server sends from here on.
    for number in 1..5 {
        calls.client(&query(&format!("select {number} from items")));
        calls.call(CallDirection::FromServer, &result(&["some value"; 9]), 32);
    }
    let events = calls.end();
    let first = events.find_only("select 0 from items");
    assert_eq!((first.query_ns, first.tainted), (None, false));
    // That the fourth has ended would only the next command tell.
    assert!((1..4).all(|number| is_believed(&events, number)), "{:?}", events.list);
}

#[test]
fn what_the_tap_had_no_room_for_is_known_to_the_byte_and_no_answer_goes_to_another() {
    let (lost, answer) = (query("insert into lost values (1)"), protocol_packet(1, &ok(77)));
    let mut calls = SocketCalls::opened();
    calls.log_in();
    calls.lose(CallDirection::FromClient, &lost);
    calls.server(&answer);
    calls.client(&query("select 3"));
    calls.server(&result(&["3"]));
    calls.client(&query("select 4"));
    calls.lose(CallDirection::FromServer, &result(&["4"]));
    calls.client(&query("select 5"));
    calls.server(&result(&["5"]));
    let events = calls.end();
    assert!(!events.list.iter().any(|seen| seen.rows_affected == Some(77)), "{:?}", events.list);
    assert_eq!(events.ledger.bytes.lost_from_client, lost.len() as u64);
    assert_eq!(events.ledger.bytes.lost_from_server, result(&["4"]).len() as u64);
    assert_eq!(events.find_only("select 4").query_ns, None);
    assert_eq!(events.find_only("select 5").rows_sent, Some(1));
}

#[test]
fn a_connection_whose_beginning_is_not_seen_begins_with_its_greeting_and_ends_with_its_leave() {
    let mut calls = SocketCalls::new(&Config::default());
    calls.log_in();
    calls.client(&query("select 1"));
    calls.server(&protocol_packet(1, &ok(0)));
    calls.client(&protocol_packet(0, b"\x01"));
    // Nothing is kept of it: what follows is of another.
    let (socket, ledger) = (calls.socket, calls.decoder.accounting());
    assert_eq!((ledger.sessions.plain, ledger.commands.complete), (1, 3));
    calls.offsets = [0; 2];
    calls.log_in();
    assert_eq!(calls.socket, socket);
    let events = calls.end();
    assert_eq!(events.statement_texts().iter().filter(|text| text.ends_with("Connect")).count(), 2);
    assert_eq!((events.ledger.sessions.plain, events.ledger.commands.tainted), (2, 0));
}

#[test]
fn a_connection_that_was_open_before_is_joined_at_its_next_command() {
    let mut calls = SocketCalls::new(&Config::default());
    calls.offsets = [500, 900];
    calls.decode_chunk(SocketChunk {
        client: Some(("10.0.0.7".parse().unwrap(), 40_001)),
        ..SocketChunk::default()
    });
    calls.server(&row_packets(9, &["the end of an answer"]));
    calls.client(&query("select 6"));
    calls.server(&result(&["6"]));
    let events = calls.end();
    let seen = events.find_only("select 6");
    assert_eq!((seen.port, seen.user.as_str(), seen.tainted), (40_001, "", false));
    assert_eq!((events.ledger.sessions.joined_midway, events.ledger.bytes.lost_from_client), (1, 0));
}

#[derive(Default)]
struct Hosts(Vec<(String, u16)>);

impl Sink for Hosts {
    fn on_event(&mut self, event: &Event<'_>) {
        self.0.push((String::from_utf8_lossy(event.host).into_owned(), event.port));
    }
}

#[test]
fn a_client_over_tcp_has_an_address_and_one_on_a_unix_socket_has_none() {
    let mut decoder = Decoder::new(&Config::default());
    let mut hosts = Hosts::default();
    for (socket, client) in [(1, Some(("::1".parse().unwrap(), 40_000))), (2, None)] {
        let opened =
            SocketChunk { socket, opened: true, client, time_ns: BEGUN_NS, ..SocketChunk::default() };
        let bytes = greeting();
        let refused = protocol_packet(2, b"\xff\x15\x04#28000no");
        let [hello, no] = [&bytes, &refused].map(|bytes| SocketChunk {
            socket,
            time_ns: BEGUN_NS,
            direction: CallDirection::FromServer,
            full_len: bytes.len() as u64,
            bytes,
            ..SocketChunk::default()
        });
        let login = login("app", "shop");
        let who = SocketChunk {
            direction: CallDirection::FromClient,
            full_len: login.len() as u64,
            bytes: &login,
            ..hello
        };
        for said in [opened, hello, who, no] {
            decoder.decode_socket_chunk(&said, &mut hosts);
        }
    }
    assert_eq!(hosts.0, [("::1".to_owned(), 40_000), (String::new(), 0)]);
}

#[test]
fn a_command_under_way_when_the_connection_ends_is_unfinished_and_the_next_one_begins_anew() {
    let mut calls = SocketCalls::opened();
    calls.log_in();
    calls.client(&query("select sleep(9)"));
    calls.close();
    calls.open(7, None);
    calls.log_in();
    calls.client(&query("select 7"));
    // Its end is not heard: the tap had no room for it.
    calls.open(7, None);
    calls.log_in();
    let events = calls.end();
    assert_eq!(
        (events.find_only("select sleep(9)").query_ns, events.find_only("select 7").query_ns),
        (None, None)
    );
    assert_eq!((events.ledger.sessions.plain, events.ledger.commands.unfinished), (3, 2));
}

#[test]
fn no_more_connections_are_kept_than_allowed_and_the_longest_idle_goes() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let mut calls = SocketCalls::new(&Config { limits, ..Config::default() });
    for socket in 1..=3 {
        calls.open(socket, None);
        calls.log_in();
        calls.client(&query(&format!("select {socket}")));
    }
    let before_the_end = calls.events.statement_texts().len();
    assert_eq!(before_the_end, 4, "{:?}", calls.events.statement_texts());
    assert_eq!(calls.events.statement_texts()[2], "select 1");
    assert_eq!(calls.end().ledger.sessions.seen, 3);
}

#[test]
fn what_is_said_inside_tls_takes_the_place_of_what_cannot_be_read() {
    const SSL: u32 = 1 << 11;
    let start_tls = |capabilities: u32| {
        let mut payload = capabilities.to_le_bytes().to_vec();
        payload.extend([0, 0, 0, 1, 45]);
        payload.extend([0; 23]);
        protocol_packet(1, &payload)
    };
    let mut calls = SocketCalls::opened();
    calls.server(&greeting_with(wire::DEFAULT_CAPABILITIES | SSL));
    calls.client(&start_tls(wire::DEFAULT_CAPABILITIES | SSL));
    calls.client(b"\x16\x03\x01\x02\x00ciphers");
    calls.deciphered = true;
    calls.client(&wire::login_with(wire::DEFAULT_CAPABILITIES | SSL, "app", "shop"));
    calls.server(&protocol_packet(3, &ok(0)));
    calls.client(&query("select secret"));
    calls.server(&result(&["1"]));
    calls.deciphered = false;
    calls.server(b"\x17\x03\x03\x00\x05close");
    calls.deciphered = true;
    calls.client(&query("select another"));
    calls.server(&result(&["1"]));
    let events = calls.end();
    assert_eq!(events.find_only("select another").rows_sent, Some(1));
    assert_eq!(events.ledger.commands.orphaned_responses, 0);
    let seen = events.find_only("select secret");
    assert_eq!((seen.user.as_str(), seen.rows_sent), ("app", Some(1)));
    assert_eq!((events.ledger.sessions.plain, events.ledger.sessions.encrypted), (1, 0));

    // Without that, the session is counted and not read.
    let mut calls = SocketCalls::opened();
    calls.server(&greeting_with(wire::DEFAULT_CAPABILITIES | SSL));
    calls.client(&start_tls(wire::DEFAULT_CAPABILITIES | SSL));
    calls.client(b"\x16\x03\x01\x02\x00ciphers");
    assert_eq!(calls.end().ledger.sessions.encrypted, 1);
}

#[test]
fn shards_share_the_connections_out_between_them() {
    let mut found = Vec::new();
    let mut sizes = Vec::new();
    for shard in Shard::split(4) {
        let config = Config { shard, ..Config::default() };
        let mut calls = SocketCalls::new(&config);
        for socket in 1..=200 {
            calls.open(socket, None);
            calls.log_in();
            calls.client(&query(&format!("select {socket}")));
            calls.server(&result(&["1"]));
        }
        let events = calls.end();
        sizes.push(events.ledger.sessions.seen);
        found.extend(
            events.statement_texts().iter().filter(|t| t.starts_with("select")).map(|t| (*t).to_owned()),
        );
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 200);
    assert_eq!(sizes.iter().sum::<u64>(), 200);
    assert!(sizes.iter().all(|size| *size > 20), "{sizes:?}");
}
