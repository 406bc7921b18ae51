//! Tests that the analysis finds the known overheads of a synthetic host, and none where there are none.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use std::collections::BTreeMap;
use toll_analysis as analyse;
use toll_analysis::RunData;
use toll_record::*;

pub fn warning_codes(run: &RunResult) -> Vec<&str> {
    run.warnings.iter().map(|w| w.code.as_str()).collect()
}

#[test]
fn known_tolls_lie_within_their_intervals() {
    let run = analyse::analyse(&SyntheticRun::with(11, 12, SyntheticArm::usual()).record());
    for (name, cost) in [("B", 1.12), ("C", 1.0), ("none-2", 1.0), ("sleep", 1.0)] {
        let outcomes = &arm(&run, name).outcomes;
        let holds = |outcome: &str, truth: f64| {
            let [low, high] = outcomes[outcome].ci95_pct.unwrap();
            assert!(
                low <= truth && truth <= high,
                "{name}.{outcome}: {truth:.2} not in [{low:.2}, {high:.2}]"
            );
        };
        holds("qps", 100.0 * (1.0 / cost - 1.0));
        holds("cpu_us_per_query", 100.0 * (cost - 1.0));
        holds("latency_us_mean", 100.0 * (cost - 1.0));
        holds("latency_us_p95", 100.0 * (cost - 1.0));
    }
    assert_eq!(arm(&run, "B").outcomes["qps"].verdict, Verdict::Costly);
    assert_eq!(arm(&run, "K").outcomes["qps"].verdict, Verdict::Costly);
    assert_eq!(arm(&run, "none").outcomes["qps"].verdict, Verdict::Baseline);
    assert!(arm(&run, "none").outcomes["qps"].toll_pct.is_none());
    assert_eq!(arm(&run, "B").outcomes["latency_us_p95"].method, "bootstrap-bca");
    assert!(run.complete && run.rounds_done == 12);
    // C costs nothing, which 12 rounds of 3 s are too few to say.
    assert_eq!(arm(&run, "C").outcomes["qps"].verdict, Verdict::Unclear);
    assert_eq!(warning_codes(&run), ["unavailable-arms", "low-power"], "{:#?}", run.warnings);
}

#[test]
fn stalls_are_found_with_what_stood_beside_them() {
    let run = analyse::analyse(&SyntheticRun::with(5, 8, SyntheticArm::usual()).record());
    let totals = &arm(&run, "K").stalls;
    assert_eq!(totals.count, 8, "one a window: {totals:?}");
    assert!((0.55..=0.75).contains(&totals.longest_s), "{totals:?}");
    assert_eq!(arm(&run, "none").stalls.count, 0);
    let span = run.stalls.iter().find(|s| s.kind == "throughput").unwrap();
    assert_eq!(span.arm, "K");
    assert_eq!((span.dirty_bytes, span.writeback_bytes), (Some(900 << 20), Some(300 << 20)));
    assert_eq!((span.psi_io_pct, span.disk_write_await_ms), (Some(80.0), Some(1.5)));
    assert!(arm(&run, "K").outcomes["stall_s"].mean > 0.5);
    // What waits when a window ends has waited already.
    assert!(arm(&run, "K").outcomes["latency_us_max"].mean >= 600_000.0);
}

#[test]
fn an_arm_that_is_held_against_a_slow_one_does_not_stand_still() {
    let mut slow = SyntheticArm::new("slow", Role::Baseline, 15.0);
    let like_it = SyntheticArm::new("like it", Role::Treatment, 15.0);
    let mut recorded = SyntheticRun::with(5, 8, vec![slow.clone(), like_it]).record();
    recorded.plan.arms[2].against = Some("slow".into());
    let run = analyse::analyse(&recorded);
    assert_eq!((arm(&run, "slow").stalls.count, arm(&run, "like it").stalls.count), (0, 0));
    // Held against the fast one, it would.
    slow.role = Role::Treatment;
    let run = analyse::analyse(&SyntheticRun::with(5, 8, vec![slow]).record());
    assert!(arm(&run, "slow").stalls.count > 0);
}

