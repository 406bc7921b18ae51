//! Tests of the tables: what readers of the files find is what was added, whatever fails in between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compaction;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_digest::classes::{Digest, Histogram, Settings};
use toll_tables::{
    Location, Manifest, RowSet, Source, SplittingSink, Store, Stretch, TableWriter, id_of_files, live_files,
    prune,
};
use toll_wire::event::{CommandKind, Event, Sink};

const MINUTE_US: i64 = 60_000_000;
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// 2025-11-26 14:00 UTC.
const BEGIN_US: i64 = 1_764_165_600_000_000;

fn store(root: &Path) -> Arc<dyn Store> {
    Location::Directory(root.into()).open().unwrap()
}

fn source() -> Source {
    Source { host: "db1".into(), cluster: "shop".into(), source: "packets", id: [1; 16] }
}

/// Of queries with these times, each of the class of its number.
fn digest(queries: &[(u8, u64)]) -> Digest {
    let mut digest = Digest::new(Settings::default());
    for &(class, query_ns) in queries {
        let text = format!("SELECT c{} FROM t WHERE secret = 'hunter2'", char::from(b'a' + class));
        digest.on_event(&Event {
            kind: CommandKind::Query,
            text: text.as_bytes(),
            db: b"shop",
            user: b"app",
            query_ns: Some(query_ns),
            ..Event::default()
        });
    }
    digest.settle();
    digest
}

fn add(writer: &mut TableWriter, minute: i64, queries: &[(u8, u64)]) -> anyhow::Result<()> {
    add_digest(writer, minute, &digest(queries))
}

fn add_digest(writer: &mut TableWriter, minute: i64, digest: &Digest) -> anyhow::Result<()> {
    writer.add(&Stretch {
        begin_us: BEGIN_US + minute * MINUTE_US,
        width_us: MINUTE_US,
        digest,
        lost: 0,
        sampled_share: 1.0,
    })
}

fn manifests(root: &Path) -> Vec<Manifest> {
    let mut open = vec![root.join("manifests")];
    let mut found = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => open.push(path),
                path => found.push(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()),
            }
        }
    }
    found
}

/// Rows of a table, as its manifests name its files; each file is as they say.
fn rows(root: &Path, table: &str) -> Vec<Row> {
    let mut all = Vec::new();
    let manifests = manifests(root);
    for file in live_files(&manifests).into_values() {
        let bytes = std::fs::read(root.join(&file.path)).unwrap();
        assert_eq!(bytes.len() as u64, file.bytes);
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sum, file.sha256);
        let read = SerializedFileReader::new(File::open(root.join(&file.path)).unwrap()).unwrap();
        let found: Vec<Row> = read.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len() as u64, file.rows);
        if file.path.starts_with(&format!("{table}/")) {
            all.extend(found);
        }
    }
    all
}

fn field(row: &Row, name: &str) -> Field {
    row.get_column_iter()
        .find(|(column, _)| *column == name)
        .map(|(_, field)| field.clone())
        .expect("a column")
}

fn int(row: &Row, name: &str) -> i64 {
    match field(row, name) {
        Field::Long(number) | Field::TimestampMicros(number) => number,
        other => panic!("{name} is {other:?}"),
    }
}

fn ints(row: &Row, name: &str) -> Vec<i64> {
    let Field::ListInternal(list) = field(row, name) else { panic!("{name} is no list") };
    list.elements().iter().map(|one| if let Field::Long(n) = one { *n } else { panic!("{one:?}") }).collect()
}

fn text(row: &Row, name: &str) -> String {
    if let Field::Str(text) = field(row, name) { text } else { panic!("{name} is no text") }
}

fn id(row: &Row) -> Vec<u8> {
    if let Field::Bytes(bytes) = field(row, "class") { bytes.data().to_vec() } else { panic!("no class") }
}

fn all_files(below: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(below).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
}

