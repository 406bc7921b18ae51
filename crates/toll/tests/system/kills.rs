//! Tests of instruments killed at random moments: nothing is left, and what they wrote is whole up to where it ends.
//!
//! `make test-system` kills each of capture, receive, backup, restore and throttle twenty times; the other three are in
//! `tests/server`.

use crate::ends::{Keys, Receiver, new_keys, wait_until};
use crate::lab::{Lab, output_text};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_mysql::{Connection, Target};
use toll_stats::SeededRng;

const KILLS: usize = 20;

/// Statements that say their number, on one connection, until the end.
fn count_up(port: u16, stop: &AtomicBool) -> u64 {
    let target = Target::parse_dsn(&format!("mysql://root@127.0.0.1:{port}/")).unwrap();
    let mut connection = Connection::connect(&target).unwrap();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        connection.exec_drop(&format!("DO {number}")).unwrap();
    }
    number
}

/// Runs `body` beside such statements.
fn beside_statements<T>(port: u16, body: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| count_up(port, &stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        stop.store(true, Ordering::Relaxed);
        assert!(counting.join().unwrap() > 0);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Numbers of the statements in a file, in its order. What the file breaks off within is left out by the digest, which says so.
fn numbers(lab: &Lab, file: &Path, port: u16) -> Vec<u64> {
    let (port, file) = (port.to_string(), file.display().to_string());
    let words = ["digest", "--events", "--literals", "--format", "ndjson", "--port", &port, &file];
    let printed = lab.toll(&words);
    assert!(matches!(printed.status.code(), Some(0 | 3)), "{}", output_text(&printed));
    let lines = String::from_utf8(printed.stdout).unwrap();
    let statement =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["query"].as_str().unwrap().to_owned();
    lines.lines().map(statement).filter_map(|text| text.strip_prefix("DO ")?.parse().ok()).collect()
}

/// No statement is missing between the first and the last.
fn assert_no_gap(numbers: &[u64], what: &str) {
    let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert!(gap.is_none(), "{what}: {gap:?} of {}", numbers.len());
}

#[test]
fn a_killed_capture_leaves_nothing_and_its_file_has_no_gap() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let server = lab.start_server();
    let port = server.port.to_string();
    let mut draws = SeededRng::new(std::process::id().into(), 1);
    let mut read = 0;
    beside_statements(server.port, || {
        for number in 0..KILLS {
            let packets = ["-i", "lo", "--port", &port];
            let (tap, output) = match number % 4 {
                0 => (&packets[..], "--write"),
                1 => (&packets[..], "--queries"),
                2 => (&["--tap", "sockets", "--port", &port][..], "--queries"),
                _ => (&packets[..], "--digest"),
            };
            let (file, words) =
                (lab.path(&format!("{number}.capture")), lab.path(&format!("{number}.words")));
            let to = if output == "--digest" { vec![output] } else { vec![output, &file] };
            let after_ms = u64::from(draws.below(3_000));
            let mut capture = lab.spawn_with_stderr(&[&["capture"], tap, &to[..]].concat(), &words);
            std::thread::sleep(Duration::from_millis(after_ms));
            lab.signal_if_alive(&mut capture, "KILL");
            let ended = capture.wait().unwrap();
            let what = format!("{tap:?} {output} killed after {after_ms} ms");
            assert_eq!(ended.code(), None, "{what}: {}", std::fs::read_to_string(&words).unwrap());
            let cleaned = lab.toll(&["clean"]);
            assert!(cleaned.status.success(), "{what}: {}", output_text(&cleaned));
            lab.assert_nothing_left();
            let file = Path::new(&file);
            if std::fs::metadata(file).is_ok_and(|is| is.len() > 0) {
                let seen = numbers(&lab, file, server.port);
                assert_no_gap(&seen, &what);
                read += usize::from(!seen.is_empty());
            }
        }
    });
    assert!(read >= 3, "only {read} of {KILLS} captures had written statements when they were killed");
}

#[test]
fn tables_of_received_queries_have_each_once_over_a_hundred_kills() {
    crate::delivery::assert_once_over_kills(&toll_testkit::lab!(), 100);
}

#[test]
fn a_receiver_that_is_killed_again_and_again_loses_nothing_that_is_not_counted() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let server = lab.start_server();
    let (port, words) = (server.port.to_string(), lab.path("capture.words"));
    let keys: Keys = new_keys(&lab);
    let first = Receiver::start_at(&lab, "127.0.0.1:0", &keys, "0", &[]);
    let address = first.address.clone();
    let mut draws = SeededRng::new(std::process::id().into(), 2);
    let mut receiver = Some(first);
    beside_statements(server.port, || {
        let stream =
            ["capture", "-i", "lo", "--port", &port, "--stream", &address, "--key", &keys.sender, "--json"];
        let mut capture = lab.spawn_into(&stream, &lab.path("capture.json"), &words);
        wait_until("it captures", || {
            assert!(capture.try_wait().unwrap().is_none(), "{}", std::fs::read_to_string(&words).unwrap());
            std::fs::read_to_string(&words).unwrap().contains("listening on")
        });
        for number in 1..=KILLS {
            std::thread::sleep(Duration::from_millis(draws.below(700).into()));
            receiver.take().unwrap().end("KILL");
            receiver = Some(Receiver::start_at(&lab, &address, &keys, &number.to_string(), &[]));
        }
        lab.signal(&capture, "INT");
        assert_eq!(capture.wait().unwrap().code(), Some(0), "{}", std::fs::read_to_string(&words).unwrap());
    });
    let last = receiver.unwrap();
    let account = last.one_account();
    assert_eq!((&account["whole"], &account["lost"]), (&true.into(), &0.into()), "{account}");
    // A chunk that was written and not acknowledged comes again, to the receiver after: none is in no file.
    let mut seen: Vec<u64> = Vec::new();
    for number in 0..=KILLS {
        let dir = lab.path(&number.to_string());
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        // A killed receiver leaves the journals of its streams, too.
        let captures = files.filter(|file| file.extension().is_some_and(|end| end == "pcapng"));
        seen.extend(captures.flat_map(|file| numbers(&lab, &file, server.port)));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_no_gap(&seen, "over all receivers");
    assert!(seen.len() > 1_000, "only {} statements", seen.len());
    last.end("TERM");
    lab.assert_nothing_left();
}
