//! Tests of each outcome's source windows, and of the completeness of a run with a time limit.

use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_analysis::RunData;
use toll_record::{Cut, Long, Role, RunResult, Sample, Spread, Step};
use toll_report::text::{ColourMode, Detail, text};

const ROUNDS: u32 = 12;

fn recorded() -> RunData {
    SyntheticRun::with(5, ROUNDS, vec![SyntheticArm::new("B", Role::Treatment, 1.2)]).record()
}

#[test]
fn what_needs_length_is_told_from_long_windows_alone_and_all_else_from_all() {
    let mut recorded = recorded();
    let rounds = vec![0, 2, 4, 5, 8, 10, 11];
    recorded.plan.long = Some(Long { window_s: 3.0, rounds: rounds.clone() });
    recorded.plan.window_s = 1.0;
    let run = analyse::analyse(&recorded);
    for definition in &run.definitions {
        let Some(outcome) = arm(&run, "B").outcomes.get(&definition.name) else { continue };
        let told = if definition.long_windows { rounds.len() } else { ROUNDS as usize };
        assert_eq!(outcome.values.len(), told, "{}", definition.name);
    }
    assert!(arm(&run, "B").outcomes.contains_key("stall_s"));
    let long = run.long.clone().unwrap();
    assert_eq!((long.rounds_done, long.window_s), (7, 3.0));
    let said = text(&run, ColourMode::Plain, Detail::All);
    let line = "Columns stalled: 7 rounds with windows of 3.0 s. All others: 12 rounds, mostly of 1.0 s.";
    assert!(said.replace('\n', " ").contains(line), "{said}");
    assert!(said.contains("windows of 1.0 s, 7 of 12 rounds with 3.0 s"), "{said}");
}

#[test]
fn without_long_windows_every_outcome_is_told_from_all() {
    let run = analyse::analyse(&recorded());
    assert_eq!(arm(&run, "B").outcomes["stall_s"].values.len(), ROUNDS as usize);
    assert!(run.long.is_none() && !text(&run, ColourMode::Plain, Detail::All).contains("All others: "));
}

/// Seconds from the first step to the last.
fn took_s(recorded: &RunData) -> f64 {
    let lines = || recorded.trials.iter().map(|line| line.mono_us);
    let (first, last) = (lines().min().expect("steps"), lines().max().expect("steps"));
    (last - first) as f64 / 1e6
}

#[test]
fn a_run_that_ended_because_its_time_was_up_is_whole_and_one_that_was_cut_is_not() {
    let mut recorded = recorded();
    let took_s = took_s(&recorded);
    let round_s = took_s / f64::from(ROUNDS);
    recorded.plan.rounds = 20;
    let whole = |recorded: &RunData| {
        let run = analyse::analyse(recorded);
        (run.complete, run.rounds_done, run.rounds_planned)
    };
    recorded.plan.time_s = Some(took_s + 0.5 * round_s);
    assert_eq!(whole(&recorded), (true, 12, 12));
    // There was time for several rounds more: it was ended by something else.
    recorded.plan.time_s = Some(took_s + 4.0 * round_s);
    assert_eq!(whole(&recorded), (false, 12, 20));
    recorded.plan.time_s = None;
    assert_eq!(whole(&recorded), (false, 12, 20));
    // Inside a round it was not the time that ended it.
    recorded.plan.time_s = Some(took_s + 0.5 * round_s);
    let last = recorded.trials.iter().map(|line| line.trial).max().unwrap();
    recorded.trials.retain(|line| line.trial != last || line.step == Step::Start);
    assert_eq!(whole(&recorded), (false, 11, 20));
}

/// Twelve rounds in three parts, with a time limit that ends after them.
fn in_parts() -> RunData {
    let mut recorded = recorded();
    let took_s = took_s(&recorded);
    recorded.plan.time_s = Some(took_s + 0.5 * took_s / f64::from(ROUNDS));
    recorded.plan.spread = Some(Spread { over_s: 10_000.0, begins: vec![4, 8] });
    recorded
}

fn rounds(run: &RunResult) -> (bool, u32, u32) {
    (run.complete, run.rounds_done, run.rounds_planned)
}

#[test]
fn a_run_that_was_cut_between_two_of_its_parts_is_not_whole() {
    let mut recorded = in_parts();
    assert_eq!(rounds(&analyse::analyse(&recorded)), (true, 12, 12));
    recorded.trials.retain(|line| line.round < 8);
    // However little time is left.
    for time_s in [10.0, 1_000.0] {
        recorded.plan.time_s = Some(time_s);
        let run = analyse::analyse(&recorded);
        assert_eq!(rounds(&run), (false, 8, 12));
        let over = run.parts.map(|parts| parts.over);
        assert_eq!(over.as_deref(), Some("2 parts of this run"), "of three");
    }
}

#[test]
fn a_part_that_was_late_skips_rounds_and_the_run_is_whole_without_them() {
    let mut recorded = in_parts();
    recorded.trials.retain(|line| ![3, 7].contains(&line.round));
    assert_eq!(rounds(&analyse::analyse(&recorded)), (true, 10, 10));
}

#[test]
fn a_run_that_could_not_go_on_says_why_in_its_report() {
    let mut recorded = recorded();
    let end_us = recorded.trials.iter().filter(|line| line.round < 3).map(|line| line.mono_us).max().unwrap();
    recorded.trials.retain(|line| line.mono_us <= end_us);
    let reason = "the disk of /runs/a is nearly full";
    recorded.add_samples(vec![Sample::Cut(Cut { mono_us: end_us + 500_000, reason: reason.into() })]);
    let run = analyse::analyse(&recorded);
    assert!(!run.complete);
    let shown = text(&run, ColourMode::Plain, Detail::All).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        shown.contains(&format!("3 of 12 rounds are complete; the run ended early: {reason}; missing:")),
        "{shown}"
    );
}

#[test]
fn of_a_run_whose_time_was_up_only_what_was_begun_can_be_missing() {
    let mut recorded = recorded();
    let took_s = took_s(&recorded);
    recorded.plan.time_s = Some(took_s);
    // Spare rounds, for which there was no time.
    recorded.plan.rounds = 14;
    let spare = recorded.plan.order[..2].to_vec();
    recorded.plan.order.extend(spare);
    recorded.trials.retain(|line| !(line.arm == "B" && line.round == 4 && line.step == Step::WindowEnd));
    let run = analyse::analyse(&recorded);
    assert_eq!(rounds(&run), (false, 11, 12));
    let told = run.warnings.iter().find(|warning| warning.code == "incomplete").unwrap();
    assert!(told.text.contains("11 of 12 rounds are complete; missing: B in round 5"), "{}", told.text);
    assert!(!told.text.contains("round 13"), "{}", told.text);
}
