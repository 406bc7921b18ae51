//! Tests of the main job on a real server: one run, every way out, nothing left behind.

use serde_json::Value;
use std::path::Path;
use toll_digest::Type;
use toll_digest::count::{CountWindow, count_queries};
use toll_testkit::lab::{self, arm, read_result, scenario};

/// The lines of a run's artefacts.
fn artefacts_of(run: &str) -> Vec<Value> {
    let lines = std::fs::read_to_string(Path::new(run).join("artefacts.ndjson")).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn system_a_short_run_prices_captures_and_says_how_many_queries_they_caught() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let run = lab.toll(&[
        "run",
        "tcpdump-impact",
        "--profile",
        "quick",
        "--rounds",
        "2",
        "--window",
        "600ms",
        "--rows",
        "500",
        "--arms",
        "baseline-again,placebo,cpu-control,slowlog-all,tcpdump-file,tcpdump-text,general-log",
        "--seed",
        "7",
        "--keep-artefacts",
        "--out",
        &out,
        "--format",
        "json",
    ]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let result = read_result(&out);
    assert_eq!(result["seed"], 7);
    assert_eq!(result["complete"], true, "{:#}", result["warnings"]);
    assert!(arm(&result, "baseline")["executed"].as_u64().unwrap() > 0);
    let caught = |name: &str| arm(&result, name)["captured_ratio"].as_f64();
    // Where an edge lies in a file is read when the host gives toll its CPU, a tenth of a second later if it is
    // busy: a window tells the order of magnitude. That all is there, the whole file tells.
    let near_one = 0.5..1.5;
    for log in ["slowlog-all", "general-log"] {
        let ratio = caught(log).unwrap();
        assert!(near_one.contains(&ratio), "{log} caught {ratio}");
    }
    let (mut logs, threads) = (0, result["workload"]["threads"].as_u64().unwrap());
    // Written once more when pt-query-digest has had a stretch of it: the last line about a trial stands.
    let by_trial: std::collections::BTreeMap<u64, _> =
        artefacts_of(&out).into_iter().map(|line| (line["trial"].as_u64().unwrap(), line)).collect();
    for line in by_trial.values().filter(|line| line["kind"].as_str().unwrap().ends_with("-log")) {
        let log = Path::new(&out).join(line["file"].as_str().unwrap());
        let kind = match line["kind"].as_str().unwrap() {
            "slow-log" => Type::Slowlog,
            "general-log" => Type::Genlog,
            _ => Type::Auditlog,
        };
        let written = count_queries(&log, Some(kind), CountWindow::Whole, &[]).unwrap().queries;
        let executed = line["executed"].as_u64().unwrap();
        // What a thread has just answered it may not have written yet when the log is switched off.
        assert!(written + threads >= executed, "{written} of {executed}: {line}");
        logs += 1;
    }
    assert_eq!(logs, 4, "two windows of each log");
    if lab.is_root {
        // A tool that gets no CPU loses packets, and says so.
        let [file, text] = ["tcpdump-file", "tcpdump-text"].map(|name| arm(&result, name));
        let lost = file["artefact"]["dropped"].as_u64().unwrap() > 0;
        let ratio = caught("tcpdump-file").unwrap();
        assert!(near_one.contains(&ratio) || lost && ratio < near_one.end, "tcpdump caught {ratio}: {file}");
        assert!(caught("tcpdump-text").unwrap() < near_one.end, "{text}");
        assert!(file["artefact"]["packets"].as_u64().unwrap() > 0);
    } else {
        toll_testkit::skip!("captures need root");
    }
    assert!(result["self_cost"]["cpu_pct_of_one_core"].as_f64().unwrap() > 0.0);
    lab.assert_nothing_left();
}

#[test]
fn system_pt_query_digest_counts_prepared_statements_in_the_stretch_where_toll_counts_them() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    let out = lab.path("run");
    // At a pace at which no packet is lost. The log's arm says that logs are counted too.
    let arms = r#"
[[arm]]
name = "tcpdump"
title = "tcpdump -w file"
command = "tcpdump -s 65535 -B 65536 -i any -Z root -w {artefact} 'port {port}'"
artefact = "pcap"
ready = "listening on"
requires_root = true
[[arm]]
name = "text"
title = "tcpdump as text"
command = "tcpdump -s 65535 -x -nn -q -tttt -B 65536 -i any 'port {port}'"
stdout = "{artefact}"
artefact = "tcpdump-text"
ready = "listening on"
requires_root = true
[[arm]]
name = "general"
title = "general log"
artefact = "general-log"
set = { log_output = "FILE", general_log_file = "{artefact}", general_log = "1" }
"#;
    let scenario = scenario(1, arms).replace("rate = 300.0", "rate = 20.0");
    let scenario = lab.write("second.toml", &scenario);
    let run = lab.toll(&["run", &scenario, "--seed", "5", "--out", &out]);
    assert!(run.status.success(), "{}", lab::output_text(&run));
    let result = read_result(&out);
    assert_eq!(result["workload"]["prepared"], true);
    for name in ["tcpdump", "text", "general"] {
        let count = &arm(&result, name)["artefact"]["pt_query_digest"];
        let number = |key: &str| count[key].as_u64().unwrap_or_else(|| panic!("{name}: no {key} in {count}"));
        let (found, by_toll, executed) = (number("queries"), number("by_toll"), number("executed"));
        assert!(executed > 20, "{name}: {count}");
        // Either may end a statement at an edge on the other side of it, and toll may be late for the edge of a log.
        let near = |a: u64, b: u64| a.abs_diff(b) as f64 <= 4.0 + 0.05 * b as f64;
        assert!(near(found, by_toll), "{name}: {count}");
        assert!(name == "general" || near(found, executed), "{name}: {count}");
    }
    // Of what was on once more for it, nothing else is in the run.
    let trials = std::fs::read_to_string(Path::new(&out).join("trials.ndjson")).unwrap();
    assert_eq!(trials.lines().filter(|line| line.contains("window-begin")).count(), 4, "{trials}");
    lab.assert_nothing_left();
}

