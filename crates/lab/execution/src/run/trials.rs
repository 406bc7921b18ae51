//! Sequence of a run from the ready test setup to the last trial.
//!
//! Unknown values are measured first: capacity of closed loops, noise of the host, commands that end by
//! themselves. The plan is then complete, is written once, and is carried out as written.

use super::{ResolvedSource, RunContext, RunRequest, power_forecast};

use crate::footprint::FootprintMeter;
use crate::host;
use crate::live::{LiveGuard, LiveRequest};
use crate::recorder::Recorder;
use crate::testbed::Testbed;
use crate::trial_loop::{
    HostEnv, LoadControl, PilotTime, Progress, RunEnd, Timeouts, TrialLoop, TrialsAhead,
};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use toll_guard::link::GuardOutcome;
use toll_model::placeholders::PlaceholderValues;
use toll_model::plan::noise::BinOutcome;
use toll_model::plan::{self, ResolvedScenario, RunOverrides, TestbedFacts, TimeSettings};
use toll_model::scenario::OnExit;
use toll_record::{Clock, Plan, RunDir};
use toll_sys::cancel::CancelToken;
use toll_sys::count_format::format_count;

pub(super) fn run_trials(
    request: &RunRequest,
    source: &mut ResolvedSource,
    facts: &mut TestbedFacts,
    testbed: &mut Testbed,
    recorder: &Recorder,
    dir: &Path,
    caller: RunContext<'_>,
) -> anyhow::Result<RunEnd> {
    let RunContext { progress, cancel } = caller;
    let fill_of = placeholders_by_arm(source, testbed);
    let fill_of = |arm: &str| fill_of.get(arm).cloned().unwrap_or_default();
    let required = match source {
        ResolvedSource::Scenario(resolved, _) => resolved.required(facts, &fill_of),
        ResolvedSource::Plan(plan) => {
            plan.arms.iter().flat_map(|arm| plan::required(arm, &fill_of(&arm.name))).collect()
        }
    };
    facts.host.missing = host::missing(required);
    let facts = &*facts;
    // Rates that are shares of a capacity are not known yet, everything else is.
    let draft = match source {
        ResolvedSource::Scenario(resolved, _) => resolved.plan(facts, &fill_of, request.command.clone())?,
        ResolvedSource::Plan(plan) => resolve_repeated_plan(plan, facts, &fill_of, &request.command)?,
    };
    if !draft.clock.is_real() {
        testbed.read_all_tables()?;
    }
    let begun = Instant::now();
    let mut env = HostEnv::new(testbed, recorder, dir, cancel, progress, &draft, request.keep_artefacts);
    let ending = (|| {
        let plan = match source {
            ResolvedSource::Scenario(resolved, overrides) => {
                resolved.resolve_rates(
                    &measure_capacities(resolved, facts, overrides, &draft, &mut env)?,
                    &overrides.rates,
                )?;
                let draft = resolved.plan(facts, &fill_of, request.command.clone())?;
                print_run_summary(&draft, resolved, dir);
                power_forecast::check_time(&draft, &resolved.times)?;
                // Nothing is on without a guard, which starts with the whole plan.
                let tried = if request.live.is_some() { Vec::new() } else { commands_that_end(resolved) };
                let mut plan = plan_after_pilot(draft, resolved, &tried, &mut env, cancel)?;
                if let Some(live) = &request.live {
                    live.complete_plan(&mut plan);
                } else if !cancel.is_cancelled() {
                    resolve_lengths(&mut plan, &resolved.times, begun, progress)?;
                    if let Some(over) = overrides.spread {
                        plan::spread_rounds(&mut plan, over.0)?;
                    }
                }
                plan
            }
            ResolvedSource::Plan(_) => {
                print_repeat_summary(&draft, dir);
                // Sets the writeback barrier.
                let time = PilotTime { baseline_s: draft.pilot_s, arms_s: 0.0 };
                let mut trial_loop = TrialLoop { plan: &draft, env: &mut env, should_stop: &mut never_stop };
                trial_loop.run_pilot(BinOutcome::Latency, time, &[])?;
                draft
            }
        };
        progress.set_ahead(TrialsAhead::of_plan(&plan));
        toll_record::write_json(dir, "plan.json", &plan::redact_plan(&plan))
            .context("cannot write plan.json")?;
        let mut next_look = 0;
        let mut enough = |round| {
            recorder.flush()?;
            if !progress.end_round(round)? {
                return Ok(true);
            }
            if !plan.early_stop || round < next_look {
                return Ok(false);
            }
            next_look = round_of_next_look(round);
            Ok(toll_analysis::can_stop_early(&toll_analysis::analyse_run_dir(&RunDir::open(dir)?)?))
        };
        if let Some(live) = &request.live {
            start_guards(live, &plan, recorder, &mut env)?;
        }
        let mut trial_loop = TrialLoop { plan: &plan, env: &mut env, should_stop: &mut enough };
        let ending = trial_loop.run()?;
        if !matches!(ending, RunEnd::Completed | RunEnd::EarlyStop) {
            return Ok(ending);
        }
        // pt-query-digest takes more instructions than all windows do. On a server that serves users nothing is on for longer
        // than was agreed.
        if !plan.clock.is_real() || request.live.is_some() {
            return Ok(ending);
        }
        Ok(match trial_loop.cross_check_artefacts() {
            Ok(()) => ending,
            Err(error) => RunEnd::Aborted(format!("{error:#}")),
        })
    })();
    let guarded = end_guards(&mut env, dir);
    let stopped = env.stop_load();
    env.count_cross_checks();
    progress.finish();
    ending.and_then(|ending| guarded.and(stopped).map(|()| ending))
}

