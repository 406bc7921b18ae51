//! Analysis of a run directory into a [`RunResult`].
//!
//! The same lines and seed give the same bytes. Never measures, never queries a server, never writes.

// What `clippy.toml` beside Cargo.toml names; tests read examples and runs.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod advice;
mod arms;
mod artefacts;
mod charted;
mod charts;
mod checks;
mod compare;
mod contrasts;
mod course;
mod coverage;
mod doses;
mod doubt;
mod enough;
pub mod estimates;
mod ledger;
mod limits;
mod losses;
mod outcomes;
mod overlay;
mod own_end;
mod pareto;
mod pauses;
mod platform;
mod pool;
mod precision;
mod recorded;
mod recovery;
mod restart;
mod scan;
mod stalls;
mod tails;
mod ways;
mod whole;
mod windows;
mod withheld;

pub use advice::{harm, judged, judged_by, margin};
pub use contrasts::multiple;
pub use doses::summary;
pub use enough::enough;
pub use overlay::{Together, together};
pub use platform::{Made, facts};
pub use pool::pool;
pub use recorded::Recorded;

use arms::Arms;
use compare::{Compared, judged_by as judging};
use doubt::Doubt;
use std::collections::BTreeMap;
use toll_record::{ArmResult, FORMAT, LongWindows, ReadError, Role, RunDir, RunResult, Warning};
use whole::Whole;
use windows::Trials;

/// Analyses a run directory, complete or cut short.
///
/// # Errors
/// There is no plan, the format is newer, or a line within a file does not match the format.
pub fn run(run: &RunDir) -> Result<RunResult, ReadError> {
    Ok(analyse(&Recorded::read(run)?))
}

/// Analyses recorded data. The plan's baseline is one of its arms; [`RunDir::plan`] ensures it.
pub fn analyse(recorded: &Recorded) -> RunResult {
    let plan = &recorded.plan;
    let mut trials = windows::trials(plan, &recorded.trials);
    let mut doubts = restart::leave_out(recorded, &mut trials);
    doubts.extend(coverage::leave_out(recorded, &mut trials));
    doubts.extend(withheld::leave_out(recorded, &mut trials));
    let arms = Arms::assemble(recorded, &trials.windows);
    let compared = arms.compare(plan);

    let judged = |i: usize| compared[i].get(judging(plan, i));
    let of_role = |role: Role| plan.arms.iter().enumerate().filter(move |(_, arm)| arm.role == role);
    let aa = of_role(Role::Aa).find_map(|(i, arm)| Some((i, checks::aa(arm, &judged(i)?.outcome))));
    let placebos = of_role(Role::Placebo)
        .filter_map(|(i, arm)| Some(checks::placebo(judging(plan, i), arm, &judged(i)?.outcome)));
    let given = doses::given(recorded, &arms, &compared);
    let controls: Vec<_> = placebos.chain(given.iter().map(|dose| dose.check(plan))).collect();
    let doses = doses::lines(plan, &given);
    let with_primary: Vec<(Role, &Compared)> = plan
        .arms
        .iter()
        .enumerate()
        .filter_map(|(i, arm)| Some((arm.role, compared[i].get(plan.primary.as_str())?)))
        .collect();
    let mde = checks::mde(plan, &with_primary);

    let whole = Whole::of(recorded, &trials);
    doubts.extend(whole.doubt.clone());
    doubts.extend(coverage::latencies(recorded, &trials.windows));
    scan::trials(plan, &trials, &mut doubts);
    scan::power(plan, &with_primary, mde.as_ref(), &mut doubts);
    doubts.extend(aa.as_ref().and_then(|(i, check)| checks::aa_doubt(judging(plan, *i), check, judged(*i)?)));
    doubts.extend(controls.iter().filter_map(checks::control_doubt));
    scan::order(plan, &arms, &compared, &mut doubts);
    course::on_slope(recorded, &trials.windows, &mut doubts);
    scan::load(recorded, &trials.windows, &arms, &mut doubts);
    let artefacts = artefacts::by_arm(recorded, &trials.windows);
    scan::artefacts(recorded, &arms, &artefacts, &mut doubts);
    doubts.extend(ledger::doubts(plan, &trials.windows));
    let self_cost = scan::self_cost(recorded, &trials.windows, &mut doubts);
    if recorded.unknown > 0 {
        doubts.push(Doubt::UnknownSamples { lines: recorded.unknown });
    }

    let precision = precision::chart(plan, &trials.windows, &compared);
    let parts = pool::parts(plan, &compared);
    let pareto = pareto::find(plan, &arms.windows, &compared);
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
        complete: whole.doubt.is_none(),
        host: recorded.host.clone().unwrap_or_default(),
        server: plan.server.clone(),
        held_in: plan.held_in,
        workload: plan.arms[arms.baseline].workload.clone(),
        arms: arm_results(recorded, &trials, &arms, compared, artefacts),
        aa: aa.map(|(_, check)| check),
        controls,
        doses,
        mde,
        contrasts: contrasts::find(plan, &arms.windows),
        pareto,
        limits: limits::find(plan, &arms.windows),
        stalls: arms.stalls.spans.clone(),
        pauses: pauses::find(recorded, &trials.windows),
        self_cost,
        warnings: doubts.iter().map(Doubt::warning).collect::<Vec<Warning>>(),
        advice: Vec::new(),
        charts: Vec::new(),
        parts,
    };
    result.charts = charted::charts(plan, &result.arms);
    result.charts.extend(ways::limits(&result.limits));
    result.charts.extend(ways::ledger(plan, &result.arms));
    result.charts.extend(charts::charts(plan, &result.arms));
    result.charts.extend(course::chart(recorded, &trials.windows, &arms));
    result.charts.extend(precision);
    result.charts.extend(doses::charts(&result.doses));
    result.charts.extend(contrasts::chart(&result.contrasts));
    result.charts.extend(pauses::chart(&result.pauses, crate::estimates::pause));
    result.charts.extend(losses::chart(recorded, &trials.windows));
    result.answer = advice::answer(&result, plan);
    result.advice = advice::advice(&result, plan);
    result
}

