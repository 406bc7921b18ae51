//! Trial loop: the order of load, treatments and windows, for all scenarios.
//!
//! # Invariants
//! Never reads an artefact while a window is open. What it switches on is off again when it returns, however it
//! returns.

mod artefact_count;
mod bounded_command;
mod calibration;
mod clock;
mod cross_check;
mod environment;
mod host_env;
mod host_probe;
mod interim_precision;
mod load;
mod meter;
mod packet_accounting;
mod pilot;
mod progress;
mod readings;
mod run_dir_guard;
mod run_log;
#[cfg(test)]
mod sim_env;
#[cfg(test)]
mod tests;
mod treatments;
mod trial;
mod ui;
mod work_meter;
mod writeback;

pub use calibration::Timeouts;
pub use host_env::HostEnv;
pub use load::LoadControl;
pub use pilot::PilotTime;
pub use progress::{Progress, TrialsAhead};

use crate::guard::Tripped;
use crate::treatment::KernelNotRestored;
use anyhow::Context;
use clock::Clock;
use environment::Environment;
use interim_precision::InterimPrecision;
use std::borrow::Cow;
use std::collections::BTreeMap;
use toll_model::plan;
use toll_record::{Arm, Plan, Step, TrialLine, Window};
use toll_sys::count_format::format_count;
use toll_sys::number_format;
use trial::TrialParams;

/// How a run came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    Completed,
    /// The confidence sequences had said enough.
    EarlyStop,
    Interrupted,
    /// It could not go on, for this reason; what was measured until then holds.
    Aborted(String),
    /// Something that was switched on may be on still, for this reason; what was measured holds.
    NotRestored(String),
}

/// How an arm has fared so far.
#[derive(Debug, Clone, Copy, Default)]
struct ArmAttempts {
    windows: u32,
    failures: u32,
}

impl ArmAttempts {
    /// One failure may be chance; an arm that never worked costs every round its time.
    fn has_never_worked(self) -> bool {
        const ENOUGH: u32 = 2;
        self.windows == 0 && self.failures >= ENOUGH
    }
}

/// Why an arm's failure may be the run's end: what it had switched on is still on.
#[derive(Debug, thiserror::Error)]
#[error("it could not be switched off")]
struct StaysOn;

/// The run while it goes on.
pub struct TrialLoop<'a, E> {
    pub plan: &'a Plan,
    pub env: &'a mut E,
    /// Asked after each round, by its number, whether enough is known.
    pub should_stop: &'a mut dyn FnMut(u32) -> anyhow::Result<bool>,
}