/// A look reads the whole run again: after every round, all looks of a long run would cost the host the more the longer it lasts.
/// With a tenth more rounds for each, they cost some ten times the last.
fn round_of_next_look(round: u32) -> u32 {
    round + (round / 10).max(1)
}

/// From now on a process of its own watches each server, and switches off what is on if it is hurt.
fn start_guards(
    live: &LiveRequest,
    plan: &Plan,
    recorder: &Recorder,
    env: &mut HostEnv<'_>,
) -> anyhow::Result<()> {
    let first = live.servers.first().context("a guard needs a server")?;
    let footprint = Arc::new(FootprintMeter::new(first.target.usage.clone()));
    for number in 0..live.servers.len() {
        let guard = LiveGuard::start(live, number, env.testbed(), plan, recorder, &footprint)?;
        tracing::info!("drill: the guard switches off in {:.0} ms", guard.drill_ms());
        env.guard_with(guard);
    }
    let mut guards = env.take_guards();
    let (journal, probe_query) = (&env.testbed().journal, live.probe_query.as_deref());
    let seen = guards
        .iter_mut()
        .try_for_each(|guard| guard.start_meter(probe_query, journal, plan, recorder, &footprint));
    guards.into_iter().for_each(|guard| env.guard_with(guard));
    seen
}

fn end_guards(env: &mut HostEnv<'_>, dir: &Path) -> anyhow::Result<()> {
    let mut ended = Ok(());
    for guard in env.take_guards() {
        let outcome = guard.end(dir, &env.testbed().journal);
        ended = ended.and(outcome.map(|outcome| outcome.iter().for_each(warn_of_trip)));
    }
    ended
}

fn warn_of_trip(outcome: &GuardOutcome) {
    let off = outcome.off.as_ref().map_or_else(
        || "whether it is off is not known".to_owned(),
        |off| match off.failures.is_empty() {
            true => format!("off after {:.2} s", off.took_us as f64 / 1e6),
            false => format!("NOT all is off: {}", off.failures.join("; ")),
        },
    );
    let after = match outcome.recovered_s {
        Some(s) => format!("the server was calm after {s:.1} s"),
        None => "the server was not calm within 30 s".to_owned(),
    };
    tracing::warn!("the breaker tripped: {}; {off}; {after}", outcome.trip.reason);
}

/// Placeholders and values by arm.
fn placeholders_by_arm(source: &ResolvedSource, testbed: &Testbed) -> BTreeMap<String, PlaceholderValues> {
    let names: Vec<&String> = match source {
        ResolvedSource::Scenario(resolved, _) => resolved.arms.iter().map(|arm| &arm.name).collect(),
        ResolvedSource::Plan(plan) => plan.arms.iter().map(|arm| &arm.name).collect(),
    };
    names.into_iter().map(|name| (name.clone(), testbed.placeholders_of(name))).collect()
}

fn never_stop(_round: u32) -> anyhow::Result<bool> {
    Ok(false)
}

