//! Tests of clients in other languages, each with its own use of the protocol.
//!
//! The capture is compared with the results that the client received. `scripts/connectors` installs the
//! clients; one that is missing is skipped visibly.

use super::server::Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use toll_testkit::wire::{DecodedEvent, EventCollector};
use toll_wire::event::CommandKind;

/// Folder and driver.
const CONNECTORS: [(&str, &str); 7] = [
    ("perl", "DBD::mysql"),
    ("python", "mysql-connector-python"),
    ("node", "mysql2"),
    ("node", "mariadb"),
    ("go", "go-sql-driver"),
    ("java", "mysql"),
    ("java", "mariadb"),
];
const WAYS: [&str; 2] = ["plain", "compressed"];

enum Step {
    Text(String),
    Prepared(String, &'static [&'static str]),
    /// Rows of two parameters.
    Batch(String, &'static [&'static str]),
}

impl Step {
    fn sql(&self) -> &str {
        match self {
            Step::Text(sql) | Step::Prepared(sql, _) | Step::Batch(sql, _) => sql,
        }
    }

    fn line(&self) -> String {
        match self {
            Step::Text(sql) => format!("text\t{sql}\n"),
            Step::Prepared(sql, values) => format!("prepared\t{sql}\t{}\n", values.join("\t")),
            Step::Batch(sql, values) => format!("batch\t{sql}\t2\t{}\n", values.join("\t")),
        }
    }
}

fn steps() -> Vec<Step> {
    let long = format!("select length('{}')", "q".repeat(300_000));
    let range = "select id from sbtest1 where id between ? and ?";
    [
        Step::Text("select id, k from sbtest1 where id <= 50".into()),
        Step::Prepared(range.into(), &["10", "29"]),
        Step::Prepared(range.into(), &["1", "5"]),
        Step::Prepared("select ? as a, ? as b, ? as c".into(), &["'it's", "NULL", "-7"]),
        Step::Text("select repeat('z', 200000)".into()),
        Step::Text("update sbtest1 set k = k + 1 where id <= 3".into()),
        Step::Prepared("update sbtest1 set c = ? where id = ?".into(), &["'once more", "4"]),
        Step::Text("select nosuch from sbtest1".into()),
        Step::Batch("insert into words values (?, ?)".into(), &["1", "'a", "2", "'b", "3", "NULL"]),
        Step::Text(long),
        Step::Prepared("select count(*) from words where id > ?".into(), &["1"]),
    ]
    .into_iter()
    .collect()
}

/// True if an event executes the plan's statement. Drivers trim, and some send lists of several.
fn matches_step(event: &DecodedEvent, step: &Step) -> bool {
    matches!(event.kind, CommandKind::Query | CommandKind::Execute) && event.text == step.sql()
}

/// Values without the quotes and escapes that distinguish a text from a number.
///
/// A driver may send a number as either.
fn bare(values: &str) -> String {
    values.replace(['\'', '\\'], "")
}

/// Checks that the capture agrees with the result that the client received.
fn assert_matches(events: &[&DecodedEvent], step: &Step, told: &str, case: &str) {
    let case = format!("{case}: {:.60}", step.sql());
    assert!(events.iter().all(|event| !event.tainted), "{case}");
    let (what, number) = told.split_once(' ').unwrap_or_else(|| panic!("{case}: {told:?}"));
    let number: u64 = number.parse().unwrap();
    if let Step::Batch(..) = step {
        let affected: u64 = events.iter().filter_map(|event| event.rows_affected).sum();
        assert_eq!(("affected", affected), (what, number), "{case}");
        return;
    }
    let [event] = events else { panic!("{case}: {} events", events.len()) };
    match what {
        "rows" => assert_eq!(event.rows_sent, Some(number), "{case}"),
        "affected" => assert_eq!(event.rows_affected, Some(number), "{case}"),
        _ => assert_eq!(event.error.as_ref().map(|error| u64::from(error.0)), Some(number), "{case}"),
    }
    if let Step::Prepared(_, values) = step
        && event.kind == CommandKind::Execute
    {
        assert_eq!(bare(&event.params), bare(&values.join(", ")), "{case}");
    }
}

fn program(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/connectors").join(folder).join("run")
}

/// The client's results, a line for each step, and the events of the capture.
fn run_connector(
    server: &Server,
    folder: &str,
    driver: &str,
    way: &str,
    plan: &Path,
) -> (String, EventCollector) {
    let mut session = server.session();
    session.exec_drop("drop table if exists words").unwrap();
    session.exec_drop("create table words (id int primary key, word varchar(100))").unwrap();
    drop(session);
    let (capture, output) = server.capture_while(|| {
        let account = server.account();
        let mut command = Command::new(program(folder));
        command.args([driver, "127.0.0.1", &server.port().to_string(), &account.user, way]);
        command.arg(plan).env("MYSQL_PWD", account.password.expose()).output().unwrap()
    });
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{driver}, {way}: {complaint}");
    (String::from_utf8(output.stdout).unwrap(), EventCollector::decode_with(&capture, &server.config()))
}

fn every_connector_is_understood(server: &Server) {
    let steps = steps();
    let plan = server.path("plan");
    std::fs::write(&plan, steps.iter().map(Step::line).collect::<String>()).unwrap();
    for (folder, driver) in CONNECTORS {
        if !program(folder).exists() {
            toll_testkit::skip!("no client in {folder} is installed (scripts/connectors)");
            continue;
        }
        for way in WAYS {
            let case = format!("{folder}, {driver}, {way}");
            let (told, events) = run_connector(server, folder, driver, way, &plan);
            let told: Vec<_> = told.lines().collect();
            assert_eq!(told.len(), steps.len(), "{case}: {told:?}");
            for (step, told) in steps.iter().zip(told) {
                let of_step: Vec<_> = events.list.iter().filter(|event| matches_step(event, step)).collect();
                // A statement that stands twice in the plan is told apart by its values.
                let of_step = match step {
                    Step::Prepared(_, values) if of_step.len() > 1 => {
                        let values = bare(&values.join(", "));
                        of_step.into_iter().filter(|event| bare(&event.params) == values).collect()
                    }
                    _ => of_step,
                };
                assert_matches(&of_step, step, told, &case);
            }
            let (commands, sessions) = (events.ledger.commands, events.ledger.sessions);
            assert_eq!((commands.complete, commands.tainted), (commands.seen, 0), "{case}");
            let understood = if way == "plain" { sessions.plain } else { sessions.compressed };
            assert_eq!(understood, sessions.seen, "{case}");
        }
    }
}

#[test]
fn clients_in_other_languages_are_understood() {
    let Some(server) = Server::installed(&["tcpdump"], &[]) else { return };
    every_connector_is_understood(&server);
}

#[test]
fn clients_in_other_languages_are_understood_when_they_speak_to_mysql() {
    let Some(server) = Server::mysql(&["tcpdump"], &[]) else { return };
    every_connector_is_understood(&server);
}
