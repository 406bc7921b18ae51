//! Tests of compaction: rows are merged by stretches, and what is read again, or late, counts once.

use super::{BEGIN_US, MINUTE_US, TEN_MINUTES, add, all_files, event, int, ints, rows, source, store};
use parquet::record::Row;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toll_tables::{
    ALL_DAYS, CompactOptions, Grain, Listed, Location, Lock, ReplacedFiles, RowSet, Source, SplittingSink,
    Store, TableWriter, compact, live_files, read_manifests,
};
use toll_wire::event::Sink;

fn merged_until(until_us: i64) -> CompactOptions {
    CompactOptions { until_us, ..CompactOptions::default() }
}

#[test]
fn stretches_of_a_grain_stay_apart_and_a_row_of_a_longer_one_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let write = |id: u8, minutes: &[i64]| {
        let of = Source { id: [id; 16], ..source() };
        let mut writer = TableWriter::open(store(root.path()), of, TEN_MINUTES * 6).unwrap();
        minutes.iter().for_each(|&minute| add(&mut writer, minute, &[(0, 100)]).unwrap());
        writer.flush().unwrap();
    };
    let merge = |grain, days: i64| {
        let until_us = BEGIN_US + days * 1_440 * MINUTE_US;
        let options = CompactOptions { grain, ..merged_until(until_us) };
        compact(&store(root.path()), &options, &AtomicBool::new(false), |_, _| {}).unwrap()
    };
    // Minutes since the begin, queries, and width in minutes.
    let found = |table: &str, n: &str| {
        let of_row = |row: &Row| {
            ((int(row, "ts") - BEGIN_US) / MINUTE_US, int(row, n), int(row, "width_us") / MINUTE_US)
        };
        let mut found: Vec<_> = rows(root.path(), table).iter().map(of_row).collect();
        found.sort_unstable();
        found
    };
    write(1, &[0, 3, 12, 25]);
    merge(Grain::TenMinutes, 1);
    assert_eq!(found("digests", "n"), [(0, 2, 10), (10, 1, 10), (20, 1, 10)]);
    assert_eq!(found("coverage", "commands"), [(0, 2, 2), (10, 1, 1), (20, 1, 1)], "width: the time seen");
    assert_eq!(merge(Grain::TenMinutes, 1).stretches, 0, "nothing is left to do");
    merge(Grain::Hour, 1);
    assert_eq!(found("digests", "n"), [(0, 4, 60)]);
    assert_eq!(merge(Grain::TenMinutes, 1).stretches, 0, "an hour is not split again");
    merge(Grain::Day, 2);
    let midnight = -14 * 60;
    assert_eq!(found("digests", "n"), [(midnight, 4, 1_440)]);
    write(2, &[midnight + 5]);
    merge(Grain::Hour, 2);
    assert_eq!(found("digests", "n"), [(midnight, 1, 60), (midnight, 4, 1_440)]);
    merge(Grain::Day, 2);
    assert_eq!(found("digests", "n"), [(midnight, 5, 1_440)]);
}

#[test]
fn rows_of_a_cluster_stand_without_hosts_too_and_follow_what_is_late() {
    let root = tempfile::tempdir().unwrap();
    let write = |host: &str, cluster: &str, queries: &[(u8, u64)]| {
        let of = Source { host: host.into(), cluster: cluster.into(), ..source() };
        let mut writer = TableWriter::open(store(root.path()), of, TEN_MINUTES).unwrap();
        add(&mut writer, 0, queries).unwrap();
        writer.flush().unwrap();
    };
    let merge = || {
        let until_us = BEGIN_US + 60 * MINUTE_US;
        compact(&store(root.path()), &merged_until(until_us), &AtomicBool::new(false), |_, _| {}).unwrap()
    };
    write("db1", "shop", &[(0, 100), (1, 7)]);
    write("db2", "shop", &[(0, 100), (0, 300)]);
    write("lone", "other cluster", &[(0, 5)]);
    merge();
    let folded = || {
        let mut rows = rows(root.path(), "cluster_digests");
        rows.sort_by_key(|row| int(row, "n"));
        rows
    };
    let of_shop = folded();
    assert_eq!(of_shop.len(), 0, "three rows of two classes hardly become fewer");
    write("db3", "shop", &[(0, 100), (1, 9), (1, 9)]);
    let merged = merge();
    assert_eq!((merged.files_before, merged.files_after), (6, 4), "of three tables; and without hosts");
    let of_shop = folded();
    let counts: Vec<_> = of_shop.iter().map(|row| (int(row, "n"), int(row, "time_ns"))).collect();
    assert_eq!(counts, [(3, 25), (4, 600)]);
    assert_eq!(ints(&of_shop[1], "hist_n"), [3, 1]);
    assert!(of_shop[0].get_column_iter().all(|(name, _)| *name != "host"));
    write("db4", "shop", &[(0, 100)]);
    merge();
    assert_eq!(int(&folded()[1], "n"), 5);
    let below = all_files(&root.path().join("cluster_digests"));
    assert_eq!(below.len(), 1, "what was replaced is removed: {below:?}");
}

