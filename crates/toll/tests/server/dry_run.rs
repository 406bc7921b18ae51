//! Tests of `--dry-run`: it says what a run would do, and does nothing of it.

use std::path::Path;
use toll_testkit::lab::{Lab, output_text, scenario};

/// The output of a dry run that leaves nothing behind, not even an entry in its directory.
fn dry_run(lab: &Lab, arguments: &[&str]) -> String {
    let entries = || std::fs::read_dir(lab.path("")).unwrap().count();
    let before = entries();
    let output = lab.toll(arguments);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("Dry run: nothing was started, changed or loaded."), "{text}");
    assert_eq!(entries(), before, "{text}");
    assert!(lab.runs().is_empty());
    lab.assert_nothing_left();
    text
}

fn assert_says(text: &str, expected: &[&str]) {
    for words in expected {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_dry_run_on_a_sandbox_says_what_it_would_start_and_starts_nothing() {
    let lab = toll_testkit::lab!();
    let arms = "[[arm]]\nname = \"log\"\ntitle = \"the general log\"\n\
         set = { log_output = \"FILE\", general_log_file = \"{artefact}\", general_log = \"1\" }\n\
         artefact = \"general-log\"\n\
         [[arm]]\nname = \"capture\"\ntitle = \"a capture\"\ncommand = \"touch {artefact} 'port {port}'\"\n\
         artefact = \"bytes\"\n\
         [[arm]]\nname = \"absent\"\ntitle = \"a program\"\ncommand = \"no-such-program x\"\n";
    let file = lab.write("mine.toml", &scenario(2, arms));
    let text = dry_run(&lab, &["run", &file, "--dry-run", "--out", "here"]);
    assert_says(
        &text,
        &[
            "profile quick",
            "1 sandbox server of /",
            "1 table of ",
            " MB",
            "2 connections (read-only) at 300 events/s, by toll",
            "for 2 rounds, after the data is prepared",
            "the directory here",
            "of 2 variants, of a size that the run shows; removed after each trial",
            "Needs      no special rights",
            "settings of the server get their old values",
            "processes of the variants are ended",
            "their data directories removed",
            "by `toll clean`",
            "SET GLOBAL general_log_file=ARTEFACT, log_output=FILE, general_log=1",
            "touch ARTEFACT 'port {port}'",
            "cannot run here: no-such-program is not installed",
        ],
    );
    let kept = dry_run(&lab, &["run", &file, "--dry-run", "--keep-artefacts", "--time", "10m"]);
    assert_says(&kept, &["kept in it", "10 min 00 s, after the data is prepared; a pilot chooses", "run-"]);
    let find = dry_run(&lab, &["run", &file, "--dry-run", "--find", "5%"]);
    assert_says(&find, &["as long as the effect to be found needs"]);
    let share = dry_run(&lab, &["run", "backup-throttle", "--dry-run"]);
    assert_says(
        &share,
        &["rates are shares of the capacity, which is measured first, at full speed", "for 12 rounds"],
    );
    let options = dry_run(&lab, &["run", "durability", "--dry-run"]);
    assert_says(&options, &["2 sandbox servers of /", "a sandbox with innodb_doublewrite="]);
    let counted = dry_run(&lab, &["run", "tcpdump-impact", "--variants", "B", "--exact", "--dry-run"]);
    assert_says(&counted, &["in virtual machines", "by counted instructions", "no special rights"]);
    let cost = dry_run(&lab, &["cost", "--dry-run", "--", "tcpdump", "-w", "{artefact}", "port {port}"]);
    assert_says(&cost, &["8 tables of 10000 rows", "at full speed", "tcpdump -w ARTEFACT 'port {port}'"]);
}

#[test]
fn a_dry_run_on_an_existing_server_does_not_even_connect() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let connections = || -> u64 {
        let status = server.rows("SHOW GLOBAL STATUS LIKE 'Connections'");
        status.split('"').filter_map(|word| word.parse().ok()).next_back().unwrap()
    };
    let (dsn, before) = (server.dsn(), connections());
    let run = [
        "run",
        "tcpdump-impact",
        "--profile",
        "quick",
        "--variants",
        "perf-schema,cpu-control",
        "--server",
        &dsn,
        "--dry-run",
    ];
    let text = dry_run(&lab, &[&run[..], &["--allow-schema", "toll_load", "--rate", "300"]].concat());
    assert_says(
        &text,
        &[
            "the existing server at ",
            "as root; the schema toll_load is created, filled and dropped",
            "8 connections (read-only) at 300 events/s",
            "SUPER or SYSTEM_VARIABLES_ADMIN on the server: perf-schema",
            "the schema toll_load is dropped",
            "UPDATE performance_schema.setup_consumers SET ENABLED=YES",
            "toll burn '10%'",
        ],
    );
    assert!(!text.contains("--yes") && !text.contains("sandbox"), "{text}");
    let full_speed = dry_run(&lab, &[&run[..], &["--schema", "shop"]].concat());
    assert_says(
        &full_speed,
        &["at full speed", "--yes, or an answer", "the tables of shop are used as they are"],
    );
    // A run that would be refused is refused.
    let refused = lab.toll(&run);
    assert!(!refused.status.success() && output_text(&refused).contains("--allow-schema"));

    let cost = dry_run(&lab, &["cost", "--server", &dsn, "--dry-run", "--", "vmstat", "1"]);
    assert_says(&cost, &["none: the server's own traffic", "no table is created or read", "vmstat 1"]);
    assert!(!cost.contains("Data ") && !cost.contains("--yes"), "{cost}");
    let loaded =
        ["cost", "--server", &dsn, "--load", "--allow-schema", "toll_load", "--rate", "20", "--dry-run"];
    let loaded = dry_run(&lab, &[&loaded[..], &["--", "vmstat", "1"]].concat());
    assert_says(&loaded, &["8 connections (read-only) at 20 events/s", "toll_load is created"]);
    // The look at the counter itself.
    assert_eq!(connections(), before + 1);
}

#[test]
fn a_dry_run_of_a_plan_shows_that_plan() {
    let lab = toll_testkit::lab!();
    let arm = "[[arm]]\nname = \"it\"\ntitle = \"a command\"\ncommand = \"sleep 60\"\n";
    let (file, out) = (lab.write("one.toml", &scenario(1, arm)), lab.path("run"));
    let run = lab.toll(&["run", &file, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let plan = Path::new(&out).join("plan.json").display().to_string();
    let text = dry_run(&lab, &["run", "--plan", &plan, "--dry-run"]);
    assert_says(&text, &["for 1 round", "1 sandbox server of /", "sleep 60"]);
}
