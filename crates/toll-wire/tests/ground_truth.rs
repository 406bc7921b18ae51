//! Does a capture of a real server hold exactly the statements that the server counted?
//!
//! Needs root, mariadbd, tcpdump and sysbench; says so and passes where one of them is missing.
#![allow(clippy::unwrap_used, reason = "outside of test functions, too, a failure here is a failed test")]

mod wire;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use toll_wire::decoder::Config;
use toll_wire::event::CommandKind;
use wire::{Events, Seen};

/// A private server with a datadir of its own, ended with the test.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Server {
    fn start(port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        run(
            "mariadb-install-db",
            &[
                "--no-defaults",
                "--user=root",
                &format!("--datadir={}", data.display()),
                // In a shared one, servers delete each other's temporary tables.
                &format!("--tmpdir={}", dir.path().display()),
                "--auth-root-authentication-method=normal",
            ],
        );
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new("mariadbd")
            .args(["--no-defaults", "--user=root", "--skip-log-bin", "--bind-address=127.0.0.1"])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", dir.path().display()))
            .arg(format!("--socket={}", socket(dir.path()).display()))
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let server = Server { child, dir, port };
        let ready = (0..300).any(|_| {
            sleep(Duration::from_millis(100));
            server.client().args(["-e", "select 1"]).output().is_ok_and(|output| output.status.success())
        });
        assert!(ready, "the server did not start");
        server.ask("create database sbtest; create user app@'127.0.0.1' identified by 'pw'; grant all on *.* to app@'127.0.0.1'");
        server.sysbench(&["--tables=2", "--table-size=1000", "prepare"]);
        server
    }

    fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        client
            .arg("--no-defaults")
            .arg(format!("--socket={}", socket(self.dir.path()).display()))
            .args(["-uroot", "-N"]);
        client
    }

    fn ask(&self, sql: &str) -> String {
        let output = self.client().args(["-e", sql]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Statements the server has counted, by name. Asking over the socket adds to none of them.
    fn counts(&self) -> HashMap<String, u64> {
        self.ask("show global status where variable_name in ('Com_select', 'Com_begin', 'Com_commit', 'Com_stmt_prepare', 'Com_stmt_execute', 'Com_stmt_close')")
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
            .collect()
    }

    fn sysbench(&self, options: &[&str]) {
        let port = format!("--mysql-port={}", self.port);
        let fixed =
            ["oltp_read_only", "--mysql-host=127.0.0.1", &port, "--mysql-user=app", "--mysql-password=pw"];
        run("sysbench", &[&fixed[..], options].concat());
    }

    /// The packets that pass the server's port while `work` runs, and what the server counted.
    fn captured(&self, work: impl FnOnce()) -> (Vec<u8>, HashMap<String, u64>) {
        let file: PathBuf = self.dir.path().join("capture");
        let mut tcpdump = Command::new("tcpdump")
            .args(["-i", "lo", "-B", "65536", "-s", "0", "-Z", "root", "-w"])
            .arg(&file)
            .arg(format!("tcp port {}", self.port))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(tcpdump.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(words.read_line(&mut line).unwrap() > 0, "tcpdump ended before it listened");
        }
        let before = self.counts();
        work();
        // A CLOSE has no reply: the server may still be at it when its client is gone.
        let quiet = (0..300).any(|_| {
            sleep(Duration::from_millis(100));
            self.ask("show global status like 'Threads_connected'").trim_end().ends_with("\t1")
        });
        assert!(quiet, "connections stay open after the load");
        let mut counts = self.counts();
        for (name, count) in &mut counts {
            *count -= before[name];
        }
        // Packets wait in the ring for up to a second before tcpdump is woken.
        sleep(Duration::from_millis(2500));
        run("kill", &["-INT", &tcpdump.id().to_string()]);
        tcpdump.wait().unwrap();
        let mut said = String::new();
        words.read_to_string(&mut said).unwrap();
        assert!(said.contains("0 packets dropped by kernel"), "the capture itself is not whole: {said}");
        (std::fs::read(&file).unwrap(), counts)
    }

    fn config(&self) -> Config {
        Config { ports: vec![self.port], ..Config::default() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the server is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stdout));
}

fn missing() -> Option<&'static str> {
    let has = |program: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output()
            .is_ok_and(|found| found.status.success())
    };
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let programs = ["mariadbd", "mariadb-install-db", "mariadb", "tcpdump", "sysbench"];
    if !root { Some("root") } else { programs.into_iter().find(|program| !has(program)) }
}

fn count(events: &Events, kind: CommandKind) -> u64 {
    events.list.iter().filter(|event| event.kind == kind).count() as u64
}

