//! Tests of captures whose digests are written to tables.

use crate::exported::{QUERIES, work};
use crate::lab::{Lab, output_text};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn rows(root: &Path, table: &str) -> Vec<Row> {
    let manifests = files_below(&root.join("manifests"));
    let named = manifests.iter().flat_map(|path| {
        let manifest: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let files = manifest["files"].as_array().unwrap().iter();
        files.map(|file| file["path"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    });
    let of_table = named.filter(|path| path.starts_with(&format!("{table}/")));
    let read = |path: String| {
        let file = SerializedFileReader::new(File::open(root.join(path)).unwrap()).unwrap();
        file.get_row_iter(None).unwrap().map(Result::unwrap).collect::<Vec<Row>>()
    };
    of_table.flat_map(read).collect()
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
    let options = ["--parquet", tables, "--cluster", "shop"];
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
