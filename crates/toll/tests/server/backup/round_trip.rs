//! Tests of backup and restore on MariaDB.

use super::{assert_success, checksums, files, fill, json, rows_of, target, whole_backups};
use crate::lab::output_text;
use age::secrecy::ExposeSecret;
use std::path::Path;

#[test]
fn a_server_restored_from_a_folder_or_from_git_equals_its_source() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(4000, |sql| source.run(sql));
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let take = || json(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git, "--json"]));
    let taken = take();
    assert_eq!((taken["rows"].as_u64(), taken["tables"].as_u64()), (Some(4005), Some(4)), "{taken}");
    assert!(taken["cost"]["upload"]["cpu_s"].as_f64().unwrap() > 0.0, "{taken}");
    let again = take();
    assert_eq!(
        (&again["stored"]["new_pieces"], &again["git"]["unchanged"]),
        (&0.into(), &true.into()),
        "{again}"
    );
    assert_eq!(taken["git"]["commit"], again["git"]["commit"]);
    source.run("UPDATE shop.orders SET price = price + 1 WHERE id MOD 100 = 7");
    let expected = checksums(rows_of(&target(&source)));
    let changed = take();
    let bytes = |taken: &serde_json::Value, when: &str| taken["git"][when].as_u64().unwrap();
    let grown = bytes(&changed, "repository_bytes") - bytes(&changed, "repository_bytes_before");
    assert!(grown * 20 < bytes(&taken, "repository_bytes"), "40 rows of 4000 took {grown} bytes: {changed}");

    for from in [["--from", &store], ["--git", &git]] {
        let other = toll_testkit::lab!();
        let restored = other.start_server();
        let onto = restored.dsn();
        assert_success(lab.toll(&[&["backup", "restore", "--yes", "--server", &onto], &from[..]].concat()));
        assert_eq!(checksums(rows_of(&target(&restored))), expected, "{from:?}");
        // Its tables are not written over, unless that is said.
        restored.run("DELETE FROM shop.lines");
        let refused = lab.toll(&[&["backup", "restore", "--yes", "--server", &onto], &from[..]].concat());
        assert!(
            !refused.status.success() && output_text(&refused).contains("--overwrite"),
            "{}",
            output_text(&refused)
        );
        assert!(restored.rows("SELECT COUNT(*) FROM shop.lines").contains('0'));
        assert_success(
            lab.toll(
                &[&["backup", "restore", "--yes", "--overwrite", "--server", &onto], &from[..]].concat(),
            ),
        );
        assert_eq!(checksums(rows_of(&target(&restored))), expected, "{from:?}");
    }
    lab.assert_nothing_left();
}

#[test]
fn verify_finds_a_backup_right_in_a_scratch_server_and_one_that_was_changed_wrong() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(500, |sql| source.run(sql));
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    assert_success(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git]));
    for from in [["--from", &store], ["--git", &git]] {
        let verified = json(lab.toll(&[&["backup", "verify", "--json"], &from[..]].concat()));
        assert_eq!(verified["differences"], serde_json::json!([]));
        assert_eq!((&verified["definitions_compared"], &verified["rows"]), (&true.into(), &505.into()));
        assert!(verified["restore_s"].as_f64().unwrap() > 0.0);
    }
    // In git anybody can commit: a row less.
    let work = lab.path("work");
    let sh = |script: String| {
        assert!(std::process::Command::new("sh").args(["-ec", &script]).status().unwrap().success())
    };
    let commit = "git -c user.name=x -c user.email=x commit -qam x; git push -q origin toll-backup";
    sh(format!(
        "git clone -q -b toll-backup {git} {work}; cd {work}; cp shop/table/lines.sql/000001-*.sql ../whole; \
         sed -i '/INSERT INTO `lines` VALUES (2/d' shop/table/lines.sql/000001-*.sql; {commit}"
    ));
    let file = lab.path("dump.sql");
    for refused in [&["verify"][..], &["verify", "--stored-only"], &["restore", "--output", &file]] {
        let refused = lab.toll(&[&["backup"], refused, &["--git", &git]].concat());
        let said = output_text(&refused);
        assert!(refused.status.code() == Some(1) && said.contains("lines.sql/000001-"), "{said}");
        assert!(said.contains("is not what was dumped"), "{said}");
    }
    assert!(!Path::new(&file).exists());
    // With its checksum, too, so that only what was counted in the dump still says so.
    sh(format!(
        "cd {work}; sum() {{ sha256sum < $1 | cut -c1-64; }}; \
         sed -i \"s/$(sum ../whole)/$(sum shop/table/lines.sql/000001-*.sql)/\" backup.json; {commit}"
    ));
    let stored = lab.toll(&["backup", "verify", "--stored-only", "--git", &git]);
    assert!(output_text(&stored).contains("lines.sql differs from the dump"), "{}", output_text(&stored));
    let verified = lab.toll(&["backup", "verify", "--git", &git]);
    assert_eq!(verified.status.code(), Some(3), "{}", output_text(&verified));
    assert!(output_text(&verified).contains("has 1 rows, and 2 were dumped"), "{}", output_text(&verified));
    assert!(
        output_text(&verified).contains("lines.sql: rows differ from the dump"),
        "{}",
        output_text(&verified)
    );
    lab.assert_nothing_left();
}