#[test]
fn ten_minutes_become_files_of_each_hour_and_one_manifest_without_a_literal() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
    for minute in 0..10 {
        assert_eq!(manifests(root.path()).len(), 0);
        // The last five are of the next hour.
        add(&mut writer, 55 + minute, &[(0, 1_000_000), (0, 3_000_000), (1, 500)]).unwrap();
    }
    assert_eq!((manifests(root.path()).len(), writer.pending()), (1, 0));
    let digests = rows(root.path(), "digests");
    assert_eq!(digests.len(), 20);
    let sum = |name: &str| digests.iter().map(|row| int(row, name)).sum::<i64>();
    assert_eq!((sum("n"), sum("time_ns"), sum("errors")), (30, 10 * 4_000_500, 0));
    assert_eq!(digests.iter().map(|row| int(row, "max_ns")).max(), Some(3_000_000));
    assert!(digests.iter().all(|row| text(row, "host") == "db1" && int(row, "width_us") == MINUTE_US));
    assert!(matches!(field(&digests[0], "rows_examined"), Field::Null), "packets do not tell");
    let (texts, coverage) = (rows(root.path(), "texts"), rows(root.path(), "coverage"));
    assert_eq!((texts.len(), coverage.len()), (2, 10));
    let mut fingerprints: Vec<String> = texts.iter().map(|row| text(row, "fingerprint")).collect();
    fingerprints.sort();
    assert_eq!(fingerprints, ["select ca from t where secret = ?", "select cb from t where secret = ?"]);
    assert_eq!(coverage.iter().map(|row| int(row, "commands")).sum::<i64>(), 30);
    let hours = std::fs::read_dir(root.path().join("digests/v=1/day=2025-11-26")).unwrap().count();
    assert_eq!(hours, 2);
    for path in all_files(root.path()) {
        assert!(!path.to_string_lossy().ends_with(".tmp"));
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"hunter2"), "{}", path.display());
    }
}

fn event(start_us: i64) -> Event<'static> {
    let start_ns = start_us.cast_unsigned() * 1_000;
    Event { kind: CommandKind::Query, text: b"SELECT 1", start_ns, query_ns: Some(7), ..Event::default() }
}

/// Rows of each minute since the begin, and how many queries they have together.
fn by_minute(root: &Path) -> BTreeMap<i64, (usize, i64)> {
    let mut minutes: BTreeMap<i64, (usize, i64)> = BTreeMap::new();
    for row in rows(root, "digests") {
        let (count, n) = minutes.entry((int(&row, "ts") - BEGIN_US) / MINUTE_US).or_default();
        (*count, *n) = (*count + 1, *n + int(&row, "n"));
    }
    minutes
}

#[test]
fn events_are_split_by_time_also_out_of_order_and_a_second_reading_replaces_the_first() {
    let root = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    for reading in 0..2 {
        let writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
        let mut sink = SplittingSink::new(writer, Duration::from_secs(60), &stop);
        sink.begin_input("slowlog");
        for second in [0, 59, 60, 61, 58, 119, 120, 240, 5, 300, -60] {
            sink.on_event(&event(BEGIN_US + second * 1_000_000));
        }
        sink.on_event(&Event { text: b"SELECT 1", ..Event::default() });
        sink.finish().unwrap();
        assert_eq!((sink.untimed(), sink.rows()), (1, 7), "reading {reading}");
        // The one at 5 s came when its minute was already written.
        let expected = [(-1, (1, 1)), (0, (2, 4)), (1, (1, 3)), (2, (1, 1)), (4, (1, 1)), (5, (1, 1))];
        assert_eq!(by_minute(root.path()), expected.into(), "reading {reading}");
    }
    let sources: Vec<String> = rows(root.path(), "coverage").iter().map(|row| text(row, "source")).collect();
    assert_eq!(sources, ["slowlog"; 7]);
}

#[test]
fn a_full_disk_ends_the_reading() {
    let root = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let writer = TableWriter::open(store(root.path()), source(), Duration::from_secs(60)).unwrap();
    std::fs::write(root.path().join("digests"), "").unwrap();
    let mut sink = SplittingSink::new(writer, Duration::from_secs(60), &stop);
    for minute in 0..4 {
        sink.on_event(&event(BEGIN_US + minute * MINUTE_US));
    }
    assert!(stop.load(Ordering::Relaxed));
    let error = format!("{:#}", sink.finish().unwrap_err());
    assert!(error.contains("cannot make ") && error.contains("digests"), "{error}");
}

