//! Decoder tests for every form of command and response.

mod prepared;

use toll_testkit::wire::{
    self, Conversation, DEFAULT_CAPABILITIES, DEPRECATE_EOF, EOF, EventCollector, QUERY_ATTRIBUTES,
    SESSION_TRACK, column_definition, column_packets, greeting_with, login_with, ok, pcap, prepare_response,
    protocol_packet, result, row_packets,
};

fn query(text: &str) -> Vec<u8> {
    protocol_packet(0, &[b"\x03", text.as_bytes()].concat())
}

fn prepare(text: &str) -> Vec<u8> {
    protocol_packet(0, &[b"\x16", text.as_bytes()].concat())
}

/// An EXECUTE of statement 7 with what follows flags and iteration count.
fn execute(rest: &[u8]) -> Vec<u8> {
    protocol_packet(0, &[&[0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0], rest].concat())
}

fn events(talk: &Conversation) -> EventCollector {
    let events = EventCollector::decode(&pcap(talk.frames()));
    assert_eq!(events.ledger.commands.desynchronised, 0);
    events
}

/// A session between sides of these capabilities.
fn session(capabilities: u32) -> Conversation {
    let mut talk = Conversation::new();
    talk.open();
    talk.server(&greeting_with(DEFAULT_CAPABILITIES | capabilities));
    talk.client(&login_with(DEFAULT_CAPABILITIES | capabilities, "app", "shop"));
    talk.server(&protocol_packet(2, &ok(0)));
    talk
}

#[test]
fn a_statement_of_16_mib_is_one_command_cut_at_the_limit() {
    let mut talk = Conversation::logged_in();
    let mut text = vec![b' '; 0xff_ffff + 10];
    text[..7].copy_from_slice(b"\x03insert");
    for (seq, part) in text.chunks(0xff_ffff).enumerate() {
        for segment in protocol_packet(seq as u8, part).chunks(60_000) {
            talk.client(segment);
        }
    }
    talk.server(&protocol_packet(2, &ok(1)));
    talk.client(&query("select 1"));
    talk.server(&result(&["1"]));
    let events = events(&talk);
    let insert = &events.list[1];
    assert_eq!(insert.text.len() as u64 + insert.text_cut, text.len() as u64 - 1);
    assert_eq!((insert.rows_affected, insert.tainted), (Some(1), false));
    assert!(insert.query_ns.is_some());
    events.find_only("select 1");
}

#[test]
fn sequence_numbers_wrap_within_a_result() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("select many"));
    talk.server(&result(&["x"; 700]));
    assert_eq!(events(&talk).find_only("select many").rows_sent, Some(700));
}

#[test]
fn rows_that_straddle_segments_at_every_byte_are_counted_alike() {
    let response = result(&["one", "", "three"]);
    for cut in 1..response.len() {
        let mut talk = Conversation::logged_in();
        talk.client(&query("select it"));
        talk.server(&response[..cut]);
        let last_ns = talk.server(&response[cut..]);
        let events = events(&talk);
        let seen = events.find_only("select it");
        assert_eq!(seen.rows_sent, Some(3), "cut at {cut}");
        assert_eq!(seen.start_ns + seen.query_ns.unwrap(), last_ns, "cut at {cut}");
    }
}

#[test]
fn an_ok_with_header_fe_ends_rows_where_eof_is_deprecated() {
    let mut talk = session(DEPRECATE_EOF);
    talk.client(&query("select a"));
    let end = [0xfe, 0, 0, 0x22, 0, 3, 0];
    talk.server(
        &[
            protocol_packet(1, &[1]),
            protocol_packet(2, &column_definition()),
            protocol_packet(3, b"\x01a"),
            protocol_packet(4, &end),
        ]
        .concat(),
    );
    talk.client(&query("select none"));
    talk.server(
        &[protocol_packet(1, &[1]), protocol_packet(2, &column_definition()), protocol_packet(3, &end)]
            .concat(),
    );
    let events = events(&talk);
    assert_eq!(events.find_only("select a").rows_sent, Some(1));
    assert_eq!(events.find_only("select none").rows_sent, Some(0));
}