#[test]
fn what_an_artefact_caught_is_held_against_what_was_executed() {
    let run = analyse::analyse(&SyntheticRun::with(5, 8, SyntheticArm::usual()).record());
    let b = arm(&run, "B");
    assert!((b.captured_ratio.unwrap() - 0.995).abs() < 1e-4);
    let artefact = b.artefact.as_ref().unwrap();
    assert_eq!(artefact.dropped, Some(0));
    assert!((artefact.link_mbit_per_s - artefact.bytes as f64 * 8.0 / 24.0 / 1e6).abs() < 1e-6);
    assert!(
        run.advice.iter().any(|a| a.starts_with("Captures every query: B, throughput -1")),
        "{:?}",
        run.advice
    );
    assert!(
        run.advice.iter().any(|a| a.contains("fewer queries than another: K (by B)")),
        "{:?}",
        run.advice
    );
}

#[test]
fn arms_held_against_different_ones_are_no_choice_of_each_other() {
    let mut recorded = SyntheticRun::with(5, 8, SyntheticArm::usual()).record();
    recorded.plan.arms.iter_mut().find(|arm| arm.name == "K").unwrap().against = Some("C".into());
    let run = analyse::analyse(&recorded);
    assert!(
        run.advice.iter().any(|a| a.starts_with("Captures every query: B, throughput -1")),
        "{:?}",
        run.advice
    );
    assert!(!run.advice.iter().any(|a| a.to_lowercase().contains("lowest")), "{:?}", run.advice);
}

#[test]
fn swept_arms_are_answered_by_their_curve() {
    let mut recorded = SyntheticRun::with(5, 8, SyntheticArm::usual()).record();
    for (name, rate) in [("B", 10.0), ("C", 1e9)] {
        let swept = recorded.plan.arms.iter_mut().find(|arm| arm.name == name).unwrap();
        swept.curve = Some("none".into());
        swept.workload.rate_per_s = Some(rate);
    }
    let run = analyse::analyse(&recorded);
    assert!(run.answer.starts_with("Throughput with 1.60 times the CPU a query (K): "), "{}", run.answer);
    assert!(
        run.answer.contains("none: no knee up to the highest rate; 1000000000/s is beyond"),
        "{}",
        run.answer
    );
    assert!(!run.advice.iter().any(|a| a.contains("knee")), "{:?}", run.advice);
}

#[test]
fn more_than_all_queries_is_a_doubt_and_no_full_picture() {
    let mut arms = SyntheticArm::usual();
    arms[0].caught = Some((1.5, 1_100.0));
    let run = analyse::analyse(&SyntheticRun::with(5, 8, arms).record());
    assert!(warning_codes(&run).contains(&"caught-too-many"));
    assert!(!run.advice.iter().any(|a| a.contains("B captures")), "{:?}", run.advice);
}

#[test]
fn where_only_pt_query_digest_counts_its_share_stands_and_says_whose_it_is() {
    let mut recorded = SyntheticRun::with(5, 8, SyntheticArm::usual()).record();
    for line in recorded.artefacts.iter_mut().filter(|l| l.arm == "B") {
        line.queries = None;
        line.pt_query_digest = (line.round == 0).then(|| QueryCount {
            queries: 900,
            by: "pt-query-digest".into(),
            bytes_read: 1_000_000,
            executed: Some(1_000),
            by_toll: None,
        });
    }
    let run = analyse::analyse(&recorded);
    assert_eq!(arm(&run, "B").captured_ratio, Some(0.9));
    let says = "pt-query-digest finds 900 queries where 1000 were executed (90.0%)";
    assert!(arm(&run, "B").notes.iter().any(|n| n == says), "{:?}", arm(&run, "B").notes);
    assert!(!warning_codes(&run).contains(&"artefact-not-counted"));
}

#[test]
fn the_far_end_of_the_network_costs_this_host_nothing() {
    let host = SyntheticRun::with(5, 6, SyntheticArm::usual());
    let plain = analyse::analyse(&host.record());
    let mut recorded = host.record();
    // The stand-in for another machine burns a tenth of a CPU, on top of all else.
    for cpu in recorded.trials.iter_mut().filter_map(|l| l.cpu.as_mut()) {
        let far = cpu.host_busy_us / 20;
        cpu.remote_us += far;
        cpu.host_busy_us += far;
    }
    let cpu = |run: &RunResult| arm(run, "B").outcomes["cpu_us_per_query"].mean;
    assert!((cpu(&analyse::analyse(&recorded)) / cpu(&plain) - 1.0).abs() < 1e-6);
}