#[test]
fn what_is_read_again_is_refused_once_it_is_merged() {
    let root = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let read = |minutes: i64| {
        let writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
        let mut sink = SplittingSink::new(writer, Duration::from_secs(60), &stop);
        (0..minutes).for_each(|minute| sink.on_event(&event(BEGIN_US + minute * MINUTE_US)));
        sink.finish()
    };
    read(3).unwrap();
    read(5).unwrap();
    let options = merged_until(BEGIN_US + 60 * MINUTE_US);
    let merged = compact(&store(root.path()), &options, &stop, |_, _| {}).unwrap();
    assert_eq!((merged.rows_before, merged.rows_after), (11, 3), "five rows, five of coverage, one text");
    let error = format!("{:#}", read(8).unwrap_err());
    assert!(error.contains("day=2025-11-26 are merged"), "{error}");
    assert_eq!(rows(root.path(), "digests").iter().map(|row| int(row, "n")).sum::<i64>(), 5);
}

#[test]
fn days_that_ended_before_are_left_as_they_are() {
    let root = tempfile::tempdir().unwrap();
    let day = 1_440;
    let mut writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES).unwrap();
    // Two minutes of each day.
    for minute in [0, 1, day, day + 1] {
        add(&mut writer, minute, &[(0, 100)]).unwrap();
    }
    writer.flush().unwrap();
    let merge = |since_us| {
        let options = CompactOptions { since_us, ..CompactOptions::default() };
        compact(&store(root.path()), &options, &AtomicBool::new(false), |_, _| {}).unwrap()
    };
    // A day ends where the next one begins.
    let second_day = (BEGIN_US + day * MINUTE_US).div_euclid(86_400_000_000) * 86_400_000_000;
    assert_eq!(merge(second_day + 86_400_000_000), toll_tables::Compacted::default());
    let merged = merge(second_day);
    assert_eq!(
        (merged.stretches, merged.rows_before > merged.rows_after),
        (2, true),
        "an hour, then its day"
    );
    assert_eq!(merge(i64::MIN).rows_before, merged.rows_before, "the first day alone is left");
    assert_eq!(merge(i64::MIN), toll_tables::Compacted::default());
}

#[test]
fn what_is_read_again_as_it_was_counts_once_though_a_part_is_merged() {
    let root = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let midnight = 10 * 60;
    let read = |merge_between: bool| {
        for _ in 0..2 {
            let writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES * 200).unwrap();
            let mut sink = SplittingSink::new(writer, Duration::from_secs(60), &stop);
            sink.set_replaced(ReplacedFiles::Skipped);
            for (host, minute) in [("db1", 0), ("db2", 1), ("db2", midnight)] {
                sink.begin_input_of(host, "queries");
                sink.on_event(&event(BEGIN_US + minute * MINUTE_US));
                sink.end_input(0).unwrap();
            }
            sink.finish().unwrap();
            if merge_between {
                // The first day alone.
                let options = merged_until(BEGIN_US + 60 * MINUTE_US);
                compact(&store(root.path()), &options, &stop, |_, _| {}).unwrap();
            }
        }
        let live = RowSet::read(&*store(root.path())).unwrap().digests;
        live.iter().map(|row| (row.host.clone(), row.n)).collect::<Vec<_>>()
    };
    let mut found = read(true);
    found.sort();
    assert_eq!(found, [("db1".into(), 1), ("db2".into(), 1), ("db2".into(), 1)]);
    let days = std::fs::read_dir(root.path().join("manifests/v=1")).unwrap().count();
    assert_eq!(days, 2, "a manifest names files of its day alone");
}

