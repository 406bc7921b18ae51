//! Tests of compaction: rows are merged by stretches, and what is read again, or late, counts once.

use super::{BEGIN_US, MINUTE_US, TEN_MINUTES, add, all_files, event, int, ints, rows, source, store};
use parquet::record::Row;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toll_tables::{Grain, RowSet, Source, SplittingSink, TableWriter, compact};
use toll_wire::event::Sink;

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
        compact(&store(root.path()), grain, until_us, &AtomicBool::new(false), |_, _| {}).unwrap()
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
        compact(&store(root.path()), Grain::Hour, until_us, &AtomicBool::new(false), |_, _| {}).unwrap()
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
    let merged =
        compact(&store(root.path()), Grain::Hour, BEGIN_US + 60 * MINUTE_US, &stop, |_, _| {}).unwrap();
    assert_eq!((merged.rows_before, merged.rows_after), (11, 3), "five rows, five of coverage, one text");
    let error = format!("{:#}", read(8).unwrap_err());
    assert!(error.contains("day=2025-11-26 are merged"), "{error}");
    assert_eq!(rows(root.path(), "digests").iter().map(|row| int(row, "n")).sum::<i64>(), 5);
}

#[test]
fn what_is_read_again_as_it_was_counts_once_though_a_part_is_merged() {
    let root = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let midnight = 10 * 60;
    let read = |merge_between: bool| {
        for _ in 0..2 {
            let writer = TableWriter::open(store(root.path()), source(), TEN_MINUTES * 200).unwrap();
            let mut sink = SplittingSink::new(writer, Duration::from_secs(60), &stop).skipping_replaced();
            for (host, minute) in [("db1", 0), ("db2", 1), ("db2", midnight)] {
                sink.begin_input_of(host, "queries");
                sink.on_event(&event(BEGIN_US + minute * MINUTE_US));
                sink.end_input(0).unwrap();
            }
            sink.finish().unwrap();
            if merge_between {
                // The first day alone.
                compact(&store(root.path()), Grain::Hour, BEGIN_US + 60 * MINUTE_US, &stop, |_, _| {})
                    .unwrap();
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
