//! Tests that a captured workload is sent again, statement by statement.

use super::printed;
use super::server::Server;
use serde_json::Value;

/// Number of SELECTs among events, as in the server's Com_select.
fn selects(lines: &str) -> u64 {
    let is_select = |event: &Value| {
        matches!(event["kind"].as_str(), Some("query" | "execute"))
            && event["query"].as_str().is_some_and(|query| query.starts_with("SELECT"))
    };
    lines.lines().filter(|line| is_select(&serde_json::from_str(line).unwrap())).count() as u64
}

#[test]
fn a_captured_workload_is_sent_again_statement_by_statement() {
    let Some(server) = Server::installed(&["tcpdump"], &[]) else { return };
    for way in ["--text", "--threads=4"] {
        let options = ["read-only", "--time=1s", "--rate=50", "--arrivals=uniform", way].map(String::from);
        server.capture_while(|| server.load(&options));
        let lines = printed::lines(&server.capture_file(), server.port());
        let due = selects(&lines);
        assert_eq!(due % 14, 0, "{way}: a transaction holds 14");
        let events = server.path("events.ndjson");
        std::fs::write(&events, lines).unwrap();

        let before = server.counters()["Com_select"];
        let sent = server.load(&[events.display().to_string(), "--threads=4".into()]);
        assert_eq!((sent.statements, sent.errors), (due, 0), "{way}: {:?}", sent.messages);
        assert_eq!(server.counters()["Com_select"] - before, due, "{way}");
    }
}
