//! Tests that a capture of a real server's packets crosses the network completely.

use crate::ends::{CuttingProxy, Receiver, wait_until};
use crate::lab::{Lab, output_text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use toll_mysql::{Connection, Target};
use toll_testkit::tcpdump::{Tcpdump, capture_without_drops};

/// Statements of three classes, on two connections.
fn work(port: u16) {
    let target = Target::parse_dsn(&format!("mysql://root@127.0.0.1:{port}/")).unwrap();
    let mut connections = [Connection::connect(&target).unwrap(), Connection::connect(&target).unwrap()];
    for number in 0..600 {
        let connection = &mut connections[number % 2];
        connection.exec_drop(&format!("SELECT {number}")).unwrap();
        connection.exec_drop(&format!("SELECT REPEAT('x', {number})")).unwrap();
        connection.exec_drop(&format!("DO SLEEP(0), {number}")).unwrap();
    }
}

/// Number of queries of each class in a capture.
fn classes(lab: &Lab, file: &Path, port: u16) -> BTreeMap<String, u64> {
    let (file, port) = (file.to_str().unwrap(), port.to_string());
    let output = lab.toll(&["digest", "--port", &port, "--limit", "100%:1000", "--format", "json", file]);
    assert!(output.status.success(), "{}", output_text(&output));
    let digest: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |class: &Value| (class["id"].as_str().unwrap().to_owned(), class["count"].as_u64().unwrap());
    digest["classes"].as_array().unwrap().iter().map(count).collect()
}

#[test]
fn a_capture_that_is_streamed_over_a_network_that_breaks_holds_the_queries_that_tcpdump_sees() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let server = lab.start_server();
    let mut tries = 0;
    let (seen, received) = capture_without_drops(|| {
        tries += 1;
        let receiver = Receiver::start_in(&lab, &format!("captures{tries}"));
        let way = CuttingProxy::before(&receiver.address, &[2_500, 5_000, 9_000]);
        let (port, words) = (server.port.to_string(), lab.path(&format!("capture{tries}.words")));
        let file = lab.path(&format!("{tries}.pcap"));
        let args = ["capture", "-i", "lo", "--port", &port, "--stream", &way.address, "--key", &receiver.key];
        let more = ["--metrics", "127.0.0.1:0"];
        let mut capture = lab.spawn_with_stderr(&[&args[..], &more].concat(), &words);
        let heard = || std::fs::read_to_string(&words).unwrap_or_default();
        wait_until("it captures", || heard().contains("listening on"));
        let tcpdump = Tcpdump::listen(server.port, file.clone().into());
        work(server.port);
        let passed = tcpdump.stop();
        // While it goes on, Prometheus is told.
        let metrics =
            heard().split_once("metrics at ").unwrap().1.split_whitespace().next().unwrap().to_owned();
        wait_until("Prometheus hears of what was captured", || {
            read_metric(&metrics, "toll_capture_items_total") > 1_800.0
        });
        assert_eq!(read_metric(&metrics, "toll_capture_lost_total{where=\"network\"}"), 0.0);
        lab.signal(&capture, "INT");
        assert_eq!(capture.wait().unwrap().code(), Some(0), "{}", heard());
        let account = receiver.one_account();
        assert_eq!((&account["whole"], &account["lost"]), (&true.into(), &0.into()), "{account}");
        assert_eq!(way.cuts.load(Ordering::Relaxed), 3, "{account}");
        std::fs::write(&file, passed?).unwrap();
        Some((classes(&lab, file.as_ref(), server.port), classes(&lab, &receiver.files()[0], server.port)))
    });
    assert!(seen.values().filter(|count| **count == 600).count() == 3, "{seen:?}");
    assert_eq!(received, seen);
}

fn fetch_metrics(address: &str) -> String {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    tcp.read_to_string(&mut page).unwrap();
    page
}

/// The value of a metric on a capture's Prometheus endpoint.
fn read_metric(address: &str, name: &str) -> f64 {
    let page = fetch_metrics(address);
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
}

#[test]
fn a_digest_tells_prometheus_its_costliest_classes_while_it_is_being_made() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let server = lab.start_server();
    let (port, words) = (server.port.to_string(), lab.path("digest.words"));
    let args = ["capture", "-i", "lo", "--port", &port, "--digest", "--metrics", "127.0.0.1:0"];
    let mut capture = lab.spawn_with_stderr(&args, &words);
    let heard = || std::fs::read_to_string(&words).unwrap_or_default();
    wait_until("it captures", || heard().contains("listening on"));
    let metrics = heard().split_once("metrics at ").unwrap().1.split_whitespace().next().unwrap().to_owned();
    work(server.port);
    let of_class = |name: &str| {
        let page = fetch_metrics(&metrics);
        let line = page.lines().find(|line| line.starts_with(name) && line.contains("query=\"do sleep("));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).unwrap_or(0.0)
    };
    wait_until("Prometheus hears of the class", || of_class("toll_capture_class_queries{") >= 600.0);
    assert_eq!(of_class("toll_capture_class_queries{"), 600.0);
    assert!(of_class("toll_capture_class_seconds{") > 0.0);
    lab.signal(&capture, "INT");
    assert_eq!(capture.wait().unwrap().code(), Some(0), "{}", heard());
}