/// An earlier plan on this run's server: the same arms, order and seed.
///
/// # Errors
/// An arm that has windows in the plan cannot run here.
fn resolve_repeated_plan(
    plan: &Plan,
    facts: &TestbedFacts,
    fill_of: &dyn Fn(&str) -> PlaceholderValues,
    command: &[String],
) -> anyhow::Result<Plan> {
    for arm in plan.arms.iter().filter(|arm| arm.unavailable.is_none()) {
        let why = plan::unavailable_reason(arm, facts)
            .or_else(|| plan::unrunnable_reason(arm, &fill_of(&arm.name), &facts.host));
        if let Some(why) = why {
            bail!(
                "the plan cannot be repeated to the letter, its arm {} cannot run here: {why}; plan anew from the \
                 scenario",
                arm.name
            );
        }
    }
    Ok(Plan {
        format: toll_record::FORMAT,
        toll_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: plan::build_repro_command(command, plan.seed),
        server: facts.baseline_server().map(|server| server.server.clone()),
        held_in: Some(facts.host.held_in),
        started_wall_us: facts.host.wall_us,
        // All rounds of the plan, however long they take here.
        time_s: None,
        ..plan.clone()
    })
}

/// Arms whose commands may end by themselves.
fn commands_that_end(resolved: &ResolvedScenario) -> Vec<&str> {
    let may_end = resolved.arms.iter().filter(|arm| arm.ends != OnExit::Never);
    may_end.map(|arm| arm.name.as_str()).collect()
}

/// The plan with its pilot's result, and with windows of the arms `ending`, each of which has a dry run.
fn plan_after_pilot(
    mut plan: Plan,
    resolved: &ResolvedScenario,
    ending: &[&str],
    env: &mut HostEnv<'_>,
    cancel: &CancelToken,
) -> anyhow::Result<Plan> {
    let times = &resolved.times;
    let (baseline_s, arms_s) = match times.needs_sizing() {
        true => plan::pilot_durations_s(&plan, times),
        false => (times.pilot_s, 0.0),
    };
    plan.pilot_s = baseline_s;
    let drafted = plan.clone();
    let mut trial_loop = TrialLoop { plan: &drafted, env, should_stop: &mut never_stop };
    let outcome = plan::noise_outcome(&plan);
    let time = PilotTime { baseline_s, arms_s };
    let mut pilot = trial_loop.run_pilot(outcome.unwrap_or(BinOutcome::Latency), time, ending)?;
    if outcome.is_none() {
        // Of another outcome than the one that is judged.
        pilot.noise = None;
    }
    for arm in plan.arms.iter_mut().filter(|arm| ending.contains(&arm.name.as_str())) {
        if arm.unavailable.is_some() || cancel.is_cancelled() {
            continue;
        }
        let timeouts = dry_run_timeouts(times, arm, plan.clock);
        if let Some(dry_run) = trial_loop.dry_run(&arm.name, resolved.on_exit(&arm.name), timeouts)? {
            arm.window = dry_run.window;
            pilot.arms.insert(arm.name.clone(), dry_run.switching);
        }
    }
    plan.pilot = Some(pilot);
    plan::set_settle_times(&mut plan, times);
    Ok(plan)
}

/// Time limit of the dry run of a command that may end: a usual window if set, else a share of the time.
fn dry_run_timeouts(times: &TimeSettings, arm: &toll_record::Arm, clock: Clock) -> Timeouts {
    const SHARE: f64 = 0.05;
    const MOST_S: f64 = 10.0;
    // A program that a busy host starts late has not gone on for long.
    const LEAST_S: f64 = 3.0;
    /// Tried without a load, and what waits costs nothing.
    const COUNTED_S: f64 = 20.0;
    if !clock.is_real() {
        return Timeouts { try_s: COUNTED_S, window_s: None };
    }
    match (times.window_s, arm.window.is_until_done()) {
        (Some(window_s), _) if !times.needs_sizing() => {
            Timeouts { try_s: (arm.settle_s + window_s).max(LEAST_S), window_s: Some(window_s) }
        }
        // How long it takes is how many rounds there are.
        (_, true) => {
            Timeouts { try_s: arm.window.at_most_s().min(times.max_done_window_s()), window_s: None }
        }
        (_, false) => {
            let part_s = times.time_s.map_or(MOST_S, |time_s| time_s * SHARE);
            Timeouts { try_s: part_s.clamp(LEAST_S, MOST_S), window_s: None }
        }
    }
}

