//! Tests that every change is undone, whichever process died. With real processes and real kills.

use nix::sys::signal::Signal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use toll_journal::{CleanState, Credentials, Journal, Undo, clean, clean_run};
use toll_sys::process::{self, ProcessId, RUN_ID_VARIABLE};

const GRACE: Duration = Duration::from_millis(200);

fn dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("toll-test-").tempdir().expect("a directory")
}

fn none() -> Credentials {
    Credentials::default()
}

/// Simulates a kill of the process that wrote this journal: its owner becomes an ended process.
fn orphan(journal: Journal) {
    let mut ended = Command::new("true").spawn().expect("true");
    let owner = ProcessId::from_pid(ended.id() as i32).expect("not yet reaped");
    ended.wait().expect("ended");
    journal.transfer_to(owner).expect("handed over");
}

fn actions(dir: &Path, run_id: &str) -> Vec<String> {
    let cleaned = clean_run(dir, run_id).expect("a journal");
    let CleanState::Undone(undone) = cleaned.state else { panic!("{:?}", cleaned.state) };
    assert_eq!(undone.failures, [""; 0]);
    undone.actions
}

#[test]
fn a_process_that_ignores_its_signals_is_killed_and_said_to_be() {
    let dir = dir();
    let journal = Journal::begin_in(dir.path(), "ignores").expect("a journal");
    let mut deaf = Command::new("bash");
    deaf.args(["-c", "trap '' INT TERM; echo ready; sleep 600 & sleep 600; wait"]).stdout(Stdio::piped());
    let (mut child, _) = journal.spawn(&mut deaf, "deaf", Some(Signal::SIGINT), GRACE).expect("spawned");
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut ready).expect("ready");
    let reaper = std::thread::spawn(move || child.wait());
    let undone = journal.undo_all();
    assert!(undone.actions.iter().any(|a| a.contains("deaf: killed")), "{undone:?}");
    assert_eq!(process::find_by_run_id("ignores", &[]), []);
    reaper.join().expect("joined").expect("reaped");
}

#[test]
fn a_killed_owner_is_cleaned_up_after_and_a_living_one_is_left_alone() {
    let dir = dir();
    let file = dir.path().join("left/behind");
    let journal = Journal::begin_in(dir.path(), "owner").expect("a journal");
    journal.record(Undo::Path { path: file.clone() }).expect("recorded");
    std::fs::create_dir_all(&file).expect("made");
    let (child, _) = journal.spawn(Command::new("sleep").arg("600"), "sleep", None, GRACE).expect("spawned");
    let reaper = std::thread::spawn(move || { child }.wait());

    assert!(matches!(clean(dir.path(), false, &none()).expect("read")[0].state, CleanState::Running { .. }));
    assert!(file.exists());

    orphan(journal);
    let found = clean(dir.path(), true, &none()).expect("read");
    assert!(matches!(&found[0].state, CleanState::WouldUndo { changes } if changes.len() == 2), "{found:?}");
    assert!(file.exists(), "a dry run changes nothing");

    let said = actions(dir.path(), "owner");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(!file.exists());
    assert_eq!(process::find_by_run_id("owner", &[]), []);
    assert!(clean(dir.path(), false, &none()).expect("read").is_empty(), "the journal is gone");
    reaper.join().expect("joined").expect("reaped");
}

#[test]
fn a_process_that_never_got_into_the_journal_is_found_by_its_mark() {
    let dir = dir();
    let journal = Journal::begin_in(dir.path(), "unwritten").expect("a journal");
    let mut command = Command::new("sleep");
    let mut child =
        command.arg("600").env(RUN_ID_VARIABLE, "unwritten").process_group(0).spawn().expect("spawned");
    // Between fork and exec it still shows its parent's environment.
    while process::find_by_run_id("unwritten", &[]).is_empty() {
        std::thread::yield_now();
    }
    let reaper = std::thread::spawn(move || child.wait());
    orphan(journal);
    let said = actions(dir.path(), "unwritten");
    assert!(said[0].contains("by their mark"), "{said:?}");
    reaper.join().expect("joined").expect("reaped");
}

