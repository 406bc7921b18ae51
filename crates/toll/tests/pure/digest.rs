//! Tests of `toll digest` on logs: counts, names and ranks. Runs the program itself.

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SLOW: &str = "\
/usr/sbin/mysqld, Version: 5.7.12-log (Ubuntu). started with:
Tcp port: 3306  Unix socket: /var/run/mysqld/mysqld.sock
Time                 Id Command    Argument
# Time: 2016-07-20T18:13:25.698433Z
# User@Host: app[app] @ web1 [10.0.0.1]  Id:     3
# Query_time: 0.250000  Lock_time: 0.000324 Rows_sent: 10  Rows_examined: 2000
use shop;
SET timestamp=1469038405;
SELECT * FROM orders WHERE id = 17 AND name = 'Ann';
# Time: 2016-07-20T18:13:26.698433Z
# User@Host: app[app] @ web2 [10.0.0.2]  Id:     4
# Query_time: 0.750000  Lock_time: 0.000055 Rows_sent: 0  Rows_examined: 0
SET timestamp=1469038406;
SELECT * FROM orders WHERE id = 18 AND name = 'Bob';
# User@Host: app[app] @ web2 [10.0.0.2]  Id:     4
# Query_time: 0.000010  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0
# administrator command: Quit;
";

fn toll(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_toll"))
        .arg("digest")
        .args(args)
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its input may close it first.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

fn json(args: &[&str], stdin: &[u8]) -> Value {
    let output = toll(&[&["--format", "json"], args].concat(), stdin);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn file(dir: &Path, name: &str, content: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_slow_log_is_ranked_by_time() {
    let digest = json(&["-"], SLOW.as_bytes());
    let first = &digest["classes"][0];
    assert_eq!(first["fingerprint"], "select * from orders where id = ? and name = ?");
    assert_eq!(first["count"], 2);
    assert_eq!(first["query_time_us"]["sum"], 1_000_000.0);
    assert_eq!(first["query_time_us"]["max"], 750_000.0);
    assert_eq!(first["tables"][0], "shop.orders");
    assert_eq!(first["hosts"].as_array().unwrap().len(), 2);
    assert_eq!(first["first_seen"], "2016-07-20T18:13:25.698433Z");
    assert_eq!(digest["totals"]["commands"], 3);
    assert_eq!(digest["totals"]["queries"], 2);
    assert_eq!(digest["totals"]["unique"], 2);
    assert_eq!(digest["ledger"]["log"]["bytes"], SLOW.len());
    assert_eq!(digest["ledger"]["adds_up"], true);
}

#[test]
fn literals_are_shown_only_when_asked_for() {
    for format in ["report", "json", "ndjson", "csv"] {
        let output = toll(&["--format", format, "-"], SLOW.as_bytes());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("Bob") && !text.contains("Ann"), "{format}: {text}");
        let output = toll(&["--format", format, "--literals", "-"], SLOW.as_bytes());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("'Bob'"), "the slowest sample stands in {format}: {text}");
    }
}

#[test]
fn a_log_is_read_the_same_in_pieces_of_any_size() {
    let whole = json(&["-"], SLOW.as_bytes());
    for cut in [1, 100, 333, 700, SLOW.len() - 1] {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = SLOW.as_bytes().split_at(cut);
        let (a, b) = (file(dir.path(), "a", a), file(dir.path(), "b", b));
        let mut cat = Command::new("sh")
            .args(["-c", &format!("cat {a}; sleep 0.05; cat {b}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_toll"))
            .args(["digest", "--format", "json", "-"])
            .stdin(cat.stdout.take().unwrap())
            .output()
            .unwrap();
        cat.wait().unwrap();
        let pieces: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(pieces["classes"], whole["classes"], "cut at {cut}");
    }
}

#[test]
fn a_general_log_counts_statements_and_commands() {
    let log = "\
mariadbd, Version: 10.11.6-MariaDB-log (Debian). started with:
Tcp port: 0  Unix socket: /tmp/s
Time\t\t    Id Command\tArgument
231121 10:00:01\t     3 Connect\tapp@localhost on shop using Socket
\t\t     3 Query\tselect 1,
  2 from t
\t\t     3 Execute\tselect 5
231121 10:00:02\t     3 Init DB\tother
\t\t     3 Query\tselect 1, 3 from t
\t\t     3 Quit\t
";
    let digest = json(&["--limit", "100%:100", "-"], log.as_bytes());
    assert_eq!(digest["inputs"][0]["type"], "genlog");
    assert_eq!(digest["totals"]["commands"], 6);
    assert_eq!(digest["totals"]["queries"], 3);
    let classes = digest["classes"].as_array().unwrap();
    let select = classes.iter().find(|class| class["fingerprint"] == "select ?, ? from t").unwrap();
    assert_eq!(select["count"], 2);
    assert_eq!(select["dbs"].as_array().unwrap().len(), 2);
    assert_eq!(select["users"][0]["name"], "app");
}

#[test]
fn compressed_logs_are_told_by_their_first_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let log = file(dir.path(), "slow", SLOW.as_bytes());
    let whole = json(&[&log], b"");
    let status = Command::new("gzip").arg(&log).status().unwrap();
    assert!(status.success());
    assert_eq!(json(&[&format!("{log}.gz")], b"")["classes"], whole["classes"]);
}

#[test]
fn since_and_until_cut_by_time() {
    let count = |args: &[&str]| json(&[args, &["-"]].concat(), SLOW.as_bytes())["totals"]["commands"].clone();
    assert_eq!(count(&["--since", "2016-07-20 18:13:26"]), 2);
    assert_eq!(count(&["--until", "160720 18:13:26"]), 1);
}

#[test]
fn what_cannot_be_read_is_said_and_what_is_no_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |args: &[&str], stdin: &[u8], why: &str| {
        let output = toll(args, stdin);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(why) && error.lines().count() == 1, "{error}");
    };
    fails(&[dir.path().to_str().unwrap()], b"", "directory");
    fails(&["/nonexistent/file"], b"", "No such file");
    let noise: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fails(&["-"], &noise, "--type");
    let digest = json(&["-"], b"");
    assert_eq!(digest["totals"]["commands"], 0);
    let digest = json(&["--type", "slowlog", "-"], &noise);
    assert_eq!(digest["totals"]["commands"], 0);
    assert_eq!(digest["ledger"]["adds_up"], true);
    assert_eq!(digest["ledger"]["log"]["bytes"], noise.len());
}

