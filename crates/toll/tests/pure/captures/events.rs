//! Tests of query events of synthetic captures: equal to their packets, cut, damaged, sampled, in stretches.

use super::encoded::{SharedBuffer, assert_same, config, decoded_json, encode, for_each_frame};
use super::own::made;
use super::printed;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use toll_agent::capture::decoding::DigestOutput;
use toll_agent::capture::digest_printer::PrintOptions;
use toll_agent::capture::output::CaptureOutput;
use toll_wire::event::SampleShare;
use toll_wire::queries::BlockHeader;

#[test]
fn query_events_of_a_synthetic_capture_say_what_its_packets_say() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "4"]);
    assert_same(&capture, 3306, "made");
    // The type is told by the first bytes, and can be said.
    let file = capture.with_extension("queries");
    let typed = Command::new(env!("CARGO_BIN_EXE_toll"))
        .args(["digest", "--type", "queries", "--format", "json"])
        .arg(&file)
        .output()
        .unwrap();
    let typed: Value = serde_json::from_slice(&typed.stdout).unwrap();
    assert_eq!(typed["inputs"][0]["type"], "queries");
    assert_eq!(typed["totals"], printed::digest(&file, 3306)["totals"]);
    // A stretch of time of it, chosen by the digest.
    let part = |path: &Path| {
        let arguments = ["digest", "--since", "1767225602", "--until", "1767225604", "--format", "json"];
        let output = Command::new(env!("CARGO_BIN_EXE_toll")).args(arguments).arg(path).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["totals"].take()
    };
    assert_eq!(part(&file), part(&capture));
}

#[test]
fn a_large_file_is_digested_in_parts_that_come_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "5"]);
    let (events, _) = encode(&std::fs::read(&capture).unwrap(), 3306, |_, _| {});
    // Parts are of eight MiB at least: the same capture, again and again.
    let times = (20 << 20) / events.len() + 1;
    let file = dir.path().join("many");
    std::fs::write(&file, events.repeat(times)).unwrap();
    let digest = |jobs: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_toll"))
            .args(["digest", "--format", "json", "--jobs", jobs])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let (one, three) = (digest("1"), digest("3"));
    assert_eq!(one["totals"]["commands"], one["ledger"]["queries"]["events"]);
    assert_eq!(one["ledger"]["queries"]["captures_ended"], times);
    assert!(one == three, "{one:#}\n{three:#}");
}

#[test]
fn a_file_that_was_cut_or_damaged_is_digested_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "6"]);
    let (events, _) = encode(&std::fs::read(&capture).unwrap(), 3306, |_, _| {});
    let whole = dir.path().join("whole");
    std::fs::write(&whole, &events).unwrap();
    let whole = printed::digest(&whole, 3306)["totals"]["commands"].as_u64().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, &events[..events.len() * 2 / 3]).unwrap();
    let digest = printed::digest(&file, 3306);
    let there = digest["totals"]["commands"].as_u64().unwrap();
    assert!(there > 0 && there < whole, "{there} of {whole}");
    assert!(digest["ledger"]["queries"]["unread_tail_bytes"].as_u64().unwrap() > 0);
    assert_eq!(digest["ledger"]["adds_up"], true);
    let report = printed::report(&file, 3306);
    assert!(report.contains("#   cut       the file ends within a block"), "{report}");
    assert!(report.contains("#   open "), "{report}");
    // A byte of the fourth block is another.
    let mut damaged = events.clone();
    let behind = |at: usize| at + BlockHeader::LEN + BlockHeader::read(&events[at..]).unwrap().compressed_len;
    damaged[behind(behind(behind(0))) + BlockHeader::LEN + 20] ^= 0x40;
    std::fs::write(&file, &damaged).unwrap();
    let digest = printed::digest(&file, 3306);
    let (there, queries) = (digest["totals"]["commands"].as_u64().unwrap(), &digest["ledger"]["queries"]);
    let missing = queries["events_missing"].as_u64().unwrap();
    assert!(missing > 0 && there + missing == whole, "{there} and {missing} of {whole}");
    assert!(printed::report(&file, 3306).contains("#   missing   "));
}

