//! Tests of `toll cost` with any kind of command, and of its errors before a server is started.

use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use toll_testkit::lab::{Lab, arm, read_result, scenario};

const SMALL: [&str; 8] = ["--rounds", "1", "--settle", "100ms", "--rows", "500", "--rate", "300"];

fn cost(lab: &Lab, options: &[&str], command: &[&str]) -> Output {
    let window = if options.contains(&"--window") { &[][..] } else { &["--window", "500ms"] };
    lab.toll(&[&["cost"], &SMALL[..], window, options, &["--"], command].concat())
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], b"\n", &output.stderr[..]].concat()).into_owned()
}

#[test]
fn system_a_command_that_ends_by_itself_closes_its_window_or_is_run_again() {
    let lab = toll_testkit::lab!();
    for (options, expected) in [
        (&[][..], "its windows lasted until the command ended"),
        (&["--repeat"][..], "run again until the window ended"),
    ] {
        let out = lab.path(&format!("run{}", options.len()));
        // Long enough that a busy host ends it within that time, and that some of the load falls in its window.
        let options = [options, &["--window", "4s", "--out", &out]].concat();
        let run = cost(&lab, &options, &["sh", "-c", "cat {datadir}/ibdata1 >/dev/null; sleep 0.3"]);
        assert!(run.status.success(), "{}", output_text(&run));
        let result = read_result(&out);
        let arm = arm(&result, "command");
        assert_eq!(arm["windows"], 1, "{}", output_text(&run));
        assert!(arm["executed"].as_u64().unwrap() > 0, "no load ran beside it");
        let notes = arm["notes"].to_string();
        assert!(notes.contains(expected), "{notes}");
        // A child of the shell did the reading, and has ended by the window's end.
        assert!(arm["outcomes"]["treatment_cpu_us_per_query"]["mean"].as_f64().unwrap() > 0.0);
        let plan = std::fs::read_to_string(Path::new(&out).join("plan.json")).unwrap();
        let ends = if options.contains(&"--repeat") { "\"again\": true" } else { "\"until\": \"done\"" };
        assert!(plan.contains(ends), "{plan}");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_command_that_lasts_is_priced_throughout_its_window() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let run = cost(&lab, &["--out", &out], &["sleep", "{duration_s}"]);
    assert!(run.status.success(), "{}", output_text(&run));
    assert_eq!(arm(&read_result(&out), "command")["windows"], 1);
    assert!(output_text(&run).contains("runs throughout its windows"), "{}", output_text(&run));
    lab.assert_nothing_left();
}

#[test]
fn a_command_that_cannot_be_started_is_an_error_and_leaves_no_run() {
    let lab = toll_testkit::lab!();
    let plain = lab.write("plain", "");
    assert_refused(
        &lab,
        &[
            (&["/no/such/program"], "there is no /no/such/program"),
            (&["no-such-program"], "no-such-program is not installed"),
            (&[plain.as_str()], "cannot be executed"),
            (&["echo", "{nosuch}"], "unknown placeholder {nosuch}"),
        ],
    );
}

// That it fails has to be seen within the seconds for which a command is tried.
#[test]
fn system_a_command_that_fails_is_an_error_and_leaves_no_run() {
    assert_refused(
        &toll_testkit::lab!(),
        &[
            (&["false"], "false failed (exit status: 1)"),
            (&["sh", "-c", "echo out of luck >&2; exit 3"], "its output: out of luck"),
        ],
    );
}

/// Each of these commands is an error that says what is expected.
fn assert_refused(lab: &Lab, commands: &[(&[&str], &str)]) {
    for (command, expected) in commands {
        let run = cost(lab, &[], command);
        assert_eq!(run.status.code(), Some(1), "{command:?}: {}", output_text(&run));
        assert!(output_text(&run).contains(expected), "{command:?}: {}", output_text(&run));
        assert!(lab.runs().is_empty(), "{command:?} left {:?}", lab.runs());
    }
    lab.assert_nothing_left();
}

#[test]
fn wrong_arguments_are_told_before_anything_is_started() {
    let lab = toll_testkit::lab!();
    let run = |bound: &str| lab.toll(&["run", "tcpdump-impact", "--arms", "A", "--fail-if", bound]);
    for (output, code, expected) in [
        (run("Q.qps<-5%"), 1, "the run has no arm \"Q\": it has baseline, slowlog-all"),
        (run("none.qps<-5%"), 1, "a bound needs another arm"),
        (lab.toll(&["cost", "--workload", "oltp", "--", "true"]), 2, "choose one of read-only"),
        (lab.toll(&["cost", "--rounds", "0", "--", "true"]), 2, "1..=10000"),
        (lab.toll(&["cost", "--env", "NO_SUCH_VARIABLE", "--", "true"]), 1, "NO_SUCH_VARIABLE is not set"),
    ] {
        assert_eq!(output.status.code(), Some(code), "{}", output_text(&output));
        assert!(output_text(&output).contains(expected), "{}", output_text(&output));
        assert!(lab.runs().is_empty());
    }
}

#[test]
fn system_a_path_with_blanks_and_quotes_is_one_word_and_the_file_beside_it_is_untouched() {
    let lab = toll_testkit::lab!();
    std::fs::create_dir(lab.path("sp")).unwrap();
    let neighbour = lab.write("sp/my", "precious");
    let mine = lab.write(
        "mine.toml",
        &scenario(
            1,
            r#"
[define]
writer = "sh -c 'printf caught > \"$0\"; echo written >&2; exec sleep 100'"
[[arm]]
name = "word"
title = "writes to the file that it is told"
command = "{writer} {artefact}"
ready = "written"
artefact = "bytes"
[[arm]]
name = "stdout"
title = "writes to its output"
stages = ["echo caught", "cat"]
stdout = "{artefact}"
artefact = "bytes"
ends = "closes-window"
[[arm]]
name = "log"
title = "the server writes"
set = { log_output = "FILE", general_log_file = "{artefact}", general_log = "1" }
artefact = "general-log"
"#,
        ),
    );
    for out in ["sp/my \"odd' run", "sp/my run"] {
        let out = lab.path(out);
        let run = lab.toll(&["run", &mine, "--keep-artefacts", "--out", &out]);
        assert!(run.status.success(), "{}", output_text(&run));
        assert_eq!(std::fs::read_to_string(&neighbour).unwrap(), "precious");
        let result = read_result(&out);
        for arm in result["arms"].as_array().unwrap() {
            assert_eq!(arm["windows"], 1, "{}", output_text(&run));
        }
        let mut sizes = 0;
        for entry in std::fs::read_dir(Path::new(&out).join("artefacts")).unwrap().flatten() {
            let is_artefact = entry.path().extension().is_some_and(|e| e == "bin" || e == "log");
            sizes += u32::from(is_artefact && entry.metadata().unwrap().len() > 0);
        }
        assert_eq!(sizes, 3, "each of three arms kept its artefact");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_password_in_a_command_is_in_no_file_and_on_no_stream() {
    let lab = toll_testkit::lab!();
    let script = "mariadb-dump --no-defaults -pHUNTER2 nothing; export MYSQL_PWD=HUNTER2; exec sleep 100";
    for (at, command) in [
        &["sh", "-c", script][..],
        &["sh", "-c", "exec sleep 100", "x", "-pHUNTER2"],
        &["env", "MY_API_KEY=HUNTER2", "sh", "-c", "exec sleep 100", "mysql://u:HUNTER2@h", "h=x,p=HUNTER2"],
    ]
    .iter()
    .enumerate()
    {
        let out = lab.path(&format!("run{at}"));
        let run = cost(&lab, &["--out", &out], command);
        assert!(run.status.success(), "{}", output_text(&run));
        assert!(
            !output_text(&run).contains("HUNTER2") && output_text(&run).contains("***"),
            "{}",
            output_text(&run)
        );
        assert_eq!(files_with(Path::new(&out), "HUNTER2"), [""; 0]);
        for format in ["text", "json", "md", "html"] {
            let report = lab.toll(&["report", &out, "--format", format]);
            assert!(
                report.status.success() && !output_text(&report).contains("HUNTER2"),
                "{format}: {}",
                output_text(&report)
            );
            if format == "html" {
                let data = toll_testkit::report_page::page_data(&output_text(&report));
                assert!(data.contains("***") && !data.contains("HUNTER2"));
            }
        }
    }
    // An error quotes the tool, or the command.
    for command in [&["sh", "-xc", "mysql_x -pHUNTER2"][..], &["MYSQL_PWD=HUNTER2", "mysqldump"]] {
        let run = cost(&lab, &[], command);
        assert!(!run.status.success() && !output_text(&run).contains("HUNTER2"), "{}", output_text(&run));
    }
    lab.assert_nothing_left();
}

fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).contains(text) {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[test]
fn a_command_is_given_the_variables_that_are_named_and_no_others() {
    let lab = toll_testkit::lab!();
    // Cargo sets this one for its tests; it is not among those that any child is given.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let command = ["sh", "-c", "test -n \"$CARGO_MANIFEST_DIR\" && exec sleep 100"];
    let without = cost(&lab, &[], &command);
    assert_eq!(without.status.code(), Some(1), "{}", output_text(&without));
    let out = lab.path("run");
    let with = cost(&lab, &["--env", "CARGO_MANIFEST_DIR", "--out", &out], &command);
    assert!(with.status.success(), "{}", output_text(&with));
    assert_eq!(arm(&read_result(&out), "command")["windows"], 1);
}

#[test]
fn the_line_that_repeats_a_run_can_be_pasted() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let run = cost(&lab, &["--out", &out, "--seed", "7", "--gap", "10ms"], &["sleep", "{duration_s}"]);
    assert!(run.status.success(), "{}", output_text(&run));
    let command: Vec<String> = serde_json::from_value(read_result(&out)["command"].clone()).unwrap();
    let words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    assert!(!words.contains(&"--out") && words.join(" ").contains("--seed 7 --"), "{words:?}");
    let again = lab.toll(&words);
    assert!(again.status.success(), "{}", output_text(&again));
    assert_eq!(lab.runs().len(), 1);
}

#[test]
fn an_example_of_the_documents_runs() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/dump.toml");
    let sizes =
        ["--rounds", "1", "--window", "600ms", "--settle", "100ms", "--rows", "500", "--table-rows", "500"];
    let run = lab.toll(&[&["run", example.to_str().unwrap(), "--out", &out], &sizes[..]].concat());
    assert!(run.status.success(), "{}", output_text(&run));
    for arm in read_result(&out)["arms"].as_array().unwrap() {
        if let Some(why) = arm["unavailable"].as_str() {
            assert!(why.contains("not installed"), "{why}");
            toll_testkit::skip!("{}: {why}", arm["name"]);
            continue;
        }
        assert_eq!(arm["windows"], 1, "{}", output_text(&run));
    }
    lab.assert_nothing_left();
}

#[test]
fn on_an_existing_server_its_own_traffic_is_measured_and_no_load_is_added() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let [before, variables] = [server.schemas(), server.variables()];
    let written = || {
        server.rows(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_create_table', 'Com_create_db', 'Com_insert')",
        )
    };
    let writes = written();
    let is_over = AtomicBool::new(false);
    let run = std::thread::scope(|scope| {
        // Users: without them, there is no traffic to measure under.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.rows("SELECT BENCHMARK(1000, SHA1('x'))");
            }
        });
        let options =
            ["--server", &dsn, "--rounds", "2", "--window", "2s", "--settle", "100ms", "--out", &out];
        let run = lab.toll(&[&["cost"], &options[..], &["--", "sleep", "{duration_s}"]].concat());
        is_over.store(true, Ordering::Relaxed);
        run
    });
    assert!(run.status.success(), "{}", output_text(&run));
    assert!(!output_text(&run).contains("load on the server"), "{}", output_text(&run));
    let result = read_result(&out);
    for name in ["baseline", "baseline-again", "command"] {
        let arm = arm(&result, name);
        assert_eq!(arm["windows"], 2, "{}", output_text(&run));
        assert!(arm["outcomes"]["qps"]["mean"].as_f64().unwrap() > 1.0, "{arm}");
        assert!(arm["outcomes"]["latency_us_mean"].is_null(), "nobody measured response times: {arm}");
    }
    assert!(arm(&result, "command")["outcomes"]["cpu_us_per_query"]["mean"].as_f64().unwrap() > 0.0);
    let plan = std::fs::read_to_string(Path::new(&out).join("plan.json")).unwrap();
    assert!(plan.contains("\"driver\": \"none\"") && !plan.contains("\"driver\": \"toll\""), "{plan}");
    assert_eq!([server.schemas(), server.variables()], [before, variables]);
    assert_eq!(written(), writes, "toll has written to the server");
    lab.assert_nothing_left();
}

