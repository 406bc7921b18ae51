//! Tests that a comparison of real captures finds a regression, and reports nothing where nothing changed.

use super::queries::LiveCapture;
use super::server::Server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use toll_mysql::{Connection, Target};
use toll_stats::random::Rng;

const CLIENTS: u64 = 2;
/// Between two statements of a client, so that it is the server's time that is compared, not a queue for the CPUs.
const PAUSE: Duration = Duration::from_millis(1);
/// Of one capture.
const TIME: Duration = Duration::from_secs(8);
const PAIRS: u64 = 20;
const PLANTED: u64 = 3;
/// What the statement that gets slower waits for: most of its time.
const SLEEP_S: f64 = 0.002;
const SLOWER: &str = "select sleep(?), k from sbtest? where id = ?";

/// A statement of one of twelve classes, one of which waits `factor` times as long. All wait for most of their time, as for a
/// disk: a virtual CPU whose speed changes by a sixth between two captures is for `common_change_pct` to show.
fn statement(rng: &mut Rng, factor: f64) -> String {
    let id = 1 + rng.below(900);
    let to = id + 99;
    match rng.below(12) {
        0 => format!("select sleep({:.6}), k from sbtest1 where id = {id}", SLEEP_S * factor),
        1 => format!("select sleep(0.001), c from sbtest1 where id = {id}"),
        2 => format!("select sleep(0.003), pad from sbtest2 where id = {id}"),
        3 => format!("select sleep(0.002), c, k from sbtest2 where id = {id}"),
        4 => format!("select sleep(0.0015), c, pad from sbtest1 where id = {id}"),
        5 => format!("select sleep(0.002), sum(k) from sbtest1 where id between {id} and {to}"),
        6 => format!("select sleep(0.003), max(c) from sbtest2 where id between {id} and {to}"),
        7 => format!("select sleep(0.001), count(distinct c) from sbtest1 where id between {id} and {to}"),
        8 => format!("select sleep(0.004), count(*) from sbtest2 where c > '{id}'"),
        9 => format!("update sbtest1 set k = k + 1 + sleep(0.002) where id = {id}"),
        10 => format!("select sleep(0.0025), min(k), max(k) from sbtest2 where id between {id} and {to}"),
        _ => format!("select sleep(0.002), avg(k) from sbtest2 where id in ({id}, {to})"),
    }
}

fn work(server: &Server, time: Duration, factor: f64, seed: u64) {
    let account = server.account();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let target = Target { db: Some("sbtest".into()), ..account.clone() };
            scope.spawn(move || {
                let mut connection = Connection::connect(&target).unwrap();
                let mut rng = Rng::new(seed, client);
                let begun = Instant::now();
                while begun.elapsed() < time {
                    connection.exec_drop(&statement(&mut rng, factor)).unwrap();
                    std::thread::sleep(PAUSE);
                }
            });
        }
    });
}

fn capture(server: &Server, name: &str, factor: f64, seed: u64) -> PathBuf {
    let file = server.path(name);
    let live = LiveCapture::listen(server, &["--overwrite", "--queries", file.to_str().unwrap()]);
    work(server, TIME, factor, seed);
    server.wait_until_alone();
    let (_, said) = live.end();
    assert!(said.contains("nothing lost"), "{said}");
    file
}

fn compare(before: &Path, after: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_toll"))
        .args(["digest", "--json", "--filter", "kind == \"query\""])
        .arg("--compare")
        .args([before, after])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Two captures of the same load, but that one class waits `factor` times as long in the second.
fn compare_pair(server: &Server, factor: f64, seed: u64) -> Value {
    let before = capture(server, "before.queries", 1.0, 2 * seed);
    let after = capture(server, "after.queries", factor, 2 * seed + 1);
    let comparison = compare(&before, &after);
    assert_eq!(comparison["slices"], 12, "{comparison:#}");
    comparison
}

/// Classes that are reported, with their changes in percent.
fn reported(comparison: &Value) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let classes = comparison["classes"].as_array().unwrap().iter();
    let all = classes
        .map(|class| (text(&class["fingerprint"]), text(&class["change"]), class["change_pct"].clone()));
    all.filter(|(_, change, _)| ["slower", "faster", "new", "gone"].contains(&change.as_str())).collect()
}

#[test]
fn a_planted_regression_is_found_alone_and_twenty_unchanged_pairs_report_nothing() {
    let Some(server) = Server::installed(&[], &[]) else { return };
    // The first seconds fill caches.
    work(&server, Duration::from_secs(2), 1.0, 0);
    let mut false_reports = Vec::new();
    for pair in 0..PAIRS {
        let comparison = compare_pair(&server, 1.0, 1_000 + pair);
        println!("pair {pair}: {}", comparison["common_change_pct"]);
        false_reports.extend(reported(&comparison).into_iter().map(|report| (pair, report)));
    }
    // 5% of the pairs.
    assert!(false_reports.len() as u64 <= PAIRS / 20, "{false_reports:?}");
    for pair in 0..PLANTED {
        let comparison = compare_pair(&server, 1.2, 2_000 + pair);
        let found = reported(&comparison);
        let [(fingerprint, change, pct)] = &found[..] else { panic!("{found:?} of {comparison:#}") };
        assert_eq!((fingerprint.as_str(), change.as_str()), (SLOWER, "slower"));
        println!("planted {pair}: {pct}");
    }
}
