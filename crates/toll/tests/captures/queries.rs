//! Does what was decoded while it was captured say the same as the packets themselves?

use crate::own::made;
use crate::printed;
use crate::server::Server;
use crate::sysbench::counted;
use crate::tcpdump::alone;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use toll_agent::capture::chunks::{Chunks, Destination};
use toll_agent::capture::decoded::{CHUNK_BYTES, Digesting, Packing, Queries};
use toll_agent::capture::output::{Account, Output};
use toll_agent::capture::printing::How;
use toll_digest::Type;
use toll_digest::count::{CountWindow, count};
use toll_wire::decoder::Config;
use toll_wire::event::Share;
use toll_wire::pcap::{Format, Frame, Reader};
use toll_wire::queries::Head;

/// Bytes that several hold.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Destination for Shared {
    fn begin(&mut self, header: &[u8]) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend_from_slice(header);
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8], _items: u64, _first_ns: u64, _last_ns: u64) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn lost(&self) -> (u64, u64) {
        (0, 0)
    }

    fn finish(&mut self, tail: &[u8]) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend_from_slice(tail);
        Ok(())
    }
}

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn config(port: u16) -> Config {
    Config { ports: vec![port], ..Config::default() }
}

/// Each packet of a capture, in its order.
fn each_frame(capture: &[u8], mut each: impl FnMut(&Frame<'_>)) {
    let mut reader = Reader::new(Format::detect(capture).unwrap());
    reader.feed(capture, &mut each).unwrap();
    reader.finish(&mut each);
}

/// The packets of a capture as query events; `before`: what is done before each packet.
fn encoded(capture: &[u8], port: u16, mut before: impl FnMut(u64, &mut Queries)) -> (Vec<u8>, Account) {
    let file = Shared::default();
    let packing = Packing::new(Box::new(file.clone())).unwrap();
    // Room for all of it: what is asked is whether all is there.
    let chunks = Chunks::start(Box::new(packing), b"", CHUNK_BYTES, 4096).unwrap();
    let mut queries = Queries::new(&config(port), chunks);
    let mut last_ns = 0;
    each_frame(capture, |frame| {
        before(frame.time_ns, &mut queries);
        queries.packet(frame).unwrap();
        queries.beat(frame.time_ns).unwrap();
        last_ns = frame.time_ns;
    });
    queries.finish(last_ns).unwrap();
    (file.bytes(), queries.account())
}

/// A digest without what is told of files.
fn told(file: &Path, port: u16) -> Value {
    let mut digest = printed::digest(file, port);
    digest["inputs"] = Value::Null;
    digest["ledger"]["queries"] = Value::Null;
    digest
}

/// A file of query events and the capture beside it say the same, to the last byte of each event.
fn assert_same(capture: &Path, port: u16, case: &str) {
    let bytes = std::fs::read(capture).unwrap();
    let (events, account) = encoded(&bytes, port, |_, _| {});
    let file = capture.with_extension("queries");
    std::fs::write(&file, &events).unwrap();
    assert_eq!(account.bytes_written, events.len() as u64, "{case}");
    assert_eq!(account.lost(), 0, "{case}");
    let (from_packets, from_events) = (told(capture, port), told(&file, port));
    assert_eq!(from_events["ledger"]["adds_up"], true, "{case}");
    assert!(from_events["totals"]["queries"].as_u64().unwrap() > 100, "{case}: too little to tell anything");
    assert_eq!(from_events["totals"]["queries"], account.queries.unwrap(), "{case}");
    assert!(from_events == from_packets, "{case}:\n{from_events:#}\n{from_packets:#}");
    assert!(printed::lines(&file, port) == printed::lines(capture, port), "{case}");
    let counted = |path: &Path, kind, window| count(path, kind, window, &[port]).unwrap().queries;
    let mut windows = vec![CountWindow::Whole];
    let mut times = Vec::new();
    each_frame(&bytes, |frame| times.push(frame.time_ns));
    let at = |part: usize| times[times.len() * part / 4];
    windows.extend([(0, 1), (1, 3)].map(|(a, b)| CountWindow::Time { since_ns: at(a), until_ns: at(b) }));
    for window in windows {
        let both = (counted(&file, Some(Type::Queries), window), counted(capture, Some(Type::Pcap), window));
        assert!(both.0 == both.1 && both.0 > 0, "{case}: {window:?}: {both:?}");
    }
    assert!(events.len() * 5 < bytes.len(), "{case}: {} of {} bytes", events.len(), bytes.len());
}

#[test]
fn query_events_of_a_synthetic_capture_say_what_its_packets_say() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "4"]);
    assert_same(&capture, 3306, "made");
    // The type is told by the first bytes, and can be said.
    let file = capture.with_extension("queries");
    let typed = Command::new(env!("CARGO_BIN_EXE_toll"))
        .args(["digest", "--type", "queries", "--format", "json"])
        .arg(&file)
        .output()
        .unwrap();
    let typed: Value = serde_json::from_slice(&typed.stdout).unwrap();
    assert_eq!(typed["inputs"][0]["type"], "queries");
    assert_eq!(typed["totals"], printed::digest(&file, 3306)["totals"]);
    // A stretch of time of it, chosen by the digest.
    let part = |path: &Path| {
        let arguments = ["digest", "--since", "1767225602", "--until", "1767225604", "--format", "json"];
        let output = Command::new(env!("CARGO_BIN_EXE_toll")).args(arguments).arg(path).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["totals"].take()
    };
    assert_eq!(part(&file), part(&capture));
}

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
        server.captured(|| server.sysbench(&options));
        assert_same(&server.capture_file(), server.port(), case);
    }
}

