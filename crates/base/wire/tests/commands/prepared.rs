//! Prepared statements: parameters, long data, cursors, bulk execution, and what their clients send before an answer.

use super::{events, execute, prepare, session};
use toll_testkit::wire::{
    Conversation, QUERY_ATTRIBUTES, column_definition, ok, prepare_response, protocol_packet, result,
};
use toll_wire::event::CommandKind;

/// MySQL reads the count wherever there are parameters; the flag tells of it where there are none.
#[test]
fn a_count_and_names_stand_among_the_parameters_of_a_client_with_query_attributes() {
    let mut talk = session(QUERY_ATTRIBUTES);
    talk.client(&prepare("select ?, ?"));
    talk.server(&prepare_response(7, 2, 0));
    // Connector/Python without attributes: count, bitmap, new types, type and empty name each, values.
    talk.client(&execute(b"\x02\x00\x01\x01\x00\x00\xfe\x00\x00\x0a\x03abc"));
    talk.server(&result(&["1"]));
    // The types of before hold.
    talk.client(&execute(b"\x02\x01\x00\x01d"));
    talk.server(&result(&["1"]));
    // With an attribute, and the flag.
    let named = b"\x03\x00\x01\x01\x00\x00\xfe\x00\x00\xfe\x00\x05trace\x0b\x01e\x01f";
    talk.client(&protocol_packet(0, &[&[0x17, 7, 0, 0, 0, 8, 1, 0, 0, 0], &named[..]].concat()));
    talk.server(&result(&["1"]));
    let events = events(&talk);
    let params: Vec<_> = events.list[2..].iter().map(|event| event.params.as_str()).collect();
    assert_eq!(params, ["10, 'abc'", "NULL, 'd'", "11, 'e'"]);
}