#[test]
fn system_a_row_of_100_mb_comes_back_and_memory_stays_small() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    source.run("SET GLOBAL max_allowed_packet = 1073741824");
    source.run("CREATE DATABASE d");
    source.run("CREATE TABLE d.t (id INT PRIMARY KEY, a LONGTEXT)");
    source.run("INSERT INTO d.t VALUES (1, REPEAT('0123456789', 10485760)), (2, 'small')");
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let taken = json(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git, "--json"]));
    assert!(taken["bytes"].as_u64().unwrap() > 100 << 20 && taken["rows"] == 2, "{taken}");
    let memory = taken["cost"]["upload"]["memory_peak_bytes"].as_u64().unwrap();
    assert!(memory < 90 << 20, "toll took {memory} bytes");
    let pieces = files(&Path::new(&store).join("pieces"));
    assert!(pieces.iter().all(|piece| piece.metadata().unwrap().len() < 2 << 20));
    for from in [["--from", &store], ["--git", &git]] {
        let verified = json(lab.toll(&[&["backup", "verify", "--json"], &from[..]].concat()));
        assert_eq!((&verified["differences"], &verified["rows"]), (&serde_json::json!([]), &2.into()));
    }
    lab.assert_nothing_left();
}

#[test]
fn an_encrypted_backup_opens_with_its_key_alone_and_old_ones_go() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(300, |sql| source.run(sql));
    let (store, dsn) = (lab.path("store"), source.dsn());
    let [right, wrong] =
        ["right", "wrong"].map(|word| lab.write_secret(word, &format!("{word} passphrase\n")));
    for _ in 0..3 {
        source.run("UPDATE shop.orders SET price = price + 1 WHERE id < 10");
        let arguments =
            ["backup", "--server", &dsn, "--to", &store, "--passphrase-file", &right, "--keep", "2"];
        assert_success(lab.toll(&arguments));
    }
    let verify =
        |key: &[&str]| lab.toll(&[&["backup", "verify", "--stored-only", "--from", &store], key].concat());
    assert_success(verify(&["--passphrase-file", &right]));
    for (key, word) in [(&["--passphrase-file", &wrong][..], "cannot decrypt"), (&[], "encrypted")] {
        let refused = verify(key);
        assert!(
            !refused.status.success() && output_text(&refused).contains(word),
            "{}",
            output_text(&refused)
        );
    }
    assert_eq!(files(&Path::new(&store).join("backups")).len(), 2);
    lab.assert_nothing_left();
}

#[test]
fn what_is_restored_to_a_file_is_what_the_program_wrote_to_the_byte() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(1000, |sql| source.run(sql));
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    assert_success(
        lab.toll(&["backup", "--server", &dsn, "--to", &store, "--git", &git, "--schema", "shop"]),
    );
    let manifest = files(&Path::new(&store).join("backups")).remove(0);
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
    let dumped = |options: &str| {
        let options =
            manifest["program"][options].as_array().unwrap().iter().map(|option| option.as_str().unwrap());
        let mut command = std::process::Command::new("mariadb-dump");
        command.args(["--no-defaults", "-uroot", "-S"]).arg(dsn.split_once('=').unwrap().1);
        let output = command.args(options).args(["--databases", "shop"]).output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        output.stdout
    };
    let expected = [dumped("options"), dumped("options_for_bodies")].concat();
    // Without toll, as the documentation has it.
    let by_hand = std::process::Command::new("sh")
        .args([
            "-ec",
            "cd \"$1\"; jq -r '.files[].pieces[][0]' backups/*.json | while read p; do \
               zstd -dc pieces/$(echo $p | cut -c1-2)/$p; done",
            "sh",
            &store,
        ])
        .output();
    match by_hand {
        Ok(by_hand) if by_hand.status.success() => assert!(by_hand.stdout == expected),
        other => toll_testkit::skip!("jq and zstd are needed: {other:?}"),
    }
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&git).unwrap());
    assert_eq!(mode & 0o077, 0, "the repository is for its owner alone");
    for (number, from) in [["--from", &store], ["--git", &git]].into_iter().enumerate() {
        let file = lab.path(&format!("dump-{number}.sql"));
        assert_success(lab.toll(&[&["backup", "restore", "--output", &file], &from[..]].concat()));
        assert!(std::fs::read(&file).unwrap() == expected, "{from:?}");
        let again = lab.toll(&[&["backup", "restore", "--output", &file], &from[..]].concat());
        assert!(
            output_text(&again).contains("the file exists. Choose another name."),
            "{}",
            output_text(&again)
        );
    }
}

