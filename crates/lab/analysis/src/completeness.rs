//! Completeness check of a run.
//!
//! A run may end before its last planned round: by an early stop, or at the end of its time. The started
//! rounds are then all that is expected. A run that could not go on is not whole, and says why.

use super::coverage;
use super::run_data::RunData;
use super::warnings::RunWarning;
use super::windows::{self, Trials};
use std::collections::{BTreeMap, BTreeSet};
use toll_record::{Plan, Step};

pub struct Completeness {
    /// Rounds with a window of every working arm. Windows spoilt by the hypervisor count too.
    pub rounds: Vec<u32>,
    /// Expected rounds. If the time ran out, those that fitted.
    pub planned: u32,
    /// Warning about missing parts.
    pub warning: Option<RunWarning>,
}

impl Completeness {
    pub fn assess(recorded: &RunData, trials: &Trials) -> Self {
        let plan = &recorded.plan;
        let expected = expected_arms(recorded, trials);
        let rounds = complete_rounds(plan, &expected, trials);
        let begun = started_rounds(recorded);
        let time_was_up = is_time_exhausted(recorded, &begun, &expected);
        let planned = if time_was_up { begun.len() as u32 } else { plan.rounds };
        let files = absent_files(recorded, trials, &expected);
        let done = rounds.len();
        let has_ended = done as u32 >= planned || plan.early_stop && done > 0 && done == begun.len();
        let is_whole =
            has_ended && files.is_empty() && recorded.cut_short.is_empty() && recorded.cut.is_none();
        let doubt = (!is_whole).then(|| {
            let due: Vec<u32> = match time_was_up {
                true => begun.keys().copied().collect(),
                false => (0..plan.order.len() as u32).collect(),
            };
            RunWarning::Incomplete {
                done: done as u32,
                planned,
                why: recorded.cut.as_ref().map(|cut| cut.reason.clone()),
                missing: describe_gaps(plan, trials, &expected, &due),
                files,
                cut: recorded.cut_short.clone(),
            }
        });
        Self { rounds, planned, warning: doubt }
    }
}

fn complete_rounds(plan: &Plan, expected: &[usize], trials: &Trials) -> Vec<u32> {
    let mut of_round: BTreeMap<u32, usize> = BTreeMap::new();
    let measured = trials.windows.iter().map(|window| (window.arm, window.round));
    for (_, round) in
        measured.chain(trials.set_aside.iter().copied()).filter(|(arm, _)| expected.contains(arm))
    {
        *of_round.entry(round).or_default() += 1;
    }
    let due = |round| expected.iter().filter(|arm| plan.is_in_round(**arm, round)).count();
    of_round.into_iter().filter(|(round, n)| *n >= due(*round)).map(|(round, _)| round).collect()
}

/// Arms that should have a window in every round.
///
/// Left out are arms that cannot run here, and arms that failed and never had one. Both have a warning of
/// their own.
fn expected_arms(recorded: &RunData, trials: &Trials) -> Vec<usize> {
    let gave_up = |arm: usize| {
        let mut measured = trials.windows.iter().chain(&trials.excluded);
        trials.failed.iter().any(|f| f.arm == arm) && !measured.any(|w| w.arm == arm)
    };
    (0..recorded.plan.arms.len())
        .filter(|&i| recorded.plan.arms[i].unavailable.is_none() && !gave_up(i))
        .collect()
}

fn absent_files(recorded: &RunData, trials: &Trials, expected: &[usize]) -> Vec<&'static str> {
    [
        (recorded.host.is_none(), "host.json"),
        (recorded.trials.is_empty(), "trials.ndjson"),
        (
            expected.iter().any(|&i| coverage::is_loaded(&recorded.plan, i))
                && recorded.bins.is_empty()
                && recorded.seconds.is_empty(),
            "load in samples.ndjson",
        ),
        (trials.windows.iter().any(|window| window.on_us.is_none()), "step `ready` of every trial"),
    ]
    .iter()
    .filter_map(|&(gone, name)| gone.then_some(name))
    .collect()
}

/// Started rounds, with their first and last step, microseconds. A late part of a run has skipped some.
fn started_rounds(recorded: &RunData) -> BTreeMap<u32, (u64, u64)> {
    let mut rounds = BTreeMap::new();
    for line in recorded.trials.iter().filter(|line| (line.round as usize) < recorded.plan.order.len()) {
        let (first, last) = rounds.entry(line.round).or_insert((line.mono_us, line.mono_us));
        (*first, *last) = ((*first).min(line.mono_us), (*last).max(line.mono_us));
    }
    rounds
}

/// True if a run with a time limit ended because another round would not have fitted.
///
/// It ended in its last part and after a round. The time left was less than the longest round, or than a
/// round's expected length, or none.
fn is_time_exhausted(recorded: &RunData, begun: &BTreeMap<u32, (u64, u64)>, expected: &[usize]) -> bool {
    let plan = &recorded.plan;
    let (Some(time_s), Some((&last, _))) = (plan.time_s, begun.last_key_value()) else { return false };
    if !plan.is_in_last_part(last) {
        return false;
    }
    let has_ended = |arm: usize| {
        let name = &plan.arms[arm].name;
        let mut of_trial = recorded.trials.iter().filter(|line| line.round == last && line.arm == *name);
        of_trial.any(|line| matches!(line.step, Step::Stopped | Step::Failed))
    };
    let longest_s = begun.values().map(|(first, last)| (last - first) as f64 / 1e6).fold(0.0, f64::max);
    let next_s = toll_model::plan::expected_round_s(plan, last + 1);
    let left_s = time_s - spent_s(plan, begun);
    let nothing_fits = last + 1 >= plan.rounds || longest_s.max(next_s) + plan.gap_s > left_s;
    nothing_fits && expected.iter().filter(|arm| plan.is_in_round(**arm, last)).all(|&arm| has_ended(arm))
}

/// Seconds from each part's first step to its last, in total. Pauses between parts do not count.
fn spent_s(plan: &Plan, begun: &BTreeMap<u32, (u64, u64)>) -> f64 {
    let mut parts: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for (round, (first, last)) in begun {
        let part = parts.entry(plan.part_index(*round)).or_insert((*first, *last));
        *part = (part.0.min(*first), part.1.max(*last));
    }
    parts.values().map(|(first, last)| (last - first) as f64 / 1e6).sum()
}

/// Arms without a window, and the due rounds in which they lack one.
fn describe_gaps(plan: &Plan, trials: &Trials, expected: &[usize], due: &[u32]) -> String {
    let measured = trials.windows.iter().map(|window| (window.arm, window.round));
    let there: BTreeSet<(usize, u32)> = measured.chain(trials.set_aside.iter().copied()).collect();
    let absent: Vec<(usize, u32)> = due
        .iter()
        .flat_map(|&round| expected.iter().map(move |&arm| (arm, round)))
        .filter(|(arm, round)| plan.is_in_round(*arm, *round))
        .filter(|absent| !there.contains(absent))
        .collect();
    windows::describe_trials(plan, &absent, expected.len())
}