#[test]
fn a_count_over_another_stretch_is_held_against_what_was_executed_there() {
    let mut recorded = SyntheticRun::with(5, 6, SyntheticArm::usual()).record();
    for count in recorded.artefacts.iter_mut().filter(|l| l.arm == "B").filter_map(|l| l.queries.as_mut()) {
        (count.queries, count.executed) = (450, Some(500));
    }
    assert_eq!(arm(&analyse::analyse(&recorded), "B").captured_ratio, Some(0.9));
}

#[test]
fn one_round_gives_tolls_without_intervals_and_says_what_is_needed() {
    let run = analyse::analyse(&SyntheticRun::with(2, 1, SyntheticArm::usual()).record());
    let qps = &arm(&run, "K").outcomes["qps"];
    assert!(qps.toll_pct.unwrap() < -10.0 && qps.ci95_pct.is_none());
    assert_eq!(qps.verdict, Verdict::NoInterval);
    assert!(qps.method.contains("at least 6"), "{}", qps.method);
    assert!(run.complete);
    let warning = run.warnings.iter().find(|w| w.code == "too-few-rounds").unwrap();
    assert!(warning.advice.contains("--rounds 6"), "{warning:?}");
    assert!(!warning_codes(&run).contains(&"control-missed") && !warning_codes(&run).contains(&"aa-failed"));
}

#[test]
fn seven_rounds_can_call_thirteen_arms_costly_and_six_hold_them_together_too() {
    let arms = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M"]
        .map(|name| SyntheticArm::new(name, Role::Treatment, 1.5));
    const METHOD: &str = "sign-flip, 13 variants together, drift taken out";
    let run = analyse::analyse(&SyntheticRun::with(4, 7, arms.to_vec()).record());
    for arm in &run.arms[1..] {
        let qps = &arm.outcomes["qps"];
        assert_eq!((qps.verdict, qps.method.as_str()), (Verdict::Costly, METHOD));
        assert!(qps.p_adjusted.unwrap() <= 0.05 && qps.ci95_pct.unwrap()[1] < 0.0, "{qps:?}");
        assert!(qps.p_adjusted >= qps.p, "{qps:?}");
    }
    assert!(!warning_codes(&run).contains(&"too-few-rounds"), "{:?}", warning_codes(&run));
    let six = analyse::analyse(&SyntheticRun::with(4, 6, arms.to_vec()).record());
    assert!(six.arms[1..].iter().all(|arm| arm.outcomes["qps"].ci95_pct.is_some()));
}

/// Many hosts and several effects: the verdict always agrees with the interval.
#[test]
fn verdict_and_interval_never_disagree() {
    let (mut told, mut unclear) = (0, 0);
    for seed in 0..40 {
        let arms = (0..6).map(|k| {
            let name = ["A", "B", "C", "D", "E", "F"][k];
            SyntheticArm::new(name, Role::Treatment, 1.0 + 0.04 * k as f64)
        });
        let mut recorded = SyntheticRun::with(seed, 6 + seed as u32 % 7, arms.collect()).record();
        recorded.plan.early_stop = seed % 4 == 0;
        let run = analyse::analyse(&recorded);
        let outcomes = run.arms.iter().flat_map(|arm| &arm.outcomes);
        for (name, outcome) in outcomes {
            let Some([low, high]) = outcome.ci95_pct.or(outcome.ci95) else { continue };
            let off_zero = low > 0.0 || high < 0.0;
            match outcome.verdict {
                Verdict::Costly | Verdict::Cheaper => {
                    told += 1;
                    assert!(off_zero, "{seed} {name}: {outcome:?}");
                }
                Verdict::Unclear => {
                    unclear += 1;
                    assert!(!off_zero, "{seed} {name}: {outcome:?}");
                }
                _ => {}
            }
            if let Some(p) = outcome.p_adjusted {
                assert_eq!(off_zero, p <= 0.05, "{seed} {name}: {outcome:?}");
            }
        }
    }
    assert!(told > 100 && unclear > 100, "{told} {unclear}");
}

