//! Tests of a run's reports for people, programs and shells.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use std::path::Path;
use std::process::{Command, Output};
use toll_analysis as analyse;
use toll_record::{Role, RunResult, Step};
use toll_report::bound::Bound;
use toll_report::text::{ColourMode, Detail, text};
use toll_report::{forest_plot, json, markdown};

fn a_run() -> RunResult {
    analyse::analyse(&SyntheticRun::with(11, 12, SyntheticArm::usual()).record())
}

/// Compares with `tests/runs/expected/NAME`, or writes it when `TOLL_BLESS` is set.
fn check(name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure/runs/expected").join(name);
    if std::env::var_os("TOLL_BLESS").is_some() {
        std::fs::write(&path, got).expect("the expected output can be written");
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        got, want,
        "{name} differs; look at it, then bless it: TOLL_BLESS=1 cargo test -p toll --test runs"
    );
}

fn toll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toll")).args(arguments).output().expect("the program starts")
}

#[test]
fn the_terminal_report_is_as_expected_and_fits() {
    let text = text(&a_run(), ColourMode::Plain, Detail::All);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    check("report.txt", &text);
}

#[test]
fn the_markdown_report_is_as_expected() {
    check("report.md", &markdown::markdown(&a_run()));
}

#[test]
fn one_round_reads_as_one_round() {
    let run = analyse::analyse(&SyntheticRun::with(2, 1, SyntheticArm::usual()).record());
    check("one-round.txt", &text(&run, ColourMode::Plain, Detail::All));
}

#[test]
fn a_control_that_missed_its_mark_stands_in_the_answer() {
    let mut run = a_run();
    assert!(!run.answer.contains("failed"), "{}", run.answer);
    let missed = |wanted: &[&str]| {
        let mut recorded = SyntheticRun::with(11, 12, SyntheticArm::usual()).record();
        let of_wanted: Vec<u32> =
            recorded.trials.iter().filter(|l| wanted.contains(&l.arm.as_str())).map(|l| l.trial).collect();
        let edge = |trial: u32, wanted: Step| {
            recorded.trials.iter().find(|l| l.trial == trial && l.step == wanted).unwrap().mono_us
        };
        let windows: Vec<(u64, u64)> = of_wanted
            .iter()
            .map(|&trial| (edge(trial, Step::WindowBegin), edge(trial, Step::WindowEnd)))
            .collect();
        for bin in &mut recorded.bins {
            if windows.iter().any(|w| w.0 < bin.mono_us && bin.mono_us <= w.1) {
                bin.statements /= 2;
            }
        }
        analyse::analyse(&recorded)
    };
    run = missed(&["burn"]);
    assert!(run.answer.ends_with(" But the control burn failed (see Checks)."), "{}", run.answer);
    run = missed(&["none-2", "sleep", "burn"]);
    let says = " But the controls none-2, sleep and burn failed (see Checks).";
    assert!(run.answer.ends_with(says), "{}", run.answer);
    assert!(
        markdown::markdown(&run).contains(says)
            && text(&run, ColourMode::Plain, Detail::All).contains("(see Checks)")
    );
}

#[test]
fn checks_state_the_conditions() {
    let mut host = SyntheticRun::with(2, 1, vec![SyntheticArm::new("B", Role::Treatment, 1.1)]);
    host.window_s = 2.0;
    let mut run = analyse::analyse(&host.record());
    run.workload.tables = 1;
    let says = |run: &RunResult, what: &str| {
        let text = text(run, ColourMode::Plain, Detail::All).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(what), "{what}: {text}");
    };
    says(&run, "control none in this run: add a placebo and a positive control");
    says(&run, " 1 table of 100,000 rows");
    says(&run, "1 of 1 round, windows of 2.0 s,");
    let mut dump = run.arms[1].outcomes["qps"].clone();
    dump.values = vec![7.94, 8.61, 8.2];
    run.arms[1].outcomes = [("elapsed_s".to_owned(), dump)].into();
    says(&run, "windows of 2.0 s, those until done 7.9 to 8.6 s,");
    run.arms.remove(0);
    says(&run, "windows until done, 7.9 to 8.6 s,");
}

