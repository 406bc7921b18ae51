//! Tests of findings over several arms and on commands' output: contrasts, pauses, trade-offs, recovery.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use std::collections::BTreeMap;
use toll_analysis as analyse;
use toll_analysis::RunData;
use toll_record::*;
use toll_report::markdown::markdown;
use toll_report::text::{ColourMode, Detail, text};

const ROUNDS: u32 = 8;

fn treatment(name: &'static str, cost: f64) -> SyntheticArm {
    SyntheticArm::new(name, Role::Treatment, cost)
}

/// Record of the run, with a statement for every treatment in its plan.
fn record(synthetic: &SyntheticRun) -> RunData {
    let mut recorded = synthetic.record();
    for arm in recorded.plan.arms.iter_mut().filter(|arm| arm.role == Role::Treatment) {
        arm.treatment.on = vec!["DO 1".into()];
    }
    recorded
}

fn contrast(of: &str, over: &str, factor: f64) -> Contrast {
    Contrast {
        name: format!("{of}-{over}"),
        title: "one over the other".into(),
        outcome: "latency_us_mean".into(),
        of: of.into(),
        over: over.into(),
        factor,
        beyond: None,
    }
}

#[test]
fn a_contrast_is_the_ratio_of_paired_windows_over_its_factor() {
    let mut recorded =
        record(&SyntheticRun::with(4, ROUNDS, vec![treatment("B", 1.12), treatment("K", 1.6)]));
    recorded.plan.contrasts = vec![contrast("K", "B", 1.0), contrast("K", "B", 5.0), contrast("B", "K", 1.0)];
    let run = analyse::analyse(&recorded);
    let [plain, fifth, inverse] = &run.contrasts[..] else { panic!("{:?}", run.contrasts) };
    let truth = 1.6 / 1.12;
    let [low, high] = plain.ci95.unwrap();
    assert!(low < truth && truth < high && high - low < 0.3, "{plain:?}");
    assert_eq!((plain.pairs, plain.method.as_str()), (ROUNDS, "sign-flip"));
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(near(fifth.ratio.unwrap(), plain.ratio.unwrap() / 5.0), "{fifth:?}");
    assert!(near(fifth.ci95.unwrap()[1], high / 5.0));
    assert!(near(inverse.ratio.unwrap() * plain.ratio.unwrap(), 1.0), "{inverse:?}");

    let shown = text(&run, ColourMode::Plain, Detail::All);
    let line = format!("K-B one over the other: {:.2} [{low:.2}, {high:.2}]", plain.ratio.unwrap());
    assert!(shown.contains("\nContrasts\n") && shown.contains(&line), "{shown}");
    assert!(shown.contains("latency_us_mean of K over 5 times B, 8 rounds"), "{shown}");
    assert!(markdown(&run).contains("### Contrasts"));
    let chart = run.charts.iter().find(|chart| chart.id == "contrasts").unwrap();
    assert_eq!(chart.series[0].points[0], (0.0, plain.ratio.unwrap(), Some(low), Some(high)));
}

#[test]
fn a_contrast_beyond_a_third_arm_is_the_ratio_of_both_tolls() {
    let arms = vec![treatment("B", 1.12), treatment("K", 1.6), treatment("idle", 1.0)];
    let mut recorded = record(&SyntheticRun::with(4, 24, arms));
    let beyond = |of: &str, over: &str| Contrast { beyond: Some("none".into()), ..contrast(of, over, 1.0) };
    recorded.plan.contrasts = vec![beyond("B", "K"), beyond("K", "idle")];
    let run = analyse::analyse(&recorded);
    let [found, without_end] = &run.contrasts[..] else { panic!("{:?}", run.contrasts) };
    let truth = 1.12_f64.ln() / 1.6_f64.ln();
    let [low, high] = found.ci95.unwrap();
    assert!(low < truth && truth < high && high - low < 0.2, "{found:?}");
    assert!(low < found.ratio.unwrap() && found.ratio.unwrap() < high);
    assert_eq!((found.pairs, found.method.as_str()), (24, "ratio of means, sign-flip"));
    let shown = text(&run, ColourMode::Plain, Detail::All);
    assert!(
        shown
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("latency_us_mean of B over K, both beyond none, 24 rounds"),
        "{shown}"
    );
    // What costs nothing is no measure of anything.
    assert_eq!((without_end.ratio, without_end.ci95), (None, None), "{without_end:?}");
    assert!(without_end.method.contains("is not distinguishable from zero"), "{}", without_end.method);
}