impl<E: Environment> TrialLoop<'_, E> {
    /// All rounds that fit into the time given, in the order of the plan.
    ///
    /// # Errors
    /// What keeps the run from going on before anything was measured; later it is [`RunEnd::Aborted`].
    pub fn run(&mut self) -> anyhow::Result<RunEnd> {
        let mut tries: BTreeMap<&str, ArmAttempts> = BTreeMap::new();
        let ending = self.run_rounds(&mut tries);
        if let Err(error) = &ending {
            // Between two trials no line of theirs would hold it.
            self.env.write_cut(&format!("{error:#}"));
        }
        match ending {
            Err(error) if tries.values().any(|tries| tries.windows > 0) => {
                Ok(RunEnd::Aborted(format!("{error:#}")))
            }
            ending => ending,
        }
    }

    fn run_rounds<'p>(&mut self, tries: &mut BTreeMap<&'p str, ArmAttempts>) -> anyhow::Result<RunEnd>
    where
        Self: 'p,
    {
        let plan = self.plan;
        let (mut number, mut done) = (0u32, 0u64);
        let trials = plan.order.iter().map(Vec::len).sum();
        let jitters = toll_stats::draw_jitters(plan.seed, trials, plan.jitter);
        let mut pace = TimeBudget::begin(plan, self.env.now_us());
        let mut precision = InterimPrecision::new(plan);
        for (round, order) in (0u32..).zip(&plan.order) {
            if !self.await_part(round, &mut pace)? {
                return Ok(RunEnd::Interrupted);
            }
            if !pace.fits(round, self.env.now_us()) {
                if plan.is_in_last_part(round) {
                    self.env
                        .print_line(&format!("the time given is up after {}", format_count(done, "round")));
                    return Ok(RunEnd::Completed);
                }
                number += order.len() as u32;
                continue;
            }
            for name in order {
                if self.env.is_interrupted() {
                    return Ok(RunEnd::Interrupted);
                }
                let arm = plan.arms.iter().find(|arm| arm.name == *name);
                let arm =
                    arm_in_round(plan, arm.with_context(|| format!("the plan has no arm `{name}`"))?, round);
                let settle_s = arm.settle_s + jitters[number as usize] * plan.round_window_s(round);
                // Decoding an artefact takes more instructions than its window: on the counted clock once is enough.
                let counted = plan.counts_queries(round) && (plan.clock.is_real() || round == 0);
                let place = TrialParams { trial: number, round, settle_s, counted };
                number += 1;
                let tries = tries.entry(name).or_default();
                if tries.has_never_worked() {
                    continue;
                }
                self.server_restarted()?;
                self.env.show_trial(place, name);
                match self.run_trial(&arm, place) {
                    Ok(Some(closed)) => {
                        tries.windows += 1;
                        precision.add_window(name, round, &closed);
                    }
                    Ok(None) => return Ok(RunEnd::Interrupted),
                    Err(error) => self.record_failure(&arm, place, error, tries)?,
                }
                if plan.gap_s > 0.0 {
                    let over = self.env.now_us() + (plan.gap_s * 1e6) as u64;
                    if !self.wait_until(over)? {
                        return Ok(RunEnd::Interrupted);
                    }
                }
            }
            pace.end_round(round, self.env.now_us());
            done += 1;
            if let Some(pct) = precision.mde_pct() {
                self.env.show_precision(pct);
            }
            if (self.should_stop)(round)? {
                return Ok(RunEnd::EarlyStop);
            }
        }
        Ok(RunEnd::Completed)
    }

    /// Waits for a part of the run to be due, the load at rest, and warms it up; false when interrupted.
    fn await_part(&mut self, round: u32, pace: &mut TimeBudget) -> anyhow::Result<bool> {
        const WARM_UP_S: f64 = 5.0;
        /// Interval between checks of the server and of its lock.
        const POLL_US: u64 = 60_000_000;
        let Some(due_s) = self.plan.spread.as_ref().and_then(|spread| spread.round_due_s(round)) else {
            return Ok(true);
        };
        let rests_us = self.env.now_us();
        let due_us = pace.first_us + (due_s * 1e6) as u64;
        self.stop_load()?;
        if rests_us < due_us {
            self.env.print_line(&format!(
                "part {} of the run begins in {}",
                self.plan.part_index(round) + 1,
                number_format::format_duration_s((due_us - rests_us) as f64 / 1e6)
            ));
        }
        while self.env.now_us() < due_us {
            let next = due_us.min(self.env.now_us() + POLL_US);
            if !self.wait_until(next)? {
                return Ok(false);
            }
            self.server_restarted()?;
        }
        let baseline = self.find_arm(&self.plan.baseline)?;
        let warm = Arm { window: Window::Time { s: WARM_UP_S }, artefact: None, ..baseline };
        let warmed = self.unrecorded_trial(&warm, 0.0)?.is_some();
        pace.add_rest(self.env.now_us() - rests_us);
        Ok(warmed)
    }

    /// Writes down why a trial has no window; an error where the run cannot go on either.
    fn record_failure(
        &mut self,
        arm: &Arm,
        place: TrialParams,
        error: anyhow::Error,
        tries: &mut ArmAttempts,
    ) -> anyhow::Result<()> {
        let name = &arm.name;
        let error = self.or_trip(error);
        let mut failed = trial_line(self.env, place, arm, Step::Failed);
        if self.env.is_interrupted() {
            failed.note = Some(format!("{error:#}"));
            self.env.write_trial(failed);
            return Ok(());
        }
        if error.is::<Tripped>() {
            failed.note = Some(format!("{error:#}"));
            self.env.write_trial(failed);
            if error.is::<StaysOn>() {
                self.env.restore_settings().with_context(|| format!("{error:#}: arm {name} stays on"))?;
            }
            return Err(error);
        }
        let restarted = self.server_restarted().with_context(|| format!("arm {name} failed ({error:#})"));
        let why = match &restarted {
            Ok(true) => format!("the server restarted: {error:#}"),
            _ => format!("{error:#}"),
        };
        self.env.print_line(&format!("{name} failed: {why}"));
        failed.note = Some(why);
        self.env.write_trial(failed);
        if !restarted? {
            tries.failures += 1;
        }
        if error.is::<StaysOn>() {
            // Every window from now on would be one of this arm too.
            self.env.restore_settings().with_context(|| format!("arm {name} stays on"))?;
            if error.is::<KernelNotRestored>() {
                return Err(error.context(format!("arm {name} stays on")));
            }
            return Ok(());
        }
        // The baseline is in every pair: without it there is nothing to go on for.
        if *name == self.plan.baseline && tries.windows == 0 {
            return Err(error.context("the baseline failed"));
        }
        Ok(())
    }

    /// The guard's reason, if it has tripped by now: a guard that is a process of its own ends the treatment's processes, whose end is
    /// then no failure of theirs.
    fn or_trip(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.check_guard() {
            Err(tripped) if !error.is::<Tripped>() && !error.is::<StaysOn>() => tripped.into(),
            _ => error,
        }
    }

    fn check_guard(&mut self) -> Result<(), Tripped> {
        let now_us = self.env.now_us();
        self.env.guard().map_or(Ok(()), |guard| guard.check(now_us))
    }

    /// Sleeps until that moment while the guard is asked; false when interrupted before it.
    fn wait_until(&mut self, moment_us: u64) -> anyhow::Result<bool> {
        /// As often as a guard process hears of this one. It looks by itself, and more often.
        const GUARD_EVERY_US: u64 = 200_000;
        loop {
            let now_us = self.env.now_us();
            let next_us = match self.env.guard() {
                Some(guard) => {
                    guard.check(now_us)?;
                    moment_us.min(now_us + GUARD_EVERY_US)
                }
                None => moment_us,
            };
            if !self.env.sleep_until(next_us) {
                return Ok(false);
            }
            if next_us == moment_us {
                return Ok(true);
            }
        }
    }

    /// Nothing to do where the environment has no load.
    fn ensure_load(&mut self, arm: &Arm, fresh: bool) -> anyhow::Result<()> {
        self.env.load().map_or(Ok(()), |load| load.ensure_load(arm, fresh))
    }

    fn stop_load(&mut self) -> anyhow::Result<()> {
        self.env.load().map_or(Ok(()), |load| load.stop_load())
    }

    /// Checks that the servers are still the same processes.
    fn server_restarted(&mut self) -> anyhow::Result<bool> {
        let restarted = self.env.server_restarted()?;
        if restarted {
            self.env.print_line("the server restarted: affected windows are excluded");
        }
        Ok(restarted)
    }
}

