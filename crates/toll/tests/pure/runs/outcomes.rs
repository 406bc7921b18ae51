//! Tests that an outcome is computed by its definition and shown in every report.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use serde::Deserialize;
use toll_analysis as analyse;
use toll_analysis::RunData;
use toll_record::*;
use toll_report::bound::Bound;
use toll_report::text::{ColourMode, Detail, text};
use toll_report::{html, json, markdown};

const ROUNDS: u32 = 8;

#[derive(Deserialize)]
struct WrittenOutcome {
    #[serde(deserialize_with = "toll_record::catalogue::definitions")]
    outcome: Vec<Definition>,
}

fn defined(name: &str, source: &str, aggregate: &str, rest: &str) -> Definition {
    let text = format!(
        "[[outcome]]\nname = \"{name}\"\ntitle = \"the {name}\"\nunit = \"units\"\nhigher_is_better = false\n\
         source = {{ {source} }}\naggregate = {aggregate}\n{rest}\n"
    );
    let written: WrittenOutcome = toml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    written.outcome.into_iter().next().expect("one was written")
}

/// Windows of three seconds: the baseline, its twin, a capture, and another way of capturing.
fn a_record() -> RunData {
    let mut arms = SyntheticArm::usual();
    arms.retain(|arm| ["B", "K", "none-2"].contains(&arm.name));
    SyntheticRun::with(6, ROUNDS, arms).record()
}

fn window(recorded: &RunData, arm: &str, round: u32) -> (u64, u64) {
    let edge = |step| {
        let of = |l: &&TrialLine| l.arm == arm && l.round == round && l.step == step;
        recorded.trials.iter().find(of).expect("the arm has this round").mono_us
    };
    (edge(Step::WindowBegin), edge(Step::WindowEnd))
}

/// Ten host samples a second in each window: 1, 2, ... 30, but more in those of B.
///
/// The sample that ends at a window's begin describes the time before.
fn with_queues(mut recorded: RunData) -> RunData {
    recorded.hosts.clear();
    for name in ["none", "none-2", "B", "K"] {
        for round in 0..ROUNDS {
            let (begin, end) = window(&recorded, name, round);
            let more = if name == "B" { 10.0 + f64::from(round % 2) } else { f64::from(round % 3) };
            let at = (begin..=end).step_by(100_000).enumerate();
            recorded.hosts.extend(at.map(|(i, mono_us)| HostSample {
                mono_us,
                disk_queue: i as f64 + more,
                ..HostSample::default()
            }));
        }
    }
    recorded.hosts.sort_by_key(|sample| sample.mono_us);
    recorded
}

fn analyse_outcomes(recorded: &RunData, outcomes: Vec<Definition>) -> RunResult {
    let mut recorded = recorded.clone();
    recorded.plan.outcomes.extend(outcomes);
    analyse::analyse(&recorded)
}

const QUEUE: &str = "from = \"host\", column = \"disk_queue\"";
const DIFFERENCE: &str = "compare = \"difference\"";

#[test]
fn every_aggregate_is_what_its_name_says() {
    let recorded = with_queues(a_record());
    let statements = |run: &RunResult| arm(run, "none").executed as f64 / f64::from(ROUNDS);
    for (aggregate, of_the_first) in [
        // 30 samples in a window: 1, 2, ... 30.
        ("\"mean\"", Some(15.5)),
        ("\"peak\"", Some(30.0)),
        ("\"sum\"", Some(465.0)),
        ("\"rate\"", Some(155.0)),
        ("{ quantile = 0.5 }", Some(15.0)),
        ("{ quantile = 0.99 }", Some(30.0)),
        ("\"per-query\"", None),
    ] {
        let run = analyse_outcomes(&recorded, vec![defined("queue", QUEUE, aggregate, DIFFERENCE)]);
        let values = &arm(&run, "none").outcomes["queue"].values;
        match of_the_first {
            Some(want) => assert!((values[0] - want).abs() < 1e-9, "{aggregate}: {values:?}"),
            None => {
                let want = 465.0 / statements(&run);
                assert!((values[0] / want - 1.0).abs() < 0.3, "{aggregate}: {values:?}, about {want}");
            }
        }
    }
}

