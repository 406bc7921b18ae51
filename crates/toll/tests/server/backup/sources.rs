//! Tests of stores and repositories that several servers share.

use super::{assert_success, files, json};
use crate::lab::{ForeignServer, Lab, output_text};
use std::path::Path;

fn back_up(lab: &Lab, server: &ForeignServer, more: &[&str]) -> serde_json::Value {
    let (store, dsn) = (lab.path("store"), server.dsn());
    json(lab.toll(&[&["backup", "--json", "--server", &dsn, "--to", &store], more].concat()))
}

#[test]
fn the_latest_backup_is_never_another_servers_and_goes_to_another_server_on_purpose_only() {
    let [lab, beside] = [toll_testkit::lab!(), toll_testkit::lab!()];
    let (production, staging) = (lab.start_server(), beside.start_server());
    for (server, word) in [(&production, "production"), (&staging, "staging")] {
        server.run("CREATE DATABASE shop");
        server.run("CREATE TABLE shop.t (a VARCHAR(20))");
        server.run(&format!("INSERT INTO shop.t VALUES ('{word}')"));
    }
    let (first, later) = (back_up(&lab, &production, &[]), back_up(&lab, &staging, &[]));
    let (source, store) = (first["source"].as_str().unwrap(), lab.path("store"));
    assert_ne!(first["source"], later["source"]);
    assert_eq!((&first["source_is_new"], source.len()), (&true.into(), 16));
    assert_eq!(back_up(&lab, &production, &[])["source_is_new"], false);

    let restore = |server: &ForeignServer, more: &[&str]| {
        let dsn = server.dsn();
        lab.toll(&[&["backup", "restore", "--overwrite", "--from", &store, "--server", &dsn], more].concat())
    };
    production.run("DELETE FROM shop.t");
    let refused = restore(&production, &[]);
    let said = output_text(&refused);
    assert!(!refused.status.success() && said.contains("2 sources") && said.contains("--source"), "{said}");
    assert_eq!(production.rows("SELECT * FROM shop.t"), "");
    let said = assert_success(restore(&production, &["--source", &source[..8]]));
    assert!(production.rows("SELECT * FROM shop.t").contains("production"));
    assert!(said.contains(&format!("source {source}, host ")) && said.contains(" UTC"), "{said}");

    let refused = restore(&staging, &["--source", source]);
    let said = output_text(&refused);
    assert!(!refused.status.success() && said.contains("Use --yes"), "{said}");
    assert!(staging.rows("SELECT * FROM shop.t").contains("staging"));
    assert_success(restore(&staging, &["--source", source, "--yes"]));
    assert!(staging.rows("SELECT * FROM shop.t").contains("production"));
    lab.assert_nothing_left();
}

#[test]
fn how_many_are_kept_goes_by_server_and_not_by_the_address_that_two_networks_may_share() {
    let [here, there] = [toll_testkit::lab!(), toll_testkit::lab!()];
    let server = here.start_server();
    server.run("CREATE DATABASE shop");
    server.run("CREATE TABLE shop.t (a INT)");
    let (store, dsn) = (here.path("store"), server.dsn());
    // Two hosts, each of which knows a server at this address: for a second network's, the state of another host.
    let take = |lab: &Lab, more: &[&str]| {
        let arguments = ["backup", "--json", "--server", &dsn, "--to", &store, "--keep", "1"];
        json(lab.toll(&[&arguments, more].concat()))
    };
    let [one, other] = [take(&here, &[]), take(&there, &[])];
    assert_ne!(one["source"], other["source"]);
    assert_eq!(other["pruned"]["backups"], serde_json::json!([]));
    assert_eq!(take(&here, &[])["pruned"]["backups"], serde_json::json!([one["id"]]));
    // One name, given on both.
    let named = take(&here, &["--source", "shop-db"]);
    assert_eq!(named["source"], "shop-db");
    let again = take(&there, &["--source", "shop-db"]);
    assert_eq!(again["pruned"]["backups"], serde_json::json!([named["id"]]));
    assert_eq!(files(&Path::new(&store).join("backups")).len(), 3);
}

#[test]
fn a_branch_that_holds_one_servers_backups_takes_no_others() {
    let [lab, beside] = [toll_testkit::lab!(), toll_testkit::lab!()];
    let (one, other) = (lab.start_server(), beside.start_server());
    for server in [&one, &other] {
        server.run("CREATE DATABASE shop");
        server.run("CREATE TABLE shop.t (a INT)");
    }
    let git = lab.path("repo.git");
    let take = |server: &ForeignServer, more: &[&str]| {
        lab.toll(&[&["backup", "--server", &server.dsn(), "--git", &git], more].concat())
    };
    assert_success(take(&one, &[]));
    let refused = take(&other, &[]);
    assert!(output_text(&refused).contains("backups of another server"), "{}", output_text(&refused));
    // The advice is right: the branch was begun without a name.
    let named = output_text(&take(&one, &["--source", "shop"]));
    assert!(named.contains("leave out --source"), "{named}");
    assert_success(take(&one, &[]));
    assert_success(take(&one, &["--git-branch", "named", "--source", "shop"]));
    let unnamed = output_text(&take(&other, &["--git-branch", "named"]));
    assert!(unnamed.contains("use --source shop"), "{unnamed}");
    assert_success(take(&other, &["--git-branch", "named", "--source", "shop"]));
    assert_success(take(&other, &["--git-branch", "other"]));
    let restore = |more: &[&str]| {
        lab.toll(
            &[&["backup", "restore", "--overwrite", "--server", &other.dsn(), "--git", &git], more].concat(),
        )
    };
    assert!(output_text(&restore(&[])).contains("Use --yes"));
    assert_success(restore(&["--git-branch", "other"]));
    lab.assert_nothing_left();
}

#[test]
fn a_dry_run_shows_what_a_backup_and_a_restore_would_do_and_changes_nothing() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    server.run("CREATE DATABASE shop");
    server.run("CREATE TABLE shop.t (a INT)");
    server.run("INSERT INTO shop.t VALUES (1)");
    let (store, dsn) = (lab.path("store"), server.dsn());
    let planned = assert_success(lab.toll(&[
        "backup",
        "--dry-run",
        "--server",
        &dsn,
        "--to",
        &store,
        "--schema",
        "shop",
    ]));
    assert!(planned.contains("Dump      shop, about "), "{planned}");
    assert!(
        planned.contains(&format!("Store     {store}")) && planned.contains("new: the server"),
        "{planned}"
    );
    assert!(!Path::new(&store).exists());
    // Its first backup is still its first: the dry run gave the server no id.
    assert_eq!(back_up(&lab, &server, &["--schema", "shop"])["source_is_new"], true);

    server.run("INSERT INTO shop.t VALUES (2)");
    server.run("CREATE TABLE shop.later (a INT)");
    let restore = ["backup", "restore", "--dry-run", "--from", &store, "--server", &dsn];
    let planned = assert_success(lab.toll(&restore));
    assert!(planned.contains("Existing  2 objects; with --overwrite"), "{planned}");
    assert!(planned.contains("shop.t (table)") && planned.contains("shop.later (table)"), "{planned}");
    assert!(server.rows("SELECT COUNT(*) FROM shop.t").contains("\"2\""));
    lab.assert_nothing_left();
}
