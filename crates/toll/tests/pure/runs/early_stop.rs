//! Tests of the stopping rule: when a run may end before its last round.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_analysis::RunData;
use toll_record::{Compare, Cpu, Role, Step, TrialLine, Verdict, Window};

fn with(rounds: u32, arms: &[(&'static str, f64)]) -> RunData {
    let arms = arms.iter().map(|&(name, cost)| SyntheticArm::new(name, Role::Treatment, cost)).collect();
    let mut recorded = SyntheticRun::with(11, rounds, arms).record();
    recorded.plan.early_stop = true;
    recorded.plan.rounds = 40;
    recorded
}

fn can_stop(recorded: &RunData) -> bool {
    analyse::can_stop_early(&analyse::analyse(recorded))
}

/// A dump and the same dump `slower` times as long, in each round after its other trials; no load beside them.
fn add_dumps(recorded: &mut RunData, slower: f64) {
    let mut now_us = recorded.trials.iter().map(|line| line.mono_us).max().unwrap_or(0) + 1_000_000;
    let mut trial = recorded.trials.iter().map(|line| line.trial).max().unwrap_or(0);
    for (name, role) in [("dump-unix", Role::Baseline), ("dump-tcp", Role::Treatment)] {
        let mut arm = recorded.plan.arms[0].clone();
        (arm.name, arm.role, arm.window) = (name.into(), role, Window::Done { at_most_s: 60.0 });
        arm.workload.driver = "none".into();
        arm.meter = toll_record::Meter::None;
        arm.judged_by = Some("elapsed_s".into());
        arm.against = (role == Role::Treatment).then(|| "dump-unix".into());
        recorded.plan.arms.push(arm);
    }
    for round in 0..recorded.plan.order.len() {
        for (arm, takes_s) in [("dump-unix", 2.0), ("dump-tcp", 2.0 * slower)] {
            recorded.plan.order[round].push(arm.into());
            trial += 1;
            // No two take the same time.
            let takes_us = (takes_s * 1e6) as u64 + (round as u64 * 7 + u64::from(trial) * 3) % 11 * 1_000;
            for (step, after_us) in [(Step::WindowBegin, 100_000), (Step::WindowEnd, takes_us)] {
                now_us += after_us;
                recorded.trials.push(TrialLine {
                    mono_us: now_us,
                    wall_us: 1_700_000_000_000_000 + now_us,
                    trial,
                    round: round as u32,
                    arm: arm.into(),
                    step,
                    cpu: Some(Cpu::default()),
                    artefact_bytes: None,
                    runs: None,
                    runs_us: None,
                    processes: Vec::new(),
                    stages: Vec::new(),
                    note: None,
                });
            }
        }
    }
}

#[test]
fn an_arm_is_decided_against_the_arm_that_it_is_compared_with() {
    let of_a_pair = |cost| {
        let mut recorded = with(12, &[("tls", 2.0), ("tls-again", cost)]);
        recorded.plan.arms.iter_mut().find(|a| a.name == "tls-again").unwrap().against = Some("tls".into());
        recorded
    };
    assert!(!can_stop(&of_a_pair(2.0)), "as dear as its counterpart: nothing is decided yet");
    assert!(can_stop(&of_a_pair(4.0)));
}

#[test]
fn a_window_that_is_missing_takes_its_round_and_no_other() {
    let mut recorded = with(13, &[("B", 1.6)]);
    recorded.trials.retain(|line| !(line.arm == "B" && line.round == 3));
    assert!(can_stop(&recorded), "twelve rounds are paired");
    // One of each, in different rounds: pairs must not slip. In round 8 both do a fiftieth.
    let mut recorded = with(13, &[("B", 1.6)]);
    recorded.trials.retain(|line| !(line.arm == "B" && line.round == 3));
    recorded.trials.retain(|line| !(line.arm == "none" && line.round == 9));
    let round_8 = |step| {
        let of = |line: &&TrialLine| line.round == 8 && line.step == step;
        recorded.trials.iter().filter(of).map(|line| line.mono_us).collect::<Vec<_>>()
    };
    let windows: Vec<(u64, u64)> =
        round_8(Step::WindowBegin).into_iter().zip(round_8(Step::WindowEnd)).collect();
    for bin in &mut recorded.bins {
        if windows.iter().any(|w| w.0 < bin.mono_us && bin.mono_us <= w.1) {
            bin.statements /= 50;
        }
    }
    assert!(can_stop(&recorded), "eleven rounds are paired, each with itself");
}

#[test]
fn a_run_that_went_to_its_end_has_the_interval_of_its_plan_too_which_is_narrower() {
    let mut recorded = with(30, &[("B", 1.03), ("C", 1.02)]);
    let result = analyse::analyse(&recorded);
    for name in ["B", "C"] {
        let outcome = &arm(&result, name).outcomes["qps"];
        let ([low, high], [planned_low, planned_high]) =
            (outcome.ci95_pct.unwrap(), outcome.planned_ci95_pct.unwrap());
        assert_eq!(outcome.method, "confidence-sequence");
        assert!(low < planned_low && planned_high < high, "{outcome:?}");
        assert!(planned_low < outcome.toll_pct.unwrap() && outcome.toll_pct.unwrap() < planned_high);
        let notes = &arm(&result, name).notes;
        assert!(notes.iter().any(|note| note.starts_with("qps: at the end of its plan")), "{notes:?}");
    }
    recorded.trials.retain(|line| line.round < 29);
    let result = analyse::analyse(&recorded);
    assert_eq!(arm(&result, "B").outcomes["qps"].planned_ci95_pct, None);
}

#[test]
fn a_run_with_dumps_ends_too_once_they_are_decided() {
    let mut recorded = with(12, &[("B", 1.6)]);
    add_dumps(&mut recorded, 1.5);
    assert!(can_stop(&recorded));
    let result = analyse::analyse(&recorded);
    let dump = &arm(&result, "dump-tcp").outcomes["elapsed_s"];
    assert_eq!((dump.method.as_str(), dump.verdict), ("confidence-sequence", Verdict::Costly));

    let mut recorded = with(5, &[("B", 1.6)]);
    add_dumps(&mut recorded, 1.5);
    assert!(!can_stop(&recorded), "a sequence needs six rounds");
}

#[test]
fn where_no_treatment_is_compared_nothing_says_that_it_is_enough() {
    let aa = |arms| SyntheticRun::with(6, 12, arms).record();
    let none = SyntheticArm::new("none2", Role::Aa, 1.0);
    assert!(!can_stop(&aa(vec![none])), "controls alone");
    let mut recorded = aa(vec![SyntheticArm::new("B", Role::Treatment, 2.0)]);
    assert!(can_stop(&recorded));
    for outcome in recorded.plan.outcomes.iter_mut().filter(|outcome| outcome.name == "qps") {
        outcome.compare = Compare::Absolute;
    }
    assert!(!can_stop(&recorded), "told by itself, and so never decided");
}