#[test]
fn what_an_input_lacks_counts_in_its_last_stretch() {
    let root = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
    let mut sink = SplittingSink::new(writer, Duration::from_secs(60), &stop);
    for (minute, lost) in [(0, 0), (1, 5), (2, 7)] {
        sink.begin_input("pcapng");
        sink.on_event(&event(BEGIN_US + minute * MINUTE_US));
        sink.on_event(&event(BEGIN_US + minute * MINUTE_US + 1));
        sink.end_input(lost).unwrap();
    }
    sink.finish().unwrap();
    let mut found: Vec<(i64, i64)> = rows(root.path(), "coverage")
        .iter()
        .map(|row| ((int(row, "ts") - BEGIN_US) / MINUTE_US, int(row, "lost")))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(0, 0), (1, 5), (2, 7)]);
}

#[test]
fn a_day_is_removed_once_all_of_it_is_past_the_age() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
    add(&mut writer, 0, &[(0, 1_000)]).unwrap();
    add(&mut writer, 24 * 60, &[(0, 2_000)]).unwrap();
    writer.flush().unwrap();
    let midnight_us = BEGIN_US + 10 * 60 * MINUTE_US;
    assert_eq!(prune(&store(root.path()), midnight_us - 1).unwrap(), 0);
    assert_eq!(prune(&store(root.path()), midnight_us).unwrap(), 1);
    let left = RowSet::read(&*store(root.path())).unwrap();
    assert_eq!((left.digests.len(), left.digests[0].time_ns, left.texts.len()), (1, 2_000, 1));
    assert_eq!(prune(&store(root.path()), midnight_us).unwrap(), 0);
}

#[test]
fn a_log_that_has_grown_has_the_same_id_from_its_first_entry_on() {
    let dir = tempfile::tempdir().unwrap();
    let id = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        id_of_files(&[path])
    };
    let banner = "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n\
        Tcp port: 3306  Unix socket: /run/mysqld/mysqld.sock\nTime                 Id Command    Argument\n";
    let entry = |minute: u32| {
        format!(
            "# Time: 2025-11-26T14:{minute:02}:00.000000Z\n# User@Host: app[app] @ db1 []  Id:     8\n\
             # Query_time: 0.000123  Lock_time: 0.000010 Rows_sent: 1  Rows_examined: 1\n\
             SET timestamp={};\nSELECT 1;\n",
            1_764_165_600 + minute * 60
        )
    };
    let log = |minutes: std::ops::Range<u32>| format!("{banner}{}", minutes.map(entry).collect::<String>());
    let first = id("short", log(0..1).as_bytes()).unwrap();
    for entries in [2, 7, 50, 59] {
        assert_eq!(id("grown", log(0..entries).as_bytes()).unwrap(), first, "{entries} entries");
    }
    let long = log(0..59) + &entry(59).repeat(500);
    assert_eq!(id("long", long.as_bytes()).unwrap(), first);
    assert_eq!(id("long.zst", &zstd::encode_all(long.as_bytes(), 1).unwrap()).unwrap(), first);
    assert_ne!(id("rotated", log(1..3).as_bytes()).unwrap(), first, "the server's lines are the same");
    id("opened", banner.as_bytes()).unwrap();
    let begun = log(0..1).replace("SET timestamp", "");
    let error = format!("{:#}", id("begun", &begun.as_bytes()[..begun.len() - 40]).unwrap_err());
    assert!(error.contains("its first entry is not there whole yet"), "{error}");
    let both = id_of_files(&["short", "opened"].map(|name| dir.path().join(name)));
    assert!(
        format!("{:#}", both.unwrap_err()).contains("opened"),
        "the ID would change with its first entry"
    );
    assert!(id_of_files(&[dir.path().join("absent")]).is_ok(), "who opens it says so");
}

#[test]
fn the_reference_names_every_column() {
    let page = std::fs::read_to_string("../../../docs/reference/tables.md").unwrap();
    let sql = std::fs::read_to_string("../../toll/tests/readers/duckdb/top.sql").unwrap();
    assert!(page.contains(sql.trim_end()), "the statement that the page shows is the one that is tried");
    let root = tempfile::tempdir().unwrap();
    let mut writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
    add(&mut writer, 0, &[(0, 1)]).unwrap();
    writer.flush().unwrap();
    for table in ["digests", "texts", "coverage"] {
        let (_, part) = page.split_once(&format!("## `{table}`")).expect("a part for each table");
        let part = part.split("\n## ").next().unwrap();
        let row = &rows(root.path(), table)[0];
        for (column, _) in row.get_column_iter() {
            assert!(part.contains(&format!("`{column}`")), "{table}: {column}");
        }
    }
}