#[test]
fn windows_that_are_missing_take_their_round_out_of_the_pairs() {
    let mut recorded = SyntheticRun::with(6, 9, SyntheticArm::usual()).record();
    let of = |arm: &str, round: u32, l: &TrialLine| l.arm == arm && l.round == round;
    recorded.trials.retain(|l| !(of("B", 2, l) && l.step != Step::Start));
    let line = recorded.trials.iter_mut().find(|l| of("B", 2, l)).unwrap();
    line.step = Step::Failed;
    line.note = Some("tcpdump: no such interface".into());
    let run = analyse::analyse(&recorded);
    assert_eq!(arm(&run, "B").windows, 8);
    assert!(arm(&run, "B").outcomes["qps"].ci95_pct.is_some());
    assert!(!run.complete && run.rounds_done == 8);
    let text: Vec<_> = run.warnings.iter().map(|w| w.text.as_str()).collect();
    assert!(text.iter().any(|t| t.contains("missing: B in round 3")), "{text:?}");
    assert!(text.iter().any(|t| t.contains("no such interface")), "{text:?}");
}

#[test]
fn an_arm_that_never_worked_is_a_warning_of_its_own() {
    let mut recorded = SyntheticRun::with(6, 7, SyntheticArm::usual()).record();
    // Given up after its first round.
    recorded.trials.retain(|l| l.arm != "B" || (l.round == 0 && l.step == Step::Start));
    let line = recorded.trials.iter_mut().find(|l| l.arm == "B").unwrap();
    line.step = Step::Failed;
    line.note = Some("tcpdump: no such interface".into());
    let run = analyse::analyse(&recorded);
    assert!(run.complete && run.rounds_done == 7);
    assert_eq!(arm(&run, "B").windows, 0);
    let warning = run.warnings.iter().find(|w| w.code == "trial-failed").unwrap();
    assert!(warning.text.contains("no such interface"), "{warning:?}");
}

#[test]
fn a_treatment_that_did_not_stop_as_asked_is_named() {
    let mut recorded = SyntheticRun::with(6, 7, SyntheticArm::usual()).record();
    for line in recorded.trials.iter_mut().filter(|l| l.arm == "K" && l.step == Step::Stopped) {
        line.note = Some("bpftrace ignored its signal and was ended by SIGKILL after 2.0 s".into());
    }
    let run = analyse::analyse(&recorded);
    let warning = run.warnings.iter().find(|w| w.code == "treatment-killed").unwrap();
    assert_eq!(warning.arm.as_deref(), Some("K"));
    assert!(warning.text.contains("SIGKILL") && warning.text.contains("7 times"), "{warning:?}");
}

#[test]
fn a_run_that_may_stop_early_is_judged_by_a_confidence_sequence() {
    let judged = |rounds, early_stop| {
        let mut recorded = SyntheticRun::with(11, rounds, SyntheticArm::usual()).record();
        recorded.plan.early_stop = early_stop;
        recorded.plan.rounds = 20;
        analyse::analyse(&recorded)
    };
    let (plain, early) = (judged(12, false), judged(12, true));
    assert!(early.complete && !plain.complete, "all rounds that were begun are whole");
    let width = |run: &RunResult| {
        let [low, high] = arm(run, "B").outcomes["qps"].ci95_pct.unwrap();
        high - low
    };
    assert!(width(&early) > 1.2 * width(&plain), "{} {}", width(&early), width(&plain));
    // Three treatments are asked about: what is shown is what each may be judged by.
    let alone = {
        let mut recorded = SyntheticRun::with(11, 12, SyntheticArm::usual()).record();
        (recorded.plan.early_stop, recorded.plan.rounds) = (true, 20);
        for other in recorded.plan.arms.iter_mut().filter(|arm| arm.name != "B") {
            if other.role == Role::Treatment {
                other.role = Role::Placebo;
            }
        }
        analyse::analyse(&recorded)
    };
    assert!(width(&early) > 1.1 * width(&alone), "{} {}", width(&early), width(&alone));
    let k = &arm(&early, "K").outcomes["qps"];
    assert_eq!((k.method.as_str(), k.verdict), ("confidence-sequence", Verdict::Costly));
    // Three treatments at a third of 5% each: seven blocks are the fewest.
    assert_eq!(arm(&judged(6, true), "K").outcomes["qps"].verdict, Verdict::NoInterval);
}

