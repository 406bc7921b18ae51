//! Tests of other clients' conversations with a real server: compression, files, TLS.

use super::printed;
use super::server::{Server, certified};
use toll_sys::program::find_program;
use toll_testkit::wire::{DecodedEvent, EventCollector};

const TOOLS: [&str; 2] = ["tcpdump", "mariadb"];
/// Options of the mariadb client.
const WAYS: [&[&str]; 2] = [&[], &["--compress"]];

/// Events captured while the mariadb client executed `sql`.
fn capture_statements(server: &Server, way: &[&str], sql: &str) -> EventCollector {
    let (capture, output) = server.capture_while(|| {
        server.client().args(way).args(["--local-infile=1", "--force", "-e", sql]).output().unwrap()
    });
    let events = EventCollector::decode_with(&capture, &server.config());
    let (commands, sessions) = (events.ledger.commands, events.ledger.sessions);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(commands.complete, commands.seen, "{way:?}: {complaint}");
    let understood = if way.is_empty() { sessions.plain } else { sessions.compressed };
    assert_eq!((sessions.seen, understood), (1, 1), "{way:?}: {sessions:?} {complaint}");
    events
}

/// The events from the first of these statements on, which must be consecutive.
fn find_sequence<'a>(events: &'a EventCollector, statements: &[&str]) -> &'a [DecodedEvent] {
    let first = events.list.iter().position(|event| event.text == statements[0]);
    let found = &events.list[first.unwrap_or_else(|| panic!("not in {:?}", events.statement_texts()))..];
    let texts: Vec<_> = found.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, [statements, &["administrator command: Quit"]].concat());
    found
}

fn answers_are_followed(server: &Server) {
    let statements = [
        "select 1",
        "select repeat('x', 200000)",
        "select id from sbtest1",
        "update sbtest1 set k = k + 1 where id <= 10",
        // The last: the client says nothing but goodbye after an error.
        "select nosuch from sbtest1",
    ];
    for way in WAYS {
        let events = capture_statements(server, way, &statements.join(";"));
        let found = find_sequence(&events, &statements);
        let rows: Vec<_> = found[..3].iter().map(|event| event.rows_sent).collect();
        assert_eq!(rows, [Some(1), Some(1), Some(1000)], "{way:?}");
        assert_eq!(found[3].rows_affected, Some(10), "{way:?}");
        assert_eq!(found[4].error.as_ref().map(|error| error.0), Some(1054), "{way:?}");
    }
}

fn a_file_is_one_statement(server: &Server) {
    const LINES: u64 = 50_000;
    // As long as many packets, and with what a command begins with.
    let lines: String = (0..LINES).map(|n| format!("{n}\t\u{3}select {n} from nowhere\n")).collect();
    let file = server.path("lines");
    std::fs::write(&file, lines).unwrap();
    let load = format!("load data local infile '{}' into table lines_of_a_file", file.display());
    let statements = [load.as_str(), "select count(*) from lines_of_a_file"];
    for way in WAYS {
        let mut session = server.session();
        session.exec_drop("drop table if exists lines_of_a_file").unwrap();
        session.exec_drop("create table lines_of_a_file (id int primary key, words varchar(100))").unwrap();
        drop(session);
        let events = capture_statements(server, way, &statements.join(";"));
        let found = find_sequence(&events, &statements);
        assert_eq!(found[0].rows_affected, Some(LINES), "{way:?}: {:?}", found[0].error);
        assert_eq!(found[1].rows_sent, Some(1), "{way:?}");
    }
}

/// Counted and never parsed.
fn encrypted_sessions_hold_no_events(server: &Server) {
    let options = ["read-only", "--time=1s", "--threads=4", "--tls"].map(String::from);
    let (capture, said) = server.capture_while(|| server.load(&options));
    assert!(said.statements > 0 && said.errors == 0, "{:?}", said.messages);
    let events = EventCollector::decode_with(&capture, &server.config());
    assert!(events.list.is_empty(), "{:?}", events.statement_texts());
    assert_eq!((events.ledger.sessions.seen, events.ledger.sessions.encrypted), (4, 4));
    let digest = printed::digest(&server.capture_file(), server.port());
    assert_eq!(digest["totals"]["commands"], 0);
    assert_eq!(digest["ledger"]["sessions"]["encrypted"], 4);
    assert_eq!(digest["ledger"]["adds_up"], true);
}

#[test]
fn answers_to_the_mariadb_client_are_followed_compressed_or_not() {
    let Some(server) = Server::installed(&TOOLS, &[]) else { return };
    answers_are_followed(&server);
}

#[test]
fn answers_of_mysql_are_followed_compressed_or_not() {
    let Some(server) = Server::mysql(&TOOLS, &[]) else { return };
    answers_are_followed(&server);
}

#[test]
fn a_file_that_the_mariadb_client_sends_is_one_statement() {
    let Some(server) = Server::installed(&TOOLS, &["local_infile=ON".into()]) else { return };
    a_file_is_one_statement(&server);
}

#[test]
fn a_file_sent_to_mysql_is_one_statement() {
    let Some(server) = Server::mysql(&TOOLS, &["local_infile=ON".into()]) else { return };
    a_file_is_one_statement(&server);
}

#[test]
fn encrypted_sessions_are_counted_and_hold_no_events() {
    if find_program("openssl").is_none() {
        toll_testkit::skip!("this test needs openssl");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = Server::installed(&["tcpdump"], &certified(dir.path())) else { return };
    encrypted_sessions_hold_no_events(&server);
}

#[test]
fn encrypted_sessions_of_mysql_are_counted_and_hold_no_events() {
    // It makes a certificate for itself.
    let Some(server) = Server::mysql(&["tcpdump"], &[]) else { return };
    encrypted_sessions_hold_no_events(&server);
}
