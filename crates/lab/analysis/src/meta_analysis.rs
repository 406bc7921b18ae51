//! Pooling of like runs, or of one run's parts hours apart, including the spread between them.
//!
//! An interval is valid for its run; a run on another day may differ by more. The judged outcomes are pooled
//! over the runs, with their spread.

use super::advice::{judged_outcome, judged_outcome_name};
use super::compare::Comparison;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use toll_record::{ArmResult, Compare, Outcome, Plan, Pooled, PooledArm, Role, RunResult};
use toll_stats::{RunEstimate, log_ratio_to_pct};
use toll_sys::count_format::format_count;

/// Pools runs with the same question on the same host.
///
/// # Errors
/// There are fewer than two runs, or they differ; the message names the difference.
pub fn pool_runs<R: Borrow<RunResult>>(runs: &[R]) -> Result<Pooled, String> {
    let runs: Vec<&RunResult> = runs.iter().map(Borrow::borrow).collect();
    let [first, others @ ..] = runs.as_slice() else { return Err("there is no run".to_owned()) };
    if others.is_empty() {
        return Err("one run has no spread between runs".to_owned());
    }
    for other in others {
        if let Some(what) = find_difference(first, other) {
            return Err(format!("they differ in {what}"));
        }
    }
    let arms = first.arms.iter().filter(|arm| arm.role != Role::Baseline);
    let arms: Vec<PooledArm> = arms.filter_map(|arm| pool_arm(first, arm, &runs)).collect();
    Ok(Pooled { over: format_count(runs.len() as u64, "run"), arms })
}

/// Pools the parts of a run that was spread over hours. `None` if it was not.
pub fn pool_parts(plan: &Plan, compared: &[BTreeMap<&str, Comparison>]) -> Option<Pooled> {
    plan.spread.as_ref()?;
    let parts = plan.part_count();
    let arms = (0..plan.arms.len()).filter(|&i| plan.arms[i].role != Role::Baseline).filter_map(|i| {
        let name = super::compare::verdict_outcome_name(plan, i);
        let of_arm = compared[i].get(name).filter(|c| c.measure() == Compare::LogRatio)?;
        let mut by_part: Vec<Vec<f64>> = vec![Vec::new(); parts];
        for (d, round) in of_arm.pairs.d.iter().zip(&of_arm.pairs.rounds) {
            by_part[plan.part_index(*round as u32)].push(*d);
        }
        let of_part = |d: &Vec<f64>| {
            let standard_error = toll_stats::sd(d) / (d.len() as f64).sqrt();
            let known = d.len() > 1 && standard_error > 0.0;
            known.then(|| RunEstimate { value: toll_stats::mean(d), standard_error })
        };
        combine_estimates(&plan.arms[i].name, name, by_part.iter().map(of_part).collect(), plan.alpha)
    });
    let arms: Vec<PooledArm> = arms.collect();
    // A run that was cut has fewer than were planned.
    let seen = (0..parts).filter(|&part| arms.iter().any(|arm| arm.tolls_pct[part].is_some())).count();
    Some(Pooled { over: format!("{} of this run", format_count(seen as u64, "part")), arms })
}

/// A difference between the questions of two runs. `None` if they are the same.
pub(super) fn find_question_difference(one: &RunResult, other: &RunResult) -> Option<&'static str> {
    [
        (one.scenario != other.scenario, "scenario"),
        (one.baseline != other.baseline, "baseline"),
        (one.primary != other.primary, "primary outcome"),
        (one.workload != other.workload, "load"),
    ]
    .into_iter()
    .find_map(|(differs, what)| differs.then_some(what))
}

/// A difference between the questions or hosts of two runs. `None` if they are the same.
fn find_difference(one: &RunResult, other: &RunResult) -> Option<&'static str> {
    let server = |run: &RunResult| run.server.as_ref().map(|s| (s.flavour.clone(), s.version.clone()));
    let host = |run: &RunResult| (run.host.label.clone(), run.host.kernel.clone(), run.host.memory_bytes);
    let made_on = [(host(one) != host(other), "host"), (server(one) != server(other), "server")];
    let differs = made_on.into_iter().find_map(|(differs, what)| differs.then_some(what));
    find_question_difference(one, other).or(differs)
}

/// `None` if fewer than two runs have a ratio with a standard error for this arm.
fn pool_arm(first: &RunResult, arm: &ArmResult, runs: &[&RunResult]) -> Option<PooledArm> {
    let name = judged_outcome_name(first, arm);
    let of_run = |run: &RunResult| -> Option<RunEstimate> {
        let same = run.arms.iter().find(|other| other.name == arm.name)?;
        judged_outcome(run, same).filter(|_| judged_outcome_name(run, same) == name).and_then(log_estimate)
    };
    combine_estimates(&arm.name, name, runs.iter().copied().map(of_run).collect(), first.alpha)
}

fn combine_estimates(
    arm: &str,
    outcome: &str,
    found: Vec<Option<RunEstimate>>,
    alpha: f64,
) -> Option<PooledArm> {
    let known: Vec<RunEstimate> = found.iter().flatten().copied().collect();
    let together = toll_stats::pool_estimates(&known, alpha).ok()?;
    let interval = together.interval.to_pct();
    Some(PooledArm {
        name: arm.to_owned(),
        outcome: outcome.to_owned(),
        tolls_pct: found.iter().map(|of| of.map(|estimate| log_ratio_to_pct(estimate.value))).collect(),
        toll_pct: log_ratio_to_pct(together.estimate),
        ci95_pct: [interval.low, interval.high],
        between_pct: log_ratio_to_pct(together.tau),
    })
}

/// The estimate on the log scale.
fn log_estimate(outcome: &Outcome) -> Option<RunEstimate> {
    let value = toll_stats::pct_to_log_ratio(outcome.toll_pct?);
    let standard_error = outcome.standard_error.filter(|error| *error > 0.0)?;
    Some(RunEstimate { value, standard_error })
}