#[test]
fn a_window_in_which_nothing_completed_counts_and_is_no_zero_latency() {
    let mut arm_b = SyntheticArm::new("B", Role::Treatment, 1.1);
    arm_b.stall = Some((0.0, 99.0));
    let run = analyse::analyse(&SyntheticRun::with(6, 7, vec![arm_b]).record());
    let b = arm(&run, "B");
    assert_eq!(b.outcomes["qps"].mean, 0.0);
    assert!(b.outcomes["qps"].toll_pct.unwrap() < -99.9);
    assert!(!b.outcomes.contains_key("latency_us_mean") && !b.outcomes.contains_key("cpu_us_per_query"));
    assert!(b.outcomes["latency_us_max"].mean >= 2_900_000.0);
    assert!((b.stalls.total_s - 21.0).abs() < 0.5, "{:?}", b.stalls);
    assert!(warning_codes(&run).contains(&"nothing-completed"));
}

#[test]
fn errors_of_the_load_are_counted_and_their_codes_named() {
    let mut recorded = SyntheticRun::with(9, 6, SyntheticArm::usual()).record();
    for (i, bin) in recorded.bins.iter_mut().enumerate() {
        bin.errors = 1;
        bin.errors_by_code = BTreeMap::from([(if i % 3 == 0 { 1213 } else { 1205 }, 1)]);
    }
    let run = analyse::analyse(&recorded);
    let of_b = |w: &&Warning| w.code == "load-errors" && w.arm.as_deref() == Some("B");
    let said = &run.warnings.iter().find(of_b).unwrap().text;
    assert!(said.contains(" times), 1213 (") && said.contains(": 1205 ("), "{said}");
}

#[test]
fn sysbench_percentiles_come_from_seconds_and_say_so() {
    let mut host = SyntheticRun::with(9, 8, SyntheticArm::usual());
    host.driver = "sysbench";
    let run = analyse::analyse(&host.record());
    let p99 = &arm(&run, "B").outcomes["latency_us_p99"];
    assert!(p99.method.contains("one-second percentiles"), "{}", p99.method);
    let [low, high] = p99.ci95_pct.unwrap();
    assert!(low < 12.0 && 12.0 < high, "[{low}, {high}]");
    assert!(!arm(&run, "B").outcomes.contains_key("latency_us_p999"));
}

#[test]
fn a_crashed_run_is_reported_as_far_as_it_went() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    SyntheticRun::with(7, 9, SyntheticArm::usual()).write(&root).unwrap();
    super::expand_series(&root);
    // Killed in the middle of a line, before the host's description reached the disk.
    for (file, keep) in
        [("trials.ndjson", 0.55), ("samples.ndjson", 0.55), ("latency.hlog", 0.5), ("artefacts.ndjson", 0.3)]
    {
        let text = std::fs::read(root.join(file)).unwrap();
        std::fs::write(root.join(file), &text[..(text.len() as f64 * keep) as usize]).unwrap();
    }
    std::fs::remove_file(root.join("host.json")).unwrap();
    let run = analyse::analyse_run_dir(&RunDir::open(&root).unwrap()).unwrap();
    assert!(!run.complete && (3..7).contains(&run.rounds_done), "{}", run.rounds_done);
    assert!(arm(&run, "K").outcomes["qps"].toll_pct.unwrap() < -20.0);
    let warning = run.warnings.iter().find(|w| w.code == "incomplete").unwrap();
    assert!(
        warning.text.contains("of 9 rounds are complete") && warning.text.contains("host.json"),
        "{warning:?}"
    );
    assert!(warning_codes(&run).contains(&"artefact-not-counted"));
}

