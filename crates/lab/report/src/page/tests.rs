//! Tests of the page's data: complete, small, and without secrets.

use super::*;

use std::collections::BTreeMap;
use std::path::Path;
use toll_record::catalogue::CATALOGUE;
use toll_record::{
    Arm, ArtefactKind, Bin, Host, Meter, Plan, Role, RunWriter, Sample, Server, Setup, Step, TrialLine,
    Window, Workload,
};

fn an_arm(name: &str) -> Arm {
    Arm {
        name: name.into(),
        title: name.into(),
        role: if name == "none" { Role::Baseline } else { Role::Treatment },
        varied: Vec::new(),
        command: String::new(),
        workload: Workload {
            driver: "toll".into(),
            profile: "read-only".into(),
            transport: "tcp".into(),
            threads: 8,
            tables: 8,
            rows: 1000,
            prepared: true,
            reconnect_every: 0,
            workers: None,
            delay_pct: None,
            rate_per_s: None,
        },
        artefact: (name != "none").then_some(ArtefactKind::Pcap),
        count_with: vec![],
        in_memory: false,
        selects: false,
        against: None,
        judged_by: None,
        curve: None,
        unavailable: None,
        burn_share: None,
        settle_s: 1.0,
        meter: Meter::Driver,
        window: Window::Time { s: 5.0 },
        treatment: Default::default(),
        needs: Default::default(),
        server_options: BTreeMap::new(),
    }
}

fn a_plan() -> Plan {
    Plan {
        format: toll_record::FORMAT,
        toll_version: "0.1.0".into(),
        command: ["toll", "cost", "--", "mysqldump", "--password", "hunter2", "-phunter2"]
            .map(String::from)
            .into(),
        scenario: "cost".into(),
        question: "What does it cost?".into(),
        profile: "quick".into(),
        clock: toll_record::Clock::Real,
        seed: u64::MAX - 1,
        baseline: "none".into(),
        primary: "latency_us_mean".into(),
        outcomes: CATALOGUE.outcomes.clone(),
        columns: CATALOGUE.columns.clone(),
        panels: CATALOGUE.panels.clone(),
        contrasts: Vec::new(),
        limits: Vec::new(),
        pareto: None,
        charts: Vec::new(),
        margin_pct: 5.0,
        alpha: 0.05,
        rounds: 6,
        time_s: None,
        long: None,
        window_s: 5.0,
        settle_s: 1.0,
        gap_s: 0.0,
        pilot_s: 0.0,
        held_in: None,
        early_stop: false,
        design: toll_record::Design::default(),
        classes: Vec::new(),
        setup: Setup::default(),
        server: Some(Server {
            kind: "sandbox".into(),
            flavour: "mariadb".into(),
            version: "10.11.14".into(),
            address: "127.0.0.1:13306".into(),
            config: vec![],
        }),
        arms: ["none", "B"].map(an_arm).into(),
        order: vec![vec!["none".into(), "B".into()]],
        jitter: 0.2,
        planned_mde_pct: None,
        spread: None,
        pilot: None,
        started_wall_us: 1_790_000_000_000_000,
    }
}

fn a_step(trial: u32, step: Step, mono_us: u64) -> TrialLine {
    TrialLine {
        mono_us,
        wall_us: 1_790_000_000_000_000 + mono_us,
        trial,
        round: 0,
        arm: "B".into(),
        step,
        cpu: None,
        artefact_bytes: None,
        runs: None,
        runs_us: None,
        processes: Vec::new(),
        stages: Vec::new(),
        note: None,
    }
}

fn a_bin(mono_us: u64, events: u64) -> Sample {
    Sample::Bin(Bin {
        mono_us,
        width_us: 100_000,
        statements: events * 16,
        events,
        errors: 0,
        errors_by_code: BTreeMap::new(),
        latency_us_sum: events * 2_000,
        latency_us_max: Some(9_000),
        in_flight: 8,
        oldest_us: 1_500,
    })
}

fn a_run(at: &Path) -> RunWriter {
    let writer = RunWriter::create(at).unwrap();
    writer.write_json("plan.json", &a_plan()).unwrap();
    writer
}

