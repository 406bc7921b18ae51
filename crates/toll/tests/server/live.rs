//! Tests of `toll live`: nothing is switched before somebody agrees, and whatever ends a run, what it switched is off.
//!
//! With a real server and users of it. Nothing here is timed but what would hang.

mod crossed;
mod orphaned;
mod switchover;
mod system_faults;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toll_mysql::{Connection, Target};
use toll_testkit::lab::{ForeignServer, HANG_TIMEOUT, Lab, arm, output_text, read_result};

/// Short windows: eight blocks and two shams in less than a minute. On a host that builds meanwhile, a probe query may wait.
const SHORT: [&str; 10] = [
    "--time",
    "70s",
    "--window",
    "1s",
    "--guard-interval",
    "500ms",
    "--baseline",
    "15s",
    "--probe-limit",
    "500ms",
];
const GENERAL_LOG: [&str; 4] = ["live", "tcpdump-impact", "--variants", "general-log"];

struct Production {
    lab: Lab,
    server: ForeignServer,
    dsn: String,
    /// What has to be typed.
    name: String,
}

/// Tables of users, who have an account of their own.
const SHOP: &str = "CREATE DATABASE shop; CREATE TABLE shop.items (id INT PRIMARY KEY, name VARCHAR(20)); \
    INSERT INTO shop.items SELECT seq, 'x' FROM shop.seq_1_to_1000; \
    CREATE USER app@localhost; GRANT ALL ON shop.* TO app@localhost";

fn users_dsn(server: &ForeignServer) -> String {
    format!("mysql://app@localhost/shop?socket={}", server.socket.display())
}

/// A user connects, asks once and goes. While the server is down there is no answer.
fn ask_as_user(server: &ForeignServer) {
    let target = Target::parse_dsn(&users_dsn(server)).unwrap();
    if let Ok(mut connection) = Connection::connect(&target) {
        let _ = connection.query("SELECT name FROM shop.items WHERE id = 7");
    }
}

fn production() -> Production {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    server.run(SHOP);
    let name = only_value(&server.rows("SELECT @@hostname"));
    let dsn = server.dsn();
    Production { lab, server, dsn, name }
}

impl Production {
    fn arguments<'a>(&'a self, dsn: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&GENERAL_LOG[..], &["--server", dsn], &SHORT, more].concat()
    }

    /// Users ask until `work` is done.
    fn with_users<T>(&self, work: impl FnOnce() -> T) -> T {
        /// A test that fails must not leave users who ask for ever.
        struct EndsWithWork<'a>(&'a AtomicBool);
        impl Drop for EndsWithWork<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    ask_as_user(&self.server);
                }
            });
            let _ends = EndsWithWork(&is_over);
            work()
        })
    }

    fn is_on(&self) -> bool {
        only_value(&self.server.rows("SELECT @@GLOBAL.general_log")) == "1"
    }

    fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < HANG_TIMEOUT, "never {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A live run whose treatment is on.
    fn spawn_until_on(&self, out: &str, more: &[&str]) -> Child {
        self.spawn_for(&SHORT, out, more)
    }

    /// With times of its own.
    fn spawn_for(&self, times: &[&str], out: &str, more: &[&str]) -> Child {
        let execute =
            ["--server", &self.dsn, "--execute", "--reason", "a test", "--confirm", &self.name, "--out", out];
        let words = self.lab.path("said");
        let mut child =
            self.lab.spawn_with_stderr(&[&GENERAL_LOG[..], &execute, times, more].concat(), &words);
        self.wait_until("on", || {
            // A host that does other things may trip the breaker before.
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", std::fs::read_to_string(&words).unwrap());
            self.is_on()
        });
        child
    }

    /// Sessions that stay: users come and go.
    fn toll_sessions(&self) -> Vec<u64> {
        let sessions = || -> Vec<u64> {
            let rows = self.server.rows(
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user <> 'system user' \
                 AND command <> 'Binlog Dump'",
            );
            rows.split('"').filter_map(|word| word.parse().ok()).collect()
        };
        let earlier = sessions();
        std::thread::sleep(Duration::from_millis(300));
        sessions().into_iter().filter(|id| earlier.contains(id)).collect()
    }

    fn end_tolls_sessions(&self) {
        for id in self.toll_sessions() {
            // One that has gone meanwhile is no error here.
            self.server
                .run(&format!("BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR 1094 BEGIN END; KILL {id}; END"));
        }
    }

    fn assert_off(&self) {
        self.wait_until("off", || !self.is_on());
    }
}

