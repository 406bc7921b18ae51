//! Files that clients send (LOAD DATA LOCAL): packets that are no commands, the last of them empty.

use super::{assert_complete, watch};
use std::fmt::Write as _;
use std::process::Command;
use toll_taps::sockets::{HookKind, SocketTapOptions};
use toll_testkit::server::TestServer;
use watch::{TapThread, may_hook, pid_of};

fn assert_files_are_followed(hooks: HookKind) {
    let Some(server) = TestServer::mariadb(&["--local-infile=1"]) else { return };
    if Command::new("mariadb").arg("--version").output().is_err() {
        return toll_testkit::skip!("mariadb is missing: apt-get install mariadb-client");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lines");
    // As long as many packets, and with what a command begins with.
    let lines = (0..20_000).fold(String::new(), |mut lines, number| {
        let _ = writeln!(lines, "{number}\t\u{3}SELECT {number}");
        lines
    });
    std::fs::write(&file, lines).unwrap();
    let watch = TapThread::begin(&SocketTapOptions {
        hooks: Some(hooks),
        ..SocketTapOptions::for_server(pid_of(&server.socket()))
    });
    let load = format!("LOAD DATA LOCAL INFILE '{}' INTO TABLE lines_of_a_file", file.display());
    let sql = format!(
        "CREATE DATABASE files; USE files; CREATE TABLE lines_of_a_file (id INT, words TEXT); {load}; {load}; \
         SELECT 'after the files'"
    );
    let output = Command::new("mariadb")
        .args(["--no-defaults", "--user=root", "--local-infile=1", "-e", &sql])
        .arg(format!("--socket={}", server.socket().display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    watch.wait_until_seen("administrator command: Quit");
    let watched = watch.end();
    assert_eq!(watched.count(&load), 2);
    assert!(watched.events.iter().filter(|seen| seen.reads(&load)).all(|seen| seen.timed && !seen.tainted));
    assert!(watched.only("SELECT 'after the files'").timed);
    assert_complete(&watched);
}

#[test]
fn a_file_is_one_statement_and_those_after_it_are_seen_at_sockets() {
    if may_hook() {
        assert_files_are_followed(HookKind::Sockets);
    }
}

#[test]
fn a_file_is_one_statement_and_those_after_it_are_seen_at_calls() {
    if may_hook() {
        assert_files_are_followed(HookKind::SystemCalls);
    }
}