#[test]
fn a_row_of_16_mib_that_begins_with_fe_is_a_row() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("select blob"));
    talk.server(&column_packets());
    let mut row = vec![0; 0xff_ffff];
    row[0] = 0xfe;
    for segment in [protocol_packet(4, &row), protocol_packet(5, b"tail"), protocol_packet(6, EOF)]
        .concat()
        .chunks(60_000)
    {
        talk.server(segment);
    }
    assert_eq!(events(&talk).find_only("select blob").rows_sent, Some(1));
}

#[test]
fn errors_carry_number_state_and_message() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("select nosuch"));
    talk.server(&protocol_packet(1, b"\xff\x7a\x04#42S02no such table"));
    let error = ("42S02".to_owned(), "no such table".to_owned());
    assert_eq!(events(&talk).find_only("select nosuch").error, Some((1146, error.0, error.1)));
}

#[test]
fn several_results_are_one_command() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("select 1; update t; select 2"));
    let more = [0xfe, 0, 0, 10, 0];
    talk.server(&[column_packets(), protocol_packet(4, b"\x011"), protocol_packet(5, &more)].concat());
    talk.server(&protocol_packet(6, &[0, 5, 0, 10, 0, 0, 0]));
    let last = [
        protocol_packet(7, &[1]),
        protocol_packet(8, &column_definition()),
        protocol_packet(9, EOF),
        row_packets(10, &["2"]),
    ]
    .concat();
    let last_ns = talk.server(&last);
    talk.client(&query("select 3"));
    talk.server(&result(&["3"]));
    let events = events(&talk);
    let several = events.find_only("select 1; update t; select 2");
    assert_eq!((several.rows_sent, several.rows_affected), (Some(2), Some(5)));
    assert_eq!(several.start_ns + several.query_ns.unwrap(), last_ns);
    events.find_only("select 3");
}

#[test]
fn a_file_that_the_client_sends_is_no_command() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("load data local infile 'x' into table t"));
    talk.server(&protocol_packet(1, b"\xfbx"));
    // Its sequence numbers wrap, and its content looks like a command.
    for seq in 2..=300u32 {
        talk.client(&protocol_packet(seq as u8, b"\x03select 'not a command'"));
    }
    talk.client(&protocol_packet(45, b""));
    talk.server(&protocol_packet(46, &ok(9)));
    talk.client(&query("select 1"));
    talk.server(&result(&["1"]));
    let events = events(&talk);
    assert_eq!(events.find_only("load data local infile 'x' into table t").rows_affected, Some(9));
    assert_eq!(events.list.len(), 3);
}

#[test]
fn schema_and_user_follow_the_session() {
    let mut talk = session(SESSION_TRACK);
    let mut step = |command: &[u8], reply: &[u8], then: &str| {
        talk.client(&protocol_packet(0, command));
        talk.server(&protocol_packet(1, reply));
        talk.client(&query(then));
        talk.server(&result(&["1"]));
    };
    step(b"\x02first", &ok(0), "one");
    step(b"\x03use `second`;", &ok(0), "two");
    step(b"\x03use refused", b"\xff\x19\x04#42000no", "three");
    // OK with the state of the session: schema, of 6 bytes.
    step(b"\x03begin", b"\0\0\0\x02\x40\0\0\0\x08\x01\x06\x05third", "four");
    step(b"\x11other\0\x00fourth\0", &ok(0), "five");
    let events = events(&talk);
    let who = |text: &str| (events.find_only(text).user.clone(), events.find_only(text).schema.clone());
    assert_eq!(who("one"), ("app".into(), "first".into()));
    assert_eq!(who("two"), ("app".into(), "second".into()));
    assert_eq!(who("three"), ("app".into(), "second".into()));
    assert_eq!(who("four"), ("app".into(), "third".into()));
    assert_eq!(who("five"), ("other".into(), "fourth".into()));
}

#[test]
fn change_user_may_go_through_further_steps() {
    let mut talk = Conversation::logged_in();
    talk.client(&protocol_packet(0, b"\x11other\0\x00there\0"));
    talk.server(&protocol_packet(1, b"\xfemysql_native_password\0salt"));
    talk.client(&protocol_packet(2, b"\x03answer"));
    talk.server(&protocol_packet(3, &ok(0)));
    talk.client(&query("select 1"));
    talk.server(&result(&["1"]));
    let events = events(&talk);
    assert_eq!(events.find_only("select 1").schema, "there");
    assert_eq!(events.find_only("administrator command: Change_user").schema, "shop");
}