#[test]
fn colours_change_no_word() {
    let run = a_run();
    let coloured = text(&run, ColourMode::Ansi, Detail::All);
    let mut bare = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    bare.push_str(rest);
    assert_ne!(coloured, bare);
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(&bare), words(&text(&run, ColourMode::Plain, Detail::All)));
}

#[test]
fn json_has_what_is_promised() {
    let json: serde_json::Value = serde_json::from_str(&json::json(&[a_run()], None).unwrap()).unwrap();
    let b = json["arms"].as_array().unwrap().iter().find(|arm| arm["name"] == "B").unwrap();
    let qps = &b["outcomes"]["qps"];
    for number in [
        &qps["mean"],
        &qps["toll_pct"],
        &qps["ci95_pct"][0],
        &qps["ci95_pct"][1],
        &b["artefact"]["bytes"],
        &b["artefact"]["packets"],
        &b["artefact"]["dropped"],
        &b["artefact"]["queries"],
        &b["executed"],
        &b["captured_ratio"],
        &b["stalls"]["count"],
        &json["self_cost"]["cpu_pct_of_one_core"],
        &json["seed"],
    ] {
        assert!(number.is_number(), "{b:#}");
    }
    assert_eq!(qps["verdict"], "costly");
    assert_eq!(json["host"]["cpus"], 2);
    assert_eq!(json["warnings"][0]["code"], "unavailable-arms");
}

#[test]
fn every_doubt_is_in_the_document() {
    let read = |file: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("the file")
    };
    let (source, page) = (read("../lab/analysis/src/warnings.rs"), read("../../docs/reference/report.md"));
    let begin = source.find("pub fn code(").expect("codes");
    let end = begin + source[begin..].find("\n    }\n").expect("their end");
    let codes: Vec<&str> = source[begin..end].split('"').skip(1).step_by(2).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        assert!(page.contains(&format!("| `{code}` |")), "docs/reference/report.md lacks {code}");
    }
}

#[test]
fn the_picture_has_a_row_for_each_treatment_and_none_without_an_interval() {
    let picture = forest_plot::svg(&a_run()).unwrap();
    assert_eq!(picture.matches("<circle ").count(), 3, "{picture}");
    for says in ["Throughput vs none", ">B<tspan", "-50% [-51, -49]", "</svg>"] {
        assert!(picture.contains(says), "{says}: {picture}");
    }
    let one_round = analyse::analyse(&SyntheticRun::with(2, 1, SyntheticArm::usual()).record());
    assert!(forest_plot::svg(&one_round).unwrap_err().to_string().contains("interval in qps"));
}