#[test]
fn every_source_is_read() {
    let mut recorded = a_record();
    for line in recorded.trials.iter_mut().filter(|l| l.arm == "B" && l.step == Step::Stopped) {
        let ended = |name: &str, seconds: u64| ProcessEnd {
            name: name.into(),
            begin_mono_us: line.mono_us - seconds * 1_000_000,
            end_mono_us: line.mono_us,
            exit: Some(0),
            signal: None,
            cpu_us: 250_000 * seconds,
            memory_peak_bytes: (seconds == 2).then_some(64 << 20),
            waited_cpu_us: None,
            waited_io_us: None,
            waited_memory_us: None,
            read_bytes: Some(1_000),
            written_bytes: None,
            output_bytes: Some(500),
            sent: (seconds == 4).then_some(Sent { packets: 9, bytes: 900, again: 0, mbps: 300.0 }),
            packets: None,
        };
        let stage = |name: &str, packets, lost| Stage { name: name.into(), packets, lost };
        line.stages = vec![stage("sent", 400, None), stage("written", 300, Some(100))];
        line.processes = vec![ended("dump 1", 2), ended("dump 2", 4)];
    }
    for line in recorded.artefacts.iter_mut().filter(|l| l.arm == "B") {
        let packets = line.window_packets.as_mut().unwrap();
        (packets.captured, packets.received, packets.dropped) = (700, 1_000, 50);
        line.held = Some(Held { packets: 3, bytes: 1_100, last_bytes: 100, span_us: 80 });
    }
    for round in 0..ROUNDS {
        let (_, end) = window(&recorded, "B", round);
        let values = [("Threads_running".to_owned(), 7.0)].into();
        recorded.servers.push(ServerSample { mono_us: end - 1_000_000, server: 0, values });
    }
    let of = |source: &str, aggregate: &str| {
        let run = analyse_outcomes(&recorded, vec![defined("it", source, aggregate, DIFFERENCE)]);
        arm(&run, "B").outcomes.get("it").map(|outcome| outcome.mean)
    };
    let processes = |column: &str| format!("from = \"processes\", column = \"{column}\"");
    for (source, aggregate, want) in [
        (processes("seconds"), "\"mean\"", Some(3.0)),
        (format!("{}, name = \"dump 2\"", processes("seconds")), "\"mean\"", Some(4.0)),
        (format!("{}, name = \"dump 3\"", processes("seconds")), "\"mean\"", None),
        (processes("sent_mbps"), "\"sum\"", Some(300.0)),
        ("from = \"stages\", column = \"lost-share\"".into(), "\"mean\"", Some(25.0)),
        // A thousand bytes before the last packet, in 80 us.
        ("from = \"artefact\", column = \"mbps\"".into(), "\"mean\"", Some(100.0)),
        (processes("seconds"), "\"peak\"", Some(4.0)),
        (processes("cpu_us"), "\"sum\"", Some(1_500_000.0)),
        (processes("memory_peak_bytes"), "\"peak\"", Some(67_108_864.0)),
        (processes("read_bytes"), "\"sum\"", Some(2_000.0)),
        (processes("written_bytes"), "\"sum\"", None),
        ("from = \"server\", column = \"Threads_running\"".into(), "\"mean\"", Some(7.0)),
        ("from = \"server\", column = \"Innodb_x\"".into(), "\"mean\"", None),
        ("from = \"pressure\", column = \"psi_cpu_pct\"".into(), "\"peak\"", Some(30.0)),
        ("from = \"artefact\", column = \"packets\"".into(), "\"sum\"", Some(700.0)),
        ("from = \"artefact\", column = \"packets\"".into(), "\"rate\"", Some(700.0 / 3.0)),
        ("from = \"artefact\", column = \"dropped-share\"".into(), "\"mean\"", Some(5.0)),
        ("from = \"load\", column = \"errors\"".into(), "\"sum\"", Some(0.0)),
        ("from = \"cpu\", of = \"toll\"".into(), "\"sum\"", Some(9_000.0)),
        ("from = \"trial\", column = \"seconds\"".into(), "\"sum\"", None),
        ("from = \"trial\", column = \"stalled-s\"".into(), "\"sum\"", Some(0.0)),
    ] {
        let found = of(&source, aggregate);
        let fits = match (found, want) {
            (Some(found), Some(want)) => (found - want).abs() <= 1e-6 * want.abs(),
            (found, want) => found == want,
        };
        assert!(fits, "{source} {aggregate}: {found:?} where {want:?} was to be");
    }
}

