//! Analysis of a run directory into a [`RunResult`].
//!
//! The same lines and seed give the same bytes. Never measures, never queries a server, never writes.

// What `clippy.toml` beside Cargo.toml names; tests read examples and runs.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod advice;
mod arms;
mod artefacts;
pub mod both_clocks;
mod by_class;
mod combine_runs;
mod compare;
mod completeness;
mod contrasts;
mod control_checks;
mod coverage;
mod dose_response;
pub mod estimate_format;
mod kept_sessions;
mod limits;
mod load_curves;
mod loss_charts;
mod loss_timeline;
mod meta_analysis;
mod onset;
mod packet_accounting;
mod pareto;
mod pauses;
mod platform;
mod precision;
mod quantiles;
mod recovery;
mod restart;
mod run_data;
mod scenario_charts;
mod self_cost;
mod self_terminating;
mod stalls;
mod steal_filter;
mod stopping_rule;
#[cfg(test)]
mod tests;
mod warning_checks;
mod warnings;
mod window_outcomes;
mod windows;

pub use advice::{COMPLETE_SHARE, describe_margin, harm, judged_outcome, judged_outcome_name};
pub use combine_runs::{CombinedRuns, combine_runs};
pub use contrasts::format_multiple;
pub use dose_response::summarise_dose_line;
pub use meta_analysis::pool_runs;
pub use platform::{AnalysedRun, platform_facts};
pub use run_data::RunData;
pub use stopping_rule::can_stop_early;

use arms::Arms;
use compare::{Comparison, verdict_outcome_name as judging};
use completeness::Completeness;
use std::collections::BTreeMap;
use toll_record::{ArmResult, FORMAT, LongWindows, ReadError, Role, RunDir, RunResult, Warning};
use warnings::RunWarning;
use windows::Trials;

/// Analyses a run directory, complete or cut short.
///
/// # Errors
/// There is no plan, the format is newer, or a line within a file does not match the format.
pub fn analyse_run_dir(run: &RunDir) -> Result<RunResult, ReadError> {
    let mut result = analyse(&RunData::read(run)?);
    if let Some(measured) = run.measured() {
        let measured = analyse(&RunData::read(&measured)?);
        result.charts.extend(both_clocks::compare_clocks(&result, &measured));
        result.warnings.extend(both_clocks::warnings_of(measured));
    }
    Ok(result)
}

/// Analyses recorded data. The plan's baseline is one of its arms; [`RunDir::plan`] ensures it.
pub fn analyse(recorded: &RunData) -> RunResult {
    let plan = &recorded.plan;
    let mut trials = windows::pair_trial_steps(plan, &recorded.trials);
    let mut warnings = restart::exclude_restarts(recorded, &mut trials);
    warnings.extend(coverage::exclude_uncovered(recorded, &mut trials));
    warnings.extend(steal_filter::exclude_stolen_windows(recorded, &mut trials));
    windows::exclude_ramp(plan, &mut trials);
    let arms = Arms::assemble(recorded, &trials.windows);
    let compared = arms.compare(plan);

    let judged = |i: usize| compared[i].get(judging(plan, i));
    let of_role = |role: Role| plan.arms.iter().enumerate().filter(move |(_, arm)| arm.role == role);
    let aa = of_role(Role::Aa).find_map(|(i, arm)| Some((i, control_checks::check_aa(arm, judged(i)?))));
    let placebos = of_role(Role::Placebo)
        .filter_map(|(i, arm)| Some(control_checks::check_placebo(judging(plan, i), arm, judged(i)?)));
    let given = dose_response::measure_doses(recorded, &arms, &compared);
    let controls: Vec<_> = placebos.chain(given.iter().map(|dose| dose.check(plan))).collect();
    let doses = dose_response::fit_dose_lines(plan, &given);
    let with_primary: Vec<(Role, &Comparison)> = plan
        .arms
        .iter()
        .enumerate()
        .filter_map(|(i, arm)| Some((arm.role, compared[i].get(plan.primary.as_str())?)))
        .collect();
    let mde = control_checks::estimate_mde(plan, &with_primary);

    let whole = Completeness::assess(recorded, &trials);
    warnings.extend(whole.warning.clone());
    warnings.extend(coverage::warn_missing_histograms(recorded, &trials.windows));
    warning_checks::check_trials(plan, &trials, &mut warnings);
    warning_checks::check_power(plan, &with_primary, mde.as_ref(), &mut warnings);
    warnings.extend(
        aa.as_ref().and_then(|(i, check)| control_checks::warn_aa(judging(plan, *i), check, judged(*i)?)),
    );
    warnings.extend(controls.iter().filter_map(control_checks::warn_control));
    warning_checks::check_order_effects(plan, &arms, &compared, &mut warnings);
    onset::warn_on_slope(recorded, &trials.windows, &mut warnings);
    warning_checks::check_load(recorded, &trials.windows, &arms, &mut warnings);
    let artefacts = artefacts::group_by_arm(recorded, &trials.windows);
    warning_checks::check_artefacts(recorded, &arms, &artefacts, &mut warnings);
    warnings.extend(packet_accounting::check_accounting(plan, &trials.windows));
    let self_cost = self_cost::measure_self_cost(recorded, &trials.windows, &mut warnings);
    if recorded.unknown > 0 {
        warnings.push(RunWarning::UnknownSamples { lines: recorded.unknown });
    }

    let precision = precision::chart(plan, &trials.windows, &compared);
    let parts = meta_analysis::pool_parts(plan, &compared);
    let pareto = pareto::find_pareto_front(plan, &arms.windows, &compared);
    let mut result = RunResult {
        format: FORMAT,
        toll_version: plan.toll_version.clone(),
        scenario: plan.scenario.clone(),
        question: plan.question.clone(),
        answer: String::new(),
        profile: plan.profile.clone(),
        command: plan.command.clone(),
        seed: plan.seed,
        baseline: plan.baseline.clone(),
        primary: plan.primary.clone(),
        definitions: plan.outcomes.clone(),
        columns: plan.columns.clone(),
        panels: plan.panels.clone(),
        margin_pct: plan.margin_pct,
        alpha: plan.alpha,
        rounds_planned: whole.planned,
        rounds_done: whole.rounds.len() as u32,
        window_s: plan.window_s,
        long: plan.long.as_ref().map(|long| LongWindows {
            window_s: long.window_s,
            rounds_done: whole.rounds.iter().filter(|round| plan.is_long_round(**round)).count() as u32,
        }),
        started_wall_us: plan.started_wall_us,
        duration_s: duration_s(recorded),
        complete: whole.warning.is_none(),
        host: recorded.host.clone().unwrap_or_default(),
        server: plan.server.clone(),
        held_in: plan.held_in,
        workload: plan.arms[arms.baseline].workload.clone(),
        arms: arm_results(recorded, &trials, &arms, compared, artefacts),
        aa: aa.map(|(_, check)| check),
        controls,
        doses,
        mde,
        contrasts: contrasts::estimate_contrasts(plan, &arms.windows),
        pareto,
        limits: limits::find_limits(plan, &arms.windows),
        stalls: arms.stalls.spans.clone(),
        pauses: pauses::find_pauses(recorded, &trials.windows),
        self_cost,
        warnings: warnings.iter().map(|warning| warning.to_warning(&plan.design)).collect::<Vec<Warning>>(),
        advice: Vec::new(),
        charts: Vec::new(),
        parts,
    };
    result.charts = scenario_charts::charts(plan, &result.arms);
    result.charts.extend(loss_charts::limit_charts(&result.limits));
    result.charts.extend(loss_charts::loss_chart(plan, &result.arms));
    result.charts.extend(load_curves::charts(plan, &result.arms));
    result.charts.extend(onset::chart(recorded, &trials.windows, &arms));
    result.charts.extend(precision);
    result.charts.extend(dose_response::charts(&result.doses));
    result.charts.extend(contrasts::chart(&result.contrasts));
    result.charts.extend(pauses::chart(&result.pauses, crate::estimate_format::describe_pause));
    result.charts.extend(loss_timeline::chart(recorded, &trials.windows));
    result.answer = advice::answer_question(&result, plan);
    result.advice = advice::collect_advice(&result, plan);
    result
}

