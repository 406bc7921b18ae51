//! How does a run go from a stage that stands ready to its last trial?
//!
//! What is yet to be known is found first: what closed loops attain, how noisy the host is, whether commands
//! end by themselves. Then the plan is whole, is written down, once, and is what is carried out.

use super::{Asked, foretell};
use crate::analyse;
use crate::conduct::{Conductor, Ending, Interrupt, Progress, Real, World};
use crate::counted::counted;
use crate::plan::{self, Facts, Settled};
use crate::recorder::Recorder;
use crate::say::tell;
use crate::scenario::Ends;
use crate::stage::Stage;
use anyhow::Context;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use toll_record::{Plan, RunDir};

pub fn trials(
    asked: &Asked,
    settled: &mut Settled,
    facts: &Facts,
    stage: &mut Stage,
    recorder: &Recorder,
    dir: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Ending> {
    let draft = |settled: &Settled, stage: &Stage| {
        settled.plan(facts, &|arm| stage.fill_of(arm), asked.command.clone())
    };
    // Rates that are shares of a capacity are not known yet, everything else is.
    let first = draft(settled, stage)?;
    let count: usize = first.order.iter().map(Vec::len).sum();
    let arms = first.order.first().map_or(0, Vec::len);
    let planned = Duration::from_secs_f64(settled.expected_s(arms));
    let progress = Progress::new(count as u64, first.rounds, planned);
    let fills: BTreeMap<String, _> =
        first.arms.iter().map(|arm| (arm.name.clone(), stage.fill_of(&arm.name))).collect();
    let mut world = Real::new(stage, recorder, interrupt, &progress, settled.seed, asked.keep_artefacts);
    let ending = (|| {
        let capacities = capacities(settled, facts, asked, &first, &mut world)?;
        settled.settle_rates(&capacities, &asked.wishes.rates)?;
        let fill_of = |arm: &str| fills.get(arm).cloned().unwrap_or_default();
        let mut plan = settled.plan(facts, &fill_of, asked.command.clone())?;
        announce(settled, &plan, dir);
        let drafted = plan.clone();
        let mut never = || Ok(false);
        let mut conductor = Conductor { plan: &drafted, world: &mut world, enough: &mut never };
        let means = conductor.pilot()?;
        plan.planned_mde_pct = foretell::mde_pct(&means, &plan);
        foretell::tell(&plan, means.len(), &progress);
        for arm in plan.arms.iter_mut().filter(|arm| arm.unavailable.is_none()) {
            let ends = settled.ends(&arm.name);
            if ends == Ends::Never || interrupt.raised() {
                continue;
            }
            arm.window = conductor.rehearse(&arm.name, ends)?.unwrap_or(arm.window);
        }
        toll_record::write_json(dir, "plan.json", &plan::hidden(&plan)).context("cannot write plan.json")?;
        let mut enough = || Ok(analyse::enough(&analyse::run(&RunDir::open(dir)?)?));
        Conductor { plan: &plan, world: &mut world, enough: &mut enough }.run()
    })();
    let stopped = world.stop_load();
    world.second_opinions();
    progress.finish();
    ending.and_then(|ending| stopped.map(|()| ending))
}

/// What closed loops attain here, for the arms whose rates are shares of it.
fn capacities(
    settled: &Settled,
    facts: &Facts,
    asked: &Asked,
    draft: &Plan,
    world: &mut Real<'_>,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut found = BTreeMap::new();
    if !asked.wishes.rates.is_empty() {
        return Ok(found);
    }
    for name in settled.capacities_wanted() {
        let mut never = || Ok(false);
        let mut conductor = Conductor { plan: draft, world, enough: &mut never };
        let per_s = conductor.capacity(settled.resolved(&name, facts)?)?;
        tell!("toll: {name} attains {per_s:.0} events/s here");
        found.insert(name, per_s);
    }
    Ok(found)
}

/// What the run will be, before it begins.
fn announce(settled: &Settled, plan: &Plan, dir: &Path) {
    let arms = plan.order.first().map_or(0, Vec::len);
    let seconds = plan.pilot_s + settled.expected_s(arms);
    let may_end = settled.arms.iter().any(|arm| matches!(arm.ends, Ends::ClosesWindow | Ends::Rehearse));
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
