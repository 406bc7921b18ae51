//! Tests of silent data loss and disclosure. Each of these once happened.

use super::{
    assert_success, files, fill, json, json_of_incomplete, rows_of, target, wait_until, whole_backups,
};
use crate::lab::{ForeignServer, Lab, output_text};
use std::path::Path;
use std::process::Command;

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", output_text(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// True if the server has a connection that matches `what`.
fn has(server: &ForeignServer, what: &str) -> bool {
    !server.rows(&format!("SELECT id FROM information_schema.processlist WHERE {what}")).is_empty()
}

#[test]
fn system_a_restore_that_waits_for_longer_than_the_server_usually_does_comes_out_whole() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(60_000, |sql| source.run(sql));
    let (store, words) = (lab.path("store"), lab.path("words"));
    assert_success(lab.toll(&["backup", "--server", &source.dsn(), "--to", &store]));
    let other = toll_testkit::lab!();
    let onto = other.start_server();
    onto.run("SET GLOBAL wait_timeout = 1");
    let mut child = lab.spawn_with_stderr(
        &["backup", "restore", "--yes", "--from", &store, "--server", &onto.dsn()],
        &words,
    );
    wait_until("rows arrive", || {
        let inserts = "variable_name = 'COM_INSERT' AND variable_value > 1000";
        !onto.rows(&format!("SELECT 1 FROM information_schema.global_status WHERE {inserts}")).is_empty()
    });
    lab.signal(&child, "STOP");
    wait_until("it has waited", || {
        has(&onto, "db = 'shop' AND command = 'Sleep' AND time > 2") || !has(&onto, "db = 'shop'")
    });
    lab.signal(&child, "CONT");
    let ended = child.wait().unwrap();
    assert!(ended.success(), "{}", std::fs::read_to_string(&words).unwrap());
    assert!(onto.rows("SELECT COUNT(*) FROM shop.orders").contains("60000"));
    lab.assert_nothing_left();
}

#[test]
fn no_statement_of_a_backup_has_the_client_send_files_of_this_host() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    source.run("CREATE DATABASE d");
    source.run("CREATE TABLE d.t (a VARCHAR(99))");
    let secret = lab.write("secret", "geheim\n");
    // A dump as somebody may have put it into the store.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*|*--routines*) exec mariadb-dump \"$@\";; esac\n\
         mariadb-dump \"$@\" | sed \"s|^.*SET TIME_ZONE=@OLD_TIME_ZONE.*|LOAD DATA LOCAL INFILE '{secret}' INTO TABLE d.t;|\"\n"
    );
    let program = lab.write("program", &script);
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let store = lab.path("store");
    assert_success(lab.toll(&[
        "backup",
        "--server",
        &source.dsn(),
        "--to",
        &store,
        "--dump-program",
        &program,
    ]));
    let other = toll_testkit::lab!();
    let onto = other.start_server();
    let refused = lab.toll(&["backup", "restore", "--yes", "--from", &store, "--server", &onto.dsn()]);
    assert!(
        !refused.status.success() && output_text(&refused).contains("LOAD DATA LOCAL"),
        "{}",
        output_text(&refused)
    );
    assert_eq!(onto.rows("SELECT * FROM d.t"), "");
}