/// Chooses windows and rounds if they are open. Prints the forecast in any case.
fn resolve_lengths(
    plan: &mut Plan,
    times: &TimeSettings,
    begun: Instant,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    if times.needs_sizing() {
        let (choice, time_s) =
            power_forecast::choose_sizing(plan, times, begun.elapsed().as_secs_f64(), progress)?;
        plan::apply_sizing(plan, &choice, times.rounds.is_none().then_some(time_s));
    } else {
        let finds = plan::sizing_input(plan, times).mde_ln(plan.window_s, plan.rounds);
        plan.planned_mde_pct = finds.map(toll_stats::log_ratio_to_pct);
        if plan.clock.is_real() {
            power_forecast::print_fixed_forecast(plan, progress);
        }
    }
    if let Some(pilot) = &mut plan.pilot {
        pilot.took_s = begun.elapsed().as_secs_f64();
    }
    Ok(())
}

/// Capacity of closed loops here, for the arms whose rates are shares of it.
fn measure_capacities(
    resolved: &ResolvedScenario,
    facts: &TestbedFacts,
    overrides: &RunOverrides,
    draft: &Plan,
    env: &mut HostEnv<'_>,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut found = BTreeMap::new();
    if !overrides.rates.is_empty() {
        return Ok(found);
    }
    for name in resolved.arms_needing_capacity() {
        let mut trial_loop = TrialLoop { plan: draft, env, should_stop: &mut never_stop };
        let per_s = trial_loop.measure_capacity(resolved.resolve_arm_named(&name, facts)?)?;
        tracing::info!("{name} attains {per_s:.0} events/s here");
        found.insert(name, per_s);
    }
    Ok(found)
}

/// Prints the run's key figures, as far as known before it begins.
fn print_run_summary(plan: &Plan, resolved: &ResolvedScenario, dir: &Path) {
    let times = &resolved.times;
    let ends = resolved.arms.iter().any(|arm| matches!(arm.ends, OnExit::ClosesWindow | OnExit::Rehearse));
    let lengths = match (times.time_s, times.find_pct) {
        (Some(time_s), None) => format!("{} in all", format_minutes(time_s)),
        (Some(time_s), Some(pct)) => format!("{} at most, to detect {pct}%", format_minutes(time_s)),
        (None, Some(pct)) => format!("as long as it takes to detect {pct}%"),
        (None, None) => describe_lengths(plan, ends),
    };
    print_summary(plan, &lengths, dir);
    for arm in &plan.arms {
        if let Some(reason) = &arm.unavailable {
            tracing::warn!("variant {} is not available: {reason}", arm.name);
        }
    }
}

fn print_repeat_summary(plan: &Plan, dir: &Path) {
    print_summary(plan, &describe_lengths(plan, plan.arms.iter().any(|arm| arm.window.is_until_done())), dir);
}

fn print_summary(plan: &Plan, lengths: &str, dir: &Path) {
    let arms = plan.order.first().map_or(0, Vec::len) as u64;
    tracing::info!(
        "{} ({}): {}, {lengths}; seed {}; {}",
        plan.scenario,
        plan.profile,
        format_count(arms, "variant"),
        plan.seed,
        dir.display()
    );
}

/// Rounds and windows in words. `may_end`: a window may end before its limit.
fn describe_lengths(plan: &Plan, may_end: bool) -> String {
    format!(
        "{} of {} s windows{}, {} {}",
        format_count(plan.rounds.into(), "round"),
        plan.window_s,
        if may_end { " or until done" } else { "" },
        if may_end { "at most" } else { "about" },
        format_minutes(plan.pilot_s + plan::expected_s(plan)),
    )
}

fn format_minutes(seconds: f64) -> String {
    let seconds = seconds.round();
    format!("{:.0}:{:02.0} min", (seconds / 60.0).floor(), seconds % 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_with_every_round_at_first_and_then_with_every_tenth_more() {
        let looks: Vec<u32> = std::iter::successors(Some(0), |round| Some(round_of_next_look(*round)))
            .take_while(|round| *round < 400)
            .collect();
        assert_eq!(looks[..20], (0..20).collect::<Vec<u32>>());
        assert_eq!(looks[19..24], [19, 20, 22, 24, 26]);
        assert_eq!(looks.len(), 54);
    }
}