#[test]
fn an_overwriting_restore_replaces_what_the_backup_holds_and_leaves_the_rest() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    source.run("CREATE DATABASE shop");
    source.run("CREATE TABLE shop.t (a INT)");
    source.run("INSERT INTO shop.t VALUES (1)");
    source.run("CREATE PROCEDURE shop.p() SELECT 'backup'");
    source.run("CREATE EVENT shop.e ON SCHEDULE EVERY 1 YEAR DO SET @x = 'backup'");
    let (store, dsn) = (lab.path("store"), source.dsn());
    assert_success(lab.toll(&["backup", "--server", &dsn, "--to", &store]));
    source.run("UPDATE shop.t SET a = 2");
    for (name, other) in [("p", "e"), ("own_p", "own_e")] {
        source.run(&format!("CREATE OR REPLACE PROCEDURE shop.{name}() SELECT 'later'"));
        source.run(&format!(
            "CREATE OR REPLACE EVENT shop.{other} ON SCHEDULE EVERY 1 YEAR DO SET @x = 'later'"
        ));
    }
    source.run("CREATE TABLE shop.own_t (a INT)");
    let restore = |more: &[&str]| {
        lab.toll(&[&["backup", "restore", "--from", &store, "--server", &dsn], more].concat())
    };
    let routines = "SELECT GROUP_CONCAT(routine_name, routine_definition ORDER BY 1) FROM information_schema.routines \
                    WHERE routine_schema = 'shop'";
    let events = "SELECT GROUP_CONCAT(event_name, event_definition ORDER BY 1) FROM information_schema.events \
                  WHERE event_schema = 'shop'";
    assert!(output_text(&restore(&[])).contains("--overwrite"));
    // Neither where there are no tables.
    source.run("DROP TABLE shop.t");
    source.run("DROP TABLE shop.own_t");
    assert!(output_text(&restore(&[])).contains("holds shop."));
    assert!(!source.rows(routines).contains("backup"), "nothing was changed");
    source.run("CREATE TABLE shop.own_t (a INT)");
    let restored = restore(&["--overwrite"]);
    // Dropped by name: those that the schemas hold, if the backup holds them, too.
    assert!(output_text(&restored).contains("shop.own_t (table)"), "{}", output_text(&restored));
    assert!(output_text(&restored).contains("shop.p (procedure)"), "{}", output_text(&restored));
    assert_success(restored);
    let found = [source.rows(routines), source.rows(events), source.rows("SHOW TABLES FROM shop")].concat();
    for word in
        ["pSELECT 'backup'", "own_pSELECT 'later'", "eSET @x = 'backup'", "own_eSET @x = 'later'", "own_t"]
    {
        assert!(found.contains(word), "{word}: {found}");
    }
    assert!(source.rows("SELECT a FROM shop.t").contains('1'));
}