#[test]
fn a_run_that_died_before_its_first_window_is_still_a_report() {
    let plan = SyntheticRun::with(1, 6, SyntheticArm::usual()).plan();
    let run = analyse::analyse(&RunData::without_samples(plan));
    assert!(!run.complete && run.rounds_done == 0);
    assert!(
        warning_codes(&run).contains(&"incomplete") && warning_codes(&run).contains(&"no-baseline"),
        "{:?}",
        warning_codes(&run)
    );
    assert!(run.arms.iter().all(|arm| arm.windows == 0));
}

#[test]
fn the_same_lines_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    let host = SyntheticRun::with(8, 12, SyntheticArm::usual());
    host.write(&root).unwrap();
    let json = |run: &RunResult| serde_json::to_string(run).unwrap();
    let from_disk = analyse::analyse_run_dir(&RunDir::open(&root).unwrap()).unwrap();
    assert_eq!(json(&from_disk), json(&analyse::analyse_run_dir(&RunDir::open(&root).unwrap()).unwrap()));
    assert_eq!(json(&from_disk), json(&analyse::analyse(&host.record())));
}

#[test]
fn rounds_that_follow_each_other_are_a_doubt() {
    let mut recorded = SyntheticRun::with(6, 16, SyntheticArm::usual()).record();
    // B costs more and more: every difference resembles the one before it.
    let windows: Vec<(u64, u64, u32)> = recorded
        .trials
        .chunk_by(|a, b| a.trial == b.trial)
        .filter(|steps| steps[0].arm == "B")
        .map(|steps| (steps[2].mono_us, steps[3].mono_us, steps[0].round))
        .collect();
    for bin in &mut recorded.bins {
        if let Some((.., round)) = windows.iter().find(|(b, e, _)| *b < bin.mono_us && bin.mono_us <= *e) {
            bin.statements = bin.statements * 20 / (20 + u64::from(*round));
        }
    }
    let run = analyse::analyse(&recorded);
    let warning = run.warnings.iter().find(|w| w.code == "dependence").unwrap();
    assert_eq!(warning.arm.as_deref(), Some("B"));
}

#[test]
fn absurd_numbers_in_a_record_end_in_a_report_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    SyntheticRun::with(7, 6, SyntheticArm::usual()).write(&root).unwrap();
    super::expand_series(&root);
    let edit = |file: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        std::fs::write(root.join(file), text.replacen(from, to, 3)).unwrap();
    };
    edit("trials.ndjson", "\"round\":3", "\"round\":4294967295");
    edit("samples.ndjson", "\"width_us\":100000", "\"width_us\":0");
    edit("samples.ndjson", "\"in_flight\":8,\"oldest_us\":", "\"in_flight\":8,\"oldest_us\":99999999999");
    let run = analyse::analyse_run_dir(&RunDir::open(&root).unwrap()).unwrap();
    assert!(!run.complete);
    edit("plan.json", "\"baseline\": \"none\"", "\"baseline\": \"nine\"");
    let error = analyse::analyse_run_dir(&RunDir::open(&root).unwrap()).unwrap_err().to_string();
    assert!(error.contains("`nine` is not among its arms"), "{error}");
}

/// 200 runs of a noisy host on which no arm costs anything.
#[test]
fn arms_that_cost_nothing_are_called_costly_in_at_most_one_run_of_twenty() {
    let (mut aa, mut family, mut pairs) = (0, 0, 0);
    for seed in 0..200 {
        let arms = vec![
            SyntheticArm::new("B", Role::Treatment, 1.0),
            SyntheticArm::new("C", Role::Treatment, 1.0),
            SyntheticArm::new("none-2", Role::Aa, 1.0),
        ];
        let mut host = SyntheticRun::with(seed, 10, arms);
        host.window_s = 2.0;
        host.noise = (0.10, 0.20);
        let run = analyse::analyse(&host.record());
        let told = |name: &str| {
            let outcome = &arm(&run, name).outcomes["qps"];
            matches!(outcome.verdict, Verdict::Costly | Verdict::Cheaper)
        };
        aa += u32::from(told("none-2"));
        family += u32::from(told("B") || told("C"));
        pairs += 1;
    }
    eprintln!("false verdicts in {pairs} analyses: A/A {aa}, any of two treatments {family}");
    assert!(aa <= 10 && family <= 10, "more than 5%: A/A {aa}, treatments {family}");
}
