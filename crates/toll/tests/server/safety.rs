//! Tests that an important server is unchanged, whatever the options and however toll ended.

mod processes;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use toll_testkit::lab::{self, ForeignServer, Jail, arm, output_text, read_result};

const ARMS: &str = "baseline,slowlog-all,general-log,perf-schema,placebo";

fn run<'a>(server: &'a str, out: &'a str, arms: &'a str) -> Vec<&'a str> {
    let options = ["--window", "300ms", "--rows", "500", "--allow-schema", "toll_safe", "--settle", "100ms"];
    let options = [&options[..], &["--rate", "300"]].concat();
    let asked =
        ["run", "tcpdump-impact", "--profile", "quick", "--server", server, "--out", out, "--arms", arms];
    [&asked[..], &options].concat()
}

/// Everything of a server that a run could have changed.
fn state(server: &ForeignServer) -> String {
    let tables = server.rows(
        "SELECT table_name FROM information_schema.tables \
         WHERE table_schema = 'performance_schema' AND table_name LIKE 'setup\\_%' ORDER BY 1",
    );
    let setup: String = tables
        .lines()
        .filter_map(|line| line.split('"').nth(1))
        .map(|table| {
            format!("{table}\n{}", server.rows(&format!("SELECT * FROM performance_schema.{table}")))
        })
        .collect();
    let files: Vec<_> = {
        let entries = std::fs::read_dir(server.datadir()).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name()).collect();
        names.sort();
        names
    };
    let binlog = server.rows("SHOW MASTER STATUS");
    format!("{}{setup}{}{binlog}{files:?}", server.variables(), server.schemas())
}

#[track_caller]
fn assert_same(before: &str, after: &str) {
    let differs = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    assert!(before == after, "{differs:?}");
}

#[test]
fn every_way_of_switching_leaves_the_server_as_it_was() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    // Monitoring of their own, in part.
    server.run("UPDATE performance_schema.setup_consumers SET ENABLED = 'NO' WHERE NAME = 'events_statements_history'");
    server.run(
        "UPDATE performance_schema.setup_instruments SET ENABLED = 'NO' WHERE NAME = 'statement/sql/select'",
    );
    server.run("SET GLOBAL long_query_time = 2.5");
    server.run("SET GLOBAL slow_query_log = ON");
    let before = state(&server);
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let finished = lab.toll(&[&run(&dsn, &out, ARMS)[..], &["--rounds", "2"]].concat());
    assert!(finished.status.success(), "{}", output_text(&finished));
    let result = read_result(&out);
    for name in ARMS.split(',') {
        let arm = arm(&result, name);
        assert_eq!(arm["windows"], 2, "{name}: {:#}", result["warnings"]);
    }
    assert_same(&before, &state(&server));
    lab.assert_nothing_left();
}

#[test]
fn system_a_signal_of_any_kind_once_or_twice_leaves_nothing_behind() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let before = state(&server);
    for (i, signals) in [&["HUP"][..], &["QUIT"], &["INT"], &["TERM", "TERM"]].iter().enumerate() {
        let (dsn, out) = (server.dsn(), lab.path(&format!("run{i}")));
        let mut child = lab.spawn(&[&run(&dsn, &out, ARMS)[..], &["--rounds", "50"]].concat());
        lab.wait_for_trials(&mut child, &out, 8 + 3 * i);
        for signal in *signals {
            lab.signal(&child, signal);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signals:?}");
        assert_same(&before, &state(&server));
        lab.assert_nothing_left();
    }
}

#[test]
fn a_reader_that_leaves_ends_no_run() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let before = state(&server);
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let arguments = [&run(&dsn, &out, ARMS)[..], &["--rounds", "1"]].concat();
    let status = lab.toll_without_reader(&arguments);
    assert!(status.success(), "{status}");
    assert_same(&before, &state(&server));
    lab.assert_nothing_left();
}

