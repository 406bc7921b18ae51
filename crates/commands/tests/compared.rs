//! Tests of `toll-agent digest --compare`, and of classes by tag. Runs the program on logs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CLASSES: [(&str, f64); 6] = [
    ("cart", 1_000.0),
    ("item", 1_500.0),
    ("user", 700.0),
    ("visit", 3_000.0),
    ("stock", 9_000.0),
    ("price", 400.0),
];
const SECONDS: u64 = 240;
/// Seconds of each digest that is stored.
const STRETCH: u64 = 20;

/// Draws from 0 to 1, the same each time (Knuth's MMIX generator).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A slow log of ten statements a second from a moment on, in stretches. Class `stock` takes `factor` of its time.
fn slow_log(seed: u64, from_s: u64, factor: f64) -> Vec<String> {
    let mut draws = Draws(seed);
    let mut stretches = Vec::new();
    for second in from_s..from_s + SECONDS {
        if (second - from_s).is_multiple_of(STRETCH) {
            stretches.push(String::new());
        }
        let log = stretches.last_mut().unwrap();
        for _ in 0..10 {
            let moment = jiff::Timestamp::from_second(second.cast_signed()).unwrap();
            let (table, us) = CLASSES[(draws.next() * 6.0) as usize];
            let us = us * (0.7 + 0.6 * draws.next()) * if table == "stock" { factor } else { 1.0 };
            let route = if table == "stock" { "%2Fstock" } else { "%2Fshop" };
            writeln!(log, "# Time: {moment}\n# User@Host: app[app] @ web1 []  Id: 3").unwrap();
            writeln!(
                log,
                "# Query_time: {:.6}  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1",
                us / 1e6
            )
            .unwrap();
            writeln!(log, "SET timestamp={second};").unwrap();
            writeln!(log, "select a from {table} where id = {second} /*route='{route}',trace='{us}'*/;")
                .unwrap();
        }
    }
    stretches
}

fn toll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toll-agent"))
        .arg("digest")
        .args(args)
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = toll(&[&["--json"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(dir: &Path, name: &str, content: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Fingerprints of the classes with this result.
fn with_change(comparison: &Value, change: &str) -> Vec<String> {
    let classes = comparison["classes"].as_array().unwrap().iter();
    let classes = classes.filter(|class| class["change"] == change);
    classes.map(|class| class["fingerprint"].as_str().unwrap().to_owned()).collect()
}

const START_S: u64 = 1_790_000_000;
/// A comment leaves a blank, as in pt-query-digest.
const SLOWER: &str = "select a from stock where id = ? ";

#[test]
fn a_slower_class_is_found_in_two_logs_in_one_log_and_in_stored_digests() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (slow_log(1, START_S, 1.0), slow_log(2, START_S + SECONDS, 1.3));
    let (a, b) = (write(dir.path(), "a.log", &before.concat()), write(dir.path(), "b.log", &after.concat()));
    let logs = json(&["--compare", &a, &b]);
    assert_eq!(with_change(&logs, "slower"), [SLOWER], "{logs:#}");
    assert_eq!(with_change(&logs, "within_margin").len() + with_change(&logs, "inconclusive").len(), 5);
    let text = String::from_utf8(toll(&["--compare", &a, &b]).stdout).unwrap();
    assert!(text.contains("Slower: 1\n") && text.contains("of 6 classes"), "{text}");

    // What it is in one file, before and after a moment.
    let whole = write(dir.path(), "whole.log", &[before.concat(), after.concat()].concat());
    let at = (START_S + SECONDS).to_string();
    let mut split = json(&["--compare-at", &at, &whole]);
    assert_eq!(split["classes"], logs["classes"]);
    split = json(&["--compare-at", &at, "--until", &at, &whole]);
    assert_eq!(split["after"]["commands"], 0);

    // Digests of stretches, one behind the other, as `toll capture --digest --every` writes them.
    let stored = |name: &str, stretches: &[String]| {
        let digest = |log: &String| {
            let log = write(dir.path(), "stretch.log", log);
            String::from_utf8(toll(&["--json", "--limit", "0", &log]).stdout).unwrap()
        };
        write(dir.path(), name, &stretches.iter().map(digest).collect::<String>())
    };
    let (a, b) = (stored("a.json", &before), stored("b.json", &after));
    let digests = json(&["--compare", &a, &b]);
    assert_eq!(digests["slices"], 12);
    assert_eq!(with_change(&digests, "slower"), [SLOWER], "{digests:#}");
    let one = stored("one.json", &before[..1]);
    let untested = json(&["--compare", &one, &b]);
    assert_eq!((&untested["slices"], with_change(&untested, "not_tested").len()), (&Value::Null, 6));
}

#[test]
fn a_comparison_that_cannot_be_made_is_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let log = write(dir.path(), "a.log", &slow_log(1, START_S, 1.0).concat());
    let refused = |args: &[&str], code: i32, why: &str| {
        let output = toll(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(why), "{error}");
    };
    refused(&["--compare", &log, "--format", "csv", &log], 1, "--format report or json");
    refused(&["--compare", "-", "-"], 1, "name `-` once");
    refused(&["--compare-at", "1h", "-"], 1, "to a file first");
    refused(&["--compare", &log, "--events", &log], 2, "--events");
    refused(&["--compare", "/nonexistent/log", &log], 1, "No such file");
    refused(&["--group-by", "tag:", &log], 2, "names no tag");
    refused(&["--group-by", "shape", &log], 2, "tag:NAME");
}

#[test]
fn statements_are_grouped_by_a_tag_of_their_comment() {
    let dir = tempfile::tempdir().unwrap();
    let log = write(dir.path(), "a.log", &slow_log(1, START_S, 1.0).concat());
    let by_route = json(&["--group-by", "tag:route", "--limit", "0", &log]);
    assert_eq!(by_route["schema"]["group_by"], "tag:route");
    let names = |digest: &Value| {
        let classes = digest["classes"].as_array().unwrap().iter();
        classes.map(|class| class["fingerprint"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&by_route), ["/stock", "/shop"]);
    let total: u64 =
        by_route["classes"].as_array().unwrap().iter().map(|class| class["count"].as_u64().unwrap()).sum();
    assert_eq!(total, SECONDS * 10);
    assert_eq!(names(&json(&["--group-by", "tag:app", &log])), ["(untagged)"]);

    // A tag that differs in every statement is bounded like any other class.
    let by_trace = json(&["--group-by", "tag:trace", "--limit", "3", &log]);
    assert_eq!(names(&by_trace).len(), 3);
    assert_eq!(by_trace["totals"]["commands"], SECONDS * 10);

    // It merges with digests by the same tag alone.
    let stored = toll(&["--json", "--group-by", "tag:route", "--limit", "0", &log]).stdout;
    let stored = write(dir.path(), "a.json", &String::from_utf8(stored).unwrap());
    let merged = json(&["--group-by", "tag:route", "--limit", "0", &stored]);
    assert_eq!(merged["classes"], by_route["classes"]);
    let error = toll(&["--group-by", "tag:trace", &stored]).stderr;
    assert!(String::from_utf8_lossy(&error).contains("grouped by tag:route"));
    let report = String::from_utf8(toll(&["--group-by", "tag:route", &log]).stdout).unwrap();
    assert!(report.contains("/stock") && !report.contains("trace"), "{report}");
}