#[test]
fn what_rows_once_were_comes_back_too_where_the_table_keeps_it() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    source.run("CREATE DATABASE d");
    source.run("CREATE TABLE d.t (id INT PRIMARY KEY, a TEXT) WITH SYSTEM VERSIONING");
    source.run(
        "CREATE TABLE d.u (id INT PRIMARY KEY, a INT, f TIMESTAMP(6) GENERATED ALWAYS AS ROW START, \
         t TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (f, t)) WITH SYSTEM VERSIONING",
    );
    source.run("CREATE TABLE d.plain (id INT PRIMARY KEY)");
    source.run("CREATE SEQUENCE d.s START WITH 7 INCREMENT BY 3 NOCACHE");
    source.run("DO NEXTVAL(d.s)");
    for sql in [
        "INSERT INTO d.t VALUES (1, 'first'), (2, 'gone')",
        "UPDATE d.t SET a = 'second' WHERE id = 1",
        "DELETE FROM d.t WHERE id = 2",
        "INSERT INTO d.u (id, a) VALUES (1, 1), (2, 1)",
        "UPDATE d.u SET a = 2 WHERE id = 1",
        "INSERT INTO d.plain VALUES (1)",
    ] {
        source.run(sql);
    }
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let taken = json(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git, "--json"]));
    assert_eq!((&taken["warnings"], &taken["rows"]), (&serde_json::json!([]), &7.into()), "{taken}");
    let again = json(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git, "--json"]));
    assert_eq!(
        (&again["stored"]["new_pieces"], &again["git"]["unchanged"]),
        (&0.into(), &true.into()),
        "{again}"
    );
    let all = |server: &ForeignServer| {
        let login = target(server);
        let mut rows = rows_of(&login);
        let history = [("t", "row_start, row_end"), ("u", "f, t")].map(|(table, period)| {
            rows(&format!("SELECT *, {period} FROM d.{table} FOR SYSTEM_TIME ALL ORDER BY 1, 2"))
        });
        (history, rows("SELECT NEXTVAL(d.s)"))
    };
    let verified = json(lab.toll(&["backup", "verify", "--json", "--from", &store]));
    assert_eq!(verified["differences"], serde_json::json!([]), "{verified}");
    let other = toll_testkit::lab!();
    let onto = other.start_server();
    assert_success(lab.toll(&["backup", "restore", "--yes", "--from", &store, "--server", &onto.dsn()]));
    assert_eq!(all(&onto), all(&source));

    // A program that cannot dump it leaves it out, and that is said.
    let old = lab.write(
        "old",
        "#!/bin/sh\ncase \"$*\" in *--version*) echo 'mysqldump  Ver 10.19 Distrib 10.6.20-MariaDB';; \
         *) exec mariadb-dump \"$@\";; esac\n",
    );
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let taken = json_of_incomplete(lab.toll(&[
        "backup",
        "--server",
        &dsn,
        "--to",
        &store,
        "--dump-program",
        &old,
        "--json",
    ]));
    assert!(taken["warnings"].to_string().contains("their history rows"), "{taken}");
    lab.assert_nothing_left();
}

