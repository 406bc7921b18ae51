//! What did a run find?
//!
//! Run directory in, [`RunResult`] out: the same lines and seed give the same bytes. Never measures, never
//! asks a server, never writes.

mod advice;
mod arms;
mod artefacts;
mod charts;
mod checks;
mod compare;
mod contrasts;
mod course;
mod coverage;
mod doses;
mod doubt;
mod enough;
mod outcomes;
mod own_end;
mod pareto;
mod pauses;
mod pool;
mod precision;
mod recorded;
mod recovery;
mod restart;
mod scan;
mod stalls;
mod tails;
mod windows;
mod withheld;

pub use advice::{harm, judged, judged_by, margin};
pub use contrasts::multiple;
pub use doses::summary;
pub use enough::enough;
pub use pool::pool;
pub use recorded::Recorded;

use arms::Arms;
use compare::{Compared, judged_by as judging};
use doubt::Doubt;
use std::collections::BTreeMap;
use toll_record::{ArmResult, FORMAT, LongWindows, ReadError, Role, RunDir, RunResult, Warning};
use windows::Trials;

/// Analyses a run directory, whole or cut short.
///
/// # Errors
/// No plan, a newer format, or a line in the middle of a file that is not what the format says.
pub fn run(run: &RunDir) -> Result<RunResult, ReadError> {
    Ok(analyse(&Recorded::read(run)?))
}

/// Analyses what was recorded; the plan's baseline is one of its arms, as [`RunDir::plan`] sees to.
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

    let expected = expected_arms(recorded, &trials);
    let whole = whole_rounds(&expected, &trials);
    let rounds_done = whole.len() as u32;
    let time_was_up = time_was_up(recorded, rounds_done);
    let complete = completeness(recorded, &trials, &expected, rounds_done, time_was_up, &mut doubts);
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
        rounds_planned: if time_was_up { rounds_done } else { plan.rounds },
        rounds_done,
        window_s: plan.window_s,
        long: plan.long.as_ref().map(|long| LongWindows {
            window_s: long.window_s,
            rounds_done: whole.iter().filter(|round| plan.is_long(**round)).count() as u32,
        }),
        started_wall_us: plan.started_wall_us,
        duration_s: duration_s(recorded),
        complete,
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
        stalls: arms.stalls.spans.clone(),
        pauses: pauses::find(recorded, &trials.windows),
        self_cost,
        warnings: doubts.iter().map(Doubt::warning).collect::<Vec<Warning>>(),
        advice: Vec::new(),
        charts: Vec::new(),
        parts,
    };
    result.charts = charts::charts(plan, &result.arms);
    result.charts.extend(course::chart(recorded, &trials.windows, &arms));
    result.charts.extend(precision);
    result.charts.extend(doses::charts(&result.doses));
    result.charts.extend(contrasts::chart(&result.contrasts));
    result.charts.extend(pauses::chart(&result.pauses, crate::figures::pause));
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
            executed: windows.present().map(|m| m.statements).sum(),
            captured_ratio,
            stalls: arms.stall_totals(i, &trials.windows),
            latency_curve: arms::latency_curve(&windows.merged()),
            notes,
        });
    }
    results
}

/// Rounds in which every arm that works here has a window, or had one that the hypervisor spoilt.
fn whole_rounds(expected: &[usize], trials: &Trials) -> Vec<u32> {
    let mut of_round: BTreeMap<u32, usize> = BTreeMap::new();
    let measured = trials.windows.iter().map(|window| (window.arm, window.round));
    for (_, round) in
        measured.chain(trials.withheld.iter().copied()).filter(|(arm, _)| expected.contains(arm))
    {
        *of_round.entry(round).or_default() += 1;
    }
    of_round.into_iter().filter(|(_, n)| *n >= expected.len()).map(|(round, _)| round).collect()
}

