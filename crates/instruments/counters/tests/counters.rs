//! Counters of real servers, as rows.

use toll_counters::CounterReader;
use toll_testkit::server::TestServer;

const ON: [&str; 1] = ["--performance-schema=ON"];

fn refused(server: &TestServer) -> String {
    let opened = CounterReader::open(server.tcp_target(), "shop".into(), 0);
    format!("{:#}", opened.err().expect("a refusal"))
}

#[test]
fn mariadb_is_refused_with_what_can_be_read_there() {
    let Some(server) = TestServer::mariadb(&ON) else { return };
    assert!(refused(&server).contains("slow log"), "{}", refused(&server));
}

/// Those of MySQL, if `scripts/mysqld` has one.
mod system_mysql {
    use super::{ON, refused};
    use std::time::Duration;
    use toll_counters::{CounterReader, SOURCE};
    use toll_mysql::{Address, Connection, Target};
    use toll_tables::{DigestRow, RowSet};
    use toll_testkit::server::{TestServer, target_as_user};

    const SELECT: &str = "select id from t where id = ?";

    fn open(server: &TestServer) -> CounterReader {
        CounterReader::open(server.tcp_target(), "shop".into(), 1_000).expect("counters")
    }

    /// The last statement of a session is counted once the next one has begun.
    fn run(session: &mut Connection, statements: impl IntoIterator<Item = String>) {
        for sql in statements {
            let _fails = session.query(&sql);
        }
        session.ping().expect("a server");
    }

    /// Rows of the same server.
    fn read(reader: &mut CounterReader, now_us: i64) -> RowSet {
        reader.read(now_us).expect("counters").expect("the same server")
    }