#[test]
fn a_large_file_is_digested_in_parts_that_come_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "5"]);
    let (events, _) = encoded(&std::fs::read(&capture).unwrap(), 3306, |_, _| {});
    // Parts are of eight MiB at least: the same capture, again and again.
    let times = (20 << 20) / events.len() + 1;
    let file = dir.path().join("many");
    std::fs::write(&file, events.repeat(times)).unwrap();
    let digest = |jobs: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_toll"))
            .args(["digest", "--format", "json", "--jobs", jobs])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let (one, three) = (digest("1"), digest("3"));
    assert_eq!(one["totals"]["commands"], one["ledger"]["queries"]["events"]);
    assert_eq!(one["ledger"]["queries"]["captures_ended"], times);
    assert!(one == three, "{one:#}\n{three:#}");
}

#[test]
fn a_file_that_was_cut_or_damaged_is_digested_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "6"]);
    let (events, _) = encoded(&std::fs::read(&capture).unwrap(), 3306, |_, _| {});
    let whole = dir.path().join("whole");
    std::fs::write(&whole, &events).unwrap();
    let whole = printed::digest(&whole, 3306)["totals"]["commands"].as_u64().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, &events[..events.len() * 2 / 3]).unwrap();
    let digest = printed::digest(&file, 3306);
    let there = digest["totals"]["commands"].as_u64().unwrap();
    assert!(there > 0 && there < whole, "{there} of {whole}");
    assert!(digest["ledger"]["queries"]["unread_tail_bytes"].as_u64().unwrap() > 0);
    assert_eq!(digest["ledger"]["adds_up"], true);
    let report = printed::report(&file, 3306);
    assert!(report.contains("#   cut       the file ends within a block"), "{report}");
    assert!(report.contains("#   open "), "{report}");
    // A byte of the fourth block is another.
    let mut damaged = events.clone();
    let behind = |at: usize| at + Head::LEN + Head::read(&events[at..]).unwrap().packed;
    damaged[behind(behind(behind(0))) + Head::LEN + 20] ^= 0x40;
    std::fs::write(&file, &damaged).unwrap();
    let digest = printed::digest(&file, 3306);
    let (there, queries) = (digest["totals"]["commands"].as_u64().unwrap(), &digest["ledger"]["queries"]);
    let missing = queries["events_missing"].as_u64().unwrap();
    assert!(missing > 0 && there + missing == whole, "{there} and {missing} of {whole}");
    assert!(printed::report(&file, 3306).contains("#   missing   "));
}

#[test]
fn a_share_of_the_connections_is_told_with_totals_that_it_stands_for() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "4"]);
    let mut frames = 0;
    let bytes = std::fs::read(&capture).unwrap();
    each_frame(&bytes, |_| frames += 1);
    let mut at = 0;
    let (events, _) = encoded(&bytes, 3306, |time_ns, queries| {
        at += 1;
        if at == frames / 2 {
            queries.share(&Share { time_ns, kept: 0.5, asked: None });
        }
    });
    let file = dir.path().join("queries");
    std::fs::write(&file, &events).unwrap();
    let digest = printed::digest(&file, 3306);
    let (sampled, looked_at) = (&digest["sampled"], digest["totals"]["queries"].as_f64().unwrap());
    let estimate = |key: &str| sampled["queries"][key].as_f64().unwrap();
    assert_eq!(sampled["share_least"], 0.5);
    assert!((0.6..0.9).contains(&sampled["share_mean"].as_f64().unwrap()), "{sampled}");
    assert!((1.2..1.8).contains(&(estimate("estimate") / looked_at)), "{sampled}");
    assert!(estimate("low") < estimate("estimate") && estimate("estimate") < estimate("high"), "{sampled}");
    let report = printed::report(&file, 3306);
    assert!(report.contains("# Sampled: ") && report.contains("# Queries in all: "), "{report}");
    // Of all connections nothing is said.
    assert_eq!(printed::digest(&capture, 3306)["sampled"], Value::Null);
}