fn arm_results(
    recorded: &RunData,
    trials: &Trials,
    arms: &Arms,
    compared: Vec<BTreeMap<&str, Comparison>>,
    mut artefacts: BTreeMap<usize, artefacts::ArmArtefacts>,
) -> Vec<ArmResult> {
    let plan = &recorded.plan;
    let mut results = Vec::with_capacity(plan.arms.len());
    for (i, (arm, compared)) in plan.arms.iter().zip(compared).enumerate() {
        let windows = &arms.windows[i];
        let of_arm = artefacts.remove(&i);
        let captured_ratio = of_arm.as_ref().and_then(|a| a.captured_ratio);
        let (artefact, remarks) = of_arm.map_or((None, vec![]), |a| (Some(a.result), a.remarks));
        let mut notes = arms.collect_notes(i, plan, &compared);
        let of_arm: Vec<&windows::Window> = trials.windows.iter().filter(|w| w.arm == i).collect();
        notes.extend(self_terminating::describe_self_termination(arm, &of_arm, plan.clock.unit()));
        notes.extend(kept_sessions::describe_kept_sessions(plan, arm, &of_arm));
        notes.extend(remarks);
        notes.extend(artefact.as_ref().and_then(artefacts::describe_cross_check));
        notes.extend(warning_checks::trial_notes(trials, i));
        results.push(ArmResult {
            name: arm.name.clone(),
            title: arm.title.clone(),
            role: arm.role,
            command: arm.command.clone(),
            against: arms.reference_name(plan, i),
            judged_by: arm.judged_by.clone(),
            unavailable: arm.unavailable.clone(),
            windows: windows.measured_windows().count() as u32,
            outcomes: compared.into_iter().map(|(name, c)| (name.to_owned(), c.outcome)).collect(),
            artefact,
            ledger: packet_accounting::account_packets(
                trials.windows.iter().filter(|window| window.arm == i),
            ),
            executed: windows.measured_windows().map(|m| m.statements).sum(),
            captured_ratio,
            stalls: arms.stall_totals(i, &trials.windows),
            latency_curve: arms::latency_curve(&windows.merge_histograms()),
            notes,
        });
    }
    results
}

/// Seconds from the first step to the last.
fn duration_s(recorded: &RunData) -> f64 {
    let first = recorded.trials.iter().map(|line| line.mono_us).min().unwrap_or(0);
    let last = recorded.trials.iter().map(|line| line.mono_us).max().unwrap_or(0);
    (last - first) as f64 / 1e6
}
