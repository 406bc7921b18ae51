//! Tests of `--exact`: real virtual machines, whose figures hold to a fraction of a percent on any host.
//!
//! Nothing here depends on what else the host does: the clock counts instructions.

use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};
use toll_testkit::lab::{Lab, arm, output_text, read_result};

/// Whether machines can be started here; a kernel is downloaded where none is at hand.
fn can_count() -> bool {
    let needed = ["qemu-system-x86_64", "busybox", "setpriv", "mariadbd", "tcpdump"];
    match needed.iter().find(|program| toll_testkit::find_program(program).is_none()) {
        Some(missing) => {
            toll_testkit::skip!("{missing} is missing");
            false
        }
        None => true,
    }
}

/// The prepared kernel is the user's: a cache of each test's own would be filled anew.
fn exact(lab: &Lab, arguments: &[&str], out: &str) -> Output {
    lab.toll(&[arguments, &["--exact", "--out", &lab.path(out)]].concat())
}

fn overhead_pct(result: &Value, name: &str) -> f64 {
    arm(result, name)["outcomes"]["qps"]["toll_pct"].as_f64().unwrap()
}

#[test]
fn counted_overheads_come_out_the_same_whatever_the_host_does() {
    if !can_count() {
        return;
    }
    let lab = toll_testkit::lab!();
    // Both CPUs are busy, and the run is none the worse for it.
    let busy: Vec<_> = (0..2).map(|_| lab.spawn(&["burn", "100%"])).collect();
    let arguments =
        ["run", "tcpdump-impact", "--arms", "none,none2,B,toll-packets", "--rounds", "6", "--seed", "1"];
    let ran = exact(&lab, &arguments, "run");
    for child in busy {
        lab.signal(&child, "TERM");
    }
    assert!(ran.status.success(), "{}", output_text(&ran));
    let result = read_result(&lab.path("run"));
    assert_eq!(result["host"]["counted"]["ns_per_instruction"], 1);
    let [again, tcpdump, packets] = ["none2", "B", "toll-packets"].map(|name| overhead_pct(&result, name));
    assert!(again.abs() < 0.3, "A/A {again}%\n{}", output_text(&ran));
    assert!((-15.0..-4.0).contains(&tcpdump), "tcpdump {tcpdump}%");
    assert!(packets < -0.3 && packets > tcpdump / 2.0, "toll capture -w {packets}%, tcpdump {tcpdump}%");
    lab.assert_nothing_left();
}

#[test]
fn nothing_is_left_of_a_run_that_was_interrupted_or_killed() {
    if !can_count() {
        return;
    }
    let lab = toll_testkit::lab!();
    let arguments = |out: &str| {
        ["run", "tcpdump-impact", "--exact", "--arms", "none,B", "--rounds", "2", "--out", out]
            .map(str::to_owned)
    };
    for (signal, after_ms) in [("INT", 300), ("INT", 9_000), ("KILL", 4_000), ("KILL", 14_000)] {
        let out = lab.path(&format!("{signal}-{after_ms}"));
        let words = arguments(&out);
        let mut child = lab.spawn(&words.each_ref().map(String::as_str));
        std::thread::sleep(Duration::from_millis(after_ms));
        lab.signal(&child, signal);
        child.wait().unwrap();
        let begun = Instant::now();
        while has_machine(&lab) {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "a machine outlives toll after {signal} at {after_ms} ms"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        if signal == "KILL" {
            let cleaned = lab.toll(&["clean"]);
            assert!(cleaned.status.success(), "{}", output_text(&cleaned));
        }
        assert!(!std::path::Path::new(&out).join("private").exists(), "{signal} at {after_ms} ms");
    }
    lab.assert_nothing_left();
}

/// A machine that shares a directory of this test's.
fn has_machine(lab: &Lab) -> bool {
    let of_test = lab.path("");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok()).any(|line| {
        let line = String::from_utf8_lossy(&line);
        line.contains("qemu-system") && line.contains(of_test.trim_end_matches('/'))
    })
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    if !can_count() {
        return;
    }
    let lab = toll_testkit::lab!();
    for (arguments, says) in [
        (vec!["--kernel", "no-such-kernel-package"], "no-such-kernel-package"),
        (vec!["--kernel", "/nowhere/vmlinuz"], "/nowhere/vmlinuz"),
        (vec!["--rows", "100000000"], "GB of memory"),
    ] {
        let refused =
            exact(&lab, &[&["run", "tcpdump-impact", "--rounds", "1"][..], &arguments].concat(), "refused");
        assert!(
            !refused.status.success() && output_text(&refused).contains(says),
            "{}",
            output_text(&refused)
        );
        assert!(!std::path::Path::new(&lab.path("refused")).exists());
    }
}
