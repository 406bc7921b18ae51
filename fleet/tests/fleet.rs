//! Tests of `toll-fleet`: what it says of tables is what all queries say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the program is started as its users start it")]
#![allow(clippy::float_cmp, reason = "whole numbers")]

#[allow(dead_code, reason = "other tests use the rest")]
mod fixtures;

use fixtures::{Draws, fleet, number, rows, write_changed, write_minutes, write_tables, write_years};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[test]
fn the_ranking_of_all_hosts_is_that_of_all_queries() {
    let root = tempfile::tempdir().unwrap();
    let mut times = write_tables(root.path());
    let top = rows(&["top"], root.path());
    assert_eq!(top.len(), times.len());
    let whole: u64 = times.values().flatten().sum();
    let mut before = f64::INFINITY;
    for row in &top {
        let times = times.get_mut(row["summary"].as_str().unwrap()).unwrap();
        times.sort_unstable();
        let sum = times.iter().sum::<u64>() as f64;
        assert_eq!(number(row, "n") as usize, times.len());
        assert!((number(row, "time_s") - sum / 1e9).abs() < 1e-9);
        assert!((number(row, "time_percent") - 100.0 * sum / whole as f64).abs() < 1e-9);
        assert!((number(row, "max_ms") - *times.last().unwrap() as f64 / 1e6).abs() < 1e-9);
        for (key, share) in [("p50_ms", 0.5), ("p99_ms", 0.99)] {
            let exact = times[(share * times.len() as f64).ceil() as usize - 1] as f64 / 1e6;
            assert!((number(row, key) / exact - 1.0).abs() <= 0.008, "{key} is {}, not {exact}", row[key]);
        }
        assert!(number(row, "time_s") <= before);
        before = number(row, "time_s");
    }
    assert_eq!(rows(&["top", "--limit", "2"], root.path()), top[..2]);
    let id = top[0]["class"].as_str().unwrap();
    let hosts = rows(&["class", id], root.path());
    assert_eq!(hosts.len(), 3);
    assert_eq!(hosts.iter().map(|row| number(row, "n")).sum::<f64>(), number(&top[0], "n"));
}

#[test]
fn the_time_of_all_queries_may_be_more_than_64_bits_hold() {
    let root = tempfile::tempdir().unwrap();
    write_years(root.path(), 5);
    let one_s = i64::MAX as f64 / 2.0 / 1e9;
    let top = rows(&["top"], root.path());
    assert!((number(&top[0], "time_s") / one_s - 5.0).abs() < 1e-9, "{top:?}");
    assert!((number(&top[0], "time_percent") - 100.0).abs() < 1e-9, "{top:?}");
    let of_class = rows(&["class", top[0]["class"].as_str().unwrap()], root.path());
    assert!(of_class.iter().all(|row| (number(row, "time_s") / one_s - 1.0).abs() < 1e-9), "{of_class:?}");
    let hosts = rows(&["hosts"], root.path());
    assert!(
        hosts.len() == 5 && hosts.iter().all(|row| (number(row, "ratio") - 1.0).abs() < 1e-9),
        "{hosts:?}"
    );
    let compared = fleet(&["compare", "--host", "db0", "--json"], root.path());
    let compared: Value = serde_json::from_slice(&compared.stdout).unwrap();
    let sum_s = |side: &str| number(&compared["classes"][0][side], "sum_us") / 1e6 / one_s;
    assert!((sum_s("before") - 4.0).abs() < 1e-9 && (sum_s("after") - 1.0).abs() < 1e-9, "{compared}");
}

#[test]
fn a_range_of_time_is_whole_and_coverage_says_what_was_seen() {
    let root = tempfile::tempdir().unwrap();
    let times = write_tables(root.path());
    let n = |args: &[&str]| rows(args, root.path()).iter().map(|row| number(row, "n")).sum::<f64>();
    let first = n(&["top", "--until", "2025-11-26 14:37:00"]);
    let second = n(&["top", "--since", "2025-11-26 14:37:00"]);
    assert_eq!((first + second) as usize, times.values().map(Vec::len).sum::<usize>());
    assert!(first > 0.0 && second > 0.0);
    assert_eq!(n(&["top", "--since", "2025-11-27"]), 0.0);
    let coverage = rows(&["coverage"], root.path());
    let seen: Vec<(f64, f64)> =
        coverage.iter().map(|row| (number(row, "seen_s"), number(row, "lost"))).collect();
    assert_eq!(seen, [(7_200.0, 0.0), (7_200.0, 120.0), (3_600.0, 120.0)]);
    let one =
        rows(&["sql", "SELECT count(DISTINCT host) AS hosts FROM digests WHERE cluster = 'b'"], root.path());
    assert_eq!(number(&one[0], "hosts"), 2.0);
    let text = String::from_utf8(fleet(&["top"], root.path()).stdout).unwrap();
    assert!(text.starts_with("class  ") && text.contains("select a from cart where id = ?"), "{text}");
}