#[test]
fn a_contrast_without_pairs_or_with_too_few_says_so() {
    let mut recorded =
        record(&SyntheticRun::with(4, ROUNDS, vec![treatment("B", 1.12), treatment("K", 1.6)]));
    recorded.plan.contrasts = vec![contrast("K", "B", 1.0)];
    let mut cut = recorded.clone();
    // The arm that is measured last lost what it was.
    cut.trials.retain(|line| !(line.arm == "K" && line.round >= 5 && line.step == Step::WindowEnd));
    let few = &analyse::analyse(&cut).contrasts[0];
    assert!(few.pairs == 5 && few.ratio.is_some() && few.ci95.is_none(), "{few:?}");
    assert!(few.method.starts_with("none: 5 rounds are too few"), "{}", few.method);
    cut.trials.retain(|line| !(line.arm == "K" && line.step == Step::WindowEnd));
    let none = &analyse::analyse(&cut).contrasts[0];
    assert_eq!((none.pairs, none.ratio, none.ci95), (0, None, None));
    assert!(
        text(&analyse::analyse(&cut), ColourMode::Plain, Detail::All).contains("one over the other: unknown")
    );
}

/// A run in which an arm's commands end its windows of twelve seconds each.
///
/// `silent`: stretches without output, as round, begin and end in tenths of a second.
fn with_streams(silent: &[(u32, u64, u64)]) -> RunData {
    let mut synthetic = SyntheticRun::with(3, ROUNDS, vec![treatment("dumped", 1.2)]);
    synthetic.window_s = 12.0;
    let mut recorded = record(&synthetic);
    let process = Process {
        name: "dump".into(),
        stages: vec![vec!["dump".into()]],
        stdout: None,
        ready: None,
        stop: Signal::Term,
        probe: None,
        after_s: 0.0,
        env: Vec::new(),
        background: false,
        far: false,
        drain_s: 0.0,
        keep_stdout: false,
    };
    let planned = recorded.plan.arms.iter_mut().find(|arm| arm.name == "dumped").unwrap();
    planned.window = Window::Done { at_most_s: 60.0 };
    planned.treatment.processes = vec![process.clone(), Process { name: "mute".into(), ..process }];
    recorded.hosts.clear();
    for round in 0..ROUNDS {
        let of =
            |step: Step| move |l: &&mut TrialLine| l.arm == "dumped" && l.round == round && l.step == step;
        let begin = recorded.trials.iter_mut().find(of(Step::WindowBegin)).unwrap().mono_us;
        let trial = {
            let end = recorded.trials.iter_mut().find(of(Step::WindowEnd)).unwrap();
            (end.runs, end.runs_us) = (Some(1), Some(12_000_000));
            end.trial
        };
        let ended = |name: &str| ProcessEnd {
            name: name.into(),
            begin_mono_us: begin,
            end_mono_us: begin + 12_000_000,
            exit: Some(0),
            signal: None,
            cpu_us: 5,
            memory_peak_bytes: None,
            waited_cpu_us: None,
            waited_io_us: None,
            waited_memory_us: None,
            read_bytes: None,
            written_bytes: None,
            output_bytes: None,
            sent: None,
            packets: None,
        };
        let stopped = recorded.trials.iter_mut().find(of(Step::Stopped)).unwrap();
        stopped.processes = vec![ended("dump"), ended("mute")];
        let is_silent =
            |tenth: u64| silent.iter().any(|&(r, from, to)| r == round && (from..to).contains(&tenth));
        for tenth in 0..120 {
            for (process, written) in [("dump", if is_silent(tenth) { 0 } else { 1_000 }), ("mute", 0)] {
                recorded.outputs.push(OutputSample {
                    mono_us: begin + (tenth + 1) * 100_000,
                    width_us: 100_000,
                    trial,
                    process: process.into(),
                    output_bytes: written,
                });
            }
        }
        for second in 1..=12 {
            let paused = is_silent(second * 10 - 5);
            let mono_us = begin + second * 1_000_000;
            recorded.hosts.push(HostSample {
                mono_us,
                disk_queue: if paused { 40.0 } else { 2.0 + 0.1 * (second % 3) as f64 },
                cpu_user_pct: 50.0 + (second % 2) as f64,
                load_1: if paused { 99.0 } else { 1.0 },
                ..HostSample::default()
            });
            let values = [("Threads_running".to_owned(), 4.0 + (second % 2) as f64)].into();
            recorded.servers.push(ServerSample { mono_us, server: 0, values });
        }
    }
    recorded.hosts.sort_by_key(|sample| sample.mono_us);
    recorded.outputs.sort_by_key(|sample| sample.mono_us);
    recorded
}