mod counting {
    use super::{SLOW, file};
    use toll_digest::Type;
    use toll_digest::count::{CountWindow, count_queries};

    #[test]
    fn a_byte_range_of_a_log_counts_each_entry_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "slow.log", SLOW.repeat(3).as_bytes());
        let length = SLOW.len() as u64 * 3;
        let within = |from, to| {
            let window = CountWindow::Bytes { from, to };
            count_queries(path.as_ref(), Some(Type::Slowlog), window, &[]).unwrap().queries
        };
        assert_eq!(within(0, length), 6, "two statements in each, and a Quit that is none");
        for cut in (0..length).step_by(97) {
            let both = within(0, cut) + within(cut, length);
            assert!((5..=7).contains(&both), "cut at {cut}: {both}");
        }
        let counted = count_queries(path.as_ref(), Some(Type::Slowlog), CountWindow::Whole, &[]).unwrap();
        assert_eq!((counted.queries, counted.bytes_read), (6, length));
        assert!(counted.accounting.adds_up());
    }

    #[test]
    fn lines_and_audit_logs_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let audit = "20231121 10:00:00,h,app,web,3,7,QUERY,shop,'select \\'a,b\\'',0\n\
                     20231121 10:00:00,h,app,web,3,0,DISCONNECT,shop,,0\n";
        let path = file(dir.path(), "audit.log", audit.as_bytes());
        let queries = |kind| count_queries(path.as_ref(), kind, CountWindow::Whole, &[]).unwrap().queries;
        assert_eq!(queries(Some(Type::Auditlog)), 1);
        assert_eq!(queries(None), 2);
    }
}