/// Tables in which a compaction begins and ends behind the first list that a reader gets.
#[derive(Debug)]
struct Overlapped {
    tables: Arc<dyn Store>,
    keep_replaced: Duration,
    is_over: AtomicBool,
}

impl Overlapped {
    fn of(root: &Path, keep_replaced: Duration) -> Self {
        Self { tables: store(root), keep_replaced, is_over: AtomicBool::new(false) }
    }
}

impl Store for Overlapped {
    fn location(&self) -> Location {
        self.tables.location()
    }

    fn put(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.tables.put(path, bytes)
    }

    fn get(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        self.tables.get(path)
    }

    fn list(&self, dir: &str) -> anyhow::Result<Listed> {
        let listed = self.tables.list(dir);
        if dir.starts_with("manifests/v=1/day=") && !self.is_over.swap(true, Ordering::Relaxed) {
            let until_us = BEGIN_US + 60 * MINUTE_US;
            let stop = AtomicBool::new(false);
            let keep_replaced = self.keep_replaced;
            let options = CompactOptions { keep_replaced, ..merged_until(until_us) };
            compact(&self.tables, &options, &stop, |_, _| {})?;
        }
        listed
    }

    fn list_all(&self, dir: &str) -> anyhow::Result<Vec<String>> {
        self.tables.list_all(dir)
    }

    fn remove(&self, path: &str) -> anyhow::Result<()> {
        self.tables.remove(path)
    }

    fn check_writable(&self) -> anyhow::Result<()> {
        self.tables.check_writable()
    }

    fn lock(self: Arc<Self>) -> anyhow::Result<Box<dyn Lock>> {
        Arc::clone(&self.tables).lock()
    }
}

#[test]
fn a_reader_that_a_compaction_overtakes_finds_every_row() {
    let root = tempfile::tempdir().unwrap();
    for host in ["db1", "db2"] {
        let of = Source { host: host.into(), ..source() };
        let mut writer = TableWriter::open(store(root.path()), of, TEN_MINUTES).unwrap();
        add(&mut writer, 0, &[(0, 100)]).unwrap();
        writer.flush().unwrap();
    }
    let overlapped = Overlapped::of(root.path(), Duration::ZERO);
    let manifests = read_manifests(&overlapped, ALL_DAYS).unwrap();
    assert!(overlapped.is_over.load(Ordering::Relaxed));
    let digests = live_files(manifests.values()).into_iter().filter(|(path, _)| path.starts_with("digests/"));
    assert_eq!(digests.map(|(_, file)| file.rows).sum::<u64>(), 2, "{manifests:?}");
}

#[test]
fn what_is_replaced_is_there_for_a_while_and_removed_by_the_next_run_where_that_was_ended() {
    let root = tempfile::tempdir().unwrap();
    let write = |id: u8| {
        let of = Source { id: [id; 16], ..source() };
        let mut writer = TableWriter::open(store(root.path()), of, TEN_MINUTES).unwrap();
        add(&mut writer, 0, &[(0, 100)]).unwrap();
        writer.flush().unwrap();
    };
    let digests = || all_files(&root.path().join("digests"));
    let merge = |keep, stop: &AtomicBool| {
        let until_us = BEGIN_US + 60 * MINUTE_US;
        let options = CompactOptions { keep_replaced: keep, ..merged_until(until_us) };
        compact(&store(root.path()), &options, stop, |_, _| {}).unwrap()
    };
    write(1);
    write(2);
    let before = digests();
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let merging = scope.spawn(|| merge(TEN_MINUTES, &stop));
        while digests().len() < 3 && !merging.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(before.iter().all(|path| path.exists()), "a question that began before reads them");
    assert!(begun.elapsed() < TEN_MINUTES, "a signal waits for no question");
    assert_eq!(rows(root.path(), "digests").iter().map(|row| int(row, "n")).sum::<i64>(), 2);
    let (begun, keep) = (Instant::now(), Duration::from_millis(300));
    assert_eq!(merge(keep, &AtomicBool::new(false)).stretches, 0);
    assert!(begun.elapsed() >= keep);
    assert_eq!(digests().len(), 1, "what was replaced is removed");
    assert_eq!(rows(root.path(), "digests").iter().map(|row| int(row, "n")).sum::<i64>(), 2);
}