/// The arm with its window as long as this round's are: longer ones, or the short ones that raise the exposure. On the second
/// server it has the treatment that is off at the first.
fn arm_in_round<'a>(plan: &Plan, arm: &'a Arm, round: u32) -> Cow<'a, Arm> {
    let crossed = plan.treatment_at_second(arm, round);
    let mut arm = Cow::Borrowed(arm);
    if let Some(treated) = crossed {
        arm.to_mut().treatment = treated.treatment.clone();
        arm.to_mut().artefact = treated.artefact;
    }
    if matches!(arm.window, Window::Time { .. }) && (plan.is_long_round(round) || plan.is_ramp_round(round)) {
        arm.to_mut().window = Window::Time { s: plan.round_window_s(round) };
    }
    arm
}

/// How long rounds take, and whether one more fits into the time that the plan gives.
struct TimeBudget<'a> {
    plan: &'a Plan,
    /// When the first round began.
    first_us: u64,
    /// The same, put off by what parts of the run lay apart.
    begun_us: u64,
    round_begun_us: u64,
    /// Rounds that have ended and what they took, microseconds; of long windows apart.
    round_durations: [(u64, u64); 2],
}

impl<'a> TimeBudget<'a> {
    fn begin(plan: &'a Plan, now_us: u64) -> Self {
        Self {
            plan,
            first_us: now_us,
            begun_us: now_us,
            round_begun_us: now_us,
            round_durations: [(0, 0); 2],
        }
    }

    /// The first one always does: a run without any says nothing. Each part of a run has its share of the time, so that
    /// the last ones are not lost where rounds take longer than predicted.
    fn fits(&self, round: u32, now_us: u64) -> bool {
        let Some(time_s) = self.plan.time_s.filter(|_| round > 0) else { return true };
        let takes_s = match self.round_durations[usize::from(self.plan.is_long_round(round))] {
            (0, _) => plan::expected_round_s(self.plan, round),
            (rounds, us) => us as f64 / rounds as f64 / 1e6,
        };
        let spent_s = (now_us - self.begun_us) as f64 / 1e6;
        if self.plan.is_in_last_part(round) {
            return spent_s + takes_s <= time_s;
        }
        // The part after it gives or takes what is left of its share.
        let share = (self.plan.part_index(round) + 1) as f64 / self.plan.part_count() as f64;
        spent_s + takes_s / 2.0 <= time_s * share
    }

    /// No trial was made for so long.
    fn add_rest(&mut self, us: u64) {
        self.begun_us += us;
        self.round_begun_us += us;
    }

    fn end_round(&mut self, round: u32, now_us: u64) {
        // Short ones, which raise the exposure, say nothing of those after them.
        if !self.plan.is_ramp_round(round) {
            let (rounds, us) = &mut self.round_durations[usize::from(self.plan.is_long_round(round))];
            *rounds += 1;
            *us += now_us - self.round_begun_us;
        }
        self.round_begun_us = now_us;
    }
}

/// A step of a trial, stamped now.
fn trial_line(env: &impl Clock, place: TrialParams, arm: &Arm, step: Step) -> TrialLine {
    TrialLine {
        mono_us: env.now_us(),
        wall_us: env.wall_us(),
        trial: place.trial,
        round: place.round,
        arm: arm.name.clone(),
        step,
        cpu: None,
        artefact_bytes: None,
        runs: None,
        runs_us: None,
        processes: Vec::new(),
        stages: Vec::new(),
        note: None,
    }
}