#[test]
fn a_login_may_go_through_further_steps() {
    let mut talk = Conversation::new();
    talk.open();
    talk.server(&greeting_with(DEFAULT_CAPABILITIES));
    talk.client(&login_with(DEFAULT_CAPABILITIES, "app", "shop"));
    talk.server(&protocol_packet(2, b"\xfecaching_sha2_password\0salt"));
    talk.client(&protocol_packet(3, b"scramble"));
    talk.server(&protocol_packet(4, b"\x01\x04"));
    talk.client(&protocol_packet(5, b"\x02"));
    talk.server(&protocol_packet(6, b"\x01-----BEGIN PUBLIC KEY-----"));
    talk.client(&protocol_packet(7, b"\x03secret"));
    talk.server(&protocol_packet(8, &ok(0)));
    talk.client(&query("select 1"));
    talk.server(&result(&["1"]));
    assert_eq!(events(&talk).statement_texts(), ["administrator command: Connect", "select 1"]);
}

#[test]
fn a_refused_login_is_a_connect_with_an_error() {
    let mut talk = Conversation::new();
    talk.open();
    talk.server(&greeting_with(DEFAULT_CAPABILITIES));
    talk.client(&login_with(DEFAULT_CAPABILITIES, "app", "shop"));
    talk.server(&protocol_packet(2, b"\xff\x15\x04#28000Access denied"));
    let events = events(&talk);
    assert_eq!(events.find_only("administrator command: Connect").error.as_ref().unwrap().0, 1045);
}

#[test]
fn tls_is_counted_and_never_parsed() {
    let mut talk = Conversation::new();
    talk.open();
    talk.server(&greeting_with(DEFAULT_CAPABILITIES | 1 << 11));
    let request = &login_with(DEFAULT_CAPABILITIES | 1 << 11, "", "")[4..36];
    talk.client(&protocol_packet(1, request));
    talk.client(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4]);
    talk.server(&query("ciphertext that looks like a command"));
    let events = events(&talk);
    assert!(events.list.is_empty());
    assert_eq!(events.ledger.sessions.encrypted, 1);
}

#[test]
fn query_attributes_stand_before_the_text() {
    let mut talk = session(QUERY_ATTRIBUTES);
    // Two of them, one NULL: count, sets, bitmap, new types, type and name each, value.
    let attributes = b"\x02\x01\x02\x01\xfe\x00\x05trace\x08\x00\x01n\x03abc";
    talk.client(&protocol_packet(0, &[b"\x03", &attributes[..], b"select 1"].concat()));
    talk.server(&result(&["1"]));
    talk.client(&protocol_packet(0, b"\x03\x00\x01select 2"));
    talk.server(&result(&["1"]));
    let events = events(&talk);
    assert_eq!(events.statement_texts()[1..], ["select 1", "select 2"]);
}

#[test]
fn progress_reports_are_no_errors() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("alter table t add index (a)"));
    talk.server(&protocol_packet(1, b"\xff\xff\xff\x01\x01\x02\x10\x27\0\x05stage"));
    let last_ns = talk.server(&protocol_packet(2, &ok(0)));
    let events = events(&talk);
    let alter = events.find_only("alter table t add index (a)");
    assert_eq!(alter.error, None);
    assert_eq!(alter.start_ns + alter.query_ns.unwrap(), last_ns);
}

#[test]
fn commands_sent_before_the_first_reply_are_told_apart() {
    let mut talk = Conversation::logged_in();
    let sent_ns = talk.client(&[query("one"), query("two")].concat());
    talk.client(&query("three"));
    let first = result(&["1"]);
    talk.server(&first[..10]);
    talk.server(&[&first[10..], &protocol_packet(1, &ok(2))[..]].concat());
    let last_ns = talk.server(&result(&["3", "3"]));
    let events = events(&talk);
    assert_eq!(events.statement_texts()[1..], ["one", "two", "three"]);
    assert_eq!(events.find_only("one").rows_sent, Some(1));
    assert_eq!(events.find_only("two").rows_affected, Some(2));
    assert_eq!(events.find_only("three").rows_sent, Some(2));
    assert_eq!(events.find_only("two").start_ns, sent_ns);
    assert!(events.find_only("three").start_ns + events.find_only("three").query_ns.unwrap() == last_ns);
}

