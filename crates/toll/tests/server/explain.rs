//! Tests of `toll digest --explain` on a real server: plans, reasons, refusals, and what is sent.

use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};
use toll_mysql::{Connection, Target};
use toll_testkit::lab::{ForeignServer, Lab, output_text};

/// Statements of a log, in their schema.
const STATEMENTS: [&str; 5] = [
    "select name from items where id = 17",
    "select count(*) from items where name = 'secret-a'",
    "update items set name = 'secret-b' where id = 3",
    "select name from items where id = 4 for update",
    "select missing from items where name = 'secret-c'",
];

fn slow_log() -> String {
    let entry = |statement: &&str| {
        format!(
            "# Time: 2026-11-21T10:00:00.000000Z\n# User@Host: app[app] @ web1 []  Id: 3\n\
             # Query_time: 0.500000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1\n\
             use shop;\nSET timestamp=1795255200;\n{statement};\n"
        )
    };
    STATEMENTS.iter().map(entry).collect()
}

/// A server with a table, and an account that can read it.
fn server(lab: &Lab) -> ForeignServer {
    let server = lab.start_server();
    server.run(
        "create database shop; create table shop.items (id int primary key, name varchar(20)); \
         insert into shop.items values (1, 'a'), (2, 'b'), (3, 'c'), (17, 'd'); \
         create user reader@localhost; grant select on shop.* to reader@localhost; \
         create user writer@localhost; grant select, insert on shop.* to writer@localhost",
    );
    server
}

fn explain(lab: &Lab, dsn: &str, more: &[&str]) -> Output {
    let log = lab.write("slow.log", &slow_log());
    lab.toll(&[&["digest", "--limit", "0", "--explain", dsn], more, &[&log]].concat())
}

fn reader(server: &ForeignServer) -> String {
    server.dsn().replace("root@", "reader@")
}

/// Plan of the class whose fingerprint begins like this.
fn plan(digest: &Value, fingerprint: &str) -> Value {
    let mut classes = digest["classes"].as_array().unwrap().iter();
    let class = classes.find(|class| class["fingerprint"].as_str().unwrap().starts_with(fingerprint));
    class.unwrap()["plan"].clone()
}

#[test]
fn selects_have_plans_and_other_statements_the_reason_for_none() {
    let lab = toll_testkit::lab!();
    let server = server(&lab);
    let output = explain(&lab, &reader(&server), &["--json"]);
    assert!(output.status.success(), "{}", output_text(&output));
    let digest: Value = serde_json::from_slice(&output.stdout).unwrap();
    let by_key = plan(&digest, "select name from items where id = ?");
    let column = by_key["columns"].as_array().unwrap().iter().position(|name| name == "key").unwrap();
    assert_eq!(by_key["rows"][0][column], "PRIMARY", "{by_key}");
    assert!(by_key["server"].as_str().unwrap().contains("MariaDB"), "{by_key}");
    assert_eq!(plan(&digest, "select count(*)")["rows"][0][column], Value::Null);
    for (fingerprint, reason) in [
        ("update", "it is no SELECT"),
        ("select name from items where id = ? for update", "it locks rows (FOR UPDATE)"),
        ("select missing", "the server answered with error 1054 (42S22)"),
    ] {
        assert_eq!(plan(&digest, fingerprint)["not_explained"], reason);
    }

    let text = output_text(&explain(&lab, &reader(&server), &[]));
    assert!(
        text.contains("# EXPLAIN on /")
            && text.contains("possible_keys")
            && text.contains("none, it is no SELECT"),
        "{text}"
    );
    for output in [text, digest.to_string()] {
        assert!(!output.contains("secret"), "{output}");
    }
}

#[test]
fn an_account_that_may_write_is_refused_before_anything_is_read() {
    let lab = toll_testkit::lab!();
    let server = server(&lab);
    let writer = server.dsn().replace("root@", "writer@");
    for (dsn, privilege) in [(writer, "(INSERT)"), (server.dsn(), "ALL PRIVILEGES")] {
        let output = explain(&lab, &dsn, &[]);
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains(privilege) && text.contains("CREATE USER") && output.stdout.is_empty(),
            "{text}"
        );
    }
    let output = lab.toll(&["digest", "--explain", &reader(&server), "--compare", "a", "b"]);
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
}

#[test]
fn nothing_is_sent_that_runs_a_sample() {
    let lab = toll_testkit::lab!();
    let server = server(&lab);
    server.run("set global general_log_file = 'all.log'; set global general_log = 1");
    assert!(explain(&lab, &reader(&server), &[]).status.success());
    server.run("set global general_log = 0");
    let log = String::from_utf8(std::fs::read(server.datadir().join("all.log")).unwrap()).unwrap();
    let sent: Vec<&str> =
        log.lines().filter_map(|line| line.split_once(" Query\t").map(|(_, sql)| sql)).collect();
    assert!(sent.iter().any(|sql| sql.starts_with("EXPLAIN FORMAT=TRADITIONAL select name")), "{log}");
    let harmless = [
        "EXPLAIN FORMAT=TRADITIONAL select ",
        "SHOW GRANTS",
        "SET SESSION TRANSACTION READ ONLY",
        "SET SESSION sql_mode",
        "USE `shop`",
        "START TRANSACTION READ ONLY",
        "ROLLBACK",
        "set global general_log",
    ];
    let other: Vec<&&str> =
        sent.iter().filter(|sql| !harmless.iter().any(|known| sql.starts_with(known))).collect();
    assert!(other.is_empty() && !log.contains("for update"), "{other:?} {log}");
}

#[test]
fn an_explain_that_waits_ends_by_its_limit() {
    let lab = toll_testkit::lab!();
    let server = server(&lab);
    let mut holder = Connection::connect(&Target::parse_dsn(&server.dsn()).unwrap()).unwrap();
    holder.exec_drop("lock tables shop.items write").unwrap();
    let begun = Instant::now();
    let output = explain(&lab, &reader(&server), &["--explain-time", "200ms", "--json"]);
    let digest: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reason = plan(&digest, "select count(*)")["not_explained"].clone();
    assert_eq!(reason, "it took longer than 0.2 s");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