#[test]
fn what_cannot_be_written_waits_and_is_written_once() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
    add(&mut writer, 0, &[(0, 1_000)]).unwrap();
    // In the place of the directory of manifests: digests are written, and nothing names them.
    std::fs::write(root.path().join("manifests"), "").unwrap();
    assert!(writer.flush().is_err());
    assert_eq!((writer.pending(), rows(root.path(), "digests").len()), (1, 0));
    add(&mut writer, 1, &[(0, 2_000)]).unwrap();
    std::fs::remove_file(root.path().join("manifests")).unwrap();
    writer.flush().unwrap();
    let digests = rows(root.path(), "digests");
    assert_eq!(digests.iter().map(|row| int(row, "time_ns")).sum::<i64>(), 3_000);
    assert_eq!((digests.len(), writer.pending(), writer.dropped()), (2, 0, 0));
    writer.flush().unwrap();
    assert_eq!(manifests(root.path()).len(), 1, "nothing waits, nothing is written");
}

#[test]
fn memory_is_bounded_where_nothing_can_be_written() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
    std::fs::write(root.path().join("digests"), "").unwrap();
    let wide: Vec<(u8, u64)> = (0..20_000).map(|i| ((i % 26) as u8, 1_u64 << (i % 40) | i)).collect();
    let (wide, mut added, mut failed) = (digest(&wide), 0_u64, 0);
    while writer.dropped() == 0 {
        // All of one minute: it is due by its size alone.
        failed += u32::from(add_digest(&mut writer, 0, &wide).is_err());
        added += 1;
        assert!(added < 10_000, "it keeps all");
    }
    assert_eq!((writer.dropped(), writer.pending()), (added, 0));
    assert!((4..=6).contains(&failed), "tried {failed} times");
    std::fs::remove_file(root.path().join("digests")).unwrap();
    add(&mut writer, 0, &[(3, 5)]).unwrap();
    writer.flush().unwrap();
    assert_eq!((rows(root.path(), "digests").len(), rows(root.path(), "texts").len()), (1, 1));
}

#[test]
fn a_place_that_is_not_there_is_said_at_once() {
    let root = tempfile::tempdir().unwrap();
    let error =
        TableWriter::open(store(&root.path().join("absent")), source(), TEN_MINUTES).err().expect("refused");
    assert!(format!("{error:#}").contains("cannot write in "), "{error:#}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Merged from the files in any order, a percentile is off by half a bucket at most: as if one host had seen all.
    #[test]
    fn percentiles_of_merged_rows_are_those_of_all_queries(
        minutes in proptest::collection::vec(
            proptest::collection::vec((0_u8..3, 1_u64..10_000_000_000), 1..40), 1..8),
        seed in any::<u64>(),
    ) {
        let root = tempfile::tempdir().unwrap();
        let mut all: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
        let mut writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
        for (minute, queries) in minutes.iter().enumerate() {
            add(&mut writer, minute as i64, queries).unwrap();
            for &(class, query_ns) in queries {
                let one = digest(&[(class, query_ns)]);
                all.entry(one.classes()[0].id.0.to_vec()).or_default().push(query_ns);
            }
        }
        writer.flush().unwrap();
        let mut found = rows(root.path(), "digests");
        let mut state = seed;
        found.sort_by_cached_key(|_| { state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1); state });
        let mut merged: BTreeMap<Vec<u8>, (i64, Histogram)> = BTreeMap::new();
        for row in &found {
            let (bins, counts) = (ints(row, "hist_bin"), ints(row, "hist_n"));
            let buckets: Vec<(u16, u64)> =
                bins.iter().zip(&counts).map(|(bin, n)| (*bin as u16, *n as u64)).collect();
            let (n, histogram) = merged.entry(id(row)).or_default();
            *n += int(row, "n");
            histogram.merge(&Histogram::of_buckets(&buckets).expect("buckets as they are written"));
        }
        prop_assert_eq!(merged.len(), all.len());
        for (class, times) in &mut all {
            times.sort_unstable();
            let (n, histogram) = &merged[class];
            prop_assert_eq!(*n as usize, times.len());
            for q in [0.5, 0.95, 0.99, 1.0] {
                let exact = times[((q * times.len() as f64).ceil() as usize).max(1) - 1] as f64;
                let shown = histogram.quantile(q) as f64;
                prop_assert!((shown - exact).abs() <= 0.008 * exact, "{q}: {shown}, not {exact}");
            }
        }
    }
}