#[test]
fn an_arm_that_cannot_run_is_shown_with_its_reason() {
    let lab = toll_testkit::lab!();
    let mine = lab.write(
        "mine.toml",
        &scenario(
            1,
            r#"
[[arm]]
name = "ghost"
title = "a tool that is not there"
command = "no-such-tool --port {port}"
[[arm]]
name = "odd"
title = "a variable that is not there"
set = { no_such_variable = "1" }
"#,
        ),
    );
    let out = lab.path("run");
    let run = lab.toll(&["run", &mine, "--out", &out]);
    // Nothing that was asked for was measured.
    assert_eq!(run.status.code(), Some(1));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("no treatment was measured: ghost cannot run here (no-such-tool is not"), "{said}");
    let result = read_result(&out);
    let reason = |name: &str| arm(&result, name)["unavailable"].as_str().unwrap().to_owned();
    assert!(reason("ghost").contains("no-such-tool is not installed"));
    assert!(reason("odd").contains("no_such_variable"));
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("ghost") && text.contains("no-such-tool"), "{text}");
}

#[test]
fn every_way_to_the_server_carries_a_load_and_is_compared_with_its_own_reference() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let arms =
        "tcp-64,tls-64,compress-64,ipv6-64,localhost-64,ssh-tcp-64,ssh-unix-64,text-64,dump-unix,dump-tcp";
    let options =
        ["--rounds", "1", "--window", "300ms", "--rows", "500", "--table-rows", "2000", "--seed", "3"];
    let options = [&options[..], &["--rate", "300"]].concat();
    let asked = ["run", "socket-vs-tcp", "--profile", "quick", "--arms", arms, "--out", &out];
    let run = lab.toll(&[&asked[..], &options[..]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let result = read_result(&out);
    for name in arms.split(',') {
        let arm = arm(&result, name);
        if let Some(reason) = arm["unavailable"].as_str() {
            // Only tools may be missing: a server of toll's own has every way open.
            assert!(reason.contains("not installed"), "{name}: {reason}");
            toll_testkit::skip!("{name}: {reason}");
            continue;
        }
        assert_eq!(arm["windows"], 1, "{name}: {:#}", result["warnings"]);
    }
    assert_eq!(arm(&result, "ssh-unix-64")["against"], "ssh-tcp-64");
    assert_eq!(arm(&result, "unix-64")["against"], Value::Null);
    assert!(arm(&result, "dump-tcp")["outcomes"]["elapsed_s"]["toll_pct"].is_number());
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    for says in ["time until done", " vs tcp-64 (", "TCP with TLS"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_run_goes_on_though_the_file_of_its_program_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("toll").display().to_string();
    // Not by this process: what a test beside this one forks would keep the copy open for writing.
    let copied = std::process::Command::new("cp").args([env!("CARGO_BIN_EXE_toll"), &program]).status();
    assert!(copied.unwrap().success());
    let lab = lab::Lab::of(&program, env!("CARGO_TARGET_TMPDIR"));
    let out = lab.path("run");
    let arms = ["--arms", "tcp-64,text-64", "--rounds", "2", "--window", "300ms", "--rate", "300"];
    let options = ["--rows", "500", "--table-rows", "2000", "--seed", "3", "--out", &out];
    let asked = [&["run", "socket-vs-tcp", "--profile", "quick"], &arms[..], &options].concat();
    let mut run = lab.spawn(&asked);
    lab.wait_for_trials(&mut run, &out, 1);
    // As a package's upgrade does it.
    let newer = lab.write("newer", "#!/bin/sh\nexit 1\n");
    std::fs::rename(newer, &program).unwrap();
    let status = run.wait().unwrap();
    assert!(status.success(), "{}", lab.words_of_spawned());
    let result = read_result(&out);
    for name in ["tcp-64", "text-64"] {
        assert_eq!(arm(&result, name)["windows"], 2, "{name}: {:#}", result["warnings"]);
    }
    lab.assert_nothing_left();
}

#[test]
fn sysbench_drives_lasting_and_short_connections() {
    if toll_sys::program::find_program("sysbench").is_none() {
        toll_testkit::skip!("this test needs sysbench");
        return;
    }
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let arms = "unix-64,tcp-64,unix-short,tcp-short";
    let asked = ["run", "socket-vs-tcp", "--driver", "sysbench", "--profile", "quick", "--out", &out];
    let options = ["--arms", arms, "--threads", "4", "--rounds", "1", "--window", "3s", "--rows", "500"];
    let run = lab.toll(&[&asked[..], &options[..], &["--table-rows", "500"]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let result = read_result(&out);
    for name in arms.split(',') {
        assert_eq!(arm(&result, name)["windows"], 1, "{name}: {:#}", result["warnings"]);
    }
    let rate = |name: &str| arm(&result, name)["outcomes"]["tps"]["mean"].as_f64().unwrap();
    assert!(rate("unix-short") > 0.0 && rate("tcp-short") > 0.0, "nothing was done");
    lab.assert_nothing_left();
}

#[test]
fn a_sweep_runs_each_arm_again_at_every_rate_and_draws_its_curve() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let asked =
        ["run", "load-curve", "--profile", "quick", "--sweep=20,50", "--rates", "300,900", "--out", &out];
    let options = ["--rounds", "1", "--window", "500ms", "--rows", "500", "--seed", "3"];
    let run = lab.toll(&[&asked[..], &options[..]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let result = read_result(&out);
    assert_eq!(arm(&result, "tcp-50")["against"], "unix-50");
    let plan = std::fs::read_to_string(Path::new(&out).join("plan.json")).unwrap();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    // How much of a rate a busy host attains in half a second is its own affair.
    for (name, rate_per_s) in [("tcp-20", 300.0), ("unix-20", 300.0), ("tcp-50", 900.0), ("unix-50", 900.0)] {
        assert_eq!(arm(&plan, name)["workload"]["rate_per_s"], rate_per_s, "{name}");
        assert!(arm(&result, name)["executed"].as_u64().unwrap() > 0, "{name}");
    }
    let chart = &result["charts"][0];
    let curves: Vec<_> = chart["series"].as_array().unwrap().iter().map(|s| s["name"].clone()).collect();
    assert_eq!(curves, ["tcp", "unix"]);
    lab.assert_nothing_left();
}

#[test]
fn an_interrupted_run_still_reports_and_leaves_nothing() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let mut child = lab.spawn(&[
        "run",
        "tcpdump-impact",
        "--profile",
        "quick",
        "--rows",
        "500",
        "--arms",
        "slowlog-all,placebo",
        "--rounds",
        "50",
        "--window",
        "800ms",
        "--rate",
        "300",
        "--out",
        &out,
    ]);
    // A whole round of three arms at five steps each: until then chance decides whether the baseline has run.
    lab.wait_for_trials(&mut child, &out, 15);
    lab.signal(&child, "INT");
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let result = read_result(&out);
    assert_eq!(result["complete"], false);
    assert!(arm(&result, "baseline")["executed"].as_u64().unwrap() > 0);
    lab.assert_nothing_left();
}

#[test]
fn system_a_run_of_a_given_time_chooses_its_windows_by_a_pilot_and_ends_whole() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let asked =
        ["run", "tcpdump-impact", "--profile", "quick", "--arms", "slowlog-all,placebo", "--rows", "500"];
    let run = lab.toll(&[&asked[..], &["--time", "40s", "--out", &out]].concat());
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{said}");
    assert!(
        said.contains("3 variants in 40 s: ") && said.contains("minimum detectable effect (80% power): "),
        "{said}"
    );
    let plan: serde_json::Value =
        serde_json::from_slice(&std::fs::read(Path::new(&out).join("plan.json")).unwrap()).unwrap();
    assert!(plan["pilot"]["noise"]["seen"].as_array().is_some_and(|seen| !seen.is_empty()), "{plan}");
    assert!(plan["pilot"]["took_s"].as_f64().is_some_and(|s| s > 0.0), "{plan}");
    assert!(plan["time_s"].as_f64().is_some_and(|s| s < 40.0), "{plan}");
    let result = read_result(&out);
    assert_eq!(result["complete"], true, "{said}");
    assert_eq!((&result["rounds_done"], &result["window_s"]), (&result["rounds_planned"], &plan["window_s"]));
    lab.assert_nothing_left();
}

#[test]
fn system_a_killed_run_is_put_right_by_clean_and_its_directory_is_readable() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let before = server.variables();
    let out = lab.path("run");
    let mut child = lab.spawn(&[
        "run",
        "tcpdump-impact",
        "--profile",
        "quick",
        "--rows",
        "500",
        "--arms",
        "slowlog-all",
        "--rounds",
        "50",
        "--window",
        "800ms",
        "--server",
        &server.dsn(),
        "--allow-schema",
        "toll_killed",
        "--yes",
        "--out",
        &out,
    ]);
    lab.wait_for_trials(&mut child, &out, 6);
    child.kill().unwrap();
    child.wait().unwrap();
    let clean = lab.toll(&["clean"]);
    assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stderr));
    assert_eq!(server.variables(), before);
    assert!(!server.schemas().contains("toll_killed"));
    let report = lab.toll(&["report", &out]);
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    assert!(String::from_utf8_lossy(&report.stdout).contains("is incomplete"));
    lab.assert_nothing_left();
}

