//! Tests of `toll-fleet serve`, with a browser and a client of SQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the program is started as its users start it")]

#[allow(dead_code, reason = "other tests use the rest")]
mod fixtures;

use fixtures::{fleet, number, rows, write_changed, write_minutes, write_tables};
use postgres::{Client, NoTls, SimpleQueryMessage};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `toll-fleet serve`; ended with the test.
struct Served {
    child: Child,
    /// Addresses and ports.
    page: String,
    sql: String,
}

impl Served {
    fn start(root: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_toll-fleet"))
            .args(["serve", "--listen", "127.0.0.1:0", "--page", "127.0.0.1:0", "--tables"])
            .arg(root)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut address = |scheme: &str| {
            let line = lines.next().expect("it says where it listens").unwrap();
            let (_, rest) = line.split_once(scheme).unwrap_or_else(|| panic!("{line}"));
            rest.split('/').next().unwrap().to_owned()
        };
        Self { page: address("http://"), sql: address("postgresql://"), child }
    }

    /// Status and text of an answer to a browser, which asks for this host.
    fn get(&self, host: &str, path: &str) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let asked = agent.get(format!("http://{}{path}", self.page)).header("Host", host).call();
        let mut answer = asked.unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    fn rows(&self, path: &str) -> Vec<Value> {
        let (status, text) = self.get(&self.page, path);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    fn client(&self) -> Client {
        let port = self.sql.rsplit_once(':').unwrap().1;
        let to = format!("host=127.0.0.1 port={port} user=grafana dbname=datafusion");
        // It says where it will listen, and listens a moment later.
        for _ in 0..100 {
            if let Ok(client) = Client::connect(&to, NoTls) {
                return client;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Client::connect(&to, NoTls).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_client_of_postgresql_reads_what_sql_reads_and_what_arrives_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    let served = Served::start(root.path());
    let mut client = served.client();
    let sql = "SELECT host, sum(n) AS n FROM digests GROUP BY host ORDER BY host";
    let ask = |client: &mut Client| {
        let found = client.query(sql, &[]).unwrap();
        found.iter().map(|row| (row.get::<_, String>("host"), row.get::<_, i64>("n"))).collect::<Vec<_>>()
    };
    let expected = |root: &Path| {
        let found = rows(&["sql", sql], root);
        found
            .iter()
            .map(|row| (row["host"].as_str().unwrap().to_owned(), number(row, "n") as i64))
            .collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut client), expected(root.path()));
    write_changed(root.path());
    let after = ask(&mut client);
    assert!(after == expected(root.path()) && after.len() == 6, "{after:?}");
    let p99 =
        "SELECT toll_quantile(toll_histogram(hist_bin, hist_n), 0.99) / 1000 AS us FROM digests WHERE n > 0";
    assert!(client.query_one(p99, &[]).unwrap().get::<_, i64>("us") > 0);
    // As psql and Grafana ask for tables and columns.
    let columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'coverage'";
    assert!(client.query(columns, &[]).unwrap().iter().any(|row| row.get::<_, String>(0) == "sampled_share"));
}

#[test]
fn a_client_of_postgresql_can_change_nothing() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    let served = Served::start(root.path());
    let mut client = served.client();
    let out = root.path().join("out.csv");
    for sql in [
        format!("COPY (SELECT 1 AS n) TO '{}'", out.display()),
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'".into(),
        "CREATE TABLE x AS SELECT 1 AS n".into(),
        "INSERT INTO texts SELECT * FROM texts".into(),
        "DROP TABLE digests".into(),
        "SET datafusion.execution.batch_size = 1".into(),
        "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1 AS n".into(),
        "SELECT 1 AS n INTO x".into(),
        "WITH one AS (SELECT 1 AS n) (SELECT n INTO x FROM one)".into(),
        "SELECT 1 AS n UNION ALL SELECT n INTO x FROM (SELECT 1 AS n) AS one".into(),
        "SELECT * FROM (SELECT 1 AS n INTO x) AS one".into(),
        "EXPLAIN ANALYZE SELECT 1 AS n INTO x".into(),
        "DECLARE c CURSOR FOR SELECT 1 AS n INTO x".into(),
    ] {
        assert!(client.simple_query(&sql).is_err(), "{sql}");
        assert!(client.query(sql.as_str(), &[]).is_err(), "{sql}");
    }
    assert!(!out.exists());
    let count = client.simple_query("BEGIN; SELECT count(*) AS n FROM texts; COMMIT").unwrap();
    let rows = count.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count();
    assert_eq!(rows, 1);
    let refused = fleet(&["serve", "--listen", "0.0.0.0:0"], root.path());
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("set --plain"), "{refused:?}");
}

#[test]
fn a_setting_of_one_client_is_no_other_clients() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    let served = Served::start(root.path());
    let (mut client, mut other) = (served.client(), served.client());
    let sql = "SELECT min(ts) AS first, CAST(min(ts) AS VARCHAR) AS text FROM digests";
    let mut answer = || format!("{:?}", other.simple_query(sql).unwrap());
    let before = answer();
    for (sql, said) in [
        ("SET datafusion.execution.batch_size = 1", "datafusion.execution.batch_size"),
        (r#"SET "datafusion"."execution"."batch_size" = 1"#, "datafusion.execution.batch_size"),
        (r#"SET "DataFusion".execution.time_zone TO '+05:00'"#, "datafusion.execution.time_zone"),
        ("SET timezone = '+05:00'", "UTC"),
        ("SET timezone TO 'Asia/Kolkata'", "UTC"),
        (r#"SET "timezone" = 'Asia/Kolkata'"#, "UTC"),
        ("SET TIME ZONE 'Asia/Kolkata'", "UTC"),
        ("SET LOCAL TIME ZONE 'Asia/Kolkata'", "UTC"),
        ("SET work_mem = '1GB'", "work_mem"),
    ] {
        let of_simple = client.simple_query(sql).map(drop);
        for refused in [of_simple, client.execute(sql, &[]).map(drop)] {
            let error = refused.expect_err(sql);
            let words =
                error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
            assert!(words.contains(said), "{sql}: {words}");
        }
        assert_eq!(answer(), before, "{sql}");
    }
    // As psql, pgjdbc, psycopg, npgsql and Metabase begin.
    for sql in [
        "SET client_encoding TO 'UTF8'",
        "SET client_encoding = 'UTF8'",
        "SET NAMES 'UTF8'",
        "SET datestyle TO 'ISO'",
        "SET DateStyle = 'ISO'",
        "SET extra_float_digits = 3",
        "SET application_name = 'PostgreSQL JDBC Driver'",
        "SET search_path TO public",
        "SET search_path = 'public'",
        "SET statement_timeout = '30s'",
        "SET SESSION statement_timeout TO 30000",
        "SET standard_conforming_strings = on",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SET timezone TO 'UTC'",
        "SET TIME ZONE 'UTC'",
    ] {
        client.simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        client.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(answer(), before, "{sql}");
    }
}

#[test]
fn the_chart_keeps_its_steps_where_the_time_that_was_seen_is_longer() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    // Of a receiver whose files ended within minutes: parts of a minute beside each other.
    write_minutes(root.path(), "db1", 1, 0..60);
    write_minutes(root.path(), "db1", 2, 0..60);
    let served = Served::start(root.path());
    let look = |minutes: f64| {
        let load = served.rows("/api/load?since_us=1764165600000000&until_us=1764169200000000");
        assert!((number(&load[0], "step_us") / 60e6 - minutes).abs() < 1e-9, "{}", load[0]);
        let coverage = served.rows("/api/coverage?cluster=shop");
        assert!((number(&coverage[0], "seen_s") - 3_600.0).abs() < 1e-9, "{}", coverage[0]);
    };
    look(1.0);
    for (grain, minutes) in [("10m", 10.0), ("hour", 60.0)] {
        let compacted = fleet(&["compact", "--grain", grain, "--keep-replaced", "0s"], root.path());
        assert!(compacted.status.success(), "{compacted:?}");
        look(minutes);
    }
}

#[test]
fn the_page_asks_for_what_the_commands_answer_and_no_other_site_reads_it() {
    let root = tempfile::tempdir().unwrap();
    write_changed(root.path());
    let served = Served::start(root.path());
    let (status, page) = served.get(&served.page, "/");
    assert!(status == 200 && page.contains("<div id=\"page\">"), "{status}");
    let top = rows(&["top"], root.path());
    assert_eq!(served.rows("/api/classes"), top);
    assert_eq!(served.rows("/api/hosts"), rows(&["hosts"], root.path()));
    assert_eq!(served.rows("/api/coverage"), rows(&["coverage"], root.path()));
    let id = top[0]["class"].as_str().unwrap();
    assert_eq!(served.rows(&format!("/api/classes/{id}")), rows(&["class", id], root.path()));
    assert_eq!(served.rows("/api/classes?cluster=other").len(), 0);
    // Query time in each second, in steps of a minute: the sum over steps is the time of all.
    let load = served.rows("/api/load");
    let step_s = number(&load[0], "step_us") / 1e6;
    let seconds: f64 = load.iter().map(|row| number(row, "active") * step_s).sum();
    let all: f64 = top.iter().map(|row| number(row, "time_s")).sum();
    assert!((seconds / all - 1.0).abs() < 1e-9, "{seconds} of {all}");
    let extent = &served.rows("/api/tables")[0];
    assert_eq!((&extent["cluster"], number(extent, "hosts")), (&"shop".into(), 6.0));
    // 14:00 to 15:00 of four hours.
    let hour = served.rows("/api/coverage?since_us=1764165600000000&until_us=1764169200000000");
    assert_eq!(number(&hour[0], "seen_s") as i64, 3_600);
    assert_eq!(served.get(&served.page, "/api/classes/none").0, 400);
    assert_eq!(served.get("toll.example", "/api/classes").0, 403, "a name that leads here");
    assert_eq!(served.get("localhost", "/api/tables").0, 200);
}

/// As Grafana fills them in.
fn fill_in(sql: &str) -> String {
    let between = "BETWEEN '2025-11-26T14:00:00Z' AND '2025-11-26T18:00:00Z'";
    sql.replace("$__timeFilter(ts)", &format!("ts {between}"))
        .replace("$__timeGroupAlias(ts, $__interval)", "floor(extract(epoch from ts)/600)*600 AS \"time\"")
        .replace("${cluster:sqlstring}", "'shop','other'")
}

#[test]
fn every_panel_of_the_dashboard_has_rows() {
    let root = tempfile::tempdir().unwrap();
    write_changed(root.path());
    let served = Served::start(root.path());
    let mut client = served.client();
    let kept = std::fs::read_to_string("../docs/howto/fleet-dashboard.json").unwrap();
    let dashboard: Value = serde_json::from_str(&kept).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert_eq!(panels.len(), 6);
    for panel in panels {
        let sql = fill_in(panel["targets"][0]["rawSql"].as_str().unwrap());
        assert!(!sql.contains('$'), "{sql}");
        let found = client.query(sql.as_str(), &[]).unwrap_or_else(|error| panic!("{error}: {sql}"));
        assert!(found.len() >= 6 || panel["title"].as_str().unwrap().contains("cluster"), "{sql}");
        assert!(!found.is_empty(), "{sql}");
    }
}
