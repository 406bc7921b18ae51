//! Tests of charts over a matrix's values, and of runs of several platforms overlaid.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use std::path::Path;
use std::process::{Command, Output};
use toll_analysis as analyse;
use toll_analysis::{AnalysedRun, CombinedRuns, RunData, combine_runs};
use toll_record::*;
use toll_report::markdown::markdown;
use toll_report::text::{ColourMode, Detail, text};

/// Values of `each` in an arm: key and value.
type Varied = &'static [(&'static str, &'static str)];

/// Name, overhead, and the values of `tool` and `size`, with or without `disk`.
const ARMS: [(&str, f64, Varied); 6] = [
    ("cat-1", 1.1, &[("tool", "cat"), ("size", "1")]),
    ("cat-2", 1.2, &[("tool", "cat"), ("size", "2")]),
    ("tac-1", 1.3, &[("tool", "tac"), ("size", "1")]),
    ("tac-2", 1.4, &[("tool", "tac"), ("size", "2")]),
    ("cat-all", 1.5, &[("tool", "cat"), ("size", "all")]),
    ("cat-1-slow", 1.6, &[("tool", "cat"), ("size", "1"), ("disk", "slow")]),
];

fn chart_spec(lines: &[&str], panels: &[&str]) -> Charted {
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    Charted {
        name: "by-size".into(),
        title: "Response time by size".into(),
        outcomes: vec!["latency_us_mean".into()],
        x: "size".into(),
        x_title: Some("size of it, MB".into()),
        lines: keys(lines),
        panels: keys(panels),
        diagonal: None,
    }
}

/// A run of all arms with these charts.
fn recorded_run(seed: u64, rounds: u32, charts: Vec<Charted>) -> RunData {
    let arms = ARMS.iter().map(|&(name, cost, _)| SyntheticArm::new(name, Role::Treatment, cost));
    let mut recorded = SyntheticRun::with(seed, rounds, arms.collect()).record();
    for (name, _, varied) in ARMS {
        let arm = recorded.plan.arms.iter_mut().find(|arm| arm.name == name).unwrap();
        arm.varied = varied.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        arm.treatment.processes = vec![process(["tcpdump", "-B", "2048", "-w", "{artefact}"])];
    }
    recorded.plan.charts = charts;
    recorded
}

fn process(words: [&str; 5]) -> Process {
    let process = serde_json::json!({"name": "tcpdump", "stages": [words], "stop": "INT", "after_s": 0.0});
    serde_json::from_value(process).unwrap()
}

fn chart<'a>(run: &'a RunResult, id: &str) -> &'a Chart {
    let ids: Vec<&String> = run.charts.iter().map(|chart| &chart.id).collect();
    run.charts.iter().find(|chart| chart.id == id).unwrap_or_else(|| panic!("{ids:?}"))
}

#[test]
fn a_line_has_a_point_for_each_place_that_is_its_arms_own() {
    let run = analyse::analyse(&recorded_run(4, 8, vec![chart_spec(&["tool"], &[])]));
    let chart = chart(&run, "varied-by-size");
    assert_eq!(chart.x.categories, ["1", "2", "all"]);
    assert_eq!((chart.x.label.as_str(), chart.y.unit.as_str()), ("size of it, MB", "us"));
    let [cat, tac] = &chart.series[..] else { panic!("{:?}", chart.series) };
    assert_eq!((cat.name.as_str(), tac.name.as_str()), ("cat", "tac"));
    let places = |series: &ChartSeries| series.points.iter().map(|point| point.0).collect::<Vec<_>>();
    // What is varied by another key besides stands at no place.
    assert_eq!((places(cat), places(tac)), (vec![0.0, 1.0, 2.0], vec![0.0, 1.0]));
    for (name, series, at) in [("cat-1", cat, 0), ("cat-all", cat, 2), ("tac-2", tac, 1)] {
        let (_, value, low, high) = series.points[at];
        assert_eq!(value, arm(&run, name).outcomes["latency_us_mean"].mean, "{name}");
        assert!(low.unwrap() < value && value < high.unwrap(), "{:?}", series.points[at]);
    }
    let shown = text(&run, ColourMode::Plain, Detail::All);
    assert!(shown.contains("\nResponse time by size\n"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("tac ") && line.ends_with('-')), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 120), "{shown}");
    assert!(markdown(&run).contains("### Response time by size\n\n|  | 1 | 2 | all |\n|---|---:|---:|---:|"));
}