#[test]
fn no_password_is_seen_and_no_option_file_of_the_host_is_read() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(10, |sql| source.run(sql));
    source.run("CREATE USER p@localhost IDENTIFIED BY 'HUNTER2'");
    source.run("GRANT ALL PRIVILEGES ON *.* TO p@localhost");
    let (store, dsn, seen) = (lab.path("store"), source.dsn().replace("root@", "p@"), lab.path("seen"));
    let program = lab.write(
        "program",
        &format!("#!/bin/sh\n{{ printf '%s\\n' \"$@\"; env; }} >> {seen}\nexec mariadb-dump \"$@\"\n"),
    );
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // Of its owner: a dump without rows.
    std::fs::create_dir(lab.path("home")).unwrap();
    lab.write("home/.my.cnf", "[mysqldump]\nwhere=0\n[mariadb-dump]\nwhere=0\n");
    let home = lab.path("home");
    let environment = [("MYSQL_PWD", "HUNTER2"), ("HOME", home.as_str())];
    let taken = lab.toll_with(
        &environment,
        &["backup", "--server", &dsn, "--to", &store, "--dump-program", &program, "--json"],
    );
    assert_eq!(json(taken.clone())["rows"], 15);
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("--defaults-file=") && seen.contains("--order-by-primary"), "{seen}");
    let manifest = std::fs::read_to_string(&files(&Path::new(&store).join("backups"))[0]).unwrap();
    for text in [seen, manifest, output_text(&taken)] {
        assert!(!text.contains("HUNTER2"), "{text}");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_host_that_backs_up_for_a_recipient_cannot_read_what_it_stores() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(300, |sql| source.run(sql));
    let (store, dsn) = (lab.path("store"), source.dsn());
    let key = age::x25519::Identity::generate();
    let recipient = key.to_public().to_string();
    let identity =
        lab.write_secret("identity", &format!("# made for this test\n{}\n", key.to_string().expose_secret()));
    for _ in 0..2 {
        let arguments =
            ["backup", "--server", &dsn, "--to", &store, "--encrypt-to", &recipient, "--keep", "1", "--json"];
        let taken = json(lab.toll(&arguments));
        assert_eq!(taken["warnings"], serde_json::json!([]), "{taken}");
    }
    assert_eq!(files(&Path::new(&store).join("backups")).len(), 1);
    let refused = lab.toll(&["backup", "verify", "--stored-only", "--from", &store]);
    assert!(output_text(&refused).contains("encrypted"), "{}", output_text(&refused));
    let verified = json(lab.toll(&["backup", "verify", "--from", &store, "--identity", &identity, "--json"]));
    assert_eq!((&verified["differences"], &verified["rows"]), (&serde_json::json!([]), &305.into()));
}

#[test]
fn two_backups_at_once_are_both_whole_and_git_takes_one() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(20_000, |sql| source.run(sql));
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let both: Vec<_> = (0..2).map(|_| lab.spawn(&["backup", "--server", &dsn, "--to", &store])).collect();
    for mut backup in both {
        assert!(backup.wait().unwrap().success());
    }
    assert_eq!(whole_backups(&lab, &store), 2);
    let mut first = lab.spawn(&["backup", "--server", &dsn, "--git", &git]);
    super::wait_until("git has begun", || {
        files(Path::new(&git)).iter().any(|path| path.to_string_lossy().contains("tmp_pack"))
    });
    let second = lab.toll(&["backup", "--server", &dsn, "--git", &git]);
    assert!(output_text(&second).contains("another backup writes to"), "{}", output_text(&second));
    assert!(first.wait().unwrap().success());
    lab.assert_nothing_left();
}

#[test]
fn a_backup_may_promise_its_users_something_and_is_then_the_same() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(2000, |sql| source.run(sql));
    let (store, dsn, flag, log) = (lab.path("store"), source.dsn(), lab.path("pause"), lab.path("log"));
    let soon = ["--before", "1s", "--canary-rate", "400", "--min-rate", "1M"];
    let promised = ["--max-p99-toll", "50%", "--log", &log];
    let options =
        [&["backup", "--server", &dsn, "--to", &store, "--json"], &soon[..], &promised[..]].concat();
    let taken = json(lab.toll(&options));
    let promise = &taken["promise"];
    assert_eq!(promise["max_p99_toll_pct"], 50.0, "{taken}");
    // Of the dump's bytes, those of its tables went through the throttle.
    let (moved, bytes) = (promise["bytes"].as_u64().unwrap(), taken["bytes"].as_u64().unwrap());
    assert!(moved > bytes / 2 && moved <= bytes, "{moved} of {bytes}");
    assert!(promise["canary"]["questions"].as_u64().unwrap() >= 250, "{taken}");
    assert!(!std::fs::read_to_string(&log).unwrap().is_empty());
    // The same bytes as without: no piece is new.
    let plain = json(lab.toll(&["backup", "--server", &dsn, "--to", &store, "--json"]));
    assert_eq!((&plain["stored"]["new_pieces"], &plain["promise"]), (&0.into(), &serde_json::Value::Null));

    // One that is paused by hand can still be ended, and is no backup then.
    std::fs::write(&flag, "").unwrap();
    let paused = [&options[..], &["--flag-file", &flag]].concat();
    let child = lab.spawn(&paused);
    super::wait_until("the throttle is at work", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("by-hand"))
    });
    lab.signal(&child, "INT");
    let ended = child.wait_with_output().unwrap();
    assert!(!ended.status.success());
    assert_eq!(whole_backups(&lab, &store), 2);
    let alone = lab.toll(&["backup", "--server", &dsn, "--to", &store, "--flag-file", &flag]);
    assert!(output_text(&alone).contains("no latency limit: set --max-p99-toll"), "{}", output_text(&alone));
    lab.assert_nothing_left();
}