/// Lines that a digest of a capture prints while it runs; `every` of packet time.
fn digested(capture: &[u8], every: Option<Duration>) -> Vec<Value> {
    let out = Shared::default();
    let how = How { out: Box::new(out.clone()), ..How::usual(true, "test".to_owned()) };
    let mut digesting = Digesting::new(&config(3306), every, how).unwrap();
    let mut last_ns = 0;
    each_frame(capture, |frame| {
        digesting.beat(frame.time_ns).unwrap();
        digesting.packet(frame).unwrap();
        last_ns = frame.time_ns;
    });
    digesting.finish(last_ns).unwrap();
    let bytes = out.bytes();
    assert_eq!(digesting.account().bytes_written, bytes.len() as u64);
    serde_json::Deserializer::from_slice(&bytes).into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_digest_of_what_is_captured_is_that_of_the_capture_and_its_stretches_add_up_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let capture = made(dir.path(), "mysql", &["--seconds", "6", "--seed", "4"]);
    let bytes = std::fs::read(&capture).unwrap();
    let whole = told(&capture, 3306);
    let mut once = digested(&bytes, None);
    assert_eq!(once.len(), 1);
    once[0]["inputs"] = Value::Null;
    once[0]["ledger"]["queries"] = Value::Null;
    assert!(once[0] == whole, "{:#}\n{whole:#}", once[0]);
    let stretches = digested(&bytes, Some(Duration::from_secs(2)));
    // Printing takes its time, so that a stretch may come to two.
    assert!(stretches.len() >= 2, "{}", stretches.len());
    let sum = |key: &str| stretches.iter().map(|one| one["totals"][key].as_u64().unwrap()).sum::<u64>();
    for key in ["commands", "queries", "errors"] {
        assert_eq!(sum(key), whole["totals"][key].as_u64().unwrap(), "{key}");
    }
    assert!(stretches.iter().all(|one| one["ledger"]["adds_up"] == true));
    // The whole capture's account stands in the last one alone.
    let ledgers = stretches.iter().filter(|one| one["ledger"]["commands"].is_object()).count();
    assert_eq!(ledgers, 1);
    assert_eq!(stretches.last().unwrap()["ledger"]["commands"], whole["ledger"]["commands"]);
}

/// `toll capture` under way; ended with the test.
struct Live {
    child: Child,
    words: BufReader<ChildStderr>,
}

impl Live {
    /// Returns once it listens to the server's port on loopback.
    fn listen(server: &Server, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_toll"))
            .args(["capture", "-i", "lo", "--port", &server.port().to_string()])
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

    /// What it has used of the CPU so far, in seconds.
    fn cpu_s(&self) -> f64 {
        // Not /proc/PID/stat: a budget may be less than one of its ticks.
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id().cast_signed())).unwrap();
        Duration::from(clock.now().unwrap()).as_secs_f64()
    }

    /// Ends it in good order; what it printed, and what it said.
    fn end(mut self) -> (String, String) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let (mut printed, mut said) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        self.words.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        (printed, said)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_capture_of_queries_holds_every_statement_that_the_server_counted() {
    let Some(server) = Server::installed(&["sysbench"], &[]) else { return };
    let _alone = alone();
    let cases = [
        ("text", &["--db-ps-mode=disable", "--threads=8", "--events=300"][..]),
        ("prepared", &["--db-ps-mode=auto", "--threads=8", "--events=300"]),
        ("64 connections", &["--db-ps-mode=auto", "--threads=64", "--events=400"]),
    ];
    for (case, options) in cases {
        let options = [options, &["--time=30"]].concat();
        let file = server.path("live.queries");
        let live = Live::listen(&server, &["--overwrite", "--queries", file.to_str().unwrap()]);
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
    let _alone = alone();
    let live = Live::listen(&server, &["--digest", "--every", "1s", "--json"]);
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
fn a_capture_stays_within_its_budget_and_says_what_share_it_kept() {
    let Some(server) = Server::installed(&[], &[]) else { return };
    let _alone = alone();
    let load = |seconds: u32| {
        server.load(&["read-only".into(), format!("--time={seconds}s"), "--threads=64".into()])
    };
    // A third of what it takes without one, however fast this host is.
    let unbound = Live::listen(&server, &["--digest", "--json"]);
    let begun = Instant::now();
    load(3);
    let budget = unbound.cpu_s() / begun.elapsed().as_secs_f64() / 3.0;
    unbound.end();
    let live =
        Live::listen(&server, &["--digest", "--budget", &format!("cpu={:.3}%", budget * 100.0), "--json"]);
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