#[test]
fn a_pause_in_what_a_command_writes_is_dated_and_what_stood_out_beside_it_is_named() {
    let run = analyse::analyse(&with_streams(&[(2, 40, 70), (3, 50, 53)]));
    let [pause] = &run.pauses[..] else { panic!("{:?}", run.pauses) };
    assert_eq!((pause.arm.as_str(), pause.round, pause.process.as_str()), ("dumped", 2, "dump"));
    assert_eq!((pause.begin_s, pause.end_mono_us - pause.begin_mono_us), (4.0, 3_000_000));
    // A load average goes on after the cause; what did as ever is not named.
    let [beside] = &pause.beside[..] else { panic!("{:?}", pause.beside) };
    assert_eq!((beside.name.as_str(), beside.during), ("disk_queue", 40.0));
    assert!((2.0..2.2).contains(&beside.otherwise), "{beside:?}");

    let outcome = |name: &str| arm(&run, "dumped").outcomes[name].clone();
    let longest = outcome("output_pause_s").values;
    assert_eq!((longest[2], longest[0]), (3.0, 0.0));
    assert!((longest[3] - 0.3).abs() < 1e-9, "{longest:?}");
    assert_eq!((outcome("output_paused_s").values[2], outcome("output_paused_s").values[3]), (3.0, 0.0));
    let shown = text(&run, ColourMode::Plain, Detail::All).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        shown.contains("1 pause of a second or more in what its commands write, 3.0 s in all"),
        "{shown}"
    );
    assert!(shown.contains("round 3, dump, from 4.0 s; meanwhile disk_queue 40.0 (else 2."), "{shown}");
    assert!(run.charts.iter().any(|chart| chart.id == "pauses") && markdown(&run).contains("### Pauses"));
}

#[test]
fn a_command_that_begins_late_has_a_first_byte_and_one_that_writes_nothing_has_no_pauses() {
    let run = analyse::analyse(&with_streams(&[(0, 0, 25), (1, 0, 120)]));
    let first = &arm(&run, "dumped").outcomes["first_output_s"].values;
    // In the second round it wrote nothing at all.
    assert_eq!((first.len(), first[0]), (ROUNDS as usize - 1, 2.6));
    assert!((first[1] - 0.1).abs() < 1e-9, "{first:?}");
    let [pause] = &run.pauses[..] else { panic!("{:?}", run.pauses) };
    assert_eq!((pause.round, pause.begin_s, pause.process.as_str()), (0, 0.0, "dump"));
}