#[test]
fn a_median_is_drawn_with_its_interval_and_too_few_rounds_have_none() {
    let mut of_medians = chart_spec(&["tool"], &[]);
    of_medians.outcomes = vec!["own".into()];
    let mut recorded = recorded_run(4, 8, vec![of_medians]);
    let mut own = recorded.plan.outcomes.iter().find(|o| o.name == "latency_us_mean").unwrap().clone();
    (own.name, own.compare) = ("own".into(), Compare::Median);
    recorded.plan.outcomes.push(own);
    let run = analyse::analyse(&recorded);
    let outcome = &arm(&run, "cat-2").outcomes["own"];
    let [low, high] = outcome.ci95.unwrap();
    let found = chart(&run, "varied-by-size");
    assert_eq!(found.series[0].points[1], (1.0, outcome.effect.unwrap(), Some(low), Some(high)));
    assert!(found.note.starts_with("Medians of"), "{}", found.note);

    let few = analyse::analyse(&self::recorded_run(4, 3, vec![chart_spec(&["tool"], &[])]));
    let found = chart(&few, "varied-by-size");
    assert!(found.series[0].points.iter().all(|point| point.2.is_none()));
    assert!(found.note.contains("an interval needs 6 rounds"), "{}", found.note);
}

#[test]
fn panels_are_charts_of_their_own_over_the_same_places_and_outcomes_are_lines() {
    let mut both = chart_spec(&[], &["tool"]);
    both.outcomes.push("latency_us_p99".into());
    both.diagonal = Some("as asked".into());
    let run = analyse::analyse(&recorded_run(4, 8, vec![both]));
    let (cat, tac) = (chart(&run, "varied-by-size-cat"), chart(&run, "varied-by-size-tac"));
    assert_eq!((cat.title.as_str(), &cat.x), ("Response time by size: cat", &tac.x));
    let names: Vec<&str> = tac.series.iter().map(|series| series.name.as_str()).collect();
    let head = |name: &str| {
        let outcome = run.definitions.iter().find(|outcome| outcome.name == name).unwrap();
        outcome.column_title().to_owned()
    };
    let heads = ["latency_us_mean", "latency_us_p99"].map(head);
    assert_eq!(names, [heads[0].as_str(), heads[1].as_str(), "as asked"]);
    // As far as places are numbers.
    assert_eq!(cat.series[2].points, [(0.0, 1.0, None, None), (1.0, 2.0, None, None)]);
}

/// Runs with their plans.
fn analysed(runs: &[RunData]) -> Vec<(Plan, RunResult)> {
    runs.iter().map(|recorded| (recorded.plan.clone(), analyse::analyse(recorded))).collect()
}

fn combine(runs: &[RunData]) -> CombinedRuns {
    let runs = analysed(runs);
    let made: Vec<AnalysedRun> = runs.iter().map(|(plan, result)| AnalysedRun { plan, result }).collect();
    let names: Vec<String> = (1..=runs.len()).map(|number| format!("host {number}")).collect();
    combine_runs(&made, &names).unwrap()
}

fn with_change(mut recorded: RunData, change: impl FnOnce(&mut RunData)) -> RunData {
    change(&mut recorded);
    recorded
}

fn tools(recorded: &mut RunData, libpcap: &str) {
    let tool = |name: &str, version: &str| Tool { name: name.into(), version: Some(version.into()) };
    let tools = vec![
        tool("tcpdump", "tcpdump version 4.99.3"),
        tool("libpcap", &format!("libpcap version {libpcap}")),
        tool("bpftrace", &format!("bpftrace v{libpcap}")),
    ];
    recorded.host.as_mut().unwrap().tools = tools;
}