#[test]
fn a_second_run_is_refused_on_the_same_server_and_on_the_same_host() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let mut first = lab.spawn(&[&run(&dsn, &out, "slowlog-all")[..], &["--rounds", "50"]].concat());
    lab.wait_for_trials(&mut first, &out, 3);
    let second_out = lab.path("second");
    let second = run(&dsn, &second_out, "general-log");
    let here = lab.toll(&second);
    assert!(
        !here.status.success() && output_text(&here).contains("another toll run is active on this host"),
        "{}",
        output_text(&here)
    );
    // As from another host, or by somebody who knows nothing of this one's lock.
    let elsewhere = toll_testkit::lab!();
    let there = elsewhere.toll(&second);
    let there = output_text(&there);
    assert!(there.contains("another toll run is going on on the server"), "{there}");
    assert!(!Path::new(&second_out).exists());
    lab.signal(&first, "TERM");
    first.wait().unwrap();
    lab.assert_nothing_left();
}

#[test]
fn system_what_a_killed_run_has_left_is_said_by_whatever_comes_next_and_refuses_the_next_run() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let before = state(&server);
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let mut child = lab.spawn(&[&run(&dsn, &out, "slowlog-all")[..], &["--rounds", "50"]].concat());
    lab.wait_for_trials(&mut child, &out, 6);
    child.kill().unwrap();
    child.wait().unwrap();
    let list = lab.toll(&["list"]);
    assert!(output_text(&list).contains("Run `toll clean` to undo them"), "{}", output_text(&list));
    let next_out = lab.path("next");
    let next = lab.toll(&run(&dsn, &next_out, "slowlog-all"));
    assert!(
        !next.status.success() && output_text(&next).contains("put them back first"),
        "{}",
        output_text(&next)
    );
    assert!(lab.toll(&["clean"]).status.success());
    assert_same(&before, &state(&server));
    assert!(!output_text(&lab.toll(&["list"])).contains("toll clean"));
    lab.assert_nothing_left();
}

#[test]
fn a_run_is_for_its_owner_alone_but_its_reports() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let arms = if lab.is_root {
        "slowlog-all,tcpdump-file,tcpdump-text,general-log"
    } else {
        "slowlog-all,general-log"
    };
    let asked = ["run", "tcpdump-impact", "--profile", "quick", "--rounds", "1", "--window", "300ms"];
    let options = ["--rows", "500", "--rate", "300", "--out", &out, "--keep-artefacts", "--arms", arms];
    let mut child = lab.spawn(&[&asked[..], &options].concat());
    let mut seen = 0;
    while child.try_wait().unwrap().is_none() {
        seen = seen.max(assert_private(Path::new(&out)));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success(), "{}", lab.words_of_spawned());
    assert!(seen > 5 && assert_private(Path::new(&out)) > 5);
    let report = std::fs::metadata(Path::new(&out).join("report.html")).unwrap();
    assert_eq!(report.permissions().mode() & 0o777, 0o644);
    let dir = std::fs::metadata(&out).unwrap();
    assert_eq!(dir.permissions().mode() & 0o777, 0o755, "others reach the report");
}

/// Checks that all files below `dir` are private. Returns their number.
fn assert_private(dir: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        files += 1;
        let for_readers = path.ends_with("result.json") || path.ends_with("report.html");
        let others = meta.permissions().mode() & 0o077;
        assert!(for_readers || others == 0, "{} is open to others: {others:o}", path.display());
        if meta.is_dir() {
            files += assert_private(&path);
        }
    }
    files
}

/// A scenario with one command, about the host: no server is started and no load.
fn on_host(command: &str) -> String {
    format!(
        "name = \"small\"\nquestion = \"?\"\nsubject = \"host\"\nbaseline = \"none\"\nprimary = \"elapsed_s\"\n\
         [profile.quick]\nrounds = 4\nwindow = \"300ms\"\nsettle = \"10ms\"\n\
         [[arm]]\nname = \"none\"\ntitle = \"nothing beside\"\nrole = \"baseline\"\ncommand = \"sleep 0.05\"\n\
         ends = \"closes-window\"\nat_most = \"60s\"\n\
         [[arm]]\nname = \"it\"\ntitle = \"a command\"\ncommand = \"\"\"{command}\"\"\"\n"
    )
}

/// A scenario with one command beside a load.
fn small(command: &str) -> String {
    let arm = format!("[[arm]]\nname = \"it\"\ntitle = \"a command\"\ncommand = \"\"\"{command}\"\"\"\n");
    lab::scenario(4, &arm)
}