#[test]
fn a_pid_that_was_handed_out_again_is_left_alone() {
    let dir = dir();
    let journal = Journal::begin_in(dir.path(), "reused").expect("a journal");
    let mut stranger = Command::new("sleep").arg("600").process_group(0).spawn().expect("spawned");
    let real = ProcessId::from_pid(stranger.id() as i32).expect("running");
    let leader = ProcessId { start_ticks: real.start_ticks - 1, ..real };
    journal
        .record(Undo::ProcessGroup { leader, what: "gone".into(), signal: None, grace_ms: 100 })
        .expect("recorded");
    assert!(journal.undo_all().actions.is_empty());
    assert!(real.is_alive());
    stranger.kill().expect("killed");
    stranger.wait().expect("reaped");
}

#[test]
fn a_line_cut_short_by_a_crash_is_passed_over_and_the_rest_undone() {
    let dir = dir();
    let file = dir.path().join("sub/made");
    let journal = Journal::begin_in(dir.path(), "torn").expect("a journal");
    journal.record(Undo::Path { path: file.clone() }).expect("recorded");
    std::fs::create_dir_all(&file).expect("made");
    orphan(journal);
    let path = dir.path().join("torn.ndjson");
    let mut text = std::fs::read(&path).expect("read");
    text.extend_from_slice(br#"{"line":"change","id":1,"change":{"undo":"pa"#);
    std::fs::write(&path, text).expect("written");
    assert_eq!(actions(dir.path(), "torn").len(), 1);
    assert!(!file.exists());
}

#[test]
fn an_error_on_the_way_puts_everything_back() {
    let dir = dir();
    let file = dir.path().join("sub/made");
    let failing = || -> anyhow::Result<()> {
        let journal = Journal::begin_in(dir.path(), "failing")?;
        journal.record(Undo::Path { path: file.clone() })?;
        std::fs::create_dir_all(&file)?;
        anyhow::bail!("something else")
    };
    assert!(failing().is_err());
    assert!(!file.exists());
    assert!(!dir.path().join("failing.ndjson").exists());
}

#[test]
fn undoing_twice_finds_nothing_the_second_time() {
    let dir = dir();
    let file = dir.path().join("sub/made");
    let journal = Journal::begin_in(dir.path(), "twice").expect("a journal");
    let id = journal.record(Undo::Path { path: file.clone() }).expect("recorded");
    std::fs::create_dir_all(&file).expect("made");
    assert!(journal.undo(id).expect("undone").is_some());
    assert!(journal.undo(id).expect("undone").is_none());
    assert!(journal.undo_all().actions.is_empty());
}

#[test]
fn a_path_that_toll_would_never_make_is_not_removed() {
    for path in ["/", "/tmp", "relative/path", "/tmp/../etc/passwd"] {
        let dir = dir();
        let journal = Journal::begin_in(dir.path(), "paths").expect("a journal");
        journal.record(Undo::Path { path: path.into() }).expect("recorded");
        let undone = journal.undo_all();
        assert!(undone.failures.len() == 1 && undone.failures[0].contains("will not remove"), "{undone:?}");
    }
}

#[test]
fn a_full_disk_refuses_the_change_instead_of_losing_its_entry() {
    if !nix::unistd::geteuid().is_root() {
        toll_testkit::skip!("mounting a small file system needs root");
        return;
    }
    let dir = dir();
    let mount = |arguments: &[&str]| {
        let status = Command::new("mount").args(arguments).arg(dir.path()).stderr(Stdio::null()).status();
        status.is_ok_and(|s| s.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=16k", "tmpfs"]) {
        toll_testkit::skip!("cannot mount a tmpfs here");
        return;
    }
    let journal = Journal::begin_in(dir.path(), "full").expect("a journal");
    let refused = (0..10_000)
        .find_map(|n| journal.record(Undo::Path { path: format!("/tmp/toll-never-made/{n}").into() }).err());
    let unmounted = Command::new("umount").arg("--lazy").arg(dir.path()).status().expect("umount");
    assert!(unmounted.success());
    assert!(format!("{:#}", refused.expect("16 KiB are soon full")).contains("is the disk full?"));
}