#[test]
fn runs_of_other_platforms_are_laid_over_each_other_line_by_line() {
    let charts = || vec![chart_spec(&["tool"], &[])];
    let old = with_change(recorded_run(4, 8, charts()), |r| tools(r, "1.10.3"));
    let new = with_change(recorded_run(5, 8, charts()), |r| tools(r, "1.10.5"));
    // It has a place more, which the other does not.
    let new = with_change(new, |r| {
        let at = r.plan.arms.iter_mut().find(|arm| arm.name == "tac-2").unwrap();
        at.varied[1].1 = "1.5".into();
    });
    let CombinedRuns::Overlaid(overlay) = combine(&[old.clone(), new.clone()]) else {
        panic!("not overlaid")
    };
    // bpftrace is started by no arm.
    assert_eq!(overlay.differ_in, ["libpcap"]);
    let facts = &overlay.platforms[1].facts;
    assert!(facts.contains(&("tcpdump".into(), "4.99.3".into())), "{facts:?}");
    assert!(facts.contains(&("libpcap".into(), "1.10.5".into())), "{facts:?}");
    let ids: Vec<&str> = overlay.charts.iter().map(|chart| chart.id.as_str()).collect();
    assert_eq!(ids, ["varied-by-size-of-cat", "varied-by-size-of-tac"]);
    let tac = &overlay.charts[1];
    assert_eq!(tac.title, "Response time by size: tac");
    assert_eq!(tac.x.categories, ["1", "2", "1.5", "all"]);
    let [first, second] = &tac.series[..] else { panic!("{:?}", tac.series) };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("host 1", "host 2"));
    let own = analyse::analyse(&new);
    let at_1_5 = arm(&own, "tac-2").outcomes["latency_us_mean"].mean;
    assert_eq!((second.points[1].0, second.points[1].1), (2.0, at_1_5));
    assert_eq!(first.points.iter().map(|point| point.0).collect::<Vec<_>>(), [0.0, 1.0]);
}

#[test]
fn a_ring_of_another_size_is_another_platform_and_the_words_say_so() {
    let charts = || vec![chart_spec(&["tool"], &[])];
    let small = recorded_run(4, 8, charts());
    let large = with_change(recorded_run(5, 8, charts()), |r| {
        for process in r.plan.arms.iter_mut().flat_map(|arm| &mut arm.treatment.processes) {
            process.stages[0][2] = "65536".into();
        }
    });
    let CombinedRuns::Overlaid(overlay) = combine(&[small, large]) else { panic!("not overlaid") };
    assert_eq!(overlay.differ_in, ["commands"]);
    let commands =
        |at: usize| overlay.platforms[at].facts.iter().find(|(what, _)| what == "commands").unwrap();
    assert_eq!((commands(0).1.as_str(), commands(1).1.as_str()), ("-B 2048", "-B 65536"));
}

#[test]
fn like_runs_are_pooled_and_runs_that_ask_something_else_stay_apart() {
    let like = [recorded_run(4, 8, Vec::new()), recorded_run(5, 8, Vec::new())];
    assert!(matches!(combine(&like), CombinedRuns::Pooled(_)));
    // On another host, too: that alone would lay them over each other.
    let other = with_change(like[1].clone(), |r| {
        r.plan.scenario = "another".into();
        r.host.as_mut().unwrap().kernel = "6.1".into();
    });
    assert_eq!(
        combine(&[like[0].clone(), other]),
        CombinedRuns::Incompatible("they differ in scenario".into())
    );
    // Without a chart, tolls stand side by side.
    let host = with_change(like[1].clone(), |r| r.host.as_mut().unwrap().kernel = "6.1".into());
    let CombinedRuns::Overlaid(overlay) = combine(&[like[0].clone(), host]) else { panic!("not overlaid") };
    let [tolls] = &overlay.charts[..] else { panic!("{:?}", overlay.charts) };
    assert_eq!((tolls.kind, tolls.x.categories.len()), (ChartKind::Table, ARMS.len()));
    let own = analyse::analyse(&like[0]);
    assert_eq!(tolls.series[0].points[3].1, arm(&own, "tac-2").outcomes["qps"].toll_pct.unwrap());
}

/// Stages of a trial in which that many of a thousand packets were lost before they were captured.
fn stages(lost: u64) -> Vec<Stage> {
    let testbed = |name: &str, packets: u64, lost: Option<u64>| Stage { name: name.into(), packets, lost };
    vec![
        testbed("sent", 1_000, None),
        testbed("captured", 1_000 - lost, Some(lost)),
        testbed("written", 1_000 - lost, Some(0)),
    ]
}