#[test]
fn a_command_that_lasts_may_be_silent_for_as_long_as_it_likes() {
    let mut recorded = with_streams(&[(2, 40, 70)]);
    recorded.plan.arms.iter_mut().find(|arm| arm.name == "dumped").unwrap().window = Window::Time { s: 12.0 };
    let run = analyse::analyse(&recorded);
    assert!(run.pauses.is_empty() && run.charts.iter().all(|chart| chart.id != "pauses"), "{:?}", run.pauses);
}

/// Trade-off of three arms: low overhead with a large artefact, higher with a small one, highest with the
/// largest.
fn trading(rounds: u32, pareto: Pareto) -> ParetoResult {
    let with = |name, cost, bytes| SyntheticArm { caught: Some((1.0, bytes)), ..treatment(name, cost) };
    let arms = vec![with("cheap", 1.05, 4_000.0), with("small", 1.3, 1_000.0), with("bad", 1.7, 5_000.0)];
    let mut recorded = record(&SyntheticRun::with(9, rounds, arms));
    recorded.plan.pareto = Some(pareto);
    let run = analyse::analyse(&recorded);
    let pareto = run.pareto.clone().unwrap();
    assert_eq!(run.advice.first(), Some(&pareto.text));
    assert!(
        text(&run, ColourMode::Plain, Detail::All).replace("\n    ", " ").contains(&pareto.text),
        "{}",
        text(&run, ColourMode::Plain, Detail::All)
    );
    pareto
}

fn pareto(prefer: &str, limit: Option<f64>) -> Pareto {
    Pareto {
        outcomes: vec!["latency_us_mean".into(), "artefact_bytes_per_s".into()],
        prefer: prefer.into(),
        limit: limit.map(|limit| ("latency_us_mean".to_owned(), limit)).into_iter().collect(),
    }
}

#[test]
fn an_arm_that_another_beats_in_all_that_is_traded_is_no_choice() {
    let found = trading(ROUNDS, pareto("latency_us_mean", None));
    let beaten: BTreeMap<&str, Option<&str>> =
        found.arms.iter().map(|arm| (arm.name.as_str(), arm.beaten_by.as_deref())).collect();
    assert_eq!(beaten, [("bad", Some("small")), ("cheap", None), ("small", None)].into());
    assert!(found.arms.iter().all(|arm| arm.values.len() == 2 && arm.ci95.iter().all(Option::is_some)));
    assert_eq!(found.advised.as_deref(), Some("cheap"));
    assert!(
        found.text.starts_with("Advised: 1.05 times the CPU a query (cheap), mean response time "),
        "{}",
        found.text
    );
    assert!(
        found.text.contains("the least of the 2 that no other beats (1 of 3 are beaten"),
        "{}",
        found.text
    );
}

#[test]
fn the_advised_arm_keeps_the_limits_by_its_interval_and_without_one_nothing_is_advised() {
    let found = trading(ROUNDS, pareto("artefact_bytes_per_s", Some(60.0)));
    assert_eq!(found.advised.as_deref(), Some("small"));
    assert!(
        found
            .text
            .contains("the least of those that keep mean response time within 60%; mean response time +")
    );
    // Its mean lies below, the far end of its interval does not.
    let found = trading(ROUNDS, pareto("artefact_bytes_per_s", Some(31.0)));
    assert_eq!(found.advised.as_deref(), Some("cheap"), "{}", found.text);
    let found = trading(ROUNDS, pareto("artefact_bytes_per_s", Some(0.0)));
    assert_eq!(found.advised, None);
    assert!(
        found.text.starts_with("Nothing is advised: none of 3 keeps mean response time within 0%")
            && found.text.contains("The nearest is 1.05 times the CPU a query (cheap)"),
        "{}",
        found.text
    );
    let found = trading(3, pareto("artefact_bytes_per_s", None));
    assert_eq!(found.advised, None);
    assert_eq!(found.text, "Nothing is recommended of these variants: an interval needs 6 rounds or more.");
    assert!(found.arms.iter().all(|arm| arm.beaten_by.is_none()));
}