#[test]
fn wrong_arguments_are_answered_in_one_line_that_says_what_to_do() {
    let lab = toll_testkit::lab!();
    for (arguments, expected) in [
        (vec!["run", "tcpdump-inpact"], "Did you mean tcpdump-impact? `toll list` shows all"),
        (vec!["run", "no-such-scenario"], "no file \"no-such-scenario\". `toll list` shows all scenarios"),
        (vec!["list", "calibrations"], "Did you mean calibration?"),
        (vec!["run", "tcpdump-impact", "--profile", "slow"], "it has faithful, quick, standard"),
        (vec!["run", "tcpdump-impact", "--time", "3x"], "\"3x\" is not a duration"),
        (vec!["run", "tcpdump-impact", "--find", "0%"], "above 0% and at most 100%"),
        (vec!["run", "tcpdump-impact", "--find", "2%", "--rounds", "5"], "cannot be used with '--rounds"),
        (vec!["run", "tcpdump-impact", "--arms", "Z"], "has no arm `Z`"),
        (vec!["run", "tcpdump-impact", "--server", "mysql://root:secret@127.0.0.1:1/x"], "MYSQL_PWD"),
        (vec!["load", "read-only", "--dsn", "mysql://root:secret@127.0.0.1:1/x"], "MYSQL_PWD"),
        (vec!["clean", "--server", "mysql://root:secret@127.0.0.1:1/x"], "MYSQL_PWD"),
        (vec!["clean", "--server", "nowhere.cnf"], "taken for an option file"),
        (vec!["run", "tcpdump-impact", "--server", "mysql://root@127.0.0.1:1/x", "--yes"], "127.0.0.1:1"),
        (vec!["run", "tcpdump-impact", "--server-bin", "/no/such/mysqld"], "/no/such/mysqld"),
        (vec!["cost", "--server", "mysql://root@127.0.0.1:1/x", "--yes", "--", "true"], "127.0.0.1:1"),
    ] {
        let run = lab.toll(&arguments);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success(), "{arguments:?} was accepted");
        assert!(said.contains(expected), "{arguments:?} said: {said}");
        assert!(!said.contains("secret"), "{said}");
        assert!(lab.runs().is_empty(), "{arguments:?} left {:?}", lab.runs());
    }
}

