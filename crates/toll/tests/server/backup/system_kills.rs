//! Tests of a backup killed at any moment: it leaves only pieces that the next backup uses.

use super::{assert_success, checksums, fill, json, rows_of, target, whole_backups};
use std::process::Command;
use std::time::{Duration, Instant};
use toll_stats::SeededRng;
use toll_testkit::lab::Lab;

const KILLS: u32 = 20;
/// Some end before their moment.
const ATTEMPTS_MAX: u32 = 200;

/// Kills a command at a moment drawn from the time that it takes. False: it had ended before, and `whole` is what it took.
fn kill_at_random(lab: &Lab, arguments: &[&str], whole: &mut Duration, draws: &mut SeededRng) -> bool {
    let moment = whole.mul_f64(draws.next_fraction()).max(Duration::from_millis(1));
    let begun = Instant::now();
    let mut child = lab.spawn(arguments);
    while begun.elapsed() < moment {
        if child.try_wait().unwrap().is_some() {
            *whole = begun.elapsed();
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    lab.signal_if_alive(&mut child, "KILL");
    child.wait().unwrap().code().is_none()
}

#[test]
fn sigkill_at_twenty_random_moments_leaves_no_half_backup_and_the_next_one_goes_on() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(30_000, |sql| source.run(sql));
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let arguments = ["backup", "--server", &dsn, "--to", &store, "--git", &git];
    // How long one takes here, without leaving anything for those that follow.
    let begun = Instant::now();
    let (trial_store, trial_git) = (lab.path("trial"), lab.path("trial.git"));
    assert_success(lab.toll(&["backup", "--server", &dsn, "--to", &trial_store, "--git", &trial_git]));
    let mut whole = begun.elapsed();
    let mut draws = SeededRng::new(std::process::id().into(), 0);
    let mut killed = 0;
    for number in 0..ATTEMPTS_MAX {
        // Another row each time, so that there is always something to do.
        source.run(&format!("UPDATE shop.orders SET price = price + 1 WHERE id MOD 1000 = {number}"));
        killed += u32::from(kill_at_random(&lab, &arguments, &mut whole, &mut draws));
        assert_success(lab.toll(&["clean"]));
        lab.assert_nothing_left();
        whole_backups(&lab, &store);
        let fsck = Command::new("git").args(["-C", &git, "fsck", "--no-dangling"]).output().unwrap();
        assert!(fsck.status.success() || !std::path::Path::new(&git).join("HEAD").exists(), "{fsck:?}");
        if killed == KILLS {
            break;
        }
    }
    assert_eq!(killed, KILLS, "killed before their end");
    let taken = json(lab.toll(&[&arguments[..], &["--keep", "1", "--json"]].concat()));
    assert_eq!(taken["warnings"], serde_json::json!([]), "{taken}");
    assert_eq!(whole_backups(&lab, &store), 1);
    let left = super::files(std::path::Path::new(&store));
    let pieces = taken["pruned"]["pieces_left"].as_u64().unwrap() as usize;
    assert_eq!(left.len(), pieces + 1, "nothing but the pieces and the manifest: {left:?}");
    let broken_off = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.contains("crash") || name.starts_with("tmp_")
    };
    assert_eq!(super::files(std::path::Path::new(&git)).iter().find(broken_off), None);
    for from in [["--from", &store], ["--git", &git]] {
        let verified = json(lab.toll(&[&["backup", "verify", "--json"], &from[..]].concat()));
        assert_eq!(verified["differences"], serde_json::json!([]));
    }
    lab.assert_nothing_left();
}

#[test]
fn a_restore_killed_at_twenty_random_moments_leaves_nothing_and_can_be_repeated() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(20_000, |sql| source.run(sql));
    let (store, dsn) = (lab.path("store"), source.dsn());
    assert_success(lab.toll(&["backup", "--server", &dsn, "--to", &store]));
    let expected = checksums(rows_of(&target(&source)));
    let other = toll_testkit::lab!();
    let onto = other.start_server();
    let dsn = onto.dsn();
    let arguments = ["backup", "restore", "--yes", "--overwrite", "--server", &dsn, "--from", &store];
    let begun = Instant::now();
    assert_success(lab.toll(&arguments));
    let mut whole = begun.elapsed();
    let mut draws = SeededRng::new(std::process::id().into(), 0);
    let mut killed = 0;
    for _ in 0..ATTEMPTS_MAX {
        killed += u32::from(kill_at_random(&lab, &arguments, &mut whole, &mut draws));
        assert_success(lab.toll(&["clean"]));
        lab.assert_nothing_left();
        if killed == KILLS {
            break;
        }
    }
    assert_eq!(killed, KILLS, "killed before their end");
    assert_success(lab.toll(&arguments));
    assert_eq!(checksums(rows_of(&target(&onto))), expected);
    lab.assert_nothing_left();
}

#[test]
fn a_backup_that_is_interrupted_ends_in_good_order() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(60_000, |sql| source.run(sql));
    let (store, dsn, words) = (lab.path("store"), source.dsn(), lab.path("words"));
    for signal in ["INT", "TERM"] {
        let _ = std::fs::remove_dir_all(&store);
        let mut child = lab.spawn_with_stderr(&["backup", "--server", &dsn, "--to", &store], &words);
        super::wait_until("the dump goes on", || {
            super::files(&std::path::Path::new(&store).join("pieces")).len() > 3
        });
        lab.signal(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let told = std::fs::read_to_string(&words).unwrap();
        assert!(told.contains("interrupted"), "{told}");
        assert_eq!(whole_backups(&lab, &store), 0);
        assert!(super::files(&std::path::Path::new(&store).join("running")).is_empty());
        lab.assert_nothing_left();
    }
}
