//! Tests that run what pages show: blocks of `sh run`, and the accounts of the page on production use.

use crate::lab::{Lab, output_text};
use std::process::{Command, Output, Stdio};
use toll_testkit::pages::{blocks, pages};

/// Commands of a page that are to be run, in their order.
fn script(text: &str) -> String {
    let marked = blocks(text).into_iter().filter(|block| block.info == "sh run");
    marked.map(|block| block.text).collect()
}

/// Runs a page's commands in an empty directory, as a reader would.
fn follow(lab: &Lab, script: &str) -> Output {
    let toll = std::path::Path::new(env!("CARGO_BIN_EXE_toll")).parent().unwrap();
    let path = format!("{}:{}", toll.display(), std::env::var("PATH").unwrap());
    // Its environment is that of all tests of the program.
    let environment = lab.command(&[]);
    let known = environment.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", script]).current_dir(lab.path("")).envs(known).env("PATH", path);
    shell.stdin(Stdio::null()).output().unwrap()
}

fn option_file(lab: &Lab, name: &str, dsn: &str) {
    let socket = dsn.split("socket=").nth(1).unwrap();
    lab.write_secret(name, &format!("[client]\nuser=root\nsocket={socket}\n"));
}

/// What the pages assume: servers behind `toll.cnf` and `other.cnf`, the first with a schema `shop`.
fn follow_page(page: &str, script: &str) {
    let lab = toll_testkit::lab!();
    let mut servers = Vec::new();
    for name in ["toll.cnf", "other.cnf"] {
        if script.contains(name) {
            let at = toll_testkit::lab!();
            let server = at.start_server();
            option_file(&lab, name, &server.dsn());
            if name == "toll.cnf" {
                server.run("CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY, price INT)");
                server.run("INSERT INTO shop.orders SELECT seq, seq MOD 100 FROM shop.seq_1_to_1000");
            }
            servers.push((at, server));
        }
    }
    let followed = follow(&lab, script);
    assert!(followed.status.success(), "{page}: {}", output_text(&followed));
    lab.assert_nothing_left();
}

#[test]
fn what_pages_show_can_be_run() {
    let marked: Vec<_> = pages().into_iter().map(|(page, text)| (page, script(&text))).collect();
    let marked =
        marked.into_iter().filter(|(page, script)| !script.is_empty() && !page.contains("tutorial/"));
    let mut followed = 0;
    for (page, script) in marked {
        follow_page(&page, &script);
        followed += 1;
    }
    assert!(followed >= 7, "{followed} pages");
}

#[test]
fn system_the_tutorial_can_be_followed_word_for_word() {
    let (page, text) = pages().into_iter().find(|(page, _)| page.ends_with("tutorial/first.md")).unwrap();
    follow_page(&page, &script(&text));
}

/// Statements of the page, of the SQL blocks before its part on MySQL.
fn grants() -> String {
    let (_, text) = pages().into_iter().find(|(page, _)| page == "docs/safety.md").unwrap();
    let of_sql = blocks(&text).into_iter().filter(|block| block.info == "sql");
    of_sql.map(|block| block.text).collect()
}

#[test]
fn the_accounts_of_the_page_may_do_what_they_are_for() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    server.run("CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY, price INT)");
    server.run("INSERT INTO shop.orders VALUES (1, 1), (2, 2)");
    let grants = grants();
    assert!(grants.matches("CREATE USER").count() >= 4, "{grants}");
    server.run(&grants);
    let socket = server.dsn();
    let socket = socket.split("socket=").nth(1).unwrap();
    let option_file = |user: &str| {
        let text = format!("[client]\nuser={user}\npassword=secret\nsocket={socket}\n");
        lab.write_secret(&format!("{user}.cnf"), &text)
    };

    let store = lab.path("store");
    // With a warning about rights the code were 3.
    let backup = lab.toll(&["backup", "--server", &option_file("toll_backup"), "--to", &store]);
    assert_eq!(backup.status.code(), Some(0), "{}", output_text(&backup));

    let probe = option_file("toll_probe");
    let throttle =
        ["throttle", "--defaults-file", &probe, "--before", "2s", "--max-history", "1000000", "--", "true"];
    let throttled = lab.toll(&throttle);
    assert_eq!(throttled.status.code(), Some(0), "{}", output_text(&throttled));
    assert!(!output_text(&throttled).contains("SELECT 1"), "{}", output_text(&throttled));

    let load = option_file("toll_sbtest");
    for what in [&["prepare", "--rows", "100"][..], &["cleanup"]] {
        let login = ["--defaults-file", &load, "--no-binlog"];
        let done = lab.toll(&[&["load"], what, &login].concat());
        assert!(done.status.success(), "{}", output_text(&done));
    }

    let log = lab.write(
        "slow.log",
        "# User@Host: app[app] @ web1 []\n# Query_time: 0.5  Lock_time: 0 Rows_sent: 1  Rows_examined: 1\n\
         use shop;\nSELECT price FROM orders WHERE id = 1;\n",
    );
    let explained = lab.toll(&["digest", "--explain", &option_file("toll_explain"), &log]);
    let text = output_text(&explained);
    assert!(explained.status.success() && text.contains("possible_keys"), "{text}");

    let changes = "\n[[arm]]\nname = \"setting\"\ntitle = \"a setting\"\nset = { long_query_time = \"5\" }\n";
    let scenario = lab.write("small.toml", &crate::lab::scenario(1, changes));
    let (login, out) = (option_file("toll"), lab.path("run"));
    let run = ["run", &scenario, "--server", &login, "--allow-schema", "toll_load", "--out", &out];
    let run = lab.toll(&run);
    assert!(run.status.success(), "{}", output_text(&run));
    let result = crate::lab::read_result(&out);
    let arm = crate::lab::arm(&result, "setting");
    assert!(arm["unavailable"].is_null() && arm["windows"] == 1, "{arm}");
    lab.assert_nothing_left();
}