#[test]
fn a_replication_stream_ends_the_commands() {
    let mut talk = Conversation::logged_in();
    talk.client(&protocol_packet(0, b"\x12\x04\0\0\0\0\0\x01\0\0\0binlog.1"));
    for seq in 1..200u8 {
        talk.server(&protocol_packet(seq, b"\0some event"));
    }
    let events = events(&talk);
    assert_eq!(events.statement_texts()[1..], ["administrator command: Binlog_dump"]);
}

#[test]
fn a_session_joined_midway_is_read_from_its_next_command() {
    let mut talk = Conversation::new();
    talk.server(b"the middle of a response");
    talk.client(&query("select 1"));
    talk.server(&result(&["1"]));
    talk.client(&prepare("select ?"));
    // Whether an EOF ends the definitions is not known here; the next command tells.
    talk.server(&prepare_response(7, 1, 0));
    talk.client(&execute(&[0, 1, 1, 0, 3]));
    talk.server(&result(&["3"]));
    let events = events(&talk);
    assert_eq!(events.statement_texts(), ["select 1", "select ?", "select ?"]);
    assert_eq!(events.ledger.sessions.joined_midway, 1);
    assert_eq!(events.ledger.commands.complete, 3);
}

#[test]
fn a_response_cut_by_a_snap_length_keeps_its_time() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("select wide"));
    talk.server(&column_packets());
    let last_ns = talk.server(&row_packets(4, &["0123456789"; 40]));
    talk.cut_last(60);
    talk.client(&query("select 2"));
    talk.server(&result(&["2"]));
    let events = events(&talk);
    let wide = events.find_only("select wide");
    assert_eq!((wide.tainted, wide.rows_sent), (false, None));
    assert_eq!(wide.start_ns + wide.query_ns.unwrap(), last_ns);
    assert_eq!(events.find_only("select 2").rows_sent, Some(1));
    assert_eq!(events.ledger.frames.truncated, 1);
}

#[test]
fn a_statement_cut_by_a_snap_length_says_how_much_is_missing() {
    let mut talk = Conversation::logged_in();
    talk.client(&query("select something rather long"));
    talk.cut_last(40 + 4 + 1 + 16);
    talk.server(&result(&["1"]));
    let events = events(&talk);
    let cut = events.find_only("select something");
    assert_eq!((cut.text_cut, cut.tainted, cut.rows_sent), (12, false, Some(1)));
}

#[test]
fn zlib_and_zstd_frames_are_expanded_wherever_packets_begin_in_them() {
    for frame in [wire::zlib_frame, wire::zstd_frame] {
        let mut talk = session(1 << 5 | 1 << 26);
        talk.client(&frame(0, &query("select compressed, compressed, compressed, compressed")));
        let response = result(&["1111111111111111111111111111111111111111111111111111"; 200]);
        let (head, tail) = response.split_at(1000);
        let frames = [frame(1, head), wire::stored_frame(2, &tail[..3]), frame(3, &tail[3..])].concat();
        for segment in frames.chunks(100) {
            talk.server(segment);
        }
        talk.client(&wire::stored_frame(0, &query("select 2")));
        talk.server(&wire::stored_frame(1, &result(&["2"])));
        let events = events(&talk);
        assert_eq!(events.list[1].rows_sent, Some(200));
        assert_eq!(events.statement_texts()[2], "select 2");
        assert_eq!(events.ledger.sessions.compressed, 1);
    }
}

#[test]
fn a_compressed_session_joined_midway_is_read_too() {
    let mut talk = Conversation::new();
    talk.client(&wire::zlib_frame(0, &query("select compressed, compressed, compressed, compressed")));
    talk.server(&wire::stored_frame(1, &result(&["2"])));
    let events = events(&talk);
    assert_eq!(events.list[0].rows_sent, Some(1));
    assert_eq!(events.ledger.sessions.compressed, 1);
}