fn arm_results(
    recorded: &Recorded,
    trials: &Trials,
    arms: &Arms,
    compared: Vec<BTreeMap<&str, Compared>>,
    mut artefacts: BTreeMap<usize, artefacts::OfArm>,
) -> Vec<ArmResult> {
    let plan = &recorded.plan;
    let mut results = Vec::with_capacity(plan.arms.len());
    for (i, (arm, compared)) in plan.arms.iter().zip(compared).enumerate() {
        let windows = &arms.windows[i];
        let of_arm = artefacts.remove(&i);
        let captured_ratio = of_arm.as_ref().and_then(|a| a.captured_ratio);
        let (artefact, remarks) = of_arm.map_or((None, vec![]), |a| (Some(a.result), a.remarks));
        let mut notes = arms.notes(i, plan, &compared);
        let of_arm: Vec<&windows::Window> = trials.windows.iter().filter(|w| w.arm == i).collect();
        notes.extend(own_end::note(arm, &of_arm));
        notes.extend(remarks);
        notes.extend(artefact.as_ref().and_then(artefacts::note));
        notes.extend(scan::remarks(trials, i));
        results.push(ArmResult {
            name: arm.name.clone(),
            title: arm.title.clone(),
            role: arm.role,
            command: arm.command.clone(),
            against: arms.against(plan, i),
            judged_by: arm.judged_by.clone(),
            unavailable: arm.unavailable.clone(),
            windows: windows.present().count() as u32,
            outcomes: compared.into_iter().map(|(name, c)| (name.to_owned(), c.outcome)).collect(),
            artefact,
            ledger: ledger::of_arm(trials.windows.iter().filter(|window| window.arm == i)),
            executed: windows.present().map(|m| m.statements).sum(),
            captured_ratio,
            stalls: arms.stall_totals(i, &trials.windows),
            latency_curve: arms::latency_curve(&windows.merged()),
            notes,
        });
    }
    results
}

/// Seconds from the first step to the last.
fn duration_s(recorded: &Recorded) -> f64 {
    let first = recorded.trials.iter().map(|line| line.mono_us).min().unwrap_or(0);
    let last = recorded.trials.iter().map(|line| line.mono_us).max().unwrap_or(0);
    (last - first) as f64 / 1e6
}
