//! Tests of query events and digests of live captures: all that the server counted, within a budget.

use super::encoded::assert_same;
use super::printed;
use super::server::Server;
use super::sysbench::counted;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn query_events_of_real_loads_say_what_their_packets_say() {
    let Some(server) = Server::installed(&["tcpdump", "sysbench"], &[]) else { return };
    let cases = [
        ("text", &["--db-ps-mode=disable", "--threads=8", "--events=300"][..]),
        ("prepared", &["--db-ps-mode=auto", "--threads=8", "--events=300"]),
        ("compressed", &["--db-ps-mode=auto", "--threads=4", "--events=200", "--mysql-compression=on"]),
    ];
    for (case, options) in cases {
        let options = [options, &["--time=30"]].concat();
        server.capture_while(|| server.sysbench(&options));
        assert_same(&server.capture_file(), server.port(), case);
    }
}

/// A running `toll capture`, stopped with the test.
pub struct LiveCapture {
    child: Child,
    words: BufReader<ChildStderr>,
}

impl LiveCapture {
    /// Starts it, and returns once it captures on the server's port on loopback.
    pub fn listen(server: &Server, arguments: &[&str]) -> Self {
        Self::start(server, &[&["-i", "lo"], arguments].concat())
    }

    /// Starts it, and returns once it captures on the server's port.
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_toll"))
            .args(["capture", "--port", &server.port().to_string()])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let words = BufReader::new(child.stderr.take().unwrap());
        let mut live = Self { child, words };
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(live.words.read_line(&mut line).unwrap() > 0, "it ended before it listened");
        }
        live
    }

    /// CPU time used so far, seconds.
    fn cpu_s(&self) -> f64 {
        // Not /proc/PID/stat: a budget may be less than one of its ticks.
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id().cast_signed())).unwrap();
        Duration::from(clock.now().unwrap()).as_secs_f64()
    }

    /// How often its threads have gone to sleep so far.
    fn sleeps(&self) -> u64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of = |thread: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.unwrap().trim().parse::<u64>().unwrap()
        };
        threads.map(of).sum()
    }

    /// Stops it in good order. Returns standard output and standard error.
    pub fn end(mut self) -> (String, String) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let (mut printed, mut said) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        self.words.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        (printed, said)
    }
}