#[test]
fn parameters_of_every_type_are_rendered_as_sql() {
    let mut talk = Conversation::logged_in();
    talk.client(&prepare("insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    talk.server(&prepare_response(7, 11, 0));
    let mut rest = vec![0b0000_0010, 0, 1];
    for kind in
        [[1, 0], [8, 0], [8, 0x80], [2, 0], [4, 0], [5, 0], [12, 0], [10, 0], [11, 0], [253, 0], [252, 0]]
    {
        rest.extend(kind);
    }
    rest.extend([0xff]);
    rest.extend(u64::MAX.to_le_bytes());
    rest.extend((-300i16).to_le_bytes());
    rest.extend(1.5f32.to_le_bytes());
    rest.extend(1e300f64.to_le_bytes());
    rest.extend([11, 0xea, 7, 11, 21, 1, 2, 3, 0x40, 0xe2, 1, 0]);
    rest.extend([4, 0xea, 7, 11, 21]);
    rest.extend([8, 1, 1, 0, 0, 0, 2, 3, 4]);
    rest.extend(b"\x06it's\\\n");
    rest.extend([0xfc, 44, 1]);
    rest.extend([b'b'; 300]);
    talk.client(&execute(&rest));
    talk.server(&protocol_packet(1, &ok(1)));
    let events = events(&talk);
    let values = format!(
        "-1, NULL, 18446744073709551615, -300, 1.5, 1e300, '2026-11-21 01:02:03.123456', '2026-11-21', \
         '-26:03:04', 'it\\'s\\\\\\n', '{}'",
        "b".repeat(300)
    );
    let executed = events.list.last().unwrap();
    assert_eq!(executed.params, values);
    assert_eq!(executed.kind, CommandKind::Execute);
    assert_eq!(executed.text, "insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
}

#[test]
fn types_are_sent_once_and_used_again() {
    let mut talk = Conversation::logged_in();
    talk.client(&prepare("select ?"));
    talk.server(&prepare_response(7, 1, 1));
    talk.client(&execute(&[0, 1, 3, 0, 5, 0, 0, 0]));
    talk.server(&result(&["5"]));
    talk.client(&execute(&[0, 0, 6, 0, 0, 0]));
    talk.server(&result(&["6"]));
    let events = events(&talk);
    let params: Vec<_> = events.list.iter().map(|event| event.params.as_str()).collect();
    assert_eq!(params, ["", "", "5", "6"]);
}

#[test]
fn bytes_behind_values_are_minded_where_their_types_are_only_remembered() {
    let mut talk = Conversation::logged_in();
    talk.client(&prepare("select ?, ?"));
    talk.server(&prepare_response(7, 2, 2));
    // A byte too many for the NULL, as mysql2 sends it; then the same without types.
    for values in [&[2, 1, 3, 0, 6, 0, 5, 0, 0, 0, 0][..], &[2, 0, 6, 0, 0, 0], &[2, 0, 6, 0, 0, 0, 0]] {
        talk.client(&execute(values));
        talk.server(&result(&["1", "2"]));
    }
    let events = events(&talk);
    let params: Vec<_> = events.list[2..].iter().map(|event| event.params.as_str()).collect();
    assert_eq!(params, ["5, NULL", "6, NULL", "..."]);
}

#[test]
fn long_data_stands_for_a_value_and_has_no_reply() {
    let mut talk = Conversation::logged_in();
    talk.client(&prepare("insert into t values (?, ?)"));
    talk.server(&prepare_response(7, 2, 0));
    talk.client(&protocol_packet(0, b"\x18\x07\0\0\0\x01\0long "));
    talk.client(&protocol_packet(0, b"\x18\x07\0\0\0\x01\0text"));
    talk.client(&execute(&[0, 1, 1, 0, 252, 0, 9]));
    talk.server(&protocol_packet(1, &ok(1)));
    talk.client(&execute(&[2, 0, 8]));
    talk.server(&protocol_packet(1, &ok(1)));
    let events = events(&talk);
    assert_eq!(events.list[2].params, "9, 'long text'");
    assert_eq!(events.list[3].params, "8, NULL");
    assert_eq!(events.ledger.commands.seen, 4);
}

#[test]
fn close_and_reset_name_their_statement() {
    let mut talk = Conversation::logged_in();
    talk.client(&prepare("select 1"));
    talk.server(&prepare_response(7, 0, 1));
    talk.client(&protocol_packet(0, &[0x1a, 7, 0, 0, 0]));
    talk.server(&protocol_packet(1, &ok(0)));
    talk.client(&protocol_packet(0, &[0x19, 7, 0, 0, 0]));
    talk.client(&execute(&[]));
    talk.server(&protocol_packet(1, b"\xff\xdb\x04#HY000unknown"));
    let events = events(&talk);
    assert_eq!(
        events.statement_texts()[2..],
        ["RESET 7", "DEALLOCATE PREPARE 7", "EXECUTE 7 (text not seen)"]
    );
}

#[test]
fn a_cursor_opens_without_rows_and_is_fetched_from() {
    let mut talk = Conversation::logged_in();
    talk.client(&prepare("select 1"));
    talk.server(&prepare_response(7, 0, 1));
    talk.client(&execute(&[]));
    talk.server(
        &[
            protocol_packet(1, &[1]),
            protocol_packet(2, &column_definition()),
            protocol_packet(3, &[0xfe, 0, 0, 0x42, 0]),
        ]
        .concat(),
    );
    talk.client(&protocol_packet(0, &[0x1c, 7, 0, 0, 0, 2, 0, 0, 0]));
    talk.server(
        &[
            protocol_packet(1, b"\0\0a"),
            protocol_packet(2, b"\0\0b"),
            protocol_packet(3, &[0xfe, 0, 0, 0x82, 0]),
        ]
        .concat(),
    );
    let events = events(&talk);
    assert_eq!(events.list[2].rows_sent, Some(0));
    assert_eq!(events.find_only("administrator command: Stmt_fetch").rows_sent, Some(2));
}

#[test]
fn bulk_execution_lists_its_rows() {
    let mut talk = Conversation::logged_in();
    talk.client(&prepare("insert into t values (?, ?)"));
    talk.server(&prepare_response(7, 2, 0));
    let head = [0xfa, 7, 0, 0, 0, 0xc0, 0, 3, 0, 253, 0];
    let values = [&[0, 1, 0, 0, 0, 0, 1][..], b"a", &[1, 2]].concat();
    talk.client(&protocol_packet(0, &[&head[..], &values].concat()));
    talk.server(&protocol_packet(1, &ok(2)));
    assert_eq!(events(&talk).list.last().unwrap().params, "(1, 'a'), (NULL, DEFAULT)");
}

#[test]
fn the_statement_prepared_last_is_known_before_it_is_answered() {
    let mut talk = Conversation::logged_in();
    let last = [0x17, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 1, 1, 0, 9];
    talk.client(&[prepare("select ?"), protocol_packet(0, &last)].concat());
    talk.server(&prepare_response(7, 1, 1));
    talk.server(&result(&["9"]));
    let events = events(&talk);
    let executed = &events.list[2];
    assert_eq!((executed.text.as_str(), executed.params.as_str()), ("select ?", "9"));
    assert_eq!(executed.statement_id, Some(7));
}
