//! Tests of signed backups with keys that openssl makes, as `docs/explain/backup.md` shows.

use super::{assert_success, files, json};
use crate::lab::output_text;
use std::path::Path;
use std::process::Command;

fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", output_text(&output));
}

#[test]
fn a_signed_backup_is_restored_and_one_that_somebody_else_put_there_is_not() {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    source.run("CREATE DATABASE shop");
    source.run("CREATE TABLE shop.t (a INT)");
    let (store, git, dsn) = (lab.path("store"), lab.path("repo.git"), source.dsn());
    let [sign, verify, theirs] = ["sign.pem", "verify.pem", "theirs.pem"].map(|name| lab.path(name));
    sh(&format!(
        "openssl genpkey -algorithm ed25519 -out {sign}; openssl pkey -in {sign} -pubout -out {verify}; \
         openssl genpkey -algorithm ed25519 | openssl pkey -pubout -out {theirs}"
    ));
    let take =
        |more: &[&str]| {
            json(lab.toll(
                &[&["backup", "--json", "--server", &dsn, "--to", &store, "--git", &git], more].concat(),
            ))
        };
    let signed = take(&["--sign-key", &sign]);
    let restore = |from: &[&str], key: &str| {
        lab.toll(
            &[&["backup", "restore", "--overwrite", "--server", &dsn, "--verify-key", key], from].concat(),
        )
    };
    let places = [&["--from", store.as_str()][..], &["--git", git.as_str()]];
    for from in places {
        assert_success(restore(from, &verify));
        assert_success(
            lab.toll(&[&["backup", "verify", "--stored-only", "--verify-key", &verify], from].concat()),
        );
        let said = output_text(&restore(from, &theirs));
        assert!(said.contains("its signature is not of the key that was given"), "{said}");
    }
    // Without toll.
    let manifest = files(&Path::new(&store).join("backups")).remove(0);
    let manifest = manifest.display();
    sh(&format!(
        "cd {}; head -c -144 {manifest} > signed; tail -c 130 {manifest} | head -c 128 | xxd -r -p > signature; \
         openssl pkeyutl -verify -rawin -pubin -inkey {verify} -sigfile signature -in signed",
        lab.path("")
    ));

    // Unsigned, and newer: the latest of the store, and of the branch.
    source.run("INSERT INTO shop.t VALUES (666)");
    take(&[]);
    source.run("DELETE FROM shop.t");
    for from in places {
        let refused = restore(from, &verify);
        let said = output_text(&refused);
        assert!(!refused.status.success() && said.contains("it is not signed"), "{said}");
    }
    assert_eq!(source.rows("SELECT * FROM shop.t"), "");
    let listed = lab.toll(&["backup", "list", "--from", &store, "--verify-key", &verify]);
    assert_eq!(output_text(&listed).matches("is not trusted: it is not signed").count(), 1);
    assert_success(restore(&["--from", &store, signed["id"].as_str().unwrap()], &verify));

    // The signing key is a secret.
    std::fs::set_permissions(&sign, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let open = lab.toll(&["backup", "--server", &dsn, "--to", &store, "--sign-key", &sign]);
    assert!(output_text(&open).contains("other users have access"), "{}", output_text(&open));
    lab.assert_nothing_left();
}