#[test]
fn an_arm_that_breaks_a_limit_takes_no_advice_from_one_that_keeps_it() {
    let with = |name, cost, bytes| SyntheticArm { caught: Some((1.0, bytes)), ..treatment(name, cost) };
    let arms = vec![with("near", 1.05, 4_000.0), with("less", 1.055, 1_000.0)];
    let mut recorded = record(&SyntheticRun::with(9, ROUNDS, arms));
    let mut found = |limit: Option<f64>| {
        recorded.plan.pareto = Some(pareto("artefact_bytes_per_s", limit));
        let run = analyse::analyse(&recorded);
        let high = |name: &str| arm(&run, name).outcomes["latency_us_mean"].ci95_pct.unwrap()[1];
        (run.pareto.clone().unwrap(), high("near"), high("less"))
    };
    let (free, near, less) = found(None);
    let beaten = free.arms.iter().find(|arm| arm.name == "near").unwrap().beaten_by.as_deref();
    assert_eq!((free.advised.as_deref(), beaten), (Some("less"), Some("less")), "told apart by bytes alone");
    assert!(near < less, "{near} {less}");
    let (limited, ..) = found(Some((near + less) / 2.0));
    assert_eq!(limited.advised.as_deref(), Some("near"), "{}", limited.text);
}

#[test]
fn arms_that_do_nothing_are_no_choice() {
    let mut recorded = SyntheticRun::with(9, ROUNDS, vec![treatment("B", 1.1), treatment("K", 1.2)]).record();
    recorded.plan.pareto = Some(Pareto {
        outcomes: vec!["latency_us_mean".into(), "qps".into()],
        prefer: "qps".into(),
        limit: BTreeMap::new(),
    });
    assert_eq!(analyse::analyse(&recorded).pareto, None);
}

fn defined(source: Source, aggregate: Aggregate) -> Definition {
    Definition {
        name: "it".into(),
        unit: "units".into(),
        title: "it".into(),
        head: None,
        higher_is_better: false,
        source,
        aggregate,
        compare: Compare::Difference,
        zeros: Zeros::Refuse,
        margin: None,
        by_rate: false,
        long_windows: false,
    }
}

#[test]
fn a_share_above_a_limit_is_of_all_events() {
    let mut recorded = record(&SyntheticRun::with(5, ROUNDS, vec![treatment("K", 1.6)]));
    let limit_us = 20_000;
    recorded.plan.outcomes.push(defined(Source::Latency, Aggregate::Above(f64::from(limit_us))));
    let run = analyse::analyse(&recorded);
    for name in ["none", "K"] {
        let found = &arm(&run, name).outcomes["it"].values;
        let windows = recorded.latencies.iter().filter(|latency| latency.arm == name);
        let counted = windows.map(|latency| {
            let all: Vec<u64> = latency.histogram.iter_recorded().map(|v| v.count_at_value()).collect();
            let above = latency.histogram.iter_recorded().filter(|v| v.value_iterated_to() > limit_us as u64);
            100.0 * above.map(|v| v.count_at_value()).sum::<u64>() as f64 / all.iter().sum::<u64>() as f64
        });
        let counted: Vec<f64> = counted.collect();
        assert!(counted.iter().all(|share| *share > 0.0 && *share < 100.0), "{counted:?}");
        assert!(
            found.iter().zip(&counted).all(|(a, b)| (a - b).abs() < 1.0),
            "{found:?}, counted {counted:?}"
        );
    }
    assert!(arm(&run, "K").outcomes["it"].effect.unwrap() > 0.0);
}