impl Drop for LiveCapture {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_capture_of_queries_holds_every_statement_that_the_server_counted() {
    let Some(server) = Server::installed(&["sysbench"], &[]) else { return };
    let cases = [
        ("text", &["--db-ps-mode=disable", "--threads=8", "--events=300"][..]),
        ("prepared", &["--db-ps-mode=auto", "--threads=8", "--events=300"]),
        ("64 connections", &["--db-ps-mode=auto", "--threads=64", "--events=400"]),
    ];
    for (case, options) in cases {
        let options = [options, &["--time=30"]].concat();
        let file = server.path("live.queries");
        let live = LiveCapture::listen(&server, &["--overwrite", "--queries", file.to_str().unwrap()]);
        let counts = counted(&server, || server.sysbench(&options));
        server.wait_until_alone();
        let (_, said) = live.end();
        let lines = printed::lines(&file, server.port());
        let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count() as u64;
        let executed = counts["Com_stmt_execute"];
        let texts = counts["Com_select"] + counts["Com_begin"] + counts["Com_commit"];
        assert!(texts > 500, "{case}: too little to tell anything");
        assert_eq!(of("execute"), executed, "{case}: {said}");
        assert_eq!(of("prepare"), counts["Com_stmt_prepare"], "{case}: {said}");
        // An EXECUTE counts as what it runs, too.
        assert_eq!(of("query"), texts - executed, "{case}: {said}");
        assert!(events.iter().all(|event| event["tainted"] == false), "{case}: {said}");
        let digest = printed::digest(&file, server.port());
        let queries = &digest["ledger"]["queries"];
        assert_eq!(
            (&queries["events_missing"], &queries["captures_ended"]),
            (&0.into(), &1.into()),
            "{case}"
        );
        assert_eq!(digest["ledger"]["commands"]["seen"], events.len(), "{case}");
        assert!(said.contains("nothing lost"), "{case}: {said}");
    }
}

#[test]
fn a_digest_of_a_running_capture_ranks_every_statement_that_the_server_counted() {
    let Some(server) = Server::installed(&["sysbench"], &[]) else { return };
    let live = LiveCapture::listen(&server, &["--digest", "--every", "1s", "--json"]);
    let options = ["--db-ps-mode=auto", "--threads=8", "--events=2000", "--rate=500", "--time=30"];
    let counts = counted(&server, || server.sysbench(&options));
    server.wait_until_alone();
    let (printed, said) = live.end();
    let documents: Vec<Value> =
        serde_json::Deserializer::from_str(&printed).into_iter().map(Result::unwrap).collect();
    let digests: Vec<_> = documents.iter().filter(|document| document["totals"].is_object()).collect();
    assert!(digests.len() > 2, "{} digests: {said}", digests.len());
    let queries: u64 = digests.iter().map(|digest| digest["totals"]["queries"].as_u64().unwrap()).sum();
    assert_eq!(queries, counts["Com_select"] + counts["Com_begin"] + counts["Com_commit"], "{said}");
}

#[test]
fn beside_a_server_that_rests_no_capture_takes_more_than_a_thousandth_of_a_cpu() {
    const TIME: Duration = Duration::from_secs(10);
    let Some(server) = Server::installed(&[], &[]) else { return };
    let file = server.path("rest");
    let file = file.to_str().unwrap();
    let captures = [
        &["-i", "lo", "--overwrite", "-w", file][..],
        &["-i", "lo", "--overwrite", "--queries", file],
        &["-i", "lo", "--digest", "--every", "1m"],
        &["--tap", "sockets", "--overwrite", "--queries", file],
        &["--tap", "sockets", "--digest", "--every", "1m"],
    ];
    for arguments in captures {
        let live = LiveCapture::start(&server, arguments);
        // Its start is no rest.
        std::thread::sleep(Duration::from_secs(1));
        let (cpu_s, sleeps) = (live.cpu_s(), live.sleeps());
        std::thread::sleep(TIME);
        let share_pct = (live.cpu_s() - cpu_s) / TIME.as_secs_f64() * 100.0;
        let sleeps_per_s = (live.sleeps() - sleeps) as f64 / TIME.as_secs_f64();
        println!("{arguments:?}: {share_pct:.3}% of a CPU, {sleeps_per_s:.1} sleeps a second");
        assert!(
            share_pct <= 0.1 && sleeps_per_s <= 15.0,
            "{arguments:?}: {share_pct}%, {sleeps_per_s} a second"
        );
        live.end();
    }
}

#[test]
fn a_capture_stays_within_its_budget_and_says_what_share_it_kept() {
    let Some(server) = Server::installed(&[], &[]) else { return };
    let load = |seconds: u32| {
        server.load(&["read-only".into(), format!("--time={seconds}s"), "--threads=64".into()])
    };
    // A third of what it takes without one, however fast this host is.
    let unbound = LiveCapture::listen(&server, &["--digest", "--json"]);
    let begun = Instant::now();
    load(3);
    let budget = unbound.cpu_s() / begun.elapsed().as_secs_f64() / 3.0;
    unbound.end();
    let live = LiveCapture::listen(
        &server,
        &["--digest", "--budget", &format!("cpu={:.3}%", budget * 100.0), "--json"],
    );
    let settled = load(4);
    let (begun, used_s) = (Instant::now(), live.cpu_s());
    let measured = load(10);
    let used = (live.cpu_s() - used_s) / begun.elapsed().as_secs_f64();
    let (printed, said) = live.end();
    assert!(used <= budget, "{:.2}% of a CPU, not {:.2}%: {said}", used * 100.0, budget * 100.0);
    let documents: Vec<Value> =
        serde_json::Deserializer::from_str(&printed).into_iter().map(Result::unwrap).collect();
    let [digest, ledger] = &documents[..] else { panic!("{printed}") };
    let sampled = &digest["sampled"];
    let executed = (settled.statements + measured.statements) as f64;
    let estimate = |key: &str| sampled["queries"][key].as_f64().unwrap_or(f64::NAN);
    assert!(digest["totals"]["queries"].as_f64().unwrap() < executed, "nothing was left out: {said}");
    // Every packet is either decoded or left out.
    let counted = |name: &str| ledger[name].as_u64().unwrap();
    assert!(counted("shed") > 0 && counted("captured") > 0, "{ledger}");
    assert_eq!(counted("passed"), counted("shed") + counted("captured"), "{ledger}");
    // Of few connections that are much alike; the interval itself is tested where draws can be repeated.
    let found = estimate("estimate") / executed;
    assert!((0.2..5.0).contains(&found), "{found}: {sampled}");
    assert!(estimate("low") <= estimate("estimate") && estimate("estimate") <= estimate("high"), "{sampled}");
}