#[test]
fn what_cannot_be_answered_is_said() {
    let root = tempfile::tempdir().unwrap();
    for (args, said) in [
        (&["top"][..], "has no tables"),
        (&["class", "xyz"], "32 hexadecimal digits"),
        (&["sql", "SELEC"], "SELEC"),
        (&["sql", "COPY (SELECT 1 AS n) TO 'out.csv'"], "DML not supported"),
        (&["sql", "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'"], "DDL not supported"),
    ] {
        if said == "SELEC" {
            write_tables(root.path());
        }
        let output = fleet(args, root.path());
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains(said), "{words}");
    }
    let manifest = root.path().join("manifests/v=1/day=2025-11-26/evil.json");
    let evil = r#"{"format":1,"files":[{"path":"../../etc/passwd","rows":1,"bytes":1,"sha256":""}]}"#;
    std::fs::write(manifest, evil).unwrap();
    let output = fleet(&["top"], root.path());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not below"), "{output:?}");
}

/// Fingerprints by what the comparison says of them.
fn changes(args: &[&str], root: &Path) -> BTreeMap<String, Vec<String>> {
    let output = fleet(&[&["compare", "--json"], args].concat(), root);
    let words = String::from_utf8_lossy(&output.stderr);
    let compared: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {words}"));
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for class in compared["classes"].as_array().unwrap() {
        let change = class["change"].as_str().unwrap().to_owned();
        found.entry(change).or_default().push(class["fingerprint"].as_str().unwrap().to_owned());
    }
    found
}

#[test]
fn a_class_that_became_slower_is_found_and_no_other_is_reported() {
    let root = tempfile::tempdir().unwrap();
    write_changed(root.path());
    let cart = "select a from cart where id = ?";
    for args in [
        &["--at", "2025-11-26 16:00"][..],
        &["--baseline", "2025-11-26 14:00..2025-11-26 15:00", "--since", "2025-11-26 16:00"],
        &["--host", "db5", "--until", "2025-11-26 16:00"],
    ] {
        let found = changes(args, root.path());
        assert_eq!(
            found.get("slower").map(Vec::as_slice),
            Some(&[cart.to_owned()][..]),
            "{args:?}: {found:?}"
        );
        assert!(
            !["faster", "new", "gone"].iter().any(|change| found.contains_key(*change)),
            "{args:?}: {found:?}"
        );
    }
    let calm = changes(&["--at", "2025-11-26 15:00", "--until", "2025-11-26 16:00"], root.path());
    assert!(!["slower", "faster", "new", "gone"].iter().any(|change| calm.contains_key(*change)), "{calm:?}");
    let text = fleet(&["compare", "--host", "db5", "--until", "2025-11-26 16:00"], root.path());
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(": 5 hosts") && text.contains(": 1 host\n") && text.contains(cart), "{text}");
}

#[test]
fn a_merged_hour_around_a_moment_is_on_neither_side_of_it() {
    let root = tempfile::tempdir().unwrap();
    write_changed(root.path());
    compact(root.path(), "hour");
    let compared = |at: &str| {
        let output = fleet(&["compare", "--json", "--at", at], root.path());
        let said = String::from_utf8(output.stderr).unwrap();
        let compared: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        let class = &compared["classes"][0];
        (number(&class["before"], "count"), number(&class["after"], "count"), said)
    };
    // Of a class on all hosts in an hour.
    let hour = 6.0 * 20.0 * 60.0;
    let (before, after, said) = compared("2025-11-26 15:30");
    assert_eq!((before, after), (hour, 2.0 * hour), "{said}");
    assert!(said.contains(&format!("are the {} queries of stretches", 6.0 * hour)), "{said}");
    assert_eq!(compared("2025-11-26 15:00"), (hour, 3.0 * hour, String::new()));
}

#[test]
fn each_side_has_the_hosts_that_a_condition_chooses_in_its_time() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    // In the second hour these are all there are, and db2 is there before.
    let condition = "host IN ('db0', 'db1')";
    let times = ["--since", "2025-11-26 15:00", "--baseline", "2025-11-26 14:00..2025-11-26 15:00"];
    let output = fleet(&[&["compare", "--json", "--where", condition], &times[..]].concat(), root.path());
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hosts = ["before", "after"].map(|side| compared[side]["inputs"][0]["name"].clone());
    assert_eq!(hosts, ["2 hosts", "2 hosts"], "{compared}");
}