/// The value of one row with one column, as the fixture prints it: `[Some("1")]`.
fn only_value(rows: &str) -> String {
    rows.split('"').nth(1).unwrap_or_default().to_owned()
}

/// As Prometheus asks for them.
fn served_figures(port: u16) -> String {
    let mut text = String::new();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: toll\r\n\r\n").unwrap();
    client.read_to_string(&mut text).unwrap();
    text
}

fn audit(out: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(Path::new(out).join("audit.ndjson")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn without_consent_the_plan_is_printed_and_nothing_is_switched() {
    let at = production();
    let (dsn, before) = (at.dsn.clone(), [at.server.schemas(), at.server.variables()]);
    at.with_users(|| {
        let plan = at.lab.toll(&at.arguments(&dsn, &[]));
        let text = output_text(&plan);
        assert!(plan.status.success(), "{text}");
        for expected in [
            "nothing was switched",
            "on   SET GLOBAL general_log = ",
            "off  SET GLOBAL general_log = OFF",
            "each fifth block switches nothing",
            "Threads_running",
            "there    settings of the variants",
            &format!("It asks for `{}`", at.name),
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for (confirm, expected) in [("wrong", "is not"), ("", "is not")] {
            let execute = ["--execute", "--reason", "a test", "--confirm", confirm];
            let refused = at.lab.toll(&at.arguments(&dsn, &execute));
            let text = output_text(&refused);
            assert!(!refused.status.success() && text.contains(expected), "{text}");
        }
        let unasked = at.lab.toll(&at.arguments(&dsn, &["--execute", "--reason", "a test"]));
        assert!(output_text(&unasked).contains("--confirm"), "{}", output_text(&unasked));
    });
    assert_eq!([at.server.schemas(), at.server.variables()], before);
    at.lab.assert_nothing_left();
}

#[test]
fn what_makes_no_sense_is_refused_before_the_server_is_looked_at() {
    let at = production();
    let dsn = at.dsn.clone();
    for (more, expected) in
        [(&["--time", "30s"][..], "give more --time"), (&["--window", "100ms"], "too short")]
    {
        let said = at.lab.toll(&[&GENERAL_LOG[..], &["--server", &dsn], more].concat());
        assert!(!said.status.success() && output_text(&said).contains(expected), "{}", output_text(&said));
    }
    let no_variants = at.lab.toll(&["live", "tcpdump-impact", "--server", &dsn]);
    assert!(output_text(&no_variants).contains("--variants"), "{}", output_text(&no_variants));
    // Without consent and a guard.
    let live_plan =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../runs/2026-11-27-2-core-vm/live-general-log/plan.json");
    let repeated = at.lab.toll(&["run", "--plan", live_plan, "--server", &dsn]);
    assert!(output_text(&repeated).contains("repeat it with `toll live`"), "{}", output_text(&repeated));
    let no_server = at.lab.toll(&GENERAL_LOG);
    assert!(output_text(&no_server).contains("name the server"), "{}", output_text(&no_server));
}

#[test]
fn system_a_run_with_consent_prices_the_method_and_leaves_nothing() {
    let at = production();
    let (dsn, out) = (at.dsn.clone(), at.lab.path("run"));
    let before = [at.server.schemas(), at.server.variables()];
    let execute = ["--execute", "--reason", "ticket 4711", "--confirm", &at.name, "--out", &out];
    let run = at.with_users(|| at.lab.toll(&at.arguments(&dsn, &execute)));
    assert!(run.status.success(), "{}", output_text(&run));
    let result = read_result(&out);
    let blocks = |name: &str| arm(&result, name)["windows"].as_u64().unwrap();
    // As root the tap sees the users' queries; else the price is in CPU time.
    let text = output_text(&run);
    let is_tapped = text.contains("all queries on the server's sockets, by fingerprint, in all windows");
    assert_eq!(is_tapped, nix::unistd::Uid::effective().is_root(), "{text}");
    let judged = if is_tapped { "users_response_us" } else { "cpu_us_per_query" };
    let outcome = &arm(&result, "general-log")["outcomes"][judged];
    assert_eq!(outcome["method"], "confidence-sequence", "{outcome}");
    // A run ends once its verdict is known, on a quiet host after few blocks.
    let is_decided = ["costly", "cheaper", "no-effect"].iter().any(|verdict| outcome["verdict"] == *verdict);
    let has_all_blocks = blocks("general-log") >= 8 && blocks("baseline-again") >= 2;
    assert!(is_decided || has_all_blocks, "{text}");
    assert!(!arm(&result, "general-log")["outcomes"]["probe_response_us"].is_null(), "{result}");
    assert!(!is_tapped || text.contains("Found in 8 of 10 such runs"), "{text}");
    let own = &result["self_cost"]["while_off"];
    assert!(own["queries_per_s"].as_f64().unwrap() > 0.0, "{own}");
    assert_eq!(own["tap_cpu_pct"].as_f64().unwrap() > 0.0, is_tapped, "{own}");
    assert_eq!(
        own["connections"],
        6 + u64::from(!is_tapped && text.contains("performance_schema's")),
        "{own}"
    );
    let audit = audit(&out);
    assert_eq!((&audit[0]["action"], &audit[0]["reason"]), (&"consent".into(), &"ticket 4711".into()));
    assert_eq!(audit.last().unwrap()["action"], "end");
    let plan: Value =
        serde_json::from_str(&std::fs::read_to_string(Path::new(&out).join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan["time_s"], 70.0);
    let breaker: Value =
        serde_json::from_str(&std::fs::read_to_string(Path::new(&out).join("breaker.json")).unwrap())
            .unwrap();
    assert!(breaker["drill"]["took_us"].as_u64().unwrap() < 2_000_000, "{breaker}");
    assert!(breaker["trip"].is_null(), "{breaker}");
    assert_eq!([at.server.schemas(), at.server.variables()], before);
    at.lab.assert_nothing_left();
}

#[test]
fn without_a_tap_the_servers_own_counters_are_judged_and_the_page_says_so() {
    let at = production();
    let (dsn, users) = (at.dsn.clone(), users_dsn(&at.server));
    // Of toll's account alone.
    let unused = output_text(&at.lab.toll(&at.arguments(&dsn, &["--no-tap"])));
    assert!(unused.contains("counts no statements but toll's own"), "{unused}");
    let load = ["--server", &users, "--tables", "1", "--rows", "100"];
    let prepared = at.lab.toll(&[&["load", "prepare"], &load[..]].concat());
    assert!(prepared.status.success(), "{}", output_text(&prepared));
    let mut prepares = at.lab.spawn_with_stderr(
        &[&["load", "point-select"], &load[..], &["--threads", "1", "--rate", "100"]].concat(),
        &at.lab.path("load"),
    );
    let plan = at.with_users(|| at.lab.toll(&at.arguments(&dsn, &["--no-tap"])));
    send_signal(prepares.id(), "INT");
    prepares.wait().unwrap();
    let text = output_text(&plan);
    assert!(plan.status.success(), "{text}");
    for expected in [
        "Verdicts: response time of users' queries, at a fixed mix",
        "Users' response times: performance_schema's counts and sums, by kind of statement",
        "%  select",
        "%  Execute",
        "Not seen: queries on the server's sockets: --no-tap",
        "Not seen: queries of other programs under toll's own account",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    at.lab.assert_nothing_left();
}

#[test]
fn a_guard_that_does_not_begin_leaves_nothing_started_and_nothing_removed() {
    let at = production();
    let [out, started, control, said] = ["run", "started", "control", "said"].map(|name| at.lab.path(name));
    let (touch, dsn) = (format!("touch {started}; sleep 1000"), at.dsn.clone());
    let execute = ["--execute", "--reason", "a test", "--confirm", &at.name, "--out", &out, "--no-tap"];
    let command = ["--control", &control, "--", "sh", "-c", &touch];
    let arguments = [&["live", "--server", &dsn], &SHORT[..], &execute, &command].concat();
    let mut child = at.lab.spawn_with_stderr(&arguments, &said);
    let text = || std::fs::read_to_string(&said).unwrap();
    at.wait_until("at work", || text().contains("looking at the server"));
    // Somebody else's, at the path that was free before.
    let theirs = Path::new(&control).join("theirs");
    std::fs::create_dir(&control).unwrap();
    std::fs::write(&theirs, "precious").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{}", text());
    assert!(text().contains("the guard did not begin"), "{}", text());
    assert!(!Path::new(&started).exists() && theirs.exists(), "{}", text());
    at.lab.assert_nothing_left();
}

#[test]
fn system_a_flag_file_takes_the_method_off_and_ends_the_run() {
    let at = production();
    let (out, flag) = (at.lab.path("run"), at.lab.path("stop"));
    at.with_users(|| {
        let port = toll_testkit::port::free_port();
        let metrics = format!("127.0.0.1:{port}");
        let mut child = at.spawn_until_on(&out, &["--flag-file", &flag, "--metrics", &metrics]);
        at.wait_until("on in the metrics", || served_figures(port).contains("\ntoll_live_method_on 1\n"));
        // As the plan says; one more reads counters where no tap may run.
        let sessions = at.toll_sessions();
        assert!(sessions.len() <= 7 - usize::from(nix::unistd::Uid::effective().is_root()), "{sessions:?}");
        std::fs::write(&flag, "").unwrap();
        at.assert_off();
        let ended = child.wait().unwrap();
        assert_eq!(ended.code(), Some(1));
        assert!(!at.is_on());
    });
    let breaker: Value =
        serde_json::from_str(&std::fs::read_to_string(Path::new(&out).join("breaker.json")).unwrap())
            .unwrap();
    assert_eq!(breaker["trip"]["condition"], "veto", "{breaker}");
    assert_eq!(breaker["off"]["failures"].as_array().unwrap().len(), 0, "{breaker}");
    at.lab.assert_nothing_left();
}

#[test]
fn system_the_guard_switches_off_when_toll_is_killed_or_stopped_and_toll_when_the_guard_is() {
    let at = production();
    at.with_users(|| {
        for (victim, signal) in [("toll", "KILL"), ("toll", "STOP"), ("guard", "KILL"), ("guard", "STOP")] {
            let out = at.lab.path(&format!("{victim}-{signal}"));
            let mut child = at.spawn_until_on(&out, &[]);
            let guard = guard_among(&child_pids(child.id()));
            let pid = if victim == "toll" { child.id() } else { guard };
            send_signal(pid, signal);
            at.assert_off();
            if signal == "STOP" {
                send_signal(pid, "CONT");
            }
            if victim == "toll" && signal == "KILL" {
                let _ = child.wait();
            } else {
                assert_eq!(child.wait().unwrap().code(), Some(1), "{victim} {signal}");
            }
            assert!(at.lab.toll(&["clean"]).status.success());
            assert!(!at.is_on(), "{victim} {signal}");
            at.wait_until("without a guard", || !Path::new(&format!("/proc/{guard}")).exists());
        }
    });
    at.lab.assert_nothing_left();
}

fn child_pids(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn send_signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The guard among toll's children.
fn guard_among(pids: &[u32]) -> u32 {
    let is_guard = |pid: &&u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == b"guard"))
    };
    *pids.iter().find(is_guard).expect("a guard")
}