#[test]
fn a_setting_that_cannot_be_put_back_ends_the_run_there() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let sql = "\n[[arm]]\nname = \"stuck\"\ntitle = \"no way back\"\non = [\"SET GLOBAL long_query_time = 1\"]\noff = [\"SET GLOBAL no_such_variable = 1\"]\n";
    let scenario = lab.write("stuck.toml", &(small("sleep 60") + sql));
    let run = lab.toll(&["run", &scenario, "--out", &out, "--seed", "1"]);
    let text = output_text(&run);
    assert_eq!(run.status.code(), Some(1), "{text}");
    assert!(text.contains("arm stuck stays on") && text.contains("no_such_variable"), "{text}");
    let trials = std::fs::read_to_string(Path::new(&out).join("trials.ndjson")).unwrap();
    let last = trials.lines().rfind(|l| l.contains("\"start\"")).unwrap();
    assert!(last.contains("\"stuck\""), "no trial follows it: {last}");
}

#[test]
fn statements_without_a_way_back_are_refused_on_a_server_that_was_there() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let sql =
        "\n[[arm]]\nname = \"oneway\"\ntitle = \"no way back\"\non = [\"SET GLOBAL long_query_time = 1\"]\n";
    let scenario = lab.write("oneway.toml", &(small("sleep 60") + sql));
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let run = lab.toll(&["run", &scenario, "--server", &dsn, "--allow-schema", "toll_safe", "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let result = read_result(&out);
    let arm = arm(&result, "oneway");
    assert!(arm["unavailable"].as_str().unwrap().contains("has no `off`"), "{arm}");
}

#[test]
fn whether_settings_may_be_changed_is_known_without_changing_any() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    for sql in [
        "CREATE USER plain@localhost, tuned@localhost",
        "GRANT SELECT, PROCESS, BINLOG ADMIN ON *.* TO plain@localhost, tuned@localhost",
        "GRANT ALL ON toll_safe.* TO plain@localhost, tuned@localhost",
        "CREATE ROLE tuner",
        "GRANT SUPER ON *.* TO tuner",
        "GRANT tuner TO tuned@localhost",
        "SET DEFAULT ROLE tuner FOR tuned@localhost",
        "SET GLOBAL log_output = 'TABLE'",
        "SET GLOBAL general_log = ON",
        "TRUNCATE mysql.general_log",
    ] {
        server.run(sql);
    }
    let settings = || server.rows("SELECT argument FROM mysql.general_log WHERE argument LIKE 'SET GLOBAL%'");
    for (user, may) in [("plain", false), ("tuned", true)] {
        let (dsn, out) = (server.dsn().replace("root", user), lab.path(user));
        let asked = lab.toll(&[&run(&dsn, &out, "slowlog-all")[..], &["--rounds", "1"]].concat());
        // Where nothing that was asked for could be measured, it is an error.
        assert_eq!(asked.status.success(), may, "{}", output_text(&asked));
        let result = read_result(&out);
        let arm = arm(&result, "slowlog-all");
        let why = arm["unavailable"].as_str().unwrap_or_default();
        assert_eq!(why.contains("may not change global settings"), !may, "{user}: {arm}");
        assert_eq!(settings().is_empty(), !may, "{user}: {}", settings());
    }
}

#[test]
fn toll_asks_before_it_makes_a_schema_and_keeps_away_from_what_is_read_only() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let dsn = server.dsn();
    let before = state(&server);
    let ask = lab.toll(&["run", "tcpdump-impact", "--arms", "baseline-again", "--yes", "--server", &dsn]);
    assert!(!ask.status.success() && output_text(&ask).contains("--allow-schema"), "{}", output_text(&ask));
    server.run("SET GLOBAL read_only = ON");
    let out = lab.path("run");
    let refused = lab.toll(&run(&dsn, &out, "baseline-again"));
    assert!(
        !refused.status.success() && output_text(&refused).contains("is read-only"),
        "{}",
        output_text(&refused)
    );
    let agreed = lab.toll(&[&run(&dsn, &out, "baseline-again")[..], &["--allow-replica"]].concat());
    assert!(
        !agreed.status.success() && output_text(&agreed).contains("would write to it"),
        "{}",
        output_text(&agreed)
    );
    server.run("SET GLOBAL read_only = OFF");
    assert_same(&before, &state(&server));
    lab.assert_nothing_left();
}