#[test]
fn what_an_account_may_not_see_is_missing_from_its_backup_and_that_is_told() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(10, |sql| source.run(sql));
    source.run("CREATE USER b@localhost");
    source.run("GRANT SELECT, SHOW VIEW, LOCK TABLES, EVENT ON *.* TO b@localhost");
    let (store, dsn) = (lab.path("store"), source.dsn().replace("root@", "b@"));
    let taken = json_of_incomplete(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--json"]));
    let warnings = taken["warnings"].to_string();
    assert!(warnings.contains("b@localhost may not see the triggers of 2 schemas"), "{taken}");
    assert_eq!(whole_backups(&lab, &store), 1, "it is a backup, of what could be seen");
    source.run("GRANT TRIGGER ON *.* TO b@localhost");
    let taken = json(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--json"]));
    assert_eq!(taken["warnings"], serde_json::json!([]), "{taken}");
    // By a role, too.
    source.run("CREATE ROLE dumps");
    source.run("GRANT SELECT, SHOW VIEW, LOCK TABLES, EVENT, TRIGGER ON *.* TO dumps");
    source.run("CREATE USER c@localhost");
    source.run("GRANT dumps TO c@localhost");
    source.run("SET DEFAULT ROLE dumps FOR c@localhost");
    let dsn = source.dsn().replace("root@", "c@");
    let taken = json(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--json"]));
    assert_eq!(taken["warnings"], serde_json::json!([]), "{taken}");
    // A server hides whole schemas, too.
    source.run("CREATE USER d@localhost");
    source.run("GRANT ALL ON shop.* TO d@localhost");
    source.run("GRANT SELECT ON mysql.proc TO d@localhost");
    let dsn = source.dsn().replace("root@", "d@");
    let taken = json_of_incomplete(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--json"]));
    assert_eq!(taken["warnings"].as_array().unwrap().len(), 1, "{taken}");
    assert!(taken["warnings"].to_string().contains("sees only schemas it has privileges on"), "{taken}");
    let named = ["backup", "--server", &dsn, "--to", &store, "--schema", "shop", "--json"];
    assert_eq!(json(lab.toll(&named))["warnings"], serde_json::json!([]));
    // What every dump of such tables lacks is said, and is no failure.
    source.run("CREATE TABLE shop.f (a FLOAT) ENGINE = MyISAM");
    let taken = json(lab.toll(&named));
    assert_eq!(taken["notes"].as_array().unwrap().len(), 2, "{taken}");
}

#[test]
fn what_is_said_of_a_damaged_piece_mends_the_backups_that_hold_it() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(2_000, |sql| source.run(sql));
    let (store, dsn) = (lab.path("store"), source.dsn());
    let (backup, verify) =
        (["backup", "--server", &dsn, "--to", &store], ["backup", "verify", "--from", &store]);
    assert_success(lab.toll(&backup));
    let pieces = files(&Path::new(&store).join("pieces"));
    std::fs::write(&pieces[pieces.len() / 2], b"rotten").unwrap();
    let told = output_text(&lab.toll(&verify));
    let object = told.split("remove ").nth(1).and_then(|rest| rest.split(' ').next()).expect("what to do");
    std::fs::remove_file(Path::new(&store).join(object)).unwrap();
    assert_success(lab.toll(&backup));
    // Both, the older one by name.
    assert_success(lab.toll(&verify));
    let listed = json(lab.toll(&["backup", "list", "--from", &store, "--json"]));
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let oldest = listed[0]["id"].as_str().unwrap();
    assert_success(lab.toll(&["backup", "verify", "--from", &store, oldest]));
}

#[test]
fn a_restore_that_waits_for_a_lock_is_ended_by_a_signal() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(30_000, |sql| source.run(sql));
    let (store, words) = (lab.path("store"), lab.path("words"));
    assert_success(lab.toll(&["backup", "--server", &source.dsn(), "--to", &store]));
    let mut other = toll_mysql::Connection::connect(&target(&source)).unwrap();
    for sql in ["START TRANSACTION", "SELECT COUNT(*) FROM shop.empty", "SELECT COUNT(*) FROM shop.orders"] {
        other.query(sql).unwrap();
    }
    let restore = ["backup", "restore", "--from", &store, "--server", &source.dsn(), "--overwrite"];
    let mut child = lab.spawn_with_stderr(&restore, &words);
    wait_until("it waits for the lock", || has(&source, "state LIKE '%metadata lock%'"));
    lab.signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", std::fs::read_to_string(&words).unwrap());
    lab.assert_nothing_left();
}

#[test]
fn servers_and_schemas_that_share_a_store_each_keep_their_latest() {
    let lab = toll_testkit::lab!();
    let others = toll_testkit::lab!();
    let [one, other] = [lab.start_server(), others.start_server()];
    let store = lab.path("store");
    let take = |server: &ForeignServer, more: &[&str]| {
        let dsn = server.dsn();
        let arguments =
            [&["backup", "--server", &dsn, "--to", &store, "--keep", "1", "--json"], more].concat();
        json(lab.toll(&arguments))["pruned"]["backups"].as_array().unwrap().len()
    };
    for server in [&one, &other] {
        server.run("CREATE DATABASE d");
        server.run("CREATE TABLE d.t (a INT)");
    }
    assert_eq!([take(&one, &[]), take(&other, &[]), take(&one, &["--schema", "d"])], [0, 0, 0]);
    assert_eq!([take(&one, &[]), take(&other, &[])], [1, 1]);
    assert_eq!(whole_backups(&lab, &store), 3);
}

#[test]
fn a_row_that_the_server_would_not_take_is_told_before_anything_is_restored() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    source.run("CREATE DATABASE d");
    source.run("CREATE TABLE d.t (id INT PRIMARY KEY, a LONGBLOB)");
    // Half of what the server takes, and as digits all of it.
    source.run("INSERT INTO d.t VALUES (1, REPEAT('x', 9000000))");
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    assert_success(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git]));
    let other = toll_testkit::lab!();
    let onto = other.start_server();
    for from in [["--from", &store], ["--git", &git]] {
        let refused =
            lab.toll(&[&["backup", "restore", "--yes", "--server", &onto.dsn()], &from[..]].concat());
        assert!(
            output_text(&refused).contains("SET GLOBAL max_allowed_packet = 18874368"),
            "{}",
            output_text(&refused)
        );
        assert_eq!(onto.rows("SHOW DATABASES LIKE 'd'"), "");
    }
    onto.run("SET GLOBAL max_allowed_packet = 18874368");
    assert_success(lab.toll(&["backup", "restore", "--yes", "--from", &store, "--server", &onto.dsn()]));
    assert!(onto.rows("SELECT LENGTH(a) FROM d.t").contains("9000000"));
}

#[test]
fn a_restore_into_a_file_that_breaks_off_leaves_none() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(3000, |sql| source.run(sql));
    let (store, file) = (lab.path("store"), lab.path("dump.sql"));
    assert_success(lab.toll(&["backup", "--server", &source.dsn(), "--to", &store]));
    for piece in files(&Path::new(&store).join("pieces")).iter().skip(3) {
        std::fs::write(piece, b"damaged").unwrap();
    }
    let broken = lab.toll(&["backup", "restore", "--from", &store, "--output", &file]);
    assert!(
        !broken.status.success() && output_text(&broken).contains("is damaged"),
        "{}",
        output_text(&broken)
    );
    let dir = std::fs::read_dir(Path::new(&file).parent().unwrap()).unwrap();
    let names: Vec<_> = dir.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with("dump.sql")), "{names:?}");
}