#[test]
fn several_runs_are_one_json_object() {
    let runs = [a_run(), a_run()];
    let json: serde_json::Value = serde_json::from_str(&json::json(&runs, None).unwrap()).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn bounds_fail_only_tolls_that_are_told_from_zero() {
    let run = a_run();
    let judged = |bound: &str| bound.parse::<Bound>().unwrap().judge(&run);
    assert!(judged("B.qps<-5%").unwrap().broken);
    assert!(judged("B.cpu_us_per_query>5%").unwrap().broken);
    assert!(!judged("B.qps<-50%").unwrap().broken);
    let k = judged("K.stall_s>0.5").unwrap();
    assert!(k.broken && k.text.contains("bound K.stall_s>0.5 failed: +0.60 s [+0."), "{}", k.text);
    assert!(!judged("K.stall_s>1s").unwrap().broken && !judged("C.stall_s>0s").unwrap().broken);
    // What was caught is held against the bound itself, and told from it.
    assert!(judged("K.caught_pct<98%").unwrap().broken && !judged("B.caught_pct<98%").unwrap().broken);
    // A gain of C is asked for, which it may have or not.
    let c = &arm(&run, "C").outcomes["qps"];
    let kept = judged(&format!("C.qps<{}%", c.toll_pct.unwrap() + 1.0)).unwrap();
    assert!(!kept.broken && kept.text.contains("not different from it"), "{}", kept.text);
    // Less than 90% saved fails, although it costs something: a bound that demands a gain.
    assert!(judged("B.cpu_us_per_query>-90%").unwrap().broken);
    for (bound, hint) in [
        ("X.qps<-5%", "it has none, B, C, K, P"),
        ("none.qps<-5%", "another arm"),
        ("P.qps<-5%", "bpftrace is not installed"),
        ("B.artefact_bytes_per_s>5%", "the baseline has no such value"),
        ("B.p99>5%", "choose one of qps"),
        ("B.stall_s>5%", "such as 'B.stall_s>5s'"),
    ] {
        match judged(bound) {
            Err(error) => assert!(error.to_string().contains(hint), "{bound}: {error}"),
            Ok(judgement) => panic!("{bound}: {}", judgement.text),
        }
    }
}

#[test]
fn a_bound_on_a_percentile_says_what_too_few_events_lack() {
    let one_round = analyse::analyse(&SyntheticRun::with(11, 1, SyntheticArm::usual()).record());
    let bound: Bound = "B.latency_us_p999>5%".parse().unwrap();
    let error = bound.judge(&one_round).unwrap_err().to_string();
    assert!(error.contains("needs 10000 events") && error.contains("lengthen --window"), "{error}");
    let text = bound.judge(&a_run()).unwrap().text;
    assert!(text.contains("no interval"), "{text}");
}

#[test]
fn the_verb_reads_a_run_anew_and_its_exit_code_keeps_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    SyntheticRun::with(8, 8, SyntheticArm::usual()).write(&root).unwrap();
    let run = root.to_str().unwrap();
    let result = analyse::analyse_run_dir(&toll_record::RunDir::open(&root).unwrap()).unwrap();

    let json = toll(&["report", run, "--format", "json"]);
    assert!(json.status.success());
    let written = tempfile::tempdir().unwrap();
    let writer = toll_record::RunWriter::create(written.path()).unwrap();
    writer.write_json("result.json", &result).unwrap();
    assert_eq!(json.stdout, std::fs::read(written.path().join("result.json")).unwrap());

    let text = toll(&["report", run]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("WARNINGS") && !text.contains('\x1b'), "{text}");

    let out = root.join("report.md");
    assert!(toll(&["report", run, "--format", "md", "-o", out.to_str().unwrap()]).status.success());
    assert!(std::fs::read_to_string(&out).unwrap().contains("### Checks"));

    assert_eq!(toll(&["report", run, "--fail-if", "K.qps<-5%"]).status.code(), Some(3));
    assert_eq!(toll(&["report", run, "--fail-if", "K.qps<-90%"]).status.code(), Some(0));
    assert_eq!(toll(&["report", run, "--fail-if", "K.stall_s>0.3s"]).status.code(), Some(3));
    assert_eq!(toll(&["report", run, "--fail-if", "K.p99"]).status.code(), Some(2));
    assert_eq!(toll(&["report", run, "--fail-if", "K.p99>5%"]).status.code(), Some(1));
    let unknown = toll(&["report", run, "--fail-if", "Q.qps<-5%"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no arm \"Q\""));
    std::fs::write(
        root.join("scenario.toml"),
        "name = \"x\"\nquestion = \"?\"\nbaseline = \"K\"\nprimary = \"qps\"\n[profile.a]\ntime = \"5m\"\n\
         [[arm]]\nname = \"K\"\nalias = \"text\"\ntitle = \"tcpdump to text\"\nrole = \"baseline\"\n",
    )
    .unwrap();
    let by_alias = toll(&["report", run, "--fail-if", "text.qps<-5%"]);
    assert_eq!(by_alias.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&by_alias.stderr).contains("bound K.qps<-5% failed"));
    let nothing = toll(&["report", dir.path().to_str().unwrap()]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("not a run directory"));
}