#[test]
fn a_host_that_is_slower_for_the_same_queries_comes_first_with_the_class_that_is() {
    let root = tempfile::tempdir().unwrap();
    write_changed(root.path());
    let hosts = rows(&["hosts", "--until", "2025-11-26 16:00"], root.path());
    assert_eq!(hosts.len(), 6);
    assert_eq!(
        (&hosts[0]["host"], &hosts[0]["summary"]),
        (&"db5".into(), &"SELECT cart".into()),
        "{hosts:?}"
    );
    // 1.3 times one of 21 parts of the time.
    assert!((number(&hosts[0], "ratio") - 1.014).abs() < 0.006, "{}", hosts[0]);
    assert!(hosts[1..].iter().all(|row| (number(row, "ratio") - 1.0).abs() < 0.008), "{hosts:?}");
    assert!(hosts.iter().all(|row| number(row, "own_percent") == 0.0 && number(row, "n") == 14_400.0));
}

#[test]
fn simulated_hosts_resemble_those_seen_and_are_the_same_each_time() {
    let (like, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_changed(like.path());
    let simulate = |name: &str, seed: &str| {
        let (root, like) = (out.path().join(name), like.path().to_str().unwrap());
        let output = fleet(&["simulate", "--like", like, "--hosts", "25", "--seed", seed], &root);
        (root, output)
    };
    let (root, output) = simulate("a", "7");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // Six classes, 25 hosts, 24 hours.
    assert!(output.status.success() && said.starts_with("3600 rows of digests in "), "{output:?}");
    let totals = "SELECT sum(n) AS n, sum(time_ns) AS time_ns, count(DISTINCT host) AS hosts, count(DISTINCT cluster) AS clusters,
      (SELECT sum(commands) FROM coverage) AS commands, (SELECT count(*) FROM coverage) AS hours FROM digests";
    let found = rows(&["sql", totals], &root);
    let of = |key: &str| number(&found[0], key);
    assert_eq!((of("hosts"), of("clusters"), of("hours"), of("n")), (25.0, 3.0, 600.0, of("commands")));
    // Each host seen had 7,200 queries an hour; those simulated differ in how much they do.
    assert!((0.6..1.8).contains(&(of("n") / 600.0 / 7_200.0)), "{}", found[0]);
    let mean = |root: &Path| {
        let sql = "SELECT CAST(sum(time_ns) AS DOUBLE) / sum(n) AS ns FROM digests";
        number(&rows(&["sql", sql], root)[0], "ns")
    };
    assert!((0.8..1.25).contains(&(mean(&root) / mean(like.path()))));
    let top = rows(&["top"], &root);
    assert_eq!((top.len(), number(&top[0], "hosts")), (6, 25.0));
    assert_eq!(rows(&["top"], &simulate("b", "7").0), top);
    assert_ne!(rows(&["top"], &simulate("c", "8").0), top);
    let again = simulate("a", "7").1;
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"), "{again:?}");
}

#[test]
fn days_past_an_age_are_removed() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    let said = |args: &[&str]| String::from_utf8(fleet(args, root.path()).stdout).unwrap();
    assert_eq!(said(&["prune", "--older-than", "100000d"]), "removed 0 days\n");
    assert_eq!(rows(&["top"], root.path()).len(), 4);
    assert_eq!(said(&["prune", "--older-than", "1d"]), "removed 1 day\n");
    assert_eq!(files_below(root.path()), Vec::<PathBuf>::new());
}

#[test]
fn what_cannot_be_compared_is_said() {
    let root = tempfile::tempdir().unwrap();
    write_changed(root.path());
    for (args, code, said) in [
        (&["compare"][..], 2, "--at"),
        (&["compare", "--at", "1d", "--host", "db1"], 2, "cannot be used with"),
        (&["compare", "--baseline", "1d"], 2, "FROM..UNTIL"),
        (&["compare", "--baseline", "1d..2d"], 2, "ends before it begins"),
        (&["compare", "--host", "db9"], 1, "nothing of a host db9"),
        (&["compare", "--at", "2025-11-26 13:00"], 1, "nothing to compare"),
    ] {
        let output = fleet(args, root.path());
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {words}");
        assert!(words.contains(said), "{args:?}: {words}");
    }
}