/// A log of `bytes` in which the schema is named once, at its head.
fn long_log(bytes: usize) -> Vec<u8> {
    let mut log = Vec::with_capacity(bytes + 1_000);
    let mut n = 0_u64;
    while log.len() < bytes {
        n += 1;
        let time = 1_700_000_000 + n / 50;
        let moment = jiff::Timestamp::from_second(time.cast_signed()).unwrap();
        writeln!(log, "# Time: {moment}").unwrap();
        writeln!(log, "# User@Host: app[app] @ web{} []  Id: {}", n % 3, n % 40).unwrap();
        writeln!(
            log,
            "# Query_time: 0.{:06}  Lock_time: 0.000010 Rows_sent: {}  Rows_examined: 9",
            n % 999_983,
            n % 7
        )
        .unwrap();
        if n == 1 {
            writeln!(log, "use shop;").unwrap();
        }
        writeln!(log, "SET timestamp={time};").unwrap();
        writeln!(
            log,
            "select c{} from {} where id={n} and name='n{n}';",
            ["", "a", "b"][n as usize % 3],
            "t".repeat(n as usize % 20 + 1)
        )
        .unwrap();
    }
    log
}

#[test]
fn any_number_of_threads_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let log = file(dir.path(), "slow.log", &long_log(40 << 20));
    let digest = |jobs: &str| {
        let mut digest = json(&["--limit", "100%:1000", "--jobs", jobs, &log], b"");
        digest["inputs"].take();
        digest
    };
    let one = digest("1");
    assert_eq!(one["classes"].as_array().unwrap().len(), 60);
    assert_eq!(one["classes"][0]["dbs"][0]["name"], "shop");
    for jobs in ["2", "3", "4"] {
        assert_eq!(digest(jobs), one, "{jobs} jobs");
    }
}

/// The digest without its source. Names of equal frequency are in any order.
fn without_source(mut digest: Value) -> Value {
    for name in ["inputs", "merged"] {
        digest.as_object_mut().unwrap().remove(name);
    }
    for class in digest["classes"].as_array_mut().unwrap() {
        for names in ["users", "dbs", "hosts"] {
            class[names].as_array_mut().unwrap().sort_by_key(Value::to_string);
        }
    }
    digest
}

#[test]
fn digests_of_the_parts_of_a_log_merge_to_that_of_the_whole_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let log = String::from_utf8(long_log(1 << 20)).unwrap().replace("use shop;\n", "");
    let middle = log[log.len() / 3..].find("# Time: ").unwrap() + log.len() / 3;
    let whole = file(dir.path(), "whole.log", log.as_bytes());
    let parts: Vec<String> = [("a", &log[..middle]), ("b", &log[middle..])]
        .into_iter()
        .map(|(name, part)| {
            let log = file(dir.path(), &format!("{name}.log"), part.as_bytes());
            let digest = toll(&["--format", "json", "--limit", "0", &log], b"").stdout;
            file(dir.path(), &format!("{name}.json"), &digest)
        })
        .collect();
    let merged = json(&["--limit", "0", &parts[0], &parts[1]], b"");
    assert_eq!(merged["inputs"][1]["type"], "digest");
    assert_eq!(merged["merged"]["digests"], 2);
    assert_eq!(without_source(merged), without_source(json(&["--limit", "0", &whole], b"")));

    let csv =
        |files: &[&str]| toll(&[&["--format", "csv", "--limit", "0", "--type"], files].concat(), b"").stdout;
    assert_eq!(csv(&["digest", &parts[1], &parts[0]]), csv(&["slowlog", &whole]));
    let report = |files: &[&str]| String::from_utf8(toll(files, b"").stdout).unwrap();
    let tail = |report: &str| report.split_once("# Overall").unwrap().1.to_owned();
    let merged = report(&[&parts[0], &parts[1]]);
    assert!(merged.contains("# Merged: 2 digests\n"), "{merged}");
    assert_eq!(tail(&merged), tail(&report(&[&whole])));
    let lines = toll(&["--format", "ndjson", &parts[0], &parts[1]], b"").stdout;
    let last = String::from_utf8(lines).unwrap().lines().last().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["merged"]["digests"], 2);

    // A log beside them, and one of them from a pipe and compressed.
    let log_too = json(&["--limit", "0", &parts[0], &format!("{}/b.log", dir.path().display())], b"");
    assert_eq!(log_too["totals"]["commands"], json(&[&whole], b"")["totals"]["commands"]);
    assert!(Command::new("gzip").arg(&parts[0]).status().unwrap().success());
    let piped = std::fs::read(format!("{}.gz", parts[0])).unwrap();
    let piped = json(&["--limit", "0", "-", &parts[1]], &piped);
    assert_eq!(piped["totals"], log_too["totals"]);

    for refused in [&["--since", "1h"][..], &["--filter", "port == 1"], &["--events", "--format", "ndjson"]] {
        let output = toll(&[refused, &[&parts[1]]].concat(), b"");
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{refused:?}: {error}");
        assert!(error.contains("a digest has no single events"), "{refused:?}: {error}");
    }
}

