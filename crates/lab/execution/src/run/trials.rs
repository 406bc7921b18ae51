//! Sequence of a run from the ready test setup to the last trial.
//!
//! Unknown values are measured first: capacity of closed loops, noise of the host, commands that end by
//! themselves. The plan is then complete, is written once, and is carried out as written.

use super::{Asked, Caller, Work, foretell};

use crate::conduct::{Conductor, Ending, HostEnv, Load, PilotTime, Progress, Timeouts};
use crate::host;
use crate::recorder::Recorder;
use crate::stage::Stage;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use toll_model::fill::Fill;
use toll_model::plan::noise::Outcome;
use toll_model::plan::{self, Facts, Settled, Times, Wishes};
use toll_model::scenario::Ends;
use toll_record::{Plan, RunDir};
use toll_sys::cancel::CancelToken;
use toll_sys::count_format::format_count;

pub(super) fn trials(
    asked: &Asked,
    work: &mut Work,
    facts: &mut Facts,
    stage: &mut Stage,
    recorder: &Recorder,
    dir: &Path,
    caller: Caller<'_>,
) -> anyhow::Result<Ending> {
    let Caller { progress, cancel } = caller;
    let fill_of = fills(work, stage);
    let fill_of = |arm: &str| fill_of.get(arm).cloned().unwrap_or_default();
    let required = match work {
        Work::Settled(settled, _) => settled.required(facts, &fill_of),
        Work::Plan(plan) => {
            plan.arms.iter().flat_map(|arm| plan::required(arm, &fill_of(&arm.name))).collect()
        }
    };
    facts.host.missing = host::missing(required);
    let facts = &*facts;
    // Rates that are shares of a capacity are not known yet, everything else is.
    let draft = match work {
        Work::Settled(settled, _) => settled.plan(facts, &fill_of, asked.command.clone())?,
        Work::Plan(plan) => repeated(plan, facts, &fill_of, &asked.command)?,
    };
    let begun = Instant::now();
    let mut env = HostEnv::new(stage, recorder, dir, cancel, progress, draft.seed, asked.keep_artefacts);
    let ending = (|| {
        let plan = match work {
            Work::Settled(settled, wishes) => {
                settled
                    .settle_rates(&capacities(settled, facts, wishes, &draft, &mut env)?, &wishes.rates)?;
                let draft = settled.plan(facts, &fill_of, asked.command.clone())?;
                announce(&draft, settled, dir);
                foretell::check_time(&draft, &settled.times)?;
                let mut plan = piloted(draft, settled, &mut env, cancel)?;
                if !cancel.is_cancelled() {
                    settle_lengths(&mut plan, &settled.times, begun, progress)?;
                    if let Some(over) = wishes.spread {
                        plan::spread(&mut plan, over.0)?;
                    }
                }
                plan
            }
            Work::Plan(_) => {
                announce_again(&draft, dir);
                // Sets the writeback barrier.
                let time = PilotTime { baseline_s: draft.pilot_s, arms_s: 0.0 };
                let mut conductor = Conductor { plan: &draft, env: &mut env, enough: &mut never };
                conductor.pilot(Outcome::Latency, time, &[])?;
                draft
            }
        };
        progress.plan(&plan);
        toll_record::write_json(dir, "plan.json", &plan::hidden(&plan)).context("cannot write plan.json")?;
        let mut enough = || Ok(toll_analysis::enough(&toll_analysis::run(&RunDir::open(dir)?)?));
        let mut conductor = Conductor { plan: &plan, env: &mut env, enough: &mut enough };
        let ending = conductor.run()?;
        if !matches!(ending, Ending::Done | Ending::Early) {
            return Ok(ending);
        }
        Ok(match conductor.cross_check_artifacts() {
            Ok(()) => ending,
            Err(error) => Ending::Cut(format!("{error:#}")),
        })
    })();
    let stopped = env.stop_load();
    env.count_cross_checks();
    progress.finish();
    ending.and_then(|ending| stopped.map(|()| ending))
}

/// Placeholders and values by arm.
fn fills(work: &Work, stage: &Stage) -> BTreeMap<String, Fill> {
    let names: Vec<&String> = match work {
        Work::Settled(settled, _) => settled.arms.iter().map(|arm| &arm.name).collect(),
        Work::Plan(plan) => plan.arms.iter().map(|arm| &arm.name).collect(),
    };
    names.into_iter().map(|name| (name.clone(), stage.fill_of(name))).collect()
}

fn never() -> anyhow::Result<bool> {
    Ok(false)
}

/// An earlier plan on this run's server: the same arms, order and seed.
///
/// # Errors
/// An arm that has windows in the plan cannot run here.
fn repeated(
    plan: &Plan,
    facts: &Facts,
    fill_of: &dyn Fn(&str) -> Fill,
    command: &[String],
) -> anyhow::Result<Plan> {
    for arm in plan.arms.iter().filter(|arm| arm.unavailable.is_none()) {
        let why =
            plan::unavailable(arm, facts).or_else(|| plan::unfit(arm, &fill_of(&arm.name), &facts.host));
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
        command: plan::again(command, plan.seed),
        server: facts.first().map(|server| server.server.clone()),
        held_in: Some(facts.host.held_in),
        started_wall_us: facts.host.wall_us,
        // All rounds of the plan, however long they take here.
        time_s: None,
        ..plan.clone()
    })
}