fn assert_all_counted(events: &Events, counts: &HashMap<String, u64>, case: &str) {
    let texts = counts["Com_select"] + counts["Com_begin"] + counts["Com_commit"];
    let executed = counts["Com_stmt_execute"];
    assert_eq!(count(events, CommandKind::Execute), executed, "{case}");
    assert_eq!(count(events, CommandKind::Prepare), counts["Com_stmt_prepare"], "{case}");
    assert_eq!(count(events, CommandKind::Close), counts["Com_stmt_close"], "{case}");
    // An EXECUTE counts as what it runs, too.
    assert_eq!(count(events, CommandKind::Query), texts - executed, "{case}");
    assert_eq!(events.ledger.commands.complete, events.ledger.commands.seen, "{case}");
    assert!(texts > 500, "{case}: too little to tell anything");
}

/// The capture without the records that `lose` picks, by their number.
fn without(capture: &[u8], mut lose: impl FnMut(usize) -> bool) -> Vec<u8> {
    let mut kept = capture[..24].to_vec();
    let mut at = 24;
    for number in 0.. {
        let Some(length) = capture.get(at + 8..at + 12) else { break };
        let end = at + 16 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        if !lose(number) {
            kept.extend(&capture[at..end]);
        }
        at = end;
    }
    kept
}

fn by_start(events: &Events) -> HashMap<(u16, u64), Vec<&Seen>> {
    let mut found: HashMap<_, Vec<_>> = HashMap::new();
    for event in &events.list {
        found.entry((event.port, event.start_ns)).or_default().push(event);
    }
    found
}

/// Every clean event is one of `truth`, in text, parameters, rows and time.
fn assert_clean_ones_are_true(seen: &Events, truth: &Events) -> usize {
    let truth = by_start(truth);
    let clean = seen.list.iter().filter(|event| !event.tainted && event.query_ns.is_some());
    clean
        .map(|event| {
            let unseen = event.text.ends_with("(text not seen)");
            let same = |true_event: &&Seen| {
                true_event.query_ns == event.query_ns
                    && true_event.first_byte_ns == event.first_byte_ns
                    && true_event.rows_sent == event.rows_sent
                    && (unseen || true_event.text == event.text && known_params(event, true_event))
            };
            let candidates = truth.get(&(event.port, event.start_ns));
            assert!(candidates.is_some_and(|list| list.iter().any(same)), "{event:?} against {candidates:?}");
        })
        .count()
}

/// Values whose types were sent in a packet that is missing read as `...`.
fn known_params(event: &Seen, truth: &Seen) -> bool {
    event
        .params
        .strip_suffix("...")
        .map_or(event.params == truth.params, |head| truth.params.starts_with(head))
}

#[test]
fn whole_captures_hold_every_statement_and_lossy_ones_no_false_one() {
    if let Some(missing) = missing() {
        eprintln!("SKIPPED: this test needs {missing}");
        return;
    }
    let server = Server::start(42_346);
    let cases = [
        ("text", &["--db-ps-mode=disable", "--threads=8", "--events=300"][..]),
        ("prepared", &["--db-ps-mode=auto", "--threads=8", "--events=300"]),
        ("64 connections", &["--db-ps-mode=auto", "--threads=64", "--events=400"]),
        ("compressed", &["--db-ps-mode=disable", "--threads=4", "--events=200", "--mysql-compression=on"]),
    ];
    for (case, options) in cases {
        let options = [options, &["--tables=2", "--table-size=1000", "--time=30", "run"]].concat();
        let (capture, counts) = server.captured(|| server.sysbench(&options));
        let whole = Events::with(&capture, &server.config());
        assert_all_counted(&whole, &counts, case);

        // One packet of a hundred is missing.
        let mut state = 7u64;
        let lossy = without(&capture, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).is_multiple_of(100)
        });
        let lossy = Events::with(&lossy, &server.config());
        let clean = assert_clean_ones_are_true(&lossy, &whole);
        assert!(lossy.ledger.commands.tainted > 0, "{case}");
        assert!(clean * 10 > whole.list.len() * 8, "{case}: {clean} of {} are clean", whole.list.len());

        // The capture begins midway.
        let joined = Events::with(&without(&capture, |number| number < 2000), &server.config());
        assert_clean_ones_are_true(&joined, &whole);
        // A login of which the first packets are missing has no known beginning.
        let whole_command = |event: &&Seen| event.text != "administrator command: Connect";
        let begun_ns = joined.list.iter().map(|event| event.start_ns).min().unwrap();
        let due = whole.list.iter().filter(whole_command).filter(|event| event.start_ns >= begun_ns).count();
        let found: Vec<_> = joined.list.iter().filter(whole_command).collect();
        assert_eq!(found.len(), due, "{case}");
        assert!(found.iter().all(|event| !event.tainted), "{case}");
    }
}