/// Answers that compaction must not change: all but the number of rows.
fn answers(root: &Path) -> Vec<Vec<Value>> {
    let sums = "SELECT host, cluster, source, sum(n) AS n, sum(time_ns) AS time_ns, sum(errors) AS errors,
      sum(bytes_sent) AS bytes_sent FROM digests GROUP BY host, cluster, source ORDER BY host, cluster";
    let names =
        "SELECT db, sum(n) AS n FROM (SELECT unnest(db) AS db, unnest(db_n) AS n FROM digests) AS names
      GROUP BY db ORDER BY db";
    let texts = "SELECT count(DISTINCT class) AS classes, min(first_seen) AS first FROM texts";
    let coverage = "SELECT host, sum(width_us) AS seen, sum(commands) AS commands, sum(lost) AS lost
      FROM coverage GROUP BY host ORDER BY host";
    let fleet = "SELECT source, sum(n) AS n, sum(time_ns) AS time_ns, max(max_ns) AS max_ns FROM fleet_digests GROUP BY source";
    let clusters = "SELECT cluster, source, sum(n) AS n, sum(time_ns) AS time_ns, sum(errors) AS errors,
      sum(bytes_sent) AS bytes_sent FROM cluster_digests GROUP BY cluster, source ORDER BY cluster, source";
    [
        &["top"][..],
        &["sql", sums],
        &["sql", clusters],
        &["sql", fleet],
        &["sql", names],
        &["sql", texts],
        &["sql", coverage],
    ]
    .map(|args| rows(args, root))
    .into()
}

fn sums(root: &Path) -> Vec<Value> {
    let sql = "SELECT sum(n) AS n, sum(time_ns) AS time_ns, count(DISTINCT class) AS classes, count(DISTINCT host) AS hosts,
      (SELECT sum(n) FROM cluster_digests) AS n_of_clusters, (SELECT sum(n) FROM fleet_digests) AS n_of_fleet, (SELECT sum(commands) FROM coverage) AS commands, (SELECT sum(width_us) FROM coverage) AS seen,
      (SELECT count(DISTINCT class) FROM texts) AS texts FROM digests";
    rows(&["sql", sql], root)
}

fn compact(root: &Path, grain: &str) -> String {
    let output = fleet(&["compact", "--grain", grain, "--keep-replaced", "0s"], root);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn copy_files(from: &Path, to: &Path) {
    for path in files_below(from) {
        let copy = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(&path, copy).unwrap();
    }
}

#[test]
fn compaction_changes_no_answer_and_what_arrives_again_counts_once() {
    let (root, arrived) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tables(root.path());
    copy_files(root.path(), arrived.path());
    let before = answers(root.path());
    compact(root.path(), "10m");
    assert_eq!(answers(root.path()), before);
    let said = compact(root.path(), "hour");
    // One day, two shards.
    assert_eq!(files_below(&root.path().join("digests")).len(), 2, "{said}");
    assert_eq!(answers(root.path()), before);
    assert!(compact(root.path(), "hour").starts_with("0 files"), "nothing is left to do");
    // Copied once more from its host, as rsync does.
    copy_files(arrived.path(), root.path());
    assert_eq!(answers(root.path()), before);
    compact(root.path(), "day");
    for (table, files) in [("digests", 2), ("cluster_digests", 1)] {
        assert_eq!(files_below(&root.path().join(table)).len(), files, "{table}");
    }
    assert_eq!(answers(root.path()), before);
    // One cluster has two hosts.
    let sql = "SELECT count(*) AS n, (SELECT count(*) FROM cluster_digests) AS folded FROM digests";
    let fewer = rows(&["sql", sql], root.path());
    assert!(number(&fewer[0], "folded") < number(&fewer[0], "n"), "{fewer:?}");
    let width = rows(&["sql", "SELECT max(width_us) AS n, min(width_us) AS least FROM digests"], root.path());
    assert_eq!((number(&width[0], "n"), number(&width[0], "least")), (86_400e6, 86_400e6));
}

#[test]
fn the_documented_copy_moves_what_has_arrived_and_brings_nothing_back() {
    if Command::new("rsync").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no rsync here");
        return;
    }
    let (lab, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let page = std::fs::read_to_string("../docs/howto/fleet.md").unwrap();
    let block = page.split("```").find(|block| block.contains("--remove-source-files")).unwrap();
    let script = block.replace("db1:/var/lib/toll/tables", host.path().to_str().unwrap());
    let copy = || {
        let copied = Command::new("sh").args(["-c", &script]).current_dir(lab.path()).output().unwrap();
        assert!(copied.status.success(), "{copied:?}");
    };
    let tables = lab.path().join("tables");
    let n = || rows(&["top"], &tables).iter().map(|row| number(row, "n")).sum::<f64>();
    write_minutes(host.path(), "db1", 1, 0..60);
    // Half written.
    let hour = files_below(&host.path().join("digests"))[0].parent().unwrap().to_owned();
    std::fs::write(hour.join(".1f.tmp"), "PAR1").unwrap();
    copy();
    assert_eq!((n(), files_below(host.path()).len()), (600.0, 1), "the half-written one stays");
    compact(&tables, "hour");
    write_minutes(host.path(), "db1", 2, 60..90);
    copy();
    assert_eq!(n(), 900.0);
    assert_eq!(files_below(&tables.join("digests")).len(), 4, "what was merged is not back");
    assert_eq!(files_below(&lab.path().join("arrived")), Vec::<PathBuf>::new());
}

#[test]
fn a_late_file_is_merged_too_and_a_broken_one_stops_it() {
    let (root, late) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tables(root.path());
    compact(root.path(), "hour");
    write_changed(late.path());
    copy_files(late.path(), root.path());
    let before = answers(root.path());
    compact(root.path(), "hour");
    assert_eq!(answers(root.path()), before);
    write_tables(late.path());
    let broken = files_below(&late.path().join("digests")).into_iter().next().unwrap();
    let mut bytes = std::fs::read(&broken).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&broken, bytes).unwrap();
    let output = fleet(&["compact"], late.path());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && words.contains("is not the file that its manifest names"),
        "{words}"
    );
}

