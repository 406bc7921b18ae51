//! Tests that tables match those of sysbench and depend on the seed alone.

use crate::load::{TABLE, plan, run, server_with_tables};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use toll_load::mix::{Profile, TableSet};
use toll_load::tables::{self, PrepareProgress, TableLayout};
use toll_mysql::Target;
use toll_testkit::server::TestServer;

fn in_sbtest(server: &TestServer) -> Target {
    Target { db: Some("sbtest".into()), ..server.unix_target() }
}

#[test]
fn a_seed_makes_the_same_rows_whatever_the_threads_and_their_count_is_told() {
    let Some(server) = server_with_tables() else { return };
    let target = in_sbtest(&server);
    let checksums = || {
        let rows =
            server.connect_as_root().query("CHECKSUM TABLE sbtest.sbtest1, sbtest.sbtest2").unwrap().rows;
        rows.into_iter().map(|row| row[1].clone().unwrap()).collect::<Vec<_>>()
    };
    let first = checksums();
    assert_ne!(first[0], first[1]);
    let again = |seed, threads| {
        tables::drop_tables(&target, 2).unwrap();
        let told = Mutex::new(0);
        let layout = TableLayout { table: TABLE, seed, threads };
        tables::prepare_tables(&target, &layout, &AtomicBool::new(false), |progress| {
            if let PrepareProgress::Rows(rows) = progress {
                *told.lock().unwrap() = rows;
            }
        })
        .unwrap();
        assert_eq!(*told.lock().unwrap(), 2000);
        checksums()
    };
    assert_eq!(again(1, 1), first);
    assert_ne!(again(2, 2), first);
    let twice = tables::prepare_tables(
        &target,
        &TableLayout { table: TABLE, seed: 1, threads: 1 },
        &AtomicBool::new(false),
        |_| {},
    );
    assert_eq!(twice.unwrap_err().code(), 1050, "tables that are there are not touched");
}

#[test]
fn sysbench_runs_on_our_tables_and_we_on_its() {
    if Command::new("sysbench").arg("--version").output().is_err() {
        toll_testkit::skip!("sysbench is missing: apt-get install sysbench");
        return;
    }
    let Some(server) = server_with_tables() else { return };
    let sysbench = |verb: &str| {
        let output = Command::new("sysbench")
            .args([
                "oltp_read_write",
                "--mysql-user=root",
                "--mysql-db=sbtest",
                "--tables=2",
                "--table-size=1000",
            ])
            .arg(format!("--mysql-socket={}", server.socket().display()))
            .args(["--events=20", "--time=0", verb])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    };
    let shape = || {
        let create = |n: u32| {
            let rows =
                server.connect_as_root().query(&format!("SHOW CREATE TABLE sbtest.sbtest{n}")).unwrap().rows;
            rows[0][1].clone().unwrap()
        };
        (create(1), create(2))
    };
    let without_counter = |(a, b): (String, String)| {
        let cut = |s: String| {
            s.split("AUTO_INCREMENT=")
                .map(|p| p.trim_start_matches(char::is_numeric).to_owned())
                .collect::<String>()
        };
        (cut(a), cut(b))
    };
    let ours = shape();
    sysbench("run");
    sysbench("cleanup");
    sysbench("prepare");
    assert_eq!(without_counter(shape()), without_counter(ours));
    let totals =
        run(plan(server.unix_target(), Profile::ReadWrite.build_mix(TABLE).unwrap())).unwrap().totals;
    assert!(totals.counts.events > 0, "{:?}", totals.messages);
    tables::drop_tables(&in_sbtest(&server), 2).unwrap();
    let left = server.connect_as_root().query("SHOW TABLES FROM sbtest").unwrap();
    assert!(left.rows.is_empty());
}

#[test]
fn a_table_of_several_inserts_is_whole() {
    let Some(server) = TestServer::mariadb(&[]) else { return };
    let table = TableSet { tables: 1, rows: 20_001, ..TABLE };
    let layout = TableLayout { table, seed: 5, threads: 4 };
    tables::prepare_tables(&in_sbtest(&server), &layout, &AtomicBool::new(false), |_| {}).unwrap();
    let row = server
        .connect_as_root()
        .query("SELECT COUNT(*), MIN(id), MAX(id), MIN(LENGTH(c)), MAX(LENGTH(c)), MIN(LENGTH(pad)), MIN(k) >= 1, MAX(k) <= 20001 FROM sbtest.sbtest1")
        .unwrap();
    let values: Vec<&str> = row.rows[0].iter().map(|v| v.as_deref().unwrap()).collect();
    assert_eq!(values, ["20001", "1", "20001", "119", "119", "59", "1", "1"]);
}
