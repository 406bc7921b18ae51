//! Tests that `toll load` starts, reports, stops and refuses as documented. With the real program and server.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use toll_journal::Journal;
use toll_load::bins::BinLine;
use toll_load::summary::{Kind, Summary};
use toll_mysql::{Address, Secret, Target};
use toll_server::{Sandbox, ServerProgram};

/// A sandbox with tables, and an account `u` with the password `geheim`.
struct LoadFixture {
    // Dropped before the journal and the directory that it writes to.
    sandbox: Sandbox,
    _journal: Journal,
    dir: TempDir,
}

fn load_fixture() -> Option<LoadFixture> {
    if let Err(reason) = ServerProgram::find(None) {
        toll_testkit::skip!("{reason:#}");
        return None;
    }
    let dir = tempfile::Builder::new().prefix("toll-test-").tempdir().expect("a directory");
    let name = dir.path().file_name().map(|name| name.to_string_lossy().into_owned());
    let run_id = format!("test-load-{}", name.expect("a name"));
    let journal = Journal::begin_in(&dir.path().join("journal"), &run_id).expect("a journal");
    let sandbox = crate::sandbox(&journal);
    let fixture = LoadFixture { sandbox, _journal: journal, dir };
    let made = fixture.toll(&["prepare", "--rows", "1000", "--tables", "2"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    Some(fixture)
}

impl LoadFixture {
    fn command(&self, arguments: &[&str]) -> Command {
        let target = self.sandbox.unix_target();
        let Address::Unix(socket) = &target.address else { panic!("{target:?}") };
        let mut command = Command::new(env!("CARGO_BIN_EXE_toll"));
        command.arg("load").args(arguments).arg("--socket").arg(socket).args([
            "--user",
            &target.user,
            "--db",
            "sbtest",
        ]);
        command.env("MYSQL_PWD", target.password.expose()).env_remove("TOLL_DSN");
        command
    }

    fn toll(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("toll runs")
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// Starts toll with default signal handling, even if the tests were started by nohup.
    fn start(&self, arguments: &[&str]) -> Child {
        let load = self.command(arguments);
        let mut heeding = Command::new("env");
        heeding.arg("--default-signal=HUP,INT,QUIT,TERM").arg(load.get_program()).args(load.get_args());
        heeding.envs(load.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("TOLL_DSN");
        heeding.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("toll starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn final_line(output: &Output) -> Summary {
    let out = text(&output.stdout);
    let last = out.lines().last().unwrap_or_else(|| panic!("no output: {}", text(&output.stderr)));
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {last}"))
}

#[test]
fn a_signal_ends_a_run_with_whole_bins_and_a_final_line() {
    let Some(bench) = load_fixture() else { return };
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        let mut child = bench.start(&[
            "read-only",
            "--tables",
            "2",
            "--rows",
            "1000",
            "--threads",
            "4",
            "--bins",
            "50ms",
            "--time",
            "0",
        ]);
        let mut lines =
            BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let mut seen: Vec<String> = lines.by_ref().take(6).collect();
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        seen.extend(lines);
        assert!(child.wait().expect("an end").success());
        let last = seen.pop().expect("a line");
        let bins: Vec<BinLine> = seen.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
        let summary: Summary = serde_json::from_str(&last).expect(&last);
        assert_eq!(summary.statements, bins.iter().map(|b| b.bin.statements).sum::<u64>());
        assert_eq!(summary.events, bins.iter().flat_map(|b| &b.hist).map(|(_, n)| n).sum::<u64>());
        assert!(bins.iter().rev().skip(1).all(|b| b.bin.mono_us % 50_000 == 0));
    }
}

/// Sends a signal by its name, and waits for the end.
fn ended_by(child: &mut Child, signal: &str) -> ExitStatus {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().expect("its state") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it can be ended");
    panic!("still there a minute after SIG{signal}");
}

#[test]
fn system_a_reader_that_does_not_read_does_not_hold_the_end() {
    let Some(bench) = load_fixture() else { return };
    let mut child = bench.start(&["point-select", "--bins", "1ms", "--time", "0"]);
    // A pipe holds 64 KiB: some 400 bins.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(ended_by(&mut child, "TERM").code(), Some(1));
    let mut said = String::new();
    child.stderr.take().expect("its errors").read_to_string(&mut said).expect("text");
    assert!(said.contains("nobody reads the output"), "{said}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_histogram_log_is_not() {
    let Some(bench) = load_fixture() else { return };
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let run = ["point-select", "--rows", "1000", "--time", "2s", "--json"];
    let lost = bench.command(&run).stdout(full()).output().expect("toll runs");
    assert_eq!(lost.status.code(), Some(1));
    assert!(text(&lost.stderr).contains("cannot be written: No space left"), "{}", text(&lost.stderr));
    let untold = bench.command(&run).stderr(full()).stdout(full()).status().expect("toll runs");
    assert_eq!(untold.code(), Some(1));
    let log = bench.toll(&[&run[..], &["--hdr", "/dev/full"]].concat());
    assert!(log.status.success() && final_line(&log).events > 0);
    assert!(text(&log.stderr).contains("histogram log ends here"), "{}", text(&log.stderr));
}

#[test]
fn under_nohup_a_closed_terminal_ends_nothing() {
    let Some(bench) = load_fixture() else { return };
    let load = bench.command(&["point-select", "--bins", "50ms", "--time", "0"]);
    let mut nohup = Command::new("nohup");
    nohup.arg(load.get_program()).args(load.get_args());
    nohup.envs(load.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = nohup.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("nohup starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
    assert_eq!(lines.by_ref().take(2).count(), 2);
    let sent = Command::new("kill").args(["-s", "HUP", &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    assert_eq!(lines.by_ref().take(40).count(), 40, "two seconds later it is at work");
    let rest = std::thread::spawn(move || lines.count());
    assert!(ended_by(&mut child, "TERM").success());
    assert!(rest.join().expect("a count") > 0);
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let Some(bench) = load_fixture() else { return };
    let mut child = bench.start(&["point-select", "--bins", "20ms", "--time", "0"]);
    let mut out = child.stdout.take().expect("its output");
    let mut first = [0; 10];
    out.read_exact(&mut first).expect("some output");
    drop(out);
    child.wait().expect("it ends by itself");
}

#[test]
fn seconds_come_as_lines_for_people_and_as_json() {
    let Some(bench) = load_fixture() else { return };
    let hdr = bench.dir.path().join("hdr");
    let run = ["point-select", "--time", "2s", "--warmup", "1s", "--rate", "200", "--arrivals", "uniform"];
    let json = bench.toll(&[&run[..], &["--json", "--hdr", &hdr.display().to_string()]].concat());
    let summary = final_line(&json);
    assert_eq!((summary.kind, summary.errors), (Kind::Final, 0));
    assert_eq!(summary.due_per_s.map(f64::round), Some(200.0));
    assert!(summary.latency_us_p99 >= summary.latency_us_p50 && summary.lag_us_p99.is_some());
    let kinds: Vec<Kind> = text(&json.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Summary>(line).expect(line).kind)
        .collect();
    assert_eq!((kinds[0], kinds[1]), (Kind::Warmup, Kind::Second));
    let log = std::fs::read_to_string(&hdr).expect("the log");
    assert!(log.starts_with("#[Histogram log format version 1.3]") && log.contains("HISTF"), "{log}");
    let people = text(&bench.toll(&["read-only", "--time", "1s"]).stdout);
    for word in ["thds: 1", "qps:", "p99", "generator:"] {
        assert!(people.contains(word), "{word}: {people}");
    }
}

#[test]
fn each_json_line_says_what_it_covers_and_no_rate_rests_on_a_stub() {
    let Some(bench) = load_fixture() else { return };
    for arguments in [["--time", "2s", "--warmup", "500ms"], ["--time", "2300ms", "--warmup", "1s"]] {
        let run = ["read-only", "--rows", "1000", "--threads", "4", "--json"];
        let output = bench.toll(&[&run[..], &arguments].concat());
        let lines: Vec<Summary> =
            text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let (total, lines) = lines.split_last().expect("lines");
        assert!(total.kind == Kind::Final && total.tps.is_some(), "{total:?}");
        let mut end_s = 0.0;
        for line in lines {
            assert_eq!(line.begin_s, end_s, "no gap: {lines:?}");
            assert!((line.end_s - line.begin_s - line.time_s).abs() < 1e-6, "{line:?}");
            end_s = line.end_s;
            assert_eq!(line.tps.is_some(), line.time_s >= 1.0, "{line:?}");
            assert_eq!(line.qps.is_some(), line.time_s >= 1.0, "{line:?}");
            let counted = line.begin_s >= total.begin_s;
            let kind = match line.time_s >= 1.0 {
                _ if !counted => Kind::Warmup,
                true => Kind::Second,
                false => Kind::Rest,
            };
            assert_eq!(line.kind, kind, "{line:?}");
        }
        assert_eq!(end_s, total.end_s);
        let counted = lines.iter().filter(|line| line.kind != Kind::Warmup);
        assert_eq!(counted.map(|line| line.events).sum::<u64>(), total.events);
    }
}

#[test]
fn short_connections_are_counted_apart_and_have_a_thread_each() {
    let Some(bench) = load_fixture() else { return };
    let run =
        ["point-select", "--rows", "1000", "--threads", "3", "--reconnect", "1", "--time", "500ms", "--json"];
    let summary = final_line(&bench.toll(&run));
    assert_eq!((summary.errors, summary.reconnects), (0, 0), "{summary:?}");
    assert!(summary.events > 3 && summary.reconnects_asked + 3 >= summary.events, "{summary:?}");
    let shared = bench.toll(&[&run[..], &["--workers", "2"]].concat());
    assert_eq!(shared.status.code(), Some(1));
    assert!(text(&shared.stderr).contains("omit --workers"), "{}", text(&shared.stderr));
}

#[test]
fn a_mix_a_digest_and_recorded_events_are_replayed() {
    let Some(bench) = load_fixture() else { return };
    let mix = bench.file(
        "mix.toml",
        "[[event]]\nname = \"lookup\"\nweight = 3\n[[event.statement]]\nsql = \"SELECT c FROM sbtest1 WHERE id = ?\"\n\
         params = [{ id = 1000 }]\n[[event]]\nname = \"count\"\n[[event.statement]]\nsql = \"SELECT COUNT(*) FROM sbtest2\"\n",
    );
    let summary = final_line(&bench.toll(&[&mix.display().to_string(), "--time", "500ms", "--json"]));
    assert!(summary.events > 0 && summary.errors == 0, "{summary:?}");
    let digest = bench.file(
        "digest.json",
        r#"{"totals": {"commands": 100, "qps": 100.0}, "classes": [
            {"fingerprint": "select c from sbtest? where id=?", "count": 90, "kind": "query"},
            {"fingerprint": "commit", "count": 10, "kind": "query"}]}"#,
    );
    let output = bench.toll(&[
        &digest.display().to_string(),
        "--time",
        "2s",
        "--tables",
        "2",
        "--rows",
        "1000",
        "--json",
    ]);
    let summary = final_line(&output);
    // Poisson: 180 due, four standard deviations either way, however many of them this host got done.
    let due = summary.events + summary.in_flight;
    assert!((126..=234).contains(&due) && summary.errors == 0, "{summary:?}");
    assert!(text(&output.stderr).contains("left out 10 times: commit"), "{}", text(&output.stderr));
    let events: String = (0..50)
        .map(|n| {
            format!(
                "{{\"time\": \"2026-11-21T10:00:00.{:03}Z\", \"query\": \"SELECT {n} FROM sbtest1 WHERE id = {n}\"}}\n",
                n * 20
            )
        })
        .collect();
    let events = bench.file("events.ndjson", &events);
    let summary = final_line(&bench.toll(&[&events.display().to_string(), "--json", "--threads", "4"]));
    assert_eq!((summary.events, summary.errors), (50, 0));
    assert!(summary.time_s >= 0.98, "none begins before its time: {summary:?}");
}

#[test]
fn a_password_is_never_taken_from_the_command_line() {
    let Some(bench) = load_fixture() else { return };
    let dsn = |dsn: &str| {
        Command::new(env!("CARGO_BIN_EXE_toll"))
            .args(["load", "point-select", "--dsn", dsn])
            .output()
            .expect("toll")
    };
    let refused = dsn("mysql://u:geheim@127.0.0.1:1/x");
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("MYSQL_PWD") && !said.contains("geheim"), "{said}");
    let target = bench.sandbox.unix_target();
    let mut root = toll_mysql::Connection::connect(&target).expect("root");
    root.exec_drop("CREATE USER u@localhost IDENTIFIED BY 'geheim'").expect("an account");
    root.exec_drop("GRANT ALL ON sbtest.* TO u@localhost").expect("its rights");
    let Address::Unix(socket) = &target.address else { panic!("{target:?}") };
    let with = |set: &dyn Fn(&mut Command)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toll"));
        command
            .args(["load", "point-select", "--time", "200ms", "--json"])
            .env_remove("MYSQL_PWD")
            .env_remove("TOLL_DSN");
        set(&mut command);
        command.output().expect("toll")
    };
    let defaults = write_defaults(bench.dir.path(), socket);
    let from_file = with(&|c| {
        c.arg("--defaults-file").arg(&defaults);
    });
    assert_eq!(final_line(&from_file).errors, 0);
    let from_dsn = with(&|c| {
        c.env("TOLL_DSN", format!("mysql://u:geheim@localhost/sbtest?socket={}", socket.display()));
    });
    assert_eq!(final_line(&from_dsn).errors, 0);
    let wrong = with(&|c| {
        c.args(["--user", "u", "--socket"]).arg(socket).env("MYSQL_PWD", "falsch");
    });
    let said = text(&wrong.stderr);
    assert!(!wrong.status.success() && !said.contains("falsch"), "{said}");
    assert_eq!(said.matches("1045").count(), 1, "{said}");
    let same = Target { password: Secret::new("geheim"), ..target };
    assert!(!format!("{same:?}").contains("geheim"));
}

fn write_defaults(dir: &Path, socket: &Path) -> PathBuf {
    let path = dir.join("client.cnf");
    let mut file = std::fs::File::create(&path).expect("a file");
    writeln!(file, "[client]\nuser=u\npassword=geheim\nsocket={}", socket.display()).expect("written");
    path
}

#[test]
fn missing_tables_and_wrong_words_end_in_advice() {
    let Some(bench) = load_fixture() else { return };
    let missing = bench.toll(&["point-select", "--tables", "9"]);
    let said = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1));
    assert!(said.contains("1146") && said.contains("toll load prepare --tables 9"), "{said}");
    let twice = bench.toll(&["prepare", "--tables", "1"]);
    assert!(text(&twice.stderr).contains("toll load cleanup"), "{}", text(&twice.stderr));
    let word = bench.toll(&["oltp"]);
    assert!(text(&word.stderr).contains("point-select"), "{}", text(&word.stderr));
    let rate = bench.toll(&["point-select", "--rate", "fast"]);
    assert_eq!(rate.status.code(), Some(2));
    let gone = bench.toll(&["cleanup", "--tables", "2"]);
    assert!(gone.status.success());
}