#[test]
fn a_host_that_was_renamed_a_clock_that_is_ahead_and_two_receivers_add_up() {
    let root = tempfile::tempdir().unwrap();
    write_minutes(root.path(), "db1", 1, 0..60);
    write_minutes(root.path(), "db9", 1, 60..120);
    // Seven minutes ahead.
    write_minutes(root.path(), "db2", 2, 7..127);
    // To one receiver, then to another while the first was away, and to the first again.
    write_minutes(root.path(), "db3", 3, (0..40).chain(70..120));
    write_minutes(root.path(), "db3", 4, 40..70);
    let look = || {
        let top = rows(&["top"], root.path());
        assert_eq!((top.len(), number(&top[0], "n"), number(&top[0], "hosts")), (1, 3_600.0, 4.0), "{top:?}");
        assert!((number(&top[0], "p99_ms") / 10.0 - 1.0).abs() <= 0.008, "{top:?}");
        let coverage = rows(&["coverage"], root.path());
        let seen = |row: &Value| (row["host"].as_str().unwrap().to_owned(), number(row, "seen_s") / 60.0);
        let seen: Vec<_> = coverage.iter().map(seen).collect();
        let minutes = |host: &str, minutes| (host.to_owned(), minutes);
        assert_eq!(
            seen,
            [minutes("db1", 60.0), minutes("db2", 120.0), minutes("db3", 120.0), minutes("db9", 60.0)]
        );
    };
    look();
    let silent = fleet(&["watch", "--every", "30m", "--at", "2025-11-26 15:45"], root.path());
    let said: Value = serde_json::from_slice(&silent.stdout).expect("one alert");
    assert_eq!((&said["kind"], &said["host"]), (&"silent".into(), &"db1".into()), "its old name: {said}");
    for grain in ["10m", "hour", "day"] {
        compact(root.path(), grain);
        look();
    }
}

#[test]
fn compaction_killed_at_any_moment_loses_nothing_and_counts_nothing_twice() {
    let (origin, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_changed(origin.path());
    let (before, sums_before) = (answers(origin.path()), sums(origin.path()));
    let mut draws = Draws(11);
    let mut killed = 0;
    for _ in 0..400 {
        copy_files(origin.path(), root.path());
        let mut command = Command::new(env!("CARGO_BIN_EXE_toll-fleet"));
        let mut child =
            command.args(["compact", "--keep-replaced", "0s", "--tables"]).arg(root.path()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros((draws.next() * 200_000.0) as u64));
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().code().is_none());
        assert_eq!(sums(root.path()), sums_before, "after {killed} kills");
        if killed >= 100 {
            break;
        }
        if draws.next() < 0.3 {
            std::fs::remove_dir_all(root.path()).unwrap();
            std::fs::create_dir_all(root.path()).unwrap();
        }
    }
    assert!(killed >= 100, "only {killed} were killed before their end");
    compact(root.path(), "hour");
    assert_eq!(answers(root.path()), before);
}