#[test]
fn system_a_server_that_restarts_midway_is_noticed_and_the_run_goes_on_with_the_new_process() {
    let lab = toll_testkit::lab!();
    let mut server = lab.start_server();
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let mut child = lab.spawn(&[&run(&dsn, &out, "placebo")[..], &["--rounds", "14"]].concat());
    lab.wait_for_trials(&mut child, &out, 12);
    server.crash_and_restart();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < lab::HANG_TIMEOUT, "the run does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let result = read_result(&out);
    let trials = std::fs::read_to_string(Path::new(&out).join("trials.ndjson")).unwrap();
    let server_cpu: Vec<u64> = trials
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["step"] == "window-end")
        .filter_map(|line| line["cpu"]["server_us"].as_u64())
        .collect();
    assert!(*server_cpu.last().unwrap() > 0, "the new process is read: {server_cpu:?}");
    assert!(result["rounds_done"].as_u64().unwrap() >= 8, "{:#}", result["warnings"]);
    assert!(!server.schemas().contains("toll_safe"));
    lab.assert_nothing_left();
}

#[test]
fn system_a_server_that_hangs_holds_up_neither_toll_nor_the_truth() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let before = state(&server);
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let mut child = lab.spawn(&[&run(&dsn, &out, "slowlog-all")[..], &["--rounds", "50"]].concat());
    lab.wait_for_trials(&mut child, &out, 8);
    server.signal("STOP");
    lab.signal(&child, "TERM");
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < lab::HANG_TIMEOUT, "toll hangs with the server");
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = lab.words_of_spawned();
    server.signal("CONT");
    assert!(text.contains("does not answer") && text.contains("toll clean"), "{text}");
    let clean = lab.toll(&["clean"]);
    assert!(clean.status.success(), "{}", output_text(&clean));
    assert_same(&before, &state(&server));
    lab.assert_nothing_left();
}

#[test]
fn a_report_that_cannot_be_written_is_printed_all_the_same() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    // What a full disk does to the last file of a run.
    std::fs::create_dir_all(Path::new(&out).join("result.json/in-the-way")).unwrap();
    let scenario = lab.write("small.toml", &on_host("sleep 60"));
    let run = lab.toll(&["run", &scenario, "--out", &out, "--rounds", "1"]);
    let text = output_text(&run);
    assert_eq!(run.status.code(), Some(1), "{text}");
    assert!(text.contains("nothing beside") && text.contains("toll report"), "{text}");
    let again = lab.toll(&["report", &out]);
    assert!(
        again.status.success() && output_text(&again).contains("nothing beside"),
        "{}",
        output_text(&again)
    );
}

#[test]
fn system_a_server_in_a_place_of_its_own_is_found_with_its_program_and_files() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("a chroot needs root");
        return;
    }
    let Some(server) = lab.start_jailed_server(Jail::Chroot) else {
        toll_testkit::skip!("cannot mount here");
        return;
    };
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let arms = if toll_sys::program::find_program("bpftrace").is_some() {
        "slowlog-all,bpftrace"
    } else {
        "slowlog-all"
    };
    let finished = lab.toll(&[&run(&dsn, &out, arms)[..], &["--rounds", "1"]].concat());
    assert!(finished.status.success(), "{}", output_text(&finished));
    let result = read_result(&out);
    let arm = |name: &str| arm(&result, name).clone();
    assert!(
        arm("slowlog-all")["captured_ratio"].as_f64().is_some_and(|r| r > 0.5),
        "{:#}",
        result["warnings"]
    );
    if arms.contains("bpftrace") {
        // On a busy host it may not be ready in time; the program that it probes is there in any case.
        let command = arm("bpftrace")["command"].as_str().unwrap().to_owned();
        let program = command.split("uprobe:").nth(1).unwrap().split(':').next().unwrap().to_owned();
        assert!(
            program.starts_with('/') && ["mariadbd", "exe"].iter().any(|end| program.ends_with(end)),
            "{program}"
        );
    }
    let trials = std::fs::read_to_string(Path::new(&out).join("trials.ndjson")).unwrap();
    let end = trials.lines().rfind(|l| l.contains("window-end")).unwrap();
    let end: serde_json::Value = serde_json::from_str(end).unwrap();
    assert!(end["cpu"]["server_us"].as_u64().unwrap() > 0, "its process is read: {end}");
    lab.assert_nothing_left();
}
