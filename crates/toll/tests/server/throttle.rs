//! Tests that `toll throttle` passes on every byte, obeys its control commands, and leaves nothing behind.
//!
//! With a real server and a real dump. The control loop's quality is simulated (`crates/instruments/throttle/src/simulation.rs`):
//! nothing here is timed.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use toll_stats::SeededRng;
use toll_testkit::lab::{ForeignServer, HANG_TIMEOUT, Lab, output_text};

/// Options for a short baseline with many probes.
const SOON: [&str; 2] = ["--before", "500ms"];
const MANY: [&str; 2] = ["--canary-rate", "400"];

/// A server with some 20 MB in two tables, and the connection options for a dump.
struct ThrottleFixture {
    lab: Lab,
    server: ForeignServer,
    dump: Vec<String>,
}

fn throttle_fixture(rows: &str) -> ThrottleFixture {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    server.run("CREATE DATABASE sbtest");
    let made = lab.toll(&["load", "prepare", "--dsn", &server.dsn(), "--tables", "2", "--rows", rows]);
    assert!(made.status.success(), "{}", output_text(&made));
    let socket = server.dsn().split_once("socket=").unwrap().1.to_owned();
    let options = ["--single-transaction", "--quick", "--skip-dump-date", "--user=root", "sbtest"];
    let mut dump = vec!["mariadb-dump".to_owned(), "--no-defaults".into(), format!("--socket={socket}")];
    dump.extend(options.map(str::to_owned));
    ThrottleFixture { lab, server, dump }
}

