//! Tests of a dump, server or disk that fails midway: there is then no backup, and a clear error.

use super::{assert_success, files, fill, wait_until, whole_backups};
use crate::lab::{Lab, output_text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use toll_testkit::small_disk::SmallDisk;

/// A dump program like any other, with `script` in place of the dump of the rows.
fn program(lab: &Lab, name: &str, script: &str) -> String {
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*|*--routines*) exec mariadb-dump \"$@\";; esac\n{script}\n"
    );
    let path = lab.write(name, &text);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_dump_that_was_cut_short_or_killed_is_no_backup() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(2000, |sql| source.run(sql));
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let ends = [
        // It says 0, and lacks its end.
        ("cut", "mariadb-dump \"$@\" | head -c 300000; exit 0", "-- Dump completed"),
        // Its end is there, and it says that it failed.
        ("failed", "mariadb-dump \"$@\"; echo 'some table is crashed' >&2; exit 2", "some table is crashed"),
        ("killed", "mariadb-dump \"$@\" | head -c 300000; kill -9 $$", "signal: 9"),
        ("nothing", "exit 0", "-- Dump completed"),
    ];
    for (name, script, word) in ends {
        let program = program(&lab, name, script);
        let arguments =
            ["backup", "--server", &dsn, "--to", &store, "--git", &git, "--dump-program", &program];
        let output = lab.toll(&arguments);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", output_text(&output));
        assert!(output_text(&output).contains(word), "{name}: {}", output_text(&output));
        assert_eq!(whole_backups(&lab, &store), 0);
        let branches = Command::new("git").args(["-C", &git, "for-each-ref"]).output().unwrap();
        assert!(branches.stdout.is_empty(), "{name}: {}", output_text(&branches));
        lab.assert_nothing_left();
    }
    assert!(!files(&Path::new(&store).join("pieces")).is_empty(), "what had arrived is kept");
    assert_success(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git]));
    assert_eq!(whole_backups(&lab, &store), 1);
}

/// One whose dump is held in its first table until there is a file `go_on`.
fn held_program(lab: &Lab, go_on: &str) -> String {
    let script = format!(
        "pipe=$(mktemp -u) && mkfifo \"$pipe\"\n\
         (head -c 1000000; until [ -e {go_on} ]; do sleep 0.05; done; cat) < \"$pipe\" &\n\
         mariadb-dump \"$@\" > \"$pipe\"; status=$?\nwait; rm \"$pipe\"; exit $status"
    );
    program(lab, "held", &script)
}

#[test]
fn what_changes_during_a_dump_is_in_the_backup_as_it_was_when_the_dump_began() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(60_000, |sql| source.run(sql));
    source.run("CREATE TABLE shop.zz (id INT PRIMARY KEY, a VARCHAR(9))");
    source.run("INSERT INTO shop.zz VALUES (1, 'before'), (2, 'before')");
    let (store, go_on, dsn) = (lab.path("store"), lab.path("go-on"), source.dsn());
    let held = held_program(&lab, &go_on);
    let mut backup = lab.spawn(&["backup", "--server", &dsn, "--to", &store, "--dump-program", &held]);
    wait_until("the dump goes on", || !files(&Path::new(&store).join("pieces")).is_empty());
    source.run("UPDATE shop.zz SET a = 'after' WHERE id = 1");
    source.run("DELETE FROM shop.zz WHERE id = 2");
    source.run("INSERT INTO shop.zz VALUES (3, 'after')");
    std::fs::write(&go_on, "").unwrap();
    assert!(backup.wait().unwrap().success());
    let dump = lab.path("dump.sql");
    assert_success(lab.toll(&["backup", "restore", "--from", &store, "--output", &dump]));
    let dump = String::from_utf8_lossy(&std::fs::read(dump).unwrap()).into_owned();
    let rows: Vec<&str> = dump.lines().filter(|line| line.starts_with("INSERT INTO `zz`")).collect();
    assert_eq!(rows, ["INSERT INTO `zz` VALUES (1,'before');", "INSERT INTO `zz` VALUES (2,'before');"]);
}