#[test]
fn differences_have_intervals_and_verdicts_in_their_own_unit() {
    let recorded = with_queues(a_record());
    let of = |rest: &str, up: bool| {
        let mut outcome = defined("queue", QUEUE, "\"mean\"", rest);
        outcome.higher_is_better = up;
        analyse_outcomes(&recorded, vec![outcome])
    };
    let run = of(DIFFERENCE, false);
    let queue = |run: &RunResult, name: &str| arm(run, name).outcomes["queue"].clone();
    // 10.5 more on average, and the baseline 0, 1, 2, 0, 1, 2, 0, 1 more than nothing.
    let b = queue(&run, "B");
    assert!((b.effect.unwrap() - (10.5 - 0.875)).abs() < 1e-9, "{b:?}");
    let [low, high] = b.ci95.unwrap();
    assert!(8.5 < low && low < 9.6 && 9.6 < high && high < 10.7, "{b:?}");
    assert_eq!((b.toll_pct, b.ci95_pct, b.method.as_str()), (None, None, "sign-flip"));
    assert_eq!(b.verdict, Verdict::Costly);
    assert_eq!(queue(&of(DIFFERENCE, true), "B").verdict, Verdict::Cheaper);
    assert_eq!(queue(&run, "none-2").verdict, Verdict::NoEffect, "equal in every window");
    let within = of("compare = \"difference\"\nmargin = 0.5", false);
    assert_eq!(queue(&within, "none-2").verdict, Verdict::NoEffect);
    let within = of("compare = \"difference\"\nmargin = 11.0", false);
    assert_eq!(queue(&within, "B").verdict, Verdict::NoEffect);
    let baseline = queue(&run, "none");
    assert_eq!((baseline.effect, baseline.verdict), (None, Verdict::Baseline));
}

#[test]
fn what_is_compared_with_nothing_has_its_own_interval() {
    let run = analyse::analyse(&a_record());
    let caught = &arm(&run, "K").outcomes["caught_pct"];
    assert!((caught.effect.unwrap() - 62.0).abs() < 0.01 && caught.effect == Some(caught.mean), "{caught:?}");
    assert!(caught.ci95.is_some_and(|[low, high]| low <= 62.0 && 62.0 <= high));
    assert_eq!((caught.verdict, caught.p), (Verdict::NotCompared, None));
    assert!(!arm(&run, "none").outcomes.contains_key("caught_pct"), "nobody caught anything there");
    // A difference to a baseline that has none.
    let dropped = &arm(&run, "B").outcomes["dropped_pct"];
    assert_eq!((dropped.effect, dropped.verdict), (Some(0.0), Verdict::NotCompared));
    assert!(dropped.method.ends_with("the baseline has no such value"), "{}", dropped.method);
    // Beside a baseline that captures too, it is one.
    let mut recorded = a_record();
    recorded.plan.arms.iter_mut().find(|arm| arm.name == "K").unwrap().against = Some("B".into());
    let run = analyse::analyse(&recorded);
    assert_eq!(arm(&run, "K").outcomes["dropped_pct"].method, "sign-flip");
}

#[test]
fn stalls_have_an_interval_where_the_baseline_has_none() {
    let run = analyse::analyse(&a_record());
    let stalled = &arm(&run, "K").outcomes["stall_s"];
    assert!((stalled.effect.unwrap() - 0.6).abs() < 0.05 && stalled.ci95.is_some(), "{stalled:?}");
    assert_eq!(stalled.verdict, Verdict::Costly);
    assert_eq!(arm(&run, "none").outcomes["stall_s"].mean, 0.0);
}

#[test]
fn a_run_may_be_judged_by_a_difference() {
    let mut recorded = with_queues(a_record());
    recorded.plan.outcomes.push(defined(
        "queue",
        QUEUE,
        "\"mean\"",
        "compare = \"difference\"\nmargin = 0.5",
    ));
    recorded.plan.primary = "queue".into();
    let run = analyse::analyse(&recorded);
    let b = &arm(&run, "B").outcomes["queue"];
    assert!(b.p_adjusted.is_some() && b.verdict == Verdict::Costly, "{b:?}");
    let aa = run.aa.as_ref().unwrap();
    assert_eq!((aa.toll_pct, aa.effect, aa.ok), (None, Some(0.0), Some(true)));
    let mde = run.mde.as_ref().unwrap();
    assert!(mde.achieved_pct.is_none() && mde.achieved.is_some(), "{mde:?}");
    assert!(run.answer.contains("The queue") && run.answer.contains(" units ["), "{}", run.answer);
    let shown = text(&run, ColourMode::Plain, Detail::All).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("\"equivalent\" is within ±0.50 units."), "{shown}");
    assert!(shown.contains("the baseline again: queue +0.00 units [+0.00, +0.00]"), "{shown}");
}

