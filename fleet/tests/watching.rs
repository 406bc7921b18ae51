//! Tests of `toll-fleet watch`: alerts of tables, and who hears of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the program is started as its users start it")]

#[allow(dead_code, reason = "other tests use the rest")]
mod fixtures;

use fixtures::{fleet, write_changed, write_tables};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Answers one post, and returns its body.
fn take_post(listener: &TcpListener) -> Value {
    let (mut tcp, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(tcp.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_class_that_becomes_slower_raises_an_alert_and_nothing_does_before() {
    let root = tempfile::tempdir().unwrap();
    // Statements on `cart` are slower from 16:00 on.
    write_changed(root.path());
    let calm = fleet(&["watch", "--every", "30m", "--at", "2025-11-26 16:00"], root.path());
    assert_eq!((calm.status.code(), calm.stdout.len()), (Some(0), 0), "{calm:?}");
    // One interval is not enough.
    let one = fleet(&["watch", "--every", "30m", "--at", "2025-11-26 16:30"], root.path());
    assert_eq!((one.status.code(), one.stdout.len()), (Some(0), 0), "{one:?}");
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api/v2/alerts", collector.local_addr().unwrap());
    let posted = std::thread::spawn(move || take_post(&collector));
    let found =
        fleet(&["watch", "--every", "30m", "--at", "2025-11-26 17:00", "--webhook", &url], root.path());
    assert_eq!(found.status.code(), Some(3), "{found:?}");
    let alert: Value = serde_json::from_slice(&found.stdout).expect("one alert");
    assert_eq!(
        (&alert["kind"], &alert["cluster"], &alert["summary"]),
        (&"slower".into(), &"shop".into(), &"SELECT cart".into()),
        "{alert}"
    );
    let posted = posted.join().unwrap();
    assert_eq!(posted[0]["labels"]["alertname"], "toll_fleet_slower");
    assert!(posted[0]["endsAt"].as_str().unwrap().ends_with('Z'), "{posted}");
    assert_eq!(posted[0]["labels"]["class"], alert["class"]);
}

#[test]
fn a_host_that_falls_silent_raises_an_alert_while_it_does_and_prometheus_hears_of_it() {
    let root = tempfile::tempdir().unwrap();
    // Host db2 of cluster b ends after an hour.
    write_tables(root.path());
    let silent = fleet(&["watch", "--every", "10m", "--at", "2025-11-26 15:20"], root.path());
    let alert: Value = serde_json::from_slice(&silent.stdout).expect("one alert");
    assert_eq!((&alert["kind"], &alert["host"]), (&"silent".into(), &"db2".into()));
    // As of now, all of that is long past.
    let mut child = Command::new(env!("CARGO_BIN_EXE_toll-fleet"))
        .args(["watch", "--metrics", "127.0.0.1:0", "--tables"])
        .arg(root.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    words.read_line(&mut line).unwrap();
    let address = line.split_once("http://").unwrap().1.trim().trim_end_matches("/metrics").to_owned();
    await_judgement(&address);
    assert!(metrics_page(&address).contains("toll_fleet_alerts 0\n"), "{}", metrics_page(&address));
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn intervals_that_cannot_be_judged_are_no_silence() {
    let root = tempfile::tempdir().unwrap();
    write_changed(root.path());
    // Five minutes have a stretch a minute.
    let short = fleet(&["watch", "--every", "5m", "--at", "2025-11-26 17:00"], root.path());
    let words = String::from_utf8_lossy(&short.stderr).into_owned();
    assert_eq!(short.status.code(), Some(0), "{words}");
    assert!(words.contains("no class of shop can be found slower") && words.contains("--every"), "{words}");
    let compacted = fleet(&["compact", "--keep-replaced", "0s"], root.path());
    assert!(compacted.status.success(), "{compacted:?}");
    let wide = fleet(&["watch", "--every", "30m", "--at", "2025-11-26 17:00"], root.path());
    let words = String::from_utf8_lossy(&wide.stderr).into_owned();
    assert!(wide.status.code() == Some(1) && words.contains("in stretches of 1 h"), "{words}");
}

#[test]
fn an_interval_that_could_not_be_judged_is_tried_again_soon() {
    let (lab, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tables(root.path());
    let (manifests, away) = (root.path().join("manifests"), lab.path().join("manifests"));
    std::fs::rename(&manifests, &away).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_toll-fleet"))
        .args(["watch", "--every", "24h", "--metrics", "127.0.0.1:0", "--tables"])
        .arg(root.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address =
        words.next().unwrap().split_once("http://").unwrap().1.trim_end_matches("/metrics").to_owned();
    let error = words.next().unwrap();
    assert!(error.contains("has no tables"), "{error}");
    std::fs::rename(&away, &manifests).unwrap();
    await_judgement(&address);
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(words.next(), None, "it is said once");
}

/// As Prometheus asks for it.
fn metrics_page(address: &str) -> String {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    tcp.read_to_string(&mut page).unwrap();
    page
}

/// Until an interval has been judged.
fn await_judgement(address: &str) {
    let begun = Instant::now();
    while metrics_page(address).contains("judged_timestamp_seconds 0\n") {
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", metrics_page(address));
        std::thread::sleep(Duration::from_millis(50));
    }
}