#[test]
fn a_server_that_goes_away_or_a_table_that_is_altered_in_the_middle_is_told() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(60_000, |sql| source.run(sql));
    source.run("CREATE TABLE shop.zz (id INT PRIMARY KEY)");
    source.run("INSERT INTO shop.zz VALUES (1)");
    let (store, go_on, dsn) = (lab.path("store"), lab.path("go-on"), source.dsn());
    // Otherwise it may be done before its server goes away.
    let held = held_program(&lab, &go_on);
    let pieces = || files(&Path::new(&store).join("pieces")).len();
    let words = lab.path("words");
    let held_backup = || {
        lab.spawn_with_stderr(&["backup", "--server", &dsn, "--to", &store, "--dump-program", &held], &words)
    };

    let mut altered = held_backup();
    wait_until("the dump goes on", || pieces() > 0);
    source.run("ALTER TABLE shop.zz ADD COLUMN x INT, FORCE");
    std::fs::write(&go_on, "").unwrap();
    assert!(!altered.wait().unwrap().success(), "{}", std::fs::read_to_string(&words).unwrap());
    let told = std::fs::read_to_string(&words).unwrap();
    assert!(told.contains("definition has changed"), "{told}");
    assert_eq!(whole_backups(&lab, &store), 0);
    lab.assert_nothing_left();

    std::fs::remove_dir_all(&store).unwrap();
    std::fs::remove_file(&go_on).unwrap();
    let mut gone = held_backup();
    wait_until("the dump goes on", || pieces() > 0);
    source.signal("KILL");
    std::fs::write(&go_on, "").unwrap();
    assert!(!gone.wait().unwrap().success());
    let told = std::fs::read_to_string(&words).unwrap();
    // "Lost connection to server" within a query, "Server has gone away" between two.
    assert!(told.contains("the dump failed") && told.to_lowercase().contains("server"), "{told}");
    assert_eq!(whole_backups(&lab, &store), 0);
    lab.assert_nothing_left();
}

#[test]
fn a_full_disk_is_told_and_what_comes_after_makes_it_whole() {
    let lab = toll_testkit::lab!();
    let Some(disk) = SmallDisk::mount(lab.path("small"), "400k") else { return };
    let source = lab.start_server();
    fill(20_000, |sql| source.run(sql));
    let (store, dsn) = (lab.path("small/store"), source.dsn());
    let full = lab.toll(&["backup", "--server", &dsn, "--to", &store, "--retry-for", "5s"]);
    assert!(!full.status.success() && output_text(&full).contains("No space left"), "{}", output_text(&full));
    lab.assert_nothing_left();
    disk.resize("50m");
    assert_eq!(whole_backups(&lab, &store), 0);
    assert_success(lab.toll(&["backup", "--server", &dsn, "--to", &store]));
    assert_eq!(whole_backups(&lab, &store), 1);
    lab.assert_nothing_left();
}

#[test]
fn a_full_disk_below_git_is_told_in_its_words_and_leaves_no_report_of_a_crash() {
    let lab = toll_testkit::lab!();
    let Some(disk) = SmallDisk::mount(lab.path("small"), "400k") else { return };
    let source = lab.start_server();
    fill(20_000, |sql| source.run(sql));
    let (git, dsn) = (lab.path("small/repo.git"), source.dsn());
    let full = lab.toll(&["backup", "--server", &dsn, "--git", &git]);
    assert!(
        !full.status.success() && output_text(&full).contains("Out of diskspace"),
        "{}",
        output_text(&full)
    );
    let left = files(Path::new(&git));
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("crash")), "{left:?}");
    lab.assert_nothing_left();
    disk.resize("50m");
    assert_success(lab.toll(&["backup", "--server", &dsn, "--git", &git]));
    let fsck = Command::new("git").args(["-C", &git, "fsck"]).output().unwrap();
    assert!(fsck.status.success(), "{}", output_text(&fsck));
    lab.assert_nothing_left();
}
