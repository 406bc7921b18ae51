//! Tests that every change is undone, whichever process died. With real processes and real kills.

use nix::sys::signal::Signal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use toll_journal::{CleanState, Credentials, Journal, Undo, clean, clean_run};
use toll_sys::process::{self, ProcessId, RUN_ID_VARIABLE};
use toll_testkit::small_disk::SmallDisk;

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
    let dir = dir();
    let Some(disk) = SmallDisk::mount(dir.path(), "16k") else { return };
    let journal = Journal::begin_in(dir.path(), "full").expect("a journal");
    let filler = dir.path().join("filler");
    std::fs::write(&filler, [0; 4096]).expect("written");
    let refused = (0..10_000)
        .find_map(|n| journal.record(Undo::Path { path: format!("/tmp/toll-never-made/{n}").into() }).err());
    // There is room again, and the run goes on until it is killed.
    std::fs::remove_file(&filler).expect("removed");
    let later = self::dir();
    let made = later.path().join("made");
    let recorded = journal.record(Undo::Path { path: made.clone() });
    std::fs::create_dir(&made).expect("made");
    orphan(journal);
    let said = clean_run(dir.path(), "full").expect("a journal").state;
    drop(disk);
    assert!(format!("{:#}", refused.expect("16 KiB are soon full")).contains("is the disk full?"));
    recorded.expect("there is room again");
    assert!(matches!(&said, CleanState::Undone(undone) if undone.failures.is_empty()), "{said:?}");
    assert!(!made.exists(), "the change after the full disk was put back");
}

#[test]
fn a_line_that_cannot_be_read_hides_none_behind_it_and_is_reported() {
    for (unread, is_torn) in [
        (&br#"{"line":"change","id":7,"change":{"undo":"pa"#[..], true),
        // With the next one behind it, as earlier versions wrote it.
        (b"glue", true),
        (br#"{"line":"change","id":7,"change":{"undo":"of-a-later-version"}}"#, false),
    ] {
        let dir = dir();
        let (first, last) = (dir.path().join("made/first"), dir.path().join("made/last"));
        let journal = Journal::begin_in(dir.path(), "torn").expect("a journal");
        journal.record(Undo::Path { path: first.clone() }).expect("recorded");
        let path = dir.path().join("torn.ndjson");
        let mut text = std::fs::read(&path).expect("read");
        if unread == b"glue" {
            text.extend_from_slice(br#"{"line":"change","id":7,"cha"#);
        } else {
            text.extend_from_slice(unread);
            text.push(b'\n');
        }
        std::fs::write(&path, text).expect("written");
        journal.record(Undo::Path { path: last.clone() }).expect("recorded");
        for made in [&first, &last] {
            std::fs::create_dir_all(made).expect("made");
        }
        orphan(journal);
        let waiting = toll_journal::pending_runs(dir.path());
        assert_eq!((waiting.len(), waiting[0].changes.len()), (1, 2), "{waiting:?}");
        assert_eq!(waiting[0].unreadable.is_empty(), is_torn, "{waiting:?}");
        let cleaned = clean_run(dir.path(), "torn").expect("a journal").state;
        let CleanState::Undone(undone) = cleaned else { panic!("{cleaned:?}") };
        assert!(!first.exists() && !last.exists(), "{undone:?}");
        let said = if is_torn { &undone.actions } else { &undone.failures };
        assert!(said.iter().any(|line| line.contains("line 3 of its journal cannot be read")), "{undone:?}");
        assert_eq!((undone.failures.is_empty(), path.exists()), (is_torn, !is_torn), "{undone:?}");
    }
}

#[test]
fn a_journal_that_cannot_be_read_waits_and_is_reported() {
    let dir = dir();
    std::fs::write(dir.path().join("garbage.ndjson"), "no journal\n").expect("written");
    let waiting = toll_journal::pending_runs(dir.path());
    assert_eq!((waiting.len(), waiting[0].run_id.as_str()), (1, "garbage"));
    assert!(waiting[0].unreadable[0].contains("the first line of"), "{waiting:?}");
    let found = clean(dir.path(), false, &none()).expect("read");
    assert!(matches!(&found[0].state, CleanState::Unreadable { .. }), "{found:?}");
}

#[test]
fn a_journal_that_others_could_have_written_is_not_believed() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let dir = dir();
    let victim = dir.path().join("victim/precious");
    std::fs::create_dir_all(&victim).expect("made");
    let journals = dir.path().join("journals");
    let orphaned = |name: &str| {
        let journal = Journal::begin_in(&journals, name).expect("a journal");
        journal.record(Undo::Path { path: victim.clone() }).expect("recorded");
        orphan(journal);
        journals.join(format!("{name}.ndjson"))
    };
    let is_refused = |name: &str| {
        let cleaned = clean_run(&journals, name).expect("a journal").state;
        assert!(matches!(&cleaned, CleanState::Unreadable { .. }), "{cleaned:?}");
        assert!(victim.exists());
    };
    let writable = orphaned("writable");
    std::fs::set_permissions(&writable, std::fs::Permissions::from_mode(0o666)).expect("set");
    is_refused("writable");
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(orphaned("linked"), &elsewhere).expect("renamed");
    symlink(&elsewhere, journals.join("linked.ndjson")).expect("linked");
    is_refused("linked");
    if chown(orphaned("theirs"), Some(65_534), None).is_ok() {
        is_refused("theirs");
    } else {
        toll_testkit::skip!("making another user's journal needs root");
    }
    std::fs::set_permissions(&journals, std::fs::Permissions::from_mode(0o777)).expect("set");
    let refused = format!("{:#}", clean(&journals, false, &none()).expect_err("refused"));
    assert!(
        refused.contains("other users can write to it") && refused.contains("XDG_STATE_HOME"),
        "{refused}"
    );
    assert!(toll_journal::pending_runs(&journals)[0].unreadable[0].contains("other users"));
    assert!(Journal::begin_in(&journals, "new").is_err());
    assert!(victim.exists());
}