#[test]
fn a_report_of_digests_with_a_limit_says_what_is_not_exact() {
    let dir = tempfile::tempdir().unwrap();
    let digest = toll(&["--format", "json", "--limit", "1", "-"], SLOW.as_bytes()).stdout;
    let digest = file(dir.path(), "a.json", &digest);
    let report = String::from_utf8(toll(&[&digest], b"").stdout).unwrap();
    assert!(report.contains("# 1 classes (1 events) are not apart"), "{report}");
    assert!(report.contains("# Overall: 3 total, 2 unique"), "{report}");
}

#[test]
fn filters_and_groups_choose_and_gather() {
    let digest = json(&["--filter", "query_time > 0.5 && host == 'web2'", "-"], SLOW.as_bytes());
    assert_eq!(digest["totals"]["commands"], 1);
    let grouped = json(&["--group-by", "host", "--limit", "100%", "-"], SLOW.as_bytes());
    assert_eq!(grouped["classes"][0]["fingerprint"], "web2");
    let tables = json(&["--group-by", "tables", "-"], SLOW.as_bytes());
    assert_eq!(tables["classes"][0]["fingerprint"], "shop.orders");
    let distilled = json(&["--group-by", "distill", "-"], SLOW.as_bytes());
    assert_eq!(distilled["classes"][0]["fingerprint"], "SELECT orders");
    let refused = toll(&["--filter", "query_time >", "-"], b"");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("at character 13"));
}

#[test]
fn events_as_a_slow_log_are_read_back_the_same() {
    let events = toll(&["--events", "--literals", "--format", "slowlog", "-"], SLOW.as_bytes());
    assert!(events.status.success());
    let (once, twice) = (json(&["-"], SLOW.as_bytes()), json(&["-"], &events.stdout));
    for field in ["id", "count", "query_time_us", "lock_time_us", "tables", "users", "first_seen"] {
        assert_eq!(once["classes"][0][field], twice["classes"][0][field], "{field}");
    }
    let lines = toll(&["--events", "--format", "ndjson", "-"], SLOW.as_bytes());
    let text = String::from_utf8(lines.stdout).unwrap();
    assert_eq!(text.lines().count(), 3);
    assert!(!text.contains("Bob"));
}

#[test]
fn on_a_terminal_a_stream_says_how_much_of_it_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("log");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let command = format!("{} digest --limit 1 {}", env!("CARGO_BIN_EXE_toll"), fifo.display());
    // `script` gives the program a terminal and copies to its own output what appears there.
    let mut terminal = Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let watch = std::thread::spawn(move || {
        let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match std::io::Read::read(&mut screen, &mut piece).unwrap() {
                0 => panic!("no progress in {}", String::from_utf8_lossy(&seen)),
                n => seen.extend_from_slice(&piece[..n]),
            }
            if String::from_utf8_lossy(&seen).contains(" read, ") {
                break;
            }
        }
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut screen, &mut rest).unwrap();
        rest
    });
    let mut log = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let entries = &SLOW[SLOW.find("# Time").unwrap()..];
    // Well beyond the second in which nothing is shown.
    for _ in 0..30 {
        log.write_all(entries.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(log);
    let rest = watch.join().unwrap();
    assert!(terminal.wait().unwrap().success());
    assert!(rest.contains("# Profile"), "{rest}");
}
