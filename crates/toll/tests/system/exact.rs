//! Tests of `--exact`: real virtual machines, whose figures hold to a fraction of a percent on any host.
//!
//! Nothing here depends on what else the host does: the clock counts instructions.

use serde_json::Value;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use toll_testkit::lab::{Lab, arm, output_text, read_result};
use toll_testkit::small_disk::SmallDisk;

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

fn optimised_program() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("release").join("toll")
}

/// For the optimised program: what instructions it takes is asked. `None`, with a reason: it was not built.
pub fn optimised() -> Option<Lab> {
    let (shared, program) = (env!("CARGO_TARGET_TMPDIR"), optimised_program());
    if !program.exists() {
        toll_testkit::skip!("{} is missing: make build", program.display());
        return None;
    }
    can_count().then(|| Lab::of(&program.display().to_string(), shared))
}

/// The prepared kernel is the user's: a cache of each test's own would be filled anew.
fn exact(lab: &Lab, arguments: &[&str], out: &str) -> Output {
    lab.toll(&[arguments, &["--exact", "--out", &lab.path(out)]].concat())
}

fn overhead_pct(result: &Value, name: &str) -> f64 {
    arm(result, name)["outcomes"]["cpu_us_per_query"]["toll_pct"].as_f64().unwrap()
}

/// Other programs of the host that want a CPU each, at the ordinary priority. They end with the test.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start(count: usize) -> Self {
        let spin = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..count).map(spin).collect())
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended with the test's own process group.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn counted_overheads_come_out_the_same_whatever_the_host_does() {
    let Some(lab) = optimised() else { return };
    // Both CPUs are busy, and the run is none the worse for it.
    let _busy = BusyLoops::start(2);
    let arguments = [
        "run",
        "tcpdump-impact",
        "--profile",
        "quick",
        "--arms",
        "baseline,baseline-again,tcpdump-file,toll-packets",
        "--rounds",
        "2",
    ];
    let counted = ["1", "2"].map(|seed| {
        let ran = exact(&lab, &[&arguments[..], &["--seed", seed]].concat(), seed);
        assert!(ran.status.success(), "{}", output_text(&ran));
        read_result(&lab.path(seed))
    });
    for result in &counted {
        assert_eq!(result["host"]["counted"]["ns_per_instruction"], 1);
        assert_eq!(result["primary"], "cpu_us_per_query");
        let [again, tcpdump, packets] =
            ["baseline-again", "tcpdump-file", "toll-packets"].map(|name| overhead_pct(result, name));
        assert!(again.abs() < 0.2, "A/A {again}%");
        assert!((2.0..10.0).contains(&tcpdump), "tcpdump {tcpdump}%");
        assert!(packets > 0.3 && packets < tcpdump / 2.0, "toll capture -w {packets}%, tcpdump {tcpdump}%");
    }
    for name in ["tcpdump-file", "toll-packets"] {
        let [one, other] = counted.each_ref().map(|result| overhead_pct(result, name));
        assert!((one - other).abs() < 0.3, "{name}: {one}% and {other}%");
    }
    lab.assert_nothing_left();
}

#[test]
fn an_ordinary_user_counts_and_has_the_run_and_its_own_state() {
    let Some(lab) = optimised() else { return };
    if !lab.is_root {
        toll_testkit::skip!("becoming another user needs root");
        return;
    }
    // A prepared kernel of the user's own: to download one takes longer than to count.
    let home = tempfile::tempdir().unwrap();
    let words = format!(
        "mkdir -p {0}/.cache/toll && cp -r {1}/cache/toll/vm {0}/.cache/toll/ && chown -R 65534:65534 {0}",
        home.path().display(),
        env!("CARGO_TARGET_TMPDIR")
    );
    assert!(Command::new("sh").args(["-c", &words]).status().unwrap().success(), "a prepared kernel");
    let out = home.path().join("run").display().to_string();
    let arguments = ["--reuid=65534", "--regid=65534", "--clear-groups", "--", "env", "-u", "XDG_STATE_HOME"];
    let ran = Command::new("setpriv")
        .args(arguments)
        .arg(format!("HOME={}", home.path().display()))
        .arg(format!("TOLL_LOCK_DIR={}", home.path().display()))
        .arg(optimised_program())
        .args(["cost", "--exact", "--rounds", "2", "--seed", "1", "--out", &out, "--", "sleep", "1000"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", output_text(&ran));
    let overhead = overhead_pct(&read_result(&out), "command");
    assert!(overhead.abs() < 0.3, "sleep {overhead}%");
    lab.assert_nothing_left();
}

#[test]
fn nothing_is_left_of_a_run_that_was_interrupted_or_killed() {
    if !can_count() {
        return;
    }
    let lab = toll_testkit::lab!();
    let mut draws = toll_stats::SeededRng::new(std::process::id().into(), 0);
    for signal in ["INT", "KILL", "QEMU"] {
        for number in 0..10 {
            let after_ms = u64::from(draws.below(20_000));
            let what = format!("{signal} {number}, at {after_ms} ms");
            end_after(&lab, signal, after_ms, &lab.path(&format!("{signal}-{number}")), &what);
        }
    }
    lab.assert_nothing_left();
}

#[test]
fn a_full_disk_ends_a_run_with_its_reason_and_leaves_nothing_behind() {
    if !can_count() {
        return;
    }
    let lab = toll_testkit::lab!();
    let Some(disk) = SmallDisk::mount(lab.path("small"), "200k") else { return };
    let words = ["run", "tcpdump-impact", "--profile", "quick", "--arms", "tcpdump-file", "--rounds", "2"];
    let full = exact(&lab, &words, "small/run");
    assert!(!full.status.success() && output_text(&full).contains("No space left"), "{}", output_text(&full));
    assert!(!std::path::Path::new(&lab.path("small/run")).exists(), "{}", output_text(&full));
    assert_eq!(machine_of(&lab), None);
    lab.assert_nothing_left();
    drop(disk);
}

/// Begins a run, sends it, or one of its machines, a signal, and looks for what is left.
fn end_after(lab: &Lab, signal: &str, after_ms: u64, out: &str, what: &str) {
    let words =
        ["run", "tcpdump-impact", "--profile", "quick", "--exact", "--arms", "tcpdump-file", "--rounds", "2"];
    let mut child = lab.spawn(&[&words[..], &["--out", out]].concat());
    std::thread::sleep(Duration::from_millis(after_ms));
    match (signal, machine_of(lab)) {
        #[allow(clippy::disallowed_methods, reason = "a machine of this test's run")]
        ("QEMU", Some(pid)) => {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        // No machine yet, or none any more.
        ("QEMU", None) => lab.signal(&child, "INT"),
        _ => lab.signal(&child, signal),
    }
    let status = child.wait().unwrap();
    assert!(!status.success(), "{what}: {status}");
    let begun = Instant::now();
    while machine_of(lab).is_some() {
        assert!(begun.elapsed() < Duration::from_secs(10), "a machine outlives toll: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    if signal == "KILL" {
        let cleaned = lab.toll(&["clean"]);
        assert!(cleaned.status.success(), "{what}: {}", output_text(&cleaned));
    }
    assert!(!std::path::Path::new(out).join("private").exists(), "{what}");
}

/// A machine that shares a directory of this test's.
fn machine_of(lab: &Lab) -> Option<i32> {
    let of_test = lab.path("");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, String::from_utf8_lossy(&line).into_owned()))
        })
        .find(|(_, line)| line.contains("qemu-system") && line.contains(of_test.trim_end_matches('/')))
        .map(|(pid, _)| pid)
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
