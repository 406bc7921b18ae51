//! Tests of `toll-agent digest --parquet`. Runs the program on logs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn digest(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toll-agent"))
        .arg("digest")
        .args(args)
        .current_dir(dir)
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// A slow log of a statement a second, from 14:00 on.
fn slow_log(seconds: u64) -> String {
    let mut log = String::new();
    for second in 0..seconds {
        let (hour, minute, rest) = (14 + second / 3_600, second / 60 % 60, second % 60);
        writeln!(log, "# Time: 2025-11-26T{hour}:{minute:02}:{rest:02}.000000Z").unwrap();
        writeln!(log, "# User@Host: app[app] @ web1 []  Id: 3").unwrap();
        writeln!(log, "# Query_time: 0.001000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1").unwrap();
        writeln!(log, "select a from cart where id = 'hush{second}';").unwrap();
    }
    log
}

#[test]
fn a_log_becomes_tables_and_read_again_once_it_has_grown_it_replaces_them() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("slow.log"), slow_log(1_500)).unwrap();
    let asked = ["--parquet", "out/tables", "--host", "db1", "--cluster", "shop", "slow.log"];
    let written = digest(dir.path(), &asked);
    assert!(written.status.success() && written.stdout.is_empty(), "{}", words(&written));
    assert!(words(&written).contains("3 rows of 3 intervals written to out/tables"), "{}", words(&written));
    let before = files_below(&dir.path().join("out/tables"));
    assert_eq!(before.len(), 4, "digests, texts, coverage, and a manifest: {before:?}");
    for path in &before {
        let bytes = std::fs::read(path).unwrap();
        assert!(!bytes.windows(4).any(|part| part == b"hush"), "{}: a literal", path.display());
    }
    std::fs::write(dir.path().join("slow.log"), slow_log(3_300)).unwrap();
    let again = digest(dir.path(), &asked);
    assert!(words(&again).contains("6 rows of 6 intervals"), "{}", words(&again));
    assert_eq!(files_below(&dir.path().join("out/tables")), before);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("slow.log"), slow_log(3)).unwrap();
    for options in [
        &["--json"][..],
        &["--group-by", "user"],
        &["--events"],
        &["--since", "1d"],
        &["--until", "1d"],
        &["--filter", "rows_sent > 0"],
        &["--compare", "slow.log"],
    ] {
        let refused = digest(dir.path(), &[&["--parquet", "t", "slow.log"], options].concat());
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {}", words(&refused));
    }
    let alone = digest(dir.path(), &["--every", "1m", "slow.log"]);
    assert_eq!(alone.status.code(), Some(2), "{}", words(&alone));
    let file = digest(dir.path(), &["--parquet", "slow.log", "slow.log"]);
    assert_eq!(file.status.code(), Some(1));
    assert!(words(&file).contains("cannot make slow.log"), "{}", words(&file));
    assert!(digest(dir.path(), &["slow.log"]).status.success());
}