#[test]
fn options_of_a_load_are_refused_where_none_was_asked_for() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let dsn = server.dsn();
    for options in
        [&["--rate", "300"][..], &["--allow-schema", "toll_load"], &["--threads", "2"], &["--rows", "9"]]
    {
        let refused = lab.toll(&[&["cost", "--server", &dsn], options, &["--", "true"]].concat());
        let text = output_text(&refused);
        assert_eq!(refused.status.code(), Some(1), "{text}");
        assert!(text.contains(options[0]) && text.contains("Add --load"), "{text}");
    }
    // On a sandbox there is a load anyway.
    let sandbox = lab.toll(&["cost", "--load", "--rate", "300", "--dry-run", "--", "true"]);
    assert!(sandbox.status.success(), "{}", output_text(&sandbox));
    lab.assert_nothing_left();
}

#[test]
fn a_bound_that_the_command_exceeds_is_exit_code_3() {
    let lab = toll_testkit::lab!();
    let wrong = lab.toll(&["cost", "--fail-if", "nosuch>5%", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", output_text(&wrong));
    assert!(output_text(&wrong).contains("--fail-if 'command.nosuch>5%'"), "{}", output_text(&wrong));
    // However a baseline stalls, no answer takes no time.
    let run = cost(&lab, &["--fail-if", "latency_us_mean>-100%"], &["sleep", "{duration_s}"]);
    assert_eq!(run.status.code(), Some(3), "{}", output_text(&run));
    lab.assert_nothing_left();
}