impl ThrottleFixture {
    fn arguments<'a>(&'a self, dsn: &'a str, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
        let many = if options.contains(&"--canary-rate") { &[][..] } else { &MANY[..] };
        [&["throttle", "--dsn", dsn], &SOON[..], many, options, &["--"], command].concat()
    }

    fn throttle(&self, options: &[&str], command: &[&str]) -> Output {
        self.lab.toll(&self.arguments(&self.server.dsn(), options, command))
    }

    fn dump(&self) -> Vec<&str> {
        self.dump.iter().map(String::as_str).collect()
    }

    /// The output of the dump without toll.
    fn plain(&self) -> Vec<u8> {
        let plain = Command::new(&self.dump[0]).args(&self.dump[1..]).output().unwrap();
        assert!(plain.status.success(), "{}", output_text(&plain));
        plain.stdout
    }

    /// Starts a throttled dump: its output in `dump.sql`, its messages in `words`, its decisions in `log`.
    fn spawn(&self, options: &[&str]) -> Child {
        let (log, dsn) = (self.lab.path("log"), self.server.dsn());
        let options = [options, &["--json", "--log", &log]].concat();
        let arguments = self.arguments(&dsn, &options, &self.dump());
        self.lab.spawn_into(&arguments, &self.lab.path("dump.sql"), &self.lab.path("words"))
    }

    fn stderr_text(&self) -> String {
        std::fs::read_to_string(self.lab.path("words")).unwrap_or_default()
    }

    fn decisions(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.lab.path("log")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.collect()
    }

    fn reasons(&self) -> Vec<String> {
        self.decisions().iter().map(|line| line["why"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for a condition. Fails at once if toll refused to start.
    fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(!self.stderr_text().starts_with("error"), "never {what}: {}", self.stderr_text());
            assert!(
                begun.elapsed() < HANG_TIMEOUT,
                "never {what}: {}\n{:?}",
                self.stderr_text(),
                self.reasons()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn written(&self) -> u64 {
        std::fs::metadata(self.lab.path("dump.sql")).map_or(0, |meta| meta.len())
    }

    fn read_account(&self) -> Value {
        parse_account(&self.stderr_text())
    }
}

/// The last line of its messages.
fn parse_account(words: &str) -> Value {
    let last = words.trim_end().lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {words}"))
}

#[test]
fn system_every_byte_passes_and_the_account_says_what_it_cost() {
    let fixture = throttle_fixture("20000");
    let plain = fixture.plain();
    let file = fixture.lab.path("account.json");
    let throttled = fixture.throttle(&[&format!("--json={file}")], &fixture.dump());
    let words = String::from_utf8_lossy(&throttled.stderr).into_owned();
    assert!(throttled.status.success(), "{words}");
    assert!(throttled.stdout == plain, "{} bytes of {}: {words}", throttled.stdout.len(), plain.len());
    assert!(!words.contains('{') && words.contains("p99"), "{words}");
    let account = parse_account(&std::fs::read_to_string(&file).unwrap());
    assert_eq!(account["bytes"], plain.len());
    assert_eq!(account["max_p99_toll_pct"], 10.0);
    let canary = &account["canary"];
    assert!(
        canary["question"].as_str().unwrap().contains("by primary key, anywhere in sbtest.sbtest"),
        "{canary}"
    );
    assert!(canary["undisturbed"]["answers"].as_u64().unwrap() >= 250, "{canary}");
    assert!(canary["undisturbed"]["latency_us_p99"].as_f64().unwrap() > 0.0, "{canary}");
    assert_eq!(canary["refused"], 0);
    assert!(account["history"]["at_begin"].is_u64(), "{account}");
    fixture.lab.assert_nothing_left();
}

#[test]
fn system_a_question_of_the_canary_costs_the_server_the_way_to_one_row() {
    let fixture = throttle_fixture("20000");
    let target = toll_mysql::Target::parse_dsn(&fixture.server.dsn()).unwrap();
    let mut connection = toll_mysql::Connection::connect(&target).unwrap();
    let mut count = |name: &str| -> u64 {
        let rows = connection.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).unwrap();
        rows.pairs().next().unwrap().1.parse().unwrap()
    };
    let mut counts = || (count("Innodb_buffer_pool_read_requests"), count("Com_select"));
    let before = counts();
    let asked = fixture.throttle(&[], &["sleep", "1"]);
    assert!(asked.status.success(), "{}", output_text(&asked));
    let after = counts();
    let (pages, questions) = (after.0 - before.0, after.1 - before.1);
    assert!(questions >= 400, "{questions}");
    // Root and leaf, and what the server does besides; planning a range would take ten and more.
    assert!(pages < 5 * questions, "{pages} pages for {questions} questions");
    fixture.lab.assert_nothing_left();
}

#[test]
fn system_the_canary_asks_less_often_where_its_questions_go_to_the_disk() {
    let fixture = throttle_fixture("1000");
    let dsn = fixture.server.dsn();
    let canary = || {
        let asked = fixture.lab.toll(&["throttle", "--dsn", &dsn, "--before", "500ms", "--", "sleep", "1"]);
        let words = output_text(&asked);
        assert!(asked.status.success(), "{words}");
        words
    };
    let words = canary();
    assert!(words.contains("probe query, 100/s"), "{words}");
    // Twice as large as the buffer pool, and nobody reads it.
    fixture.server.run("CREATE TABLE sbtest.wide (id INT PRIMARY KEY, page VARBINARY(8000))");
    fixture.server.run("INSERT INTO sbtest.wide SELECT seq, REPEAT('x', 7000) FROM sbtest.seq_1_to_20000");
    let words = canary();
    assert!(words.contains("probe query, 25/s"), "{words}");
    fixture.lab.assert_nothing_left();
}

#[test]
fn system_a_flag_file_pauses_the_dump_for_longer_than_the_server_waits_and_it_comes_out_whole() {
    let fixture = throttle_fixture("40000");
    let plain = fixture.plain();
    // A reader that takes nothing for so long is taken for dead.
    fixture.server.run("SET GLOBAL net_write_timeout = 3");
    let flag = fixture.lab.write("flag", "");
    let mut child = fixture.spawn(&["--flag-file", &flag]);
    fixture.wait_until("trickling", || fixture.reasons().iter().any(|why| why == "trickling"));
    assert!(fixture.stderr_text().contains("the lowest rate is 2.10 MB/s"), "{}", fixture.stderr_text());
    let before = fixture.written();
    // The pause lasts for several timeouts, and what goes on is what keeps the server from giving up.
    fixture.wait_until("enough", || {
        fixture.written() > before + 8_000_000 || child.try_wait().unwrap().is_some()
    });
    assert!(child.try_wait().unwrap().is_none(), "{}", fixture.stderr_text());
    std::fs::remove_file(&flag).unwrap();
    assert!(child.wait().unwrap().success(), "{}", fixture.stderr_text());
    assert!(std::fs::read(fixture.lab.path("dump.sql")).unwrap() == plain);
    let whys = fixture.reasons();
    assert!(whys[0] == "by-hand" && whys.last().unwrap() != "trickling", "{whys:?}");
    assert!(
        fixture.stderr_text().contains("flag is there: paused")
            && fixture.stderr_text().contains("flag is gone")
    );
    assert!(fixture.read_account()["paused_s"].as_f64().unwrap() > 0.0);
    fixture.lab.assert_nothing_left();
}

#[test]
fn the_control_socket_pauses_resumes_and_changes_rate_and_promise() {
    let fixture = throttle_fixture("20000");
    let plain = fixture.plain();
    let socket = fixture.lab.path("sock");
    let ask = |order: &str| {
        let answer = fixture.lab.toll(&["throttle", "ctl", &socket, order]);
        assert!(answer.status.success(), "{order}: {}", output_text(&answer));
        String::from_utf8_lossy(&answer.stdout).trim_end().to_owned()
    };
    let mut child = fixture.spawn(&["--control", &socket, "--max-rate", "256K"]);
    fixture.wait_until("at work", || fixture.written() > 0);
    assert_eq!(ask("pause"), "paused, max-p99-toll=10%, rate=262144");
    fixture.wait_until("paused", || fixture.reasons().last().is_some_and(|why| why == "by-hand"));
    let status = ask("status");
    assert!(status.contains("by-hand") && status.contains("history list: "), "{status}");
    assert_eq!(ask("max-p99-toll=300%"), "paused, max-p99-toll=300%, rate=262144");
    assert_eq!(ask("rate=auto"), "paused, max-p99-toll=300%, rate=auto");
    let wrong = fixture.lab.toll(&["throttle", "ctl", &socket, "faster"]);
    assert!(!wrong.status.success() && output_text(&wrong).contains("rate=10M"), "{}", output_text(&wrong));
    assert!(child.try_wait().unwrap().is_none(), "{}", fixture.stderr_text());
    ask("resume");
    assert!(child.wait().unwrap().success(), "{}", fixture.stderr_text());
    assert!(std::fs::read(fixture.lab.path("dump.sql")).unwrap() == plain);
    assert_eq!(fixture.read_account()["max_p99_toll_pct"], 300.0);
    assert!(!Path::new(&socket).exists());
    fixture.lab.assert_nothing_left();

    let mut child = fixture.spawn(&["--control", &socket, "--max-rate", "256K"]);
    fixture.wait_until("at work again", || fixture.written() > 0);
    assert_eq!(ask("panic"), "ending the dump");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(
        fixture
            .stderr_text()
            .contains("the command panic came on the control socket; the dump is incomplete"),
        "{}",
        fixture.stderr_text()
    );
    fixture.lab.assert_nothing_left();
}

/// Probe results control the dump: here the test sets them, independently of the dump.
#[test]
fn system_a_slow_canary_brakes_the_dump_and_a_pause_tells_that_it_is_not_the_dumps_doing() {
    let fixture = throttle_fixture("120000");
    fixture.server.run(
        "CREATE TABLE sbtest.knob (id INT PRIMARY KEY, seconds DOUBLE) AS SELECT 1 AS id, 0.002 AS seconds",
    );
    let canary = "SELECT SLEEP(seconds) FROM sbtest.knob WHERE id = 1";
    let mut child = fixture.spawn(&["--canary", canary, "--canary-rate", "100", "--max-rate", "1M"]);
    // Past its start, in which it only feels its way, and just after a pause: the next one is seconds away.
    fixture.wait_until("a pause", || {
        let whys = fixture.reasons();
        whys.iter().any(|why| why == "looking") && whys.last().is_some_and(|why| why != "looking")
    });
    let before = fixture.decisions().len();
    fixture.server.run("UPDATE sbtest.knob SET seconds = 0.03");
    let braking =
        || fixture.reasons().iter().skip(before).position(|why| why == "braking").map(|at| before + at);
    fixture.wait_until("braking", || braking().is_some());
    let (decisions, braking) = (fixture.decisions(), braking().unwrap());
    let rate = |i: usize| decisions[i]["bytes_per_s"].as_f64().unwrap();
    let last = decisions[..braking].iter().rposition(|decision| decision["why"] != "looking").unwrap();
    let was_slowest = rate(last) < 1.02 * 131_072.0;
    assert!(rate(braking) < rate(last) || was_slowest, "{decisions:?}");
    // Undisturbed it is as slow: a pause shows that, it is the new baseline, and the dump goes on.
    let is_pause = |decision: &Value| decision["bytes_per_s"] == 0.0;
    fixture.wait_until("another baseline", || {
        let since = &fixture.decisions()[before..];
        let slow = since.last().unwrap()["undisturbed_us_p99"].as_f64().unwrap() > 25_000.0;
        slow && since.iter().any(is_pause)
    });
    fixture.wait_until("going on", || !is_pause(fixture.decisions().last().unwrap()));
    fixture.lab.signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    fixture.lab.assert_nothing_left();
}

#[test]
fn how_the_command_ends_is_how_toll_ends() {
    let fixture = throttle_fixture("100");
    for (script, code) in [("echo out; exit 7", 7), ("echo out; kill -9 $$", 137), ("echo out", 0)] {
        let output = fixture.throttle(&[], &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", output_text(&output));
        assert_eq!(output.stdout, b"out\n", "{script}");
    }
    let dsn = fixture.server.dsn();
    let unread = fixture.lab.toll_without_reader(&fixture.arguments(&dsn, &[], &["yes"]));
    assert_eq!(unread.code(), Some(128 + 13));
    let given = fixture.lab.toll_with(
        &[("SECRET_WORD", "geheim")],
        &fixture.arguments(&dsn, &["--env", "SECRET_WORD"], &["sh", "-c", "echo $SECRET_WORD"]),
    );
    assert_eq!(given.stdout, b"geheim\n");
    let full = Command::new("sh")
        .args(["-c", "exec \"$0\" \"$@\" >/dev/full", env!("CARGO_BIN_EXE_toll")])
        .args(fixture.arguments(&dsn, &[], &["yes"]))
        .env("XDG_STATE_HOME", fixture.lab.path("state"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(1), "{}", output_text(&full));
    assert!(
        output_text(&full).contains("cannot write the dump; yes was ended: No space left"),
        "{}",
        output_text(&full)
    );
    fixture.lab.assert_nothing_left();
}

#[test]
fn a_server_that_goes_away_ends_the_dump_and_is_told() {
    let mut fixture = throttle_fixture("20000");
    let mut child = fixture.spawn(&["--max-rate", "256K"]);
    fixture.wait_until("at work", || fixture.written() > 0);
    fixture.server.crash_and_restart();
    let status = child.wait().unwrap();
    // mariadb-dump's own word for an error of the server.
    assert_eq!(status.code(), Some(3), "{}", fixture.stderr_text());
    assert!(fixture.stderr_text().contains("Lost connection"), "{}", fixture.stderr_text());
    assert!(fixture.read_account()["canary"]["refused"].as_u64().unwrap() > 0, "{}", fixture.stderr_text());
    fixture.lab.assert_nothing_left();
}

#[test]
fn signals_end_the_dump_and_leave_nothing() {
    let fixture = throttle_fixture("20000");
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let socket = fixture.lab.path("sock");
        let mut child = fixture.spawn(&["--max-rate", "256K", "--control", &socket]);
        fixture.wait_until("at work", || fixture.written() > 0);
        fixture.lab.signal(&child, signal);
        assert_eq!(child.wait().unwrap().code(), code, "{signal}: {}", fixture.stderr_text());
        if code.is_none() {
            assert!(Path::new(&socket).exists());
            let cleaned = fixture.lab.toll(&["clean"]);
            assert!(cleaned.status.success(), "{}", output_text(&cleaned));
        }
        assert!(!Path::new(&socket).exists(), "{signal}");
        fixture.lab.assert_nothing_left();
        std::fs::remove_file(fixture.lab.path("dump.sql")).unwrap();
    }
}

#[test]
fn system_twenty_kills_at_random_moments_end_the_dump_too() {
    let fixture = throttle_fixture("20000");
    let socket = fixture.lab.path("sock");
    let mut draws = SeededRng::new(std::process::id().into(), 0);
    for _ in 0..20 {
        let after_ms = u64::from(draws.below(2_000));
        let mut child = fixture.spawn(&["--max-rate", "256K", "--control", &socket]);
        std::thread::sleep(Duration::from_millis(after_ms));
        fixture.lab.signal(&child, "KILL");
        assert_eq!(child.wait().unwrap().code(), None, "{after_ms} ms: {}", fixture.stderr_text());
        let cleaned = fixture.lab.toll(&["clean"]);
        assert!(cleaned.status.success(), "{after_ms} ms: {}", output_text(&cleaned));
        assert!(!Path::new(&socket).exists(), "{after_ms} ms");
        fixture.lab.assert_nothing_left();
    }
    // What was written until then is the beginning of the dump.
    let (cut, plain) = (std::fs::read(fixture.lab.path("dump.sql")).unwrap(), fixture.plain());
    assert!(cut.len() < plain.len() && plain.starts_with(&cut), "{} of {} bytes", cut.len(), plain.len());
}

#[test]
fn past_its_limits_the_dump_is_freed_or_ended() {
    let fixture = throttle_fixture("5000");
    let plain = fixture.plain();
    let late = ["--max-time", "0s", "--max-rate", "128K"];
    let freed = fixture.throttle(&[&late[..], &["--json"]].concat(), &fixture.dump());
    assert!(freed.status.success(), "{}", output_text(&freed));
    assert!(freed.stdout == plain);
    let words = String::from_utf8_lossy(&freed.stderr).into_owned();
    assert!(words.contains("the latency limit is suspended"), "{words}");
    assert!(
        parse_account(&words)["doubts"].to_string().contains("the latency limit applied only until"),
        "{words}"
    );
    let ended = fixture.throttle(&[&late[..], &["--past-limit", "end"]].concat(), &fixture.dump());
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        output_text(&ended).contains("dump ended (--past-limit end); the dump is incomplete"),
        "{}",
        output_text(&ended)
    );
    fixture.lab.assert_nothing_left();
}

#[test]
fn who_may_not_look_is_told_what_to_grant_and_the_canary_asks_what_it_can() {
    let fixture = throttle_fixture("100");
    fixture.server.run("CREATE USER 'little'@'localhost'");
    let dsn = fixture.server.dsn().replace("root@", "little@");
    let blind = fixture.lab.toll(&fixture.arguments(&dsn, &["--max-history", "5"], &["true"]));
    assert_eq!(blind.status.code(), Some(1));
    assert!(output_text(&blind).contains("Grant PROCESS"), "{}", output_text(&blind));
    let little = fixture.lab.toll(&fixture.arguments(&dsn, &[], &["echo", "out"]));
    assert!(little.status.success() && little.stdout == b"out\n", "{}", output_text(&little));
    assert!(
        output_text(&little).contains("SELECT 1: no readable table with a numeric primary key"),
        "{}",
        output_text(&little)
    );
    fixture.lab.assert_nothing_left();
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_started() {
    let lab = toll_testkit::lab!();
    let nowhere = format!("mysql://root@localhost/?socket={}", lab.path("nowhere"));
    for (options, code, expected) in [
        (&["--max-p99-toll", "0%"][..], 2, "0% is not possible"),
        (&["--max-p99-toll", "10"][..], 2, "is not a percentage"),
        (&["--max-rate", "0"][..], 2, "is not a rate"),
        (&["--past-limit", "wait"][..], 2, "open"),
        (&["--env", "NO_SUCH_VARIABLE"][..], 1, "NO_SUCH_VARIABLE is not set"),
        (&["--dsn", &nowhere][..], 1, "Check the address, and that the server runs"),
        (&["ctl", "/tmp/x", "status"][..], 2, "unexpected argument"),
    ] {
        let output = lab.toll(&[&["throttle"], options, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(code), "{options:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(expected), "{options:?}: {}", output_text(&output));
    }
    let none = lab.toll(&["throttle"]);
    assert_eq!(none.status.code(), Some(2), "{}", output_text(&none));
    let missing = lab.toll(&["throttle", "--dsn", &nowhere, "--", "/no/such/dump"]);
    assert!(output_text(&missing).contains("there is no /no/such/dump"), "{}", output_text(&missing));
    lab.assert_nothing_left();
}