#[test]
fn what_got_lost_is_a_bar_for_each_arm_in_groups_and_stages_that_lost_none_are_no_part() {
    let with = |lost: fn(&str) -> u64| {
        with_change(recorded_run(4, 8, Vec::new()), |r| {
            for line in r.trials.iter_mut().filter(|line| line.step == Step::Stopped && line.arm != "none") {
                line.stages = stages(lost(&line.arm));
            }
        })
    };
    let run = analyse::analyse(&with(|arm| if arm == "tac-2" { 50 } else { 0 }));
    let ledger = chart(&run, "ledger");
    assert_eq!(ledger.x.categories, ["cat-1", "cat-2", "cat-all", "cat-1-slow", "tac-1", "tac-2"]);
    let [captured] = &ledger.series[..] else { panic!("{:?}", ledger.series) };
    assert_eq!(captured.name, "before captured");
    assert_eq!((captured.points[0].1, captured.points[5]), (0.0, (5.0, 5.0, None, None)));
    let none = analyse::analyse(&with(|_| 0));
    assert!(none.charts.iter().all(|chart| chart.id != "ledger"), "there is nothing to draw");
}

#[test]
fn a_limit_is_a_bar_for_each_ladder_with_the_interval_of_its_median() {
    let limit = Limit {
        name: "most".into(),
        title: "largest size below a bound".into(),
        outcome: "latency_us_mean".into(),
        over: "size".into(),
        unit: "MB".into(),
        at_most: 1e9,
        reached: None,
    };
    let run = analyse::analyse(&with_change(recorded_run(4, 8, Vec::new()), |r| r.plan.limits = vec![limit]));
    let found = chart(&run, "limit-most");
    assert_eq!((found.kind, found.x.label.as_str()), (ChartKind::Bar, "tool"));
    assert_eq!(found.x.categories, ["cat", "tac", "cat, slow"]);
    let [median, in_all] = &found.series[..] else { panic!("{:?}", found.series) };
    assert_eq!(median.points[0], (0.0, 2.0, Some(2.0), Some(2.0)));
    assert_eq!(in_all.points[2], (2.0, 1.0, None, None));
}

fn toll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toll")).args(arguments).output().unwrap()
}

/// Writes a run directory that differs from others in its host alone.
fn write_run(at: &Path, kernel: &str) -> String {
    SyntheticRun::with(7, 8, SyntheticArm::usual()).write(at).unwrap();
    write_json(at, "host.json", &Host { kernel: kernel.into(), ..SyntheticRun::host() }).unwrap();
    at.display().to_string()
}

#[test]
fn the_verb_lays_unlike_runs_side_by_side_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["6.1", "6.18"].map(|kernel| write_run(&dir.path().join(kernel), kernel));
    let said = |format: &str| {
        let output = toll(&["report", &old, &new, "--format", format]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = said("text");
    assert!(shown.contains("2 runs side by side: they differ in kernel"), "{shown}");
    assert!(shown.contains("\n  2-core x86_64 vm, kernel 6.1: system Debian 12; kernel 6.1;"), "{shown}");
    let beside = shown.lines().find(|line| line.contains("kernel 6.1  ") && line.contains("kernel 6.18"));
    assert!(beside.is_some(), "{shown}");
    assert!(said("md").contains("| platform | system | kernel | server |"));
    let json: serde_json::Value = serde_json::from_str(&said("json")).unwrap();
    assert_eq!(json["overlay"]["differ_in"][0], "kernel");
    assert_eq!(json["overlay"]["platforms"][1]["name"], "2-core x86_64 vm, kernel 6.18");
    assert!(json.get("pooled").is_none() && json["runs"].as_array().unwrap().len() == 2);
    assert!(toll_testkit::report_page::page_data(&said("html")).contains(r#""overlay":{"#));
    // The same host twice is no other platform.
    let again = toll(&["report", &old, &old, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert!(json.get("overlay").is_none() && json.get("pooled").is_some());
}