#[test]
fn a_column_has_recovered_once_it_is_as_usual_under_the_other_arm() {
    let mut synthetic = SyntheticRun::with(5, ROUNDS, vec![treatment("K", 1.1)]);
    (synthetic.gap_s, synthetic.window_s) = (4.0, 4.0);
    let mut recorded = record(&synthetic);
    let source = Source::Server { column: "Innodb_history_list_length".into() };
    recorded.plan.outcomes.push(defined(source, Aggregate::Recovery));
    let ends: Vec<(u64, u64, bool, u32)> = recorded
        .trials
        .iter()
        .filter(|line| line.step == Step::WindowEnd)
        .map(|line| (line.mono_us - 4_000_000, line.mono_us, line.arm == "K", line.round))
        .collect();
    for (begin, end, is_treated, round) in ends {
        for at_us in (begin + 500_000..end + 4_000_000).step_by(1_000_000) {
            // In the window and 2.5 s after it the list is long; in the last round for good.
            let long = is_treated && (at_us < end + 2_000_000 || round == ROUNDS - 1);
            let values = [("Innodb_history_list_length".to_owned(), if long { 900.0 } else { 30.0 })].into();
            recorded.servers.push(ServerSample { mono_us: at_us, server: 0, values });
        }
    }
    recorded.servers.sort_by_key(|sample| sample.mono_us);
    let run = analyse::analyse(&recorded);
    let found = &arm(&run, "K").outcomes["it"].values;
    assert_eq!((found[0], found[ROUNDS as usize - 1]), (2.5, 4.0), "{found:?}");
    assert_eq!(arm(&run, "none").outcomes["it"].mean, 0.5);
    recorded.plan.gap_s = 0.5;
    let run = analyse::analyse(&recorded);
    assert!(!arm(&run, "K").outcomes.contains_key("it"), "the pause is too short to tell");
}

#[test]
fn packets_that_got_lost_and_how_far_a_ladder_holds_are_told_in_every_form() {
    let mut run = analyse::analyse(&record(&SyntheticRun::with(3, ROUNDS, vec![treatment("B", 1.1)])));
    let stage = |name: &str, packets, lost: Option<u64>, counted: Option<u64>| LedgerStage {
        name: name.into(),
        packets,
        lost,
        lost_counted: counted,
        lost_pct: lost.map(|lost| lost as f64 / 100.0),
    };
    let whole = Ledger {
        trials: 6,
        whole: 6,
        adds_up: 6,
        stages: vec![stage("sent", 10_000, None, None), stage("written", 10_000, Some(0), Some(0))],
    };
    let lossy = Ledger {
        adds_up: 5,
        stages: vec![
            stage("sent", 10_000, None, None),
            stage("seen", 9_900, Some(100), Some(40)),
            stage("captured", 9_700, Some(200), Some(200)),
            stage("written", 9_700, Some(0), Some(0)),
        ],
        ..whole.clone()
    };
    run.arms[0].ledger = Some(whole);
    run.arms[1].ledger = Some(lossy);
    let limit = LimitResult {
        name: "zero-loss".into(),
        title: "highest rate without a loss".into(),
        outcome: "lost_pct".into(),
        over: "mbps".into(),
        unit: "Mb/s".into(),
        at_most: 0.0,
        of: vec![("set".into(), "skype".into())],
        rungs: vec![50.0, 100.0, 200.0],
        values: vec![0.0, 100.0, 100.0, 200.0, 100.0, 100.0],
        in_all: 0.0,
        median: 100.0,
        ci95: Some([0.0, 200.0]),
        open: 1,
    };
    run.limits = vec![limit];
    for told in [text(&run, ColourMode::Plain, Detail::All), markdown(&run)] {
        let words = told.split_whitespace().collect::<Vec<_>>().join(" ").replace('\\', "");
        for expected in [
            "10,000 sent, 100 (1.000%) lost before seen, 60 of them not in any drop counter, 200 (2.000%) lost before \
             captured, 9,700 written; adds up in 5 of 6 trials",
            "nothing lost from the sender to the file; adds up in 6 of 6 trials",
            "highest rate without a loss, skype: below 50 Mb/s in every one of 6 rounds; the median round 100 Mb/s \
             [below 50 Mb/s, 200 Mb/s]; in 1 of them it was not found: the ladder, or what the sender reaches, ends",
        ] {
            assert!(words.contains(expected), "{expected}\n{words}");
        }
    }
}
