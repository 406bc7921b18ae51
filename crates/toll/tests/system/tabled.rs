//! Tests of captures whose digests are written to tables.

use crate::exported::{QUERIES, work};
use crate::lab::{Lab, output_text};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Files of a table that the manifests name.
fn named_files(root: &Path, table: &str) -> Vec<PathBuf> {
    let manifests = files_below(&root.join("manifests"));
    let named = manifests.iter().flat_map(|path| {
        let manifest: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let files = manifest["files"].as_array().unwrap().iter();
        files.map(|file| file["path"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    });
    named.filter(|path| path.starts_with(&format!("{table}/"))).map(|path| root.join(path)).collect()
}

fn rows(root: &Path, table: &str) -> Vec<Row> {
    let read = |path: PathBuf| {
        let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        file.get_row_iter(None).unwrap().map(Result::unwrap).collect::<Vec<Row>>()
    };
    named_files(root, table).into_iter().flat_map(read).collect()
}

fn sum(rows: &[Row], column: &str) -> i64 {
    let number = |row: &Row| match row.get_column_iter().find(|(name, _)| *name == column) {
        Some((_, Field::Long(number))) => *number,
        other => panic!("{column}: {other:?}"),
    };
    rows.iter().map(number).sum()
}

/// What a capture printed, and its words.
fn capture(lab: &Lab, port: u16, tables: &str, more: &[&str]) -> (Vec<Value>, String) {
    let port_text = port.to_string();
    let asked = ["capture", "-i", "lo", "--port", &port_text, "--digest", "--every", "1s", "--json"];
    let (output, words) = (lab.path("digests"), lab.path("words"));
    let options = ["--parquet", tables, "--cluster", "shop", "--limit", "100%"];
    let mut child = lab.spawn_into(&[&asked[..], &options, more].concat(), &output, &words);
    let heard = || std::fs::read_to_string(&words).unwrap_or_default();
    crate::ends::wait_until("it captures", || heard().contains("listening on"));
    work(port);
    // Packets come out of the kernel's ring within a fifth of a second.
    std::thread::sleep(std::time::Duration::from_millis(300));
    lab.signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", heard());
    let output = std::fs::read_to_string(&output).unwrap();
    let digests: Vec<Value> =
        serde_json::Deserializer::from_str(&output).into_iter().map(Result::unwrap).collect();
    (digests, heard())
}

/// Count, time and 99th percentile of each class, as an engine that knows nothing of toll finds them; times in microseconds.
fn read_by(engine: &Path, files: &[PathBuf]) -> BTreeMap<String, [f64; 3]> {
    parse_answer(&std::process::Command::new(engine.join("run")).args(files).output().unwrap())
}

fn parse_answer(output: &std::process::Output) -> BTreeMap<String, [f64; 3]> {
    assert!(output.status.success(), "{}", output_text(output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (text.lines())
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<f64>().unwrap();
            (words[0].to_owned(), [number(1), number(2) / 1e3, number(3) / 1e3])
        })
        .collect()
}

/// Every engine finds what toll finds in the printed digests.
fn assert_same_classes(lab: &Lab, tables: &str, printed: &str) {
    let merged = lab.toll(&["digest", "--json", "--limit", "100%", printed]);
    let merged: Value = serde_json::from_slice(&merged.stdout).expect("a digest");
    let of_toll: BTreeMap<String, [f64; 3]> = (merged["classes"].as_array().unwrap().iter())
        .map(|class| {
            let time_us = |key: &str| class["query_time_us"][key].as_f64().unwrap();
            let id = class["id"].as_str().unwrap().to_owned();
            (id, [class["count"].as_f64().unwrap(), time_us("sum"), time_us("p99")])
        })
        .collect();
    let files = named_files(tables.as_ref(), "digests");
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/readers");
    let engines = std::fs::read_dir(readers).into_iter().flatten().flatten().map(|entry| entry.path());
    let answers: Vec<_> = engines.map(|engine| (read_by(&engine, &files), engine)).collect();
    if answers.is_empty() {
        toll_testkit::skip!("no reader of tables is installed (scripts/connectors)");
        return;
    }
    for (answer, engine) in &answers {
        assert_eq!(answer, &answers[0].0, "{} and {}", engine.display(), answers[0].1.display());
        if engine.ends_with("spark") {
            let mut command = std::process::Command::new(engine.join("run"));
            let output = command.args(&files).env("KILL_EXECUTOR", "1").output().unwrap();
            assert_eq!(&parse_answer(&output), answer, "an executor was killed in mid-query");
            assert!(output_text(&output).contains("killed executor"), "{}", output_text(&output));
        }
    }
    let of_reader = &answers[0].0;
    assert_eq!(of_reader.keys().collect::<Vec<_>>(), of_toll.keys().collect::<Vec<_>>());
    for (id, [count, sum, p99]) in &of_toll {
        let read = of_reader[id];
        // The digest shows microseconds with three digits, and knows the least time of a class, which its percentile is at least.
        assert!(*count == read[0] && (sum - read[1]).abs() < 0.0011, "{id}: {count} {sum}, {read:?}");
        assert!((p99 - read[2]).abs() <= 0.008 * p99, "{id}: {p99}, {read:?}");
    }
}

#[test]
fn tables_hold_what_the_printed_digests_count_also_where_the_capture_is_nobody() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let server = lab.start_server();
    let tables = lab.path("tables");
    std::fs::create_dir(&tables).unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().expect("a user of that name");
    nix::unistd::chown(tables.as_str(), Some(nobody.uid), Some(nobody.gid)).unwrap();
    let (mut printed, words) = capture(&lab, server.port, &tables, &["--drop-to", "nobody"]);
    let ledger = printed.pop().unwrap();
    let total = |key: &str| printed.iter().map(|one| one["totals"][key].as_i64().unwrap()).sum::<i64>();
    let (digests, coverage) = (rows(tables.as_ref(), "digests"), rows(tables.as_ref(), "coverage"));
    assert!(total("queries") >= QUERIES as i64 && printed.len() > 2, "{words}");
    assert_eq!(coverage.len(), printed.len());
    assert_eq!((sum(&coverage, "commands"), sum(&digests, "n")), (total("commands"), total("commands")));
    assert_eq!(sum(&digests, "errors"), total("errors"));
    assert_eq!(sum(&coverage, "lost"), ledger["lost"]["kernel"].as_i64().unwrap_or(0), "{ledger}");
    assert_same_classes(&lab, &tables, &lab.path("digests"));
    for path in files_below(tables.as_ref()) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(5).any(|part| part == b"hush1"), "{}: a literal", path.display());
    }
}

#[test]
fn a_place_that_cannot_be_written_is_said_before_the_capture_begins() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let file = lab.write("file", "");
    for (tables, more, said) in [
        (file.clone(), &[][..], "cannot make"),
        (lab.path("roots"), &["--drop-to", "nobody"], "cannot write in"),
    ] {
        std::fs::create_dir_all(lab.path("roots")).unwrap();
        let asked = ["capture", "--digest", "--every", "1s", "--duration", "1s", "--parquet", &tables];
        let out = lab.toll(&[&asked[..], more].concat());
        assert_eq!(out.status.code(), Some(1));
        assert!(
            output_text(&out).contains(said) && output_text(&out).contains(&tables),
            "{}",
            output_text(&out)
        );
    }
}
