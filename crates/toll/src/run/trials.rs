//! How does a run go from a stage that stands ready to its last trial?
//!
//! What is yet to be known is found first: what closed loops attain, how noisy the host is, whether commands
//! end by themselves. Then the plan is whole, is written down, once, and is what is carried out.

use super::{Asked, Work, foretell};
use crate::analyse;
use crate::clock;
use crate::conduct::{Conductor, Ending, Interrupt, Progress, Real, World};
use crate::counted::counted;
use crate::plan::{self, Facts, Settled, Wishes};
use crate::recorder::Recorder;
use crate::say::tell;
use crate::scenario::Ends;
use crate::stage::Stage;
use crate::treatment::Fill;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use toll_record::{Plan, RunDir};

pub(super) fn trials(
    asked: &Asked,
    work: &mut Work,
    facts: &Facts,
    stage: &mut Stage,
    recorder: &Recorder,
    dir: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Ending> {
    let fill_of = fills(work, stage);
    let fill_of = |arm: &str| fill_of.get(arm).cloned().unwrap_or_default();
    // Rates that are shares of a capacity are not known yet, everything else is.
    let draft = match work {
        Work::Settled(settled, _) => settled.plan(facts, &fill_of, asked.command.clone())?,
        Work::Plan(plan) => repeated(plan, facts, &fill_of, &asked.command)?,
    };
    let count: usize = draft.order.iter().map(Vec::len).sum();
    let progress =
        Progress::new(count as u64, draft.rounds, Duration::from_secs_f64(plan::expected_s(&draft)));
    let mut world = Real::new(stage, recorder, interrupt, &progress, draft.seed, asked.keep_artefacts);
    let ending = (|| {
        let plan = match work {
            Work::Settled(settled, wishes) => {
                settled
                    .settle_rates(&capacities(settled, facts, wishes, &draft, &mut world)?, &wishes.rates)?;
                let mut plan = settled.plan(facts, &fill_of, asked.command.clone())?;
                announce(&plan, may_end(settled), dir);
                let drafted = plan.clone();
                let mut conductor = Conductor { plan: &drafted, world: &mut world, enough: &mut never };
                let means = conductor.pilot()?;
                plan.planned_mde_pct = foretell::mde_pct(&means, &plan);
                foretell::tell(&plan, means.len(), &progress);
                for arm in plan.arms.iter_mut().filter(|arm| arm.unavailable.is_none()) {
                    let ends = settled.ends(&arm.name);
                    if ends != Ends::Never && !interrupt.raised() {
                        arm.window = conductor.rehearse(&arm.name, ends)?.unwrap_or(arm.window);
                    }
                }
                plan
            }
            Work::Plan(_) => {
                announce(&draft, draft.arms.iter().any(|arm| arm.window.is_until_done()), dir);
                // Tells what calm is here.
                Conductor { plan: &draft, world: &mut world, enough: &mut never }.pilot()?;
                draft
            }
        };
        toll_record::write_json(dir, "plan.json", &plan::hidden(&plan)).context("cannot write plan.json")?;
        let mut enough = || Ok(analyse::enough(&analyse::run(&RunDir::open(dir)?)?));
        let mut conductor = Conductor { plan: &plan, world: &mut world, enough: &mut enough };
        let ending = conductor.run()?;
        if !matches!(ending, Ending::Done | Ending::Early) {
            return Ok(ending);
        }
        Ok(match conductor.second_opinions() {
            Ok(()) => ending,
            Err(error) => Ending::Cut(format!("{error:#}")),
        })
    })();
    let stopped = world.stop_load();
    world.count_second_opinions();
    progress.finish();
    ending.and_then(|ending| stopped.map(|()| ending))
}

/// What placeholders stand for, by arm.
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

/// A plan once more: the same arms, order and seed, on the server of this run.
///
/// # Errors
/// An arm that the plan has windows of cannot run here.
fn repeated(
    plan: &Plan,
    facts: &Facts,
    fill_of: &dyn Fn(&str) -> Fill,
    command: &[String],
) -> anyhow::Result<Plan> {
    for arm in plan.arms.iter().filter(|arm| arm.unavailable.is_none()) {
        let why = plan::unavailable(arm, facts).or_else(|| plan::unfit(arm, &fill_of(&arm.name)));
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
        held_in: Some(facts.held_in),
        started_wall_us: clock::wall_us(),
        ..plan.clone()
    })
}

/// Whether windows may be shorter than they are long at most.
fn may_end(settled: &Settled) -> bool {
    settled.arms.iter().any(|arm| matches!(arm.ends, Ends::ClosesWindow | Ends::Rehearse))
}

/// What closed loops attain here, for the arms whose rates are shares of it.
fn capacities(
    settled: &Settled,
    facts: &Facts,
    wishes: &Wishes,
    draft: &Plan,
    world: &mut Real<'_>,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut found = BTreeMap::new();
    if !wishes.rates.is_empty() {
        return Ok(found);
    }
    for name in settled.capacities_wanted() {
        let mut conductor = Conductor { plan: draft, world, enough: &mut never };
        let per_s = conductor.capacity(settled.resolved(&name, facts)?)?;
        tell!("toll: {name} attains {per_s:.0} events/s here");
        found.insert(name, per_s);
    }
    Ok(found)
}

/// What the run will be, before it begins.
fn announce(plan: &Plan, may_end: bool, dir: &Path) {
    let arms = plan.order.first().map_or(0, Vec::len);
    let seconds = plan.pilot_s + plan::expected_s(plan);
    tell!(
        "toll: {} ({}): {} x {}, windows of {} s{}, {} {:.0}:{:02.0} min; seed {}; {}",
        plan.scenario,
        plan.profile,
        counted(arms as u64, "arm"),
        counted(plan.rounds.into(), "round"),
        plan.window_s,
        if may_end { " or until done" } else { "" },
        if may_end { "at most" } else { "about" },
        (seconds / 60.0).floor(),
        seconds % 60.0,
        plan.seed,
        dir.display()
    );
    for arm in &plan.arms {
        if let Some(reason) = &arm.unavailable {
            tell!("toll: arm {} is not available: {reason}", arm.name);
        }
    }
}