    fn row<'a>(rows: &'a RowSet, fingerprint: &str) -> Option<&'a DigestRow> {
        let text = rows.texts.iter().find(|text| text.fingerprint == fingerprint)?;
        rows.digests.iter().find(|row| row.class == text.class)
    }

    fn selects(n: u32) -> impl Iterator<Item = String> {
        (0..n).map(|id| format!("SELECT id FROM t WHERE id = {id}"))
    }

    #[test]
    fn each_query_is_in_the_rows_of_one_reading() {
        let Some(mut server) = TestServer::mysql(&ON) else { return };
        let mut session = server.connect_as_root();
        let prepare = ["CREATE SCHEMA shop", "USE shop", "CREATE TABLE t (id INT PRIMARY KEY, name TEXT)"];
        run(&mut session, prepare.map(String::from));
        // Among many, those that have changed are looked up one by one; of a truncated table all are read.
        run(
            &mut session,
            (0..200).map(|n| format!("SELECT 1 AS {}", "x".repeat(n % 60 + 1) + &"y".repeat(n / 60))),
        );
        run(&mut session, selects(3));
        let mut reader = open(&server);

        run(&mut session, selects(50));
        let insert = |ids: std::ops::Range<u32>| {
            let rows: Vec<String> = ids.map(|id| format!("({id}, 'x')")).collect();
            format!("INSERT INTO t (id, name) VALUES {}", rows.join(", "))
        };
        run(&mut session, [insert(0..1), insert(1..9), insert(9..10), insert(0..1)]);
        let rows = read(&mut reader, 61_000_000);
        let select = row(&rows, SELECT).unwrap_or_else(|| panic!("{:?}", rows.texts));
        assert_eq!(
            (select.n, select.errors, select.rows_sent, select.rows_examined),
            (50, 0, Some(0), Some(0))
        );
        assert_eq!(select.histogram.iter().map(|(_, n)| n).sum::<u64>(), 50);
        assert!(select.time_ns > 0 && select.max_ns * 50 >= select.time_ns, "{select:?}");
        assert_eq!((select.source.as_ref(), select.dbs.as_slice()), (SOURCE, &[("shop".to_owned(), 50)][..]));
        assert_eq!((select.ts_us, select.width_us, select.cluster.as_str()), (1_000, 60_999_000, "shop"));
        assert_eq!(select.host, format!("127.0.0.1:{}", server.port()));
        let inserts =
            row(&rows, "insert into t (id, name) values(?+)").unwrap_or_else(|| panic!("{:?}", rows.texts));
        assert_eq!((inserts.n, inserts.errors, inserts.rows_affected), (4, 1, Some(10)), "one row or many");
        let text = rows.texts.iter().find(|text| text.fingerprint == SELECT).unwrap();
        assert_eq!((text.summary.as_str(), text.tables.as_slice()), ("SELECT t", &["shop.t".to_owned()][..]));
        assert_eq!(rows.coverage[0].commands, rows.digests.iter().map(|row| row.n).sum::<i64>());
        assert!(!format!("{rows:?}").contains("toll_counters"), "what the reader asks is nobody's query");

        assert!(row(&read(&mut reader, 62_000_000), SELECT).is_none(), "nothing came");

        run(&mut session, ["TRUNCATE TABLE performance_schema.events_statements_summary_by_digest".into()]);
        run(&mut session, selects(60));
        let rows = read(&mut reader, 63_000_000);
        assert_eq!(
            row(&rows, SELECT).map(|row| (row.n, row.ts_us)),
            Some((60, 62_000_000)),
            "all since it was truncated"
        );

        server.restart(Duration::ZERO);
        reader.read(64_000_000).expect_err("its connection is gone");
        let mut session = server.connect_as_root();
        run(&mut session, ["USE shop".into()]);
        run(&mut session, selects(70));
        let rows = read(&mut reader, 65_000_000);
        assert_eq!(
            row(&rows, SELECT).map(|row| (row.n, row.ts_us)),
            Some((70, 63_000_000)),
            "since the last reading"
        );
    }

    #[test]
    fn another_server_behind_the_same_name_is_a_new_baseline() {
        let (Some(mut first), Some(mut other)) = (TestServer::mysql(&ON), TestServer::mysql(&ON)) else {
            return;
        };
        // Both have the data of one template, and its uuid with it.
        std::fs::remove_file(other.datadir().join("auto.cnf")).unwrap();
        other.restart(Duration::ZERO);
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("name");
        let lead_to = |server: &TestServer| {
            let _absent = std::fs::remove_file(&name);
            std::os::unix::fs::symlink(server.socket(), &name).unwrap();
        };
        lead_to(&first);
        let target = Target { address: Address::Unix(name.clone()), ..first.unix_target() };
        let mut reader = CounterReader::open(target, "shop".into(), 1_000).unwrap();
        let mut session = other.connect_as_root();
        run(&mut session, (0..40).map(|_| "SELECT 1 AS early".to_owned()));
        first.stop();
        reader.read(2_000).expect_err("its connection is gone");
        lead_to(&other);
        assert_eq!(reader.read(3_000).unwrap(), None, "its queries of all time are of no stretch");
        run(&mut session, (0..7).map(|_| "SELECT 1 AS later".to_owned()));
        let rows = read(&mut reader, 4_000);
        assert_eq!(row(&rows, "select ? as later").map(|row| (row.n, row.ts_us)), Some((7, 3_000)));
        assert!(row(&rows, "select ? as early").is_none(), "{rows:?}");
    }

    #[test]
    fn another_time_zone_of_the_server_makes_no_query_new() {
        let Some(server) = TestServer::mysql(&ON) else { return };
        let mut session = server.connect_as_root();
        run(&mut session, (0..40).map(|_| "SELECT 1 AS early".to_owned()));
        let mut reader = open(&server);
        run(&mut session, ["SET GLOBAL time_zone = '+05:00'".to_owned()]);
        let sessions = session
            .query(
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'",
            )
            .unwrap();
        for id in sessions.rows.iter().filter_map(|row| row.first()?.as_deref()) {
            run(&mut session, [format!("KILL {id}")]);
        }
        reader.read(2_000).expect_err("its connection is gone");
        let rows = read(&mut reader, 3_000);
        assert!(row(&rows, "select ? as early").is_none(), "{rows:?}");
    }

    #[test]
    fn statements_beyond_the_size_of_the_servers_table_are_a_class_of_their_own() {
        let Some(server) = TestServer::mysql(&[ON[0], "--performance-schema-digests-size=3"]) else { return };
        let mut session = server.connect_as_root();
        run(&mut session, (0..3).map(|n| format!("SELECT 1 AS {}", ["a", "b", "c"][n])));
        let mut reader = open(&server);
        run(&mut session, (0..40).map(|_| "SELECT 1 AS room".to_owned()));
        let rows = read(&mut reader, 2_000);
        let other =
            rows.digests.iter().find(|row| row.class == [0; 16]).unwrap_or_else(|| panic!("{rows:?}"));
        assert!(other.n >= 40 && other.time_ns > 0, "{other:?}");
        assert!(rows.texts.iter().all(|text| !text.fingerprint.contains("room")), "{:?}", rows.texts);
    }

    #[test]
    fn a_server_that_does_not_show_its_counters_is_told_what_to_do() {
        if let Some(server) = TestServer::mysql(&["--performance-schema=OFF"]) {
            assert!(refused(&server).contains("performance_schema = ON"), "{}", refused(&server));
        }
        let Some(server) = TestServer::mysql(&ON) else { return };
        let mut session = server.connect_as_root();
        session.exec_drop("CREATE USER poor@'%' IDENTIFIED BY 'x'").unwrap();
        let target = target_as_user(server.unix_target(), "poor", "x");
        let error = format!("{:#}", CounterReader::open(target, "shop".into(), 0).err().expect("a refusal"));
        assert!(error.contains("GRANT SELECT ON performance_schema.*"), "{error}");
        let off =
            "UPDATE performance_schema.setup_consumers SET ENABLED = 'NO' WHERE NAME = 'statements_digest'";
        session.exec_drop(off).unwrap();
        assert!(refused(&server).contains("setup_consumers"), "{}", refused(&server));
    }
}