/// A repository of the user's, with a branch of his and an unreferenced commit.
fn repository(lab: &Lab) -> (String, String) {
    let dir = lab.path("work");
    let git = format!("git -C {dir} -c user.name=x -c user.email=x");
    let lost = sh(&format!(
        "git init -q -b main {dir}; echo precious > {dir}/file; {git} add file; {git} commit -qm one; \
         lost=$({git} commit-tree -m lost HEAD^{{tree}}); \
         echo $lost | {git} pack-objects -q {dir}/.git/objects/pack/pack > /dev/null; {git} prune-packed -q; \
         {git} repack -q; echo $lost"
    ));
    (dir, lost)
}

#[test]
fn a_repository_of_the_users_loses_nothing_and_runs_nothing() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(10, |sql| source.run(sql));
    let (dir, lost) = repository(&lab);
    let ran = lab.path("ran");
    for hook in ["reference-transaction", "post-update", "pre-auto-gc"] {
        let path = format!("{dir}/.git/hooks/{hook}");
        std::fs::write(&path, format!("#!/bin/sh\ntouch {ran}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let dsn = source.dsn();
    let main = sh(&format!("git -C {dir} rev-parse main"));
    let refused = lab.toll(&["backup", "--server", &dsn, "--git", &dir, "--git-branch", "main"]);
    assert!(
        output_text(&refused).contains("contains commits other than backups"),
        "{}",
        output_text(&refused)
    );
    assert_eq!(sh(&format!("git -C {dir} rev-parse main")), main);
    assert_success(lab.toll(&["backup", "--server", &dsn, "--git", &dir]));
    assert_success(lab.toll(&["backup", "--server", &dsn, "--git", &dir]));
    sh(&format!("git -C {dir} cat-file -e {lost}"));
    assert!(!Path::new(&ran).exists(), "a hook ran");
    lab.assert_nothing_left();
}

#[test]
fn a_repository_of_somebody_elses_fetches_nothing_when_a_backup_is_read_from_it() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(10, |sql| source.run(sql));
    let (git, ran) = (lab.path("repo.git"), lab.path("ran"));
    assert_success(lab.toll(&["backup", "--server", &source.dsn(), "--git", &git]));
    // What lacks is to be fetched from a remote, which is a program.
    sh(&format!(
        "cd {git}; blob=$(git rev-parse toll-backup:backup.json); mkdir old; mv objects/pack/* old; \
         for pack in old/*.pack; do git unpack-objects -q < $pack; done; \
         rm -f objects/$(echo $blob | sed 's|^..|&/|'); git config core.repositoryFormatVersion 1; \
         git config extensions.partialClone evil; git config remote.evil.promisor true; \
         git config remote.evil.url 'ext::touch {ran}'; git config protocol.ext.allow always"
    ));
    let broken = lab.toll(&["backup", "restore", "--git", &git, "--output", &lab.path("dump.sql")]);
    assert!(!broken.status.success(), "{}", output_text(&broken));
    assert!(!Path::new(&ran).exists(), "a program of the repository's own ran");
}

#[test]
fn what_is_encrypted_in_the_store_is_not_in_git_and_that_is_told() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(10, |sql| source.run(sql));
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let phrase = lab.write_secret("phrase", "a passphrase\n");
    let arguments =
        ["backup", "--server", &dsn, "--to", &store, "--git", &git, "--passphrase-file", &phrase, "--json"];
    let taken = json(lab.toll(&arguments));
    assert!(taken["notes"].to_string().contains("the git repository is not encrypted"), "{taken}");
}

#[test]
fn whoever_is_new_is_told_what_to_say() {
    let lab = toll_testkit::lab!();
    for (arguments, code, expected) in [
        (&["backup"][..], 2, "--server is required"),
        (&["backup", "--server", "x"], 2, "a destination is required: --to"),
        (&["backup", "--help"], 0, "toll backup verify --from /srv/backups"),
        (&["throttle", "--help"], 0, "Examples:"),
        (&["backup", "list", "--from", "/no/such/folder"], 1, "there is none; name one that holds backups"),
    ] {
        let output = lab.toll(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(expected), "{arguments:?}: {}", output_text(&output));
    }
}