/// Arms that should have a window in every round: not those that cannot run here, nor those that
/// failed and never gave one. Both have a warning of their own.
fn expected_arms(recorded: &Recorded, trials: &Trials) -> Vec<usize> {
    let gave_up = |arm: usize| {
        let mut measured = trials.windows.iter().chain(&trials.left_out);
        trials.failed.iter().any(|f| f.arm == arm) && !measured.any(|w| w.arm == arm)
    };
    (0..recorded.plan.arms.len())
        .filter(|&i| recorded.plan.arms[i].unavailable.is_none() && !gave_up(i))
        .collect()
}

/// Whether all is there that was planned, or, with leave to stop early or once the time given was up, all that was
/// begun.
fn completeness(
    recorded: &Recorded,
    trials: &Trials,
    expected: &[usize],
    done: u32,
    time_was_up: bool,
    doubts: &mut Vec<Doubt>,
) -> bool {
    let plan = &recorded.plan;
    let begun = recorded.trials.iter().map(|line| line.round.saturating_add(1)).max().unwrap_or(0);
    let files: Vec<&'static str> = [
        (recorded.host.is_none(), "host.json"),
        (recorded.trials.is_empty(), "trials.ndjson"),
        (
            expected.iter().any(|&i| coverage::is_loaded(plan, i))
                && recorded.bins.is_empty()
                && recorded.seconds.is_empty(),
            "load in samples.ndjson",
        ),
        (trials.windows.iter().any(|window| window.on_us.is_none()), "step `ready` of every trial"),
    ]
    .iter()
    .filter_map(|&(gone, name)| gone.then_some(name))
    .collect();
    let stopped_early = (plan.early_stop || time_was_up) && begun > 0 && done == begun;
    if (done >= plan.rounds || stopped_early) && files.is_empty() && recorded.cut_short.is_empty() {
        return true;
    }
    doubts.push(Doubt::Incomplete {
        done,
        planned: plan.rounds,
        missing: gaps(recorded, trials, expected),
        files,
        cut: recorded.cut_short.clone(),
    });
    false
}

/// Whether a run that was given a time ended because another round would not have fitted: after whole rounds, with
/// less time left than the longest of them, or than one is expected to take.
fn time_was_up(recorded: &Recorded, done: u32) -> bool {
    let plan = &recorded.plan;
    let Some(time_s) = plan.time_s.filter(|_| done > 0 && done < plan.rounds) else { return false };
    let mut rounds: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for line in &recorded.trials {
        let (first, last) = rounds.entry(line.round).or_insert((line.mono_us, line.mono_us));
        (*first, *last) = ((*first).min(line.mono_us), (*last).max(line.mono_us));
    }
    let longest_s = rounds.values().map(|(first, last)| (last - first) as f64 / 1e6).fold(0.0, f64::max);
    let next_s = crate::plan::expected_round_s(plan, rounds.len() as u32);
    rounds.len() as u32 == done && duration_s(recorded) + longest_s.max(next_s) + plan.gap_s > time_s
}

/// Which arms have no window in which round.
fn gaps(recorded: &Recorded, trials: &Trials, expected: &[usize]) -> String {
    let plan = &recorded.plan;
    let has = |arm, round| {
        trials.windows.iter().any(|w| w.arm == arm && w.round == round)
            || trials.withheld.contains(&(arm, round))
    };
    let absent: Vec<(usize, u32)> = (0..plan.order.len() as u32)
        .flat_map(|round| expected.iter().map(move |&arm| (arm, round)))
        .filter(|&(arm, round)| !has(arm, round))
        .collect();
    windows::named(plan, &absent, expected.len())
}

/// From the first step to the last, in seconds.
fn duration_s(recorded: &Recorded) -> f64 {
    let first = recorded.trials.iter().map(|line| line.mono_us).min().unwrap_or(0);
    let last = recorded.trials.iter().map(|line| line.mono_us).max().unwrap_or(0);
    (last - first) as f64 / 1e6
}
