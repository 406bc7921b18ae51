//! A method that crosses over between two servers of a cluster.

use super::{GENERAL_LOG, Production, SHOP, SHORT, ask_as_user, only_value, production, send_signal};
use serde_json::Value;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use toll_testkit::lab::{ForeignServer, arm, output_text, read_result};

/// A second server with the same tables.
fn second(at: &Production) -> ForeignServer {
    let server = at.lab.start_another_server("second");
    server.run(SHOP);
    server
}

fn is_on(server: &ForeignServer) -> bool {
    only_value(&server.rows("SELECT @@GLOBAL.general_log")) == "1"
}

/// Users ask both servers until `work` is done.
fn with_users_of_both<T: Send>(
    at: &Production,
    second: &ForeignServer,
    work: impl FnOnce() -> T + Send,
) -> T {
    let is_over = AtomicBool::new(false);
    at.with_users(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    ask_as_user(second);
                }
            });
            let done = scope.spawn(work).join();
            is_over.store(true, Ordering::Relaxed);
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

#[test]
fn the_plan_has_the_changes_and_the_limits_of_both_servers_and_no_capture_crosses_over() {
    let at = production();
    let other = second(&at);
    let (dsn, crossed) = (at.dsn.clone(), other.dsn());
    with_users_of_both(&at, &other, || {
        let plan = at.lab.toll(&at.arguments(&dsn, &["--crossed-with", &crossed]));
        let text = output_text(&plan);
        assert!(plan.status.success(), "{text}");
        for expected in ["\nSwitched at ", "\nRights at ", "\nOff within 2 s"] {
            assert_eq!(text.matches(expected).count(), 2, "{expected}: {text}");
        }
        assert!(text.contains("on at one server, then at the other"), "{text}");
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(long.is_empty(), "{long:?}");
    });
    let same = at.lab.toll(&at.arguments(&dsn, &["--crossed-with", &dsn]));
    assert!(output_text(&same).contains("names the server that --server names"), "{}", output_text(&same));
    let capture = ["live", "tcpdump-impact", "--variants", "toll-packets", "--server", &dsn];
    let capture = at.lab.toll(&[&capture, &SHORT[..], &["--crossed-with", &crossed]].concat());
    assert!(output_text(&capture).contains("runs beside a server"), "{}", output_text(&capture));
    assert!(!at.is_on() && !is_on(&other));
    at.lab.assert_nothing_left();
}

#[test]
fn system_a_method_is_on_at_one_server_at_a_time_and_at_neither_afterwards() {
    let at = production();
    let other = second(&at);
    let (dsn, crossed, out) = (at.dsn.clone(), other.dsn(), at.lab.path("run"));
    let seen = Mutex::new([0_u32; 3]);
    let is_over = AtomicBool::new(false);
    let run = with_users_of_both(&at, &other, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let on = [at.is_on(), is_on(&other)];
                    let mut seen = seen.lock().unwrap();
                    match on {
                        [true, true] => seen[2] += 1,
                        [first, second] => {
                            seen[0] += u32::from(first);
                            seen[1] += u32::from(second);
                        }
                    }
                }
            });
            let consent = ["--execute", "--reason", "a test", "--confirm", &at.name, "--out", &out];
            let run =
                at.lab.toll(&at.arguments(&dsn, &[&consent[..], &["--crossed-with", &crossed]].concat()));
            is_over.store(true, Ordering::Relaxed);
            run
        })
    });
    assert!(run.status.success(), "{}", output_text(&run));
    // Two reads are two moments: what is seen at both may have moved between them, once in a while.
    let [first, second, both] = *seen.lock().unwrap();
    assert!(first > 10 && second > 10 && both <= (first + second) / 10, "{first} {second} {both}");
    let result = read_result(&out);
    let outcomes = &arm(&result, "general-log")["outcomes"];
    let judged =
        if outcomes["users_response_us"].is_null() { "probe_response_us" } else { "users_response_us" };
    assert_eq!(outcomes[judged]["method"], "confidence-sequence", "{outcomes}");
    assert!(outcomes[judged]["baseline"]["mean"].as_f64().is_none_or(|us| us > 10.0), "{outcomes}");
    for name in ["breaker.json", "breaker-second.json"] {
        let breaker: Value =
            serde_json::from_str(&std::fs::read_to_string(Path::new(&out).join(name)).unwrap()).unwrap();
        assert!(breaker["drill"]["took_us"].is_u64() && breaker["trip"].is_null(), "{name}: {breaker}");
    }
    assert!(!at.is_on() && !is_on(&other));
    at.lab.assert_nothing_left();
}

#[test]
fn system_at_whichever_server_it_is_on_the_guards_switch_it_off_when_toll_is_killed() {
    let at = production();
    let other = second(&at);
    let crossed = other.dsn();
    with_users_of_both(&at, &other, || {
        for wanted in ["first", "second"] {
            let (out, words) = (at.lab.path(wanted), at.lab.path("said"));
            let execute = [
                "--server",
                &at.dsn,
                "--execute",
                "--reason",
                "a test",
                "--confirm",
                &at.name,
                "--out",
                &out,
            ];
            let arguments = [&GENERAL_LOG[..], &execute, &SHORT, &["--crossed-with", &crossed]].concat();
            let mut child = at.lab.spawn_with_stderr(&arguments, &words);
            at.wait_until("on", || {
                let ended = child.try_wait().unwrap();
                assert!(ended.is_none(), "{ended:?}: {}", std::fs::read_to_string(&words).unwrap());
                if wanted == "first" { at.is_on() } else { is_on(&other) }
            });
            send_signal(child.id(), "KILL");
            let _ = child.wait();
            at.wait_until("off", || !at.is_on() && !is_on(&other));
            assert!(at.lab.toll(&["clean"]).status.success());
        }
    });
    at.lab.assert_nothing_left();
}