fn page_of(root: &Path) -> Value {
    serde_json::to_value(of(&[RunDir::open(root).unwrap()])).unwrap()
}

fn of(runs: &[RunDir]) -> Page {
    let results: Vec<RunResult> =
        runs.iter().map(|run| toll_analysis::analyse_run_dir(run).unwrap()).collect();
    Page::of_runs(runs, &results).unwrap()
}

#[test]
fn a_run_that_died_half_way_names_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = a_run(&dir.path().join("run-1"));
    writer.write_trial(&a_step(0, Step::Start, 5_000_000)).unwrap();
    writer.write_trial(&a_step(0, Step::WindowBegin, 6_000_000)).unwrap();
    writer.write_sample(&a_bin(6_100_000, 50)).unwrap();
    writer.flush().unwrap();
    let page = page_of(&dir.path().join("run-1"));
    let run = &page["runs"][0];
    let parts: Vec<_> =
        run["missing"].as_array().unwrap().iter().map(|m| m["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["host.json", "artefacts.ndjson"]);
    assert_eq!(run["result"]["complete"], false);
    let span = &run["timeline"]["spans"][0];
    assert_eq!((&span["window_begin_ms"], &span["window_end_ms"]), (&1000.into(), &Value::Null));
    assert!(
        !page.to_string().contains(&dir.path().display().to_string()),
        "the page tells where the run lay"
    );
}

#[test]
fn a_run_that_was_to_catch_nothing_lacks_no_artefacts() {
    let dir = tempfile::tempdir().unwrap();
    let writer = RunWriter::create(dir.path().join("run-1")).unwrap();
    let arms = ["none", "B"].map(|name| Arm { artefact: None, ..an_arm(name) }).into();
    writer.write_json("plan.json", &Plan { arms, ..a_plan() }).unwrap();
    let missing = page_of(&dir.path().join("run-1"))["runs"][0]["missing"].to_string();
    assert!(!missing.contains("artefacts.ndjson") && missing.contains("trials.ndjson"), "{missing}");
}

#[test]
fn a_bin_in_which_nothing_completed_has_no_latency() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = a_run(&dir.path().join("run-1"));
    for (i, events) in [40, 0, 0, 60].into_iter().enumerate() {
        writer.write_sample(&a_bin(1_000_000 + 100_000 * i as u64, events)).unwrap();
    }
    writer.flush().unwrap();
    let page = page_of(&dir.path().join("run-1"));
    let panels = page["runs"][0]["timeline"]["panels"].as_array().unwrap();
    assert_eq!(panels[0]["series"][0]["v"], serde_json::json!([6400, 0, 0, 9600]));
    assert_eq!(panels[1]["series"][0]["v"], serde_json::json!([2000, null, null, 2000]));
    assert_eq!(page["runs"][0]["timeline"]["times"][0], serde_json::json!([0, 100, 100, 100]));
}

#[test]
fn no_password_of_a_priced_command_reaches_the_page() {
    let dir = tempfile::tempdir().unwrap();
    a_run(&dir.path().join("run-1"));
    let text = page_of(&dir.path().join("run-1")).to_string();
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_seed_that_a_browser_would_round_travels_as_text() {
    let dir = tempfile::tempdir().unwrap();
    a_run(&dir.path().join("run-1"));
    assert_eq!(page_of(&dir.path().join("run-1"))["runs"][0]["plan"]["seed"], "18446744073709551614");
}

#[test]
fn runs_are_named_by_what_tells_them_apart() {
    let dir = tempfile::tempdir().unwrap();
    let runs: Vec<RunDir> = ["run-1", "run-2"]
        .map(|name| {
            let root = dir.path().join(name);
            let host = Host { label: "2-core x86_64 vm".into(), ..Host::default() };
            a_run(&root).write_json("host.json", &host).unwrap();
            RunDir::open(root).unwrap()
        })
        .into();
    let page = of(&runs);
    assert_eq!(page.runs[0].name, "2-core x86_64 vm, mariadb 10.11.14 (run-1)");
    assert_eq!(page.runs[1].name, "2-core x86_64 vm, mariadb 10.11.14 (run-2)");
}