#[test]
fn a_share_of_the_connections_is_told_with_totals_that_it_stands_for() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "4"]);
    let mut frames = 0;
    let bytes = std::fs::read(&capture).unwrap();
    for_each_frame(&bytes, |_| frames += 1);
    let mut at = 0;
    let (events, _) = encode(&bytes, 3306, |time_ns, queries| {
        at += 1;
        if at == frames / 2 {
            queries.sample_share(&SampleShare { time_ns, fraction: 0.5, requests: None });
        }
    });
    let file = dir.path().join("queries");
    std::fs::write(&file, &events).unwrap();
    let digest = printed::digest(&file, 3306);
    let (sampled, looked_at) = (&digest["sampled"], digest["totals"]["queries"].as_f64().unwrap());
    let estimate = |key: &str| sampled["queries"][key].as_f64().unwrap();
    assert_eq!(sampled["share_least"], 0.5);
    assert!((0.6..0.9).contains(&sampled["share_mean"].as_f64().unwrap()), "{sampled}");
    assert!((1.2..1.8).contains(&(estimate("estimate") / looked_at)), "{sampled}");
    assert!(estimate("low") < estimate("estimate") && estimate("estimate") < estimate("high"), "{sampled}");
    let report = printed::report(&file, 3306);
    assert!(report.contains("# Sampled: ") && report.contains("# Queries in all: "), "{report}");
    // Of all connections nothing is said.
    assert_eq!(printed::digest(&capture, 3306)["sampled"], Value::Null);
}

/// Lines that a digest of a capture prints while it runs; `every` of packet time.
fn digest_periods(capture: &[u8], every: Option<Duration>) -> Vec<Value> {
    let out = SharedBuffer::default();
    let how = PrintOptions::with_defaults(true, "test".to_owned(), Box::new(out.clone()));
    let mut digesting = DigestOutput::new(&config(3306), every, how).unwrap();
    let mut last_ns = 0;
    for_each_frame(capture, |frame| {
        digesting.tick(frame.time_ns).unwrap();
        digesting.packet(frame).unwrap();
        last_ns = frame.time_ns;
    });
    digesting.finish(last_ns).unwrap();
    let bytes = out.bytes();
    assert_eq!(digesting.counters().bytes_written, bytes.len() as u64);
    serde_json::Deserializer::from_slice(&bytes).into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_digest_of_what_is_captured_is_that_of_the_capture_and_its_stretches_add_up_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "4"]);
    let bytes = std::fs::read(&capture).unwrap();
    let whole = decoded_json(&capture, 3306);
    let mut once = digest_periods(&bytes, None);
    assert_eq!(once.len(), 1);
    once[0]["inputs"] = Value::Null;
    once[0]["ledger"]["queries"] = Value::Null;
    assert!(once[0] == whole, "{:#}\n{whole:#}", once[0]);
    let stretches = digest_periods(&bytes, Some(Duration::from_secs(2)));
    // Printing takes its time, so that a stretch may come to two.
    assert!(stretches.len() >= 2, "{}", stretches.len());
    let sum = |key: &str| stretches.iter().map(|one| one["totals"][key].as_u64().unwrap()).sum::<u64>();
    for key in ["commands", "queries", "errors"] {
        assert_eq!(sum(key), whole["totals"][key].as_u64().unwrap(), "{key}");
    }
    assert!(stretches.iter().all(|one| one["ledger"]["adds_up"] == true));
    // The whole capture's account stands in the last one alone.
    let ledgers = stretches.iter().filter(|one| one["ledger"]["commands"].is_object()).count();
    assert_eq!(ledgers, 1);
    assert_eq!(stretches.last().unwrap()["ledger"]["commands"], whole["ledger"]["commands"]);
}