#[test]
fn a_scenarios_own_outcome_reaches_every_form() {
    let text_of = |columns: &str| {
        format!(
            "name = \"own\"\nquestion = \"?\"\nbaseline = \"none\"\nprimary = \"latency_us_mean\"\n{columns}\n\
             [workload]\n[profile.a]\nrounds = 8\nwindow = \"3s\"\nsettle = \"0s\"\n\
             [[outcome]]\nname = \"queue\"\ntitle = \"disk queue, mean\"\nhead = \"queue\"\nunit = \"requests\"\n\
             higher_is_better = false\nsource = {{ {QUEUE} }}\naggregate = \"mean\"\n{DIFFERENCE}\n\
             [[arm]]\nname = \"none\"\ntitle = \"load alone\"\nrole = \"baseline\"\n"
        )
    };
    let scenario = toll_model::scenario::Scenario::parse(&text_of(
        "columns = [\"latency_us_mean\", \"queue\", \"qps\"]\npanels = [\"queue\"]",
    ))
    .unwrap();
    let mut recorded = with_queues(a_record());
    recorded.plan.primary.clone_from(&scenario.primary);
    recorded.plan.outcomes = scenario.definitions();
    recorded.plan.columns = scenario.columns.unwrap();
    recorded.plan.panels = scenario.panels.unwrap();
    let run = analyse::analyse(&recorded);

    let shown = text(&run, ColourMode::Plain, Detail::All);
    let row = |shown: &str, begin: &str| shown.lines().find(|l| l.starts_with(begin)).unwrap().to_owned();
    let heads: Vec<_> = row(&shown, "variant ").split("  ").map(str::trim).map(String::from).collect();
    let heads: Vec<_> = heads.into_iter().filter(|head| !head.is_empty()).collect();
    assert_eq!(
        heads,
        ["variant", "description", "verdict", "response time (mean)", "queue", "throughput"],
        "{shown}"
    );
    assert!(row(&shown, "none ").contains(" 16.4 requests "), "{shown}");
    assert!(row(&shown, "B ").contains(" +9.62 requests [+9.00,+10.3] "), "{shown}");
    assert!(row(&markdown::markdown(&run), "| B ").contains("| +9.62 requests \\[+9.00,"));

    let json: serde_json::Value =
        serde_json::from_str(&json::json(std::slice::from_ref(&run), None).unwrap()).unwrap();
    let own = json["definitions"].as_array().unwrap().iter().find(|d| d["name"] == "queue").unwrap();
    assert_eq!((&own["title"], &own["compare"]), (&"disk queue, mean".into(), &"difference".into()));
    assert_eq!(json["panels"], serde_json::json!(["queue"]));

    let judged = |bound: &str| bound.parse::<Bound>().unwrap().judge(&run).unwrap();
    assert!(
        judged("B.queue>5 requests").broken
            && !judged("B.queue>50").broken
            && !judged("none-2.queue>0").broken
    );

    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    SyntheticRun::with(6, ROUNDS, Vec::new()).write(&root).unwrap();
    let page = html::html(&[RunDir::open(&root).unwrap()], &[run]).unwrap();
    assert!(toll_testkit::report_page::page_data(&page).contains("\"title\":\"disk queue, mean\""));
}

#[test]
fn kinds_that_a_newer_toll_wrote_are_passed_over_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    let mut arms = SyntheticArm::usual();
    arms.retain(|arm| arm.name == "B");
    SyntheticRun::with(6, ROUNDS, arms).write(&root).unwrap();
    let before = analyse::analyse_run_dir(&RunDir::open(&root).unwrap()).unwrap();
    super::expand_series(&root);
    let samples = root.join("samples.ndjson");
    let known = std::fs::read_to_string(&samples).unwrap();
    let newer = "{\"kind\":\"gpu\",\"mono_us\":1,\"busy_pct\":2.5}\n";
    std::fs::write(&samples, format!("{newer}{known}{newer}")).unwrap();
    for file in ["plan.json", "artefacts.ndjson"] {
        let path = root.join(file);
        let newer = std::fs::read_to_string(&path).unwrap().replace("\"pcap\"", "\"pcap-ng-zstd\"");
        std::fs::write(&path, newer).unwrap();
    }
    let run = analyse::analyse_run_dir(&RunDir::open(&root).unwrap()).unwrap();
    let said = run.warnings.iter().find(|w| w.code == "unknown-samples").unwrap();
    assert_eq!(said.text, "2 lines of samples.ndjson are of a kind that this toll does not know");
    assert_eq!(arm(&run, "B").artefact.as_ref().unwrap().kind, ArtefactKind::Unknown);
    assert_eq!(arm(&run, "B").outcomes, arm(&before, "B").outcomes);
    json::json(std::slice::from_ref(&run), None).unwrap();
    html::html(&[RunDir::open(&root).unwrap()], &[run]).unwrap();
}