/// On a host whose CPUs a load keeps busy, the kernel lets a capture begin once the load pauses. This tool begins no sooner.
#[test]
fn a_tool_that_is_slow_to_begin_has_the_load_paused_until_it_does() {
    let lab = toll_testkit::lab!();
    let script = "while :; do\n\
        for child in $(cat /proc/$PPID/task/*/children); do\n\
        if grep -qs '^State:.T' /proc/$child/status; then echo ready >&2; exec sleep 100; fi\n\
        done\nsleep 0.05\ndone\n";
    let tool = lab.write("tool.sh", script);
    let arm_of_tool =
        format!("[[arm]]\nname = \"tool\"\ntitle = \"tool\"\ncommand = \"sh {tool}\"\nready = \"ready\"\n");
    let text = scenario(1, &arm_of_tool).replace("rate = 300.0\n", "");
    let (file, out) = (lab.write("slow.toml", &text), lab.path("run"));
    let run = lab.toll(&["run", &file, "--out", &out]);
    assert!(run.status.success(), "{}", lab::output_text(&run));
    let result = read_result(&out);
    for name in ["none", "tool"] {
        assert_eq!(arm(&result, name)["windows"], 1, "{}", lab::output_text(&run));
        // The load went on for the window.
        assert!(arm(&result, name)["outcomes"]["qps"]["mean"].as_f64() > Some(0.0), "{result:#}");
    }
    lab.assert_nothing_left();
}