/// The plan with its pilot's result, and with windows of commands that end by themselves.
fn piloted(
    mut plan: Plan,
    settled: &Settled,
    env: &mut HostEnv<'_>,
    cancel: &CancelToken,
) -> anyhow::Result<Plan> {
    let times = &settled.times;
    let (baseline_s, arms_s) = match times.is_open() {
        true => plan::pilot_s(&plan, times),
        false => (times.pilot_s, 0.0),
    };
    plan.pilot_s = baseline_s;
    let ending: Vec<&str> = settled
        .arms
        .iter()
        .filter(|arm| settled.ends(&arm.name) != Ends::Never)
        .map(|arm| arm.name.as_str())
        .collect();
    let drafted = plan.clone();
    let mut conductor = Conductor { plan: &drafted, env, enough: &mut never };
    let outcome = plan::noise_tells(&plan);
    let time = PilotTime { baseline_s, arms_s };
    let mut pilot = conductor.pilot(outcome.unwrap_or(Outcome::Latency), time, &ending)?;
    if outcome.is_none() {
        // Of another outcome than the one that is judged.
        pilot.noise = None;
    }
    for arm in plan.arms.iter_mut().filter(|arm| ending.contains(&arm.name.as_str())) {
        if arm.unavailable.is_some() || cancel.is_cancelled() {
            continue;
        }
        let timeouts = timeouts(times, arm);
        if let Some(dry_run) = conductor.dry_run(&arm.name, settled.ends(&arm.name), timeouts)? {
            arm.window = dry_run.window;
            pilot.arms.insert(arm.name.clone(), dry_run.switching);
        }
    }
    plan.pilot = Some(pilot);
    plan::settle(&mut plan, times);
    Ok(plan)
}

/// Time limit of the dry run of a command that may end: a usual window if set, else a share of the time.
fn timeouts(times: &Times, arm: &toll_record::Arm) -> Timeouts {
    const SHARE: f64 = 0.05;
    const MOST_S: f64 = 10.0;
    // A program that a busy host starts late has not gone on for long.
    const LEAST_S: f64 = 3.0;
    match (times.window_s, arm.window.is_until_done()) {
        (Some(window_s), _) if !times.is_open() => {
            Timeouts { try_s: (arm.settle_s + window_s).max(LEAST_S), window_s: Some(window_s) }
        }
        // How long it takes is how many rounds there are.
        (_, true) => Timeouts { try_s: arm.window.at_most_s().min(times.done_at_most_s()), window_s: None },
        (_, false) => {
            let part_s = times.time_s.map_or(MOST_S, |time_s| time_s * SHARE);
            Timeouts { try_s: part_s.clamp(LEAST_S, MOST_S), window_s: None }
        }
    }
}

/// Chooses windows and rounds if they are open. Prints the forecast in any case.
fn settle_lengths(
    plan: &mut Plan,
    times: &Times,
    begun: Instant,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    if times.is_open() {
        let (choice, time_s) = foretell::chosen(plan, times, begun.elapsed().as_secs_f64(), progress)?;
        plan::apply(plan, &choice, times.rounds.is_none().then_some(time_s));
    } else {
        let finds = plan::question(plan, times).finds(plan.window_s, plan.rounds);
        plan.planned_mde_pct = finds.map(toll_stats::log_ratio_to_pct);
        foretell::tell_given(plan, progress);
    }
    if let Some(pilot) = &mut plan.pilot {
        pilot.took_s = begun.elapsed().as_secs_f64();
    }
    Ok(())
}

/// Capacity of closed loops here, for the arms whose rates are shares of it.
fn capacities(
    settled: &Settled,
    facts: &Facts,
    wishes: &Wishes,
    draft: &Plan,
    env: &mut HostEnv<'_>,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut found = BTreeMap::new();
    if !wishes.rates.is_empty() {
        return Ok(found);
    }
    for name in settled.capacities_wanted() {
        let mut conductor = Conductor { plan: draft, env, enough: &mut never };
        let per_s = conductor.capacity(settled.resolved(&name, facts)?)?;
        tracing::info!("{name} attains {per_s:.0} events/s here");
        found.insert(name, per_s);
    }
    Ok(found)
}

/// Prints the run's key figures, as far as known before it begins.
fn announce(plan: &Plan, settled: &Settled, dir: &Path) {
    let times = &settled.times;
    let ends = settled.arms.iter().any(|arm| matches!(arm.ends, Ends::ClosesWindow | Ends::Rehearse));
    let lengths = match (times.time_s, times.find_pct) {
        (Some(time_s), None) => format!("{} in all", minutes(time_s)),
        (Some(time_s), Some(pct)) => format!("{} at most, to find {pct}%", minutes(time_s)),
        (None, Some(pct)) => format!("as long as it takes to find {pct}%"),
        (None, None) => lengths(plan, ends),
    };
    say_what(plan, &lengths, dir);
    for arm in &plan.arms {
        if let Some(reason) = &arm.unavailable {
            tracing::warn!("arm {} is not available: {reason}", arm.name);
        }
    }
}

fn announce_again(plan: &Plan, dir: &Path) {
    say_what(plan, &lengths(plan, plan.arms.iter().any(|arm| arm.window.is_until_done())), dir);
}

fn say_what(plan: &Plan, lengths: &str, dir: &Path) {
    let arms = plan.order.first().map_or(0, Vec::len) as u64;
    tracing::info!(
        "{} ({}): {}, {lengths}; seed {}; {}",
        plan.scenario,
        plan.profile,
        format_count(arms, "arm"),
        plan.seed,
        dir.display()
    );
}

/// Rounds and windows in words. `may_end`: a window may end before its limit.
fn lengths(plan: &Plan, may_end: bool) -> String {
    format!(
        "{} of {} s windows{}, {} {}",
        format_count(plan.rounds.into(), "round"),
        plan.window_s,
        if may_end { " or until done" } else { "" },
        if may_end { "at most" } else { "about" },
        minutes(plan.pilot_s + plan::expected_s(plan)),
    )
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.round();
    format!("{:.0}:{:02.0} min", (seconds / 60.0).floor(), seconds % 60.0)
}
