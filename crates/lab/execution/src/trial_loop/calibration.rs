//! Calibration before the first trial: the capacity of closed loops, and dry runs of commands that may end.
//!
//! By trials like any other, of which nothing reaches the run. How noisy the host is and what switching takes is for
//! `pilot.rs` to find.

use super::TrialLoop;
use super::environment::Environment;
use super::trial::{ClosedWindow, TrialParams};
use crate::guard::Tripped;
use anyhow::Context;
use toll_model::scenario::OnExit;
use toll_record::{Arm, Meter, Switching, Treatment, Window};

/// Long enough to average over what a busy host does from second to second.
const CAPACITY_S: f64 = 4.0;
const CAPACITY_WARMUP_S: f64 = 1.0;

/// How long commands that may end by themselves are tried for.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Before the window of one that does not end.
    pub try_s: f64,
    /// Bound of the windows of one that ends; absent: three times what it took.
    pub window_s: Option<f64>,
}

/// What came of a dry run.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    pub window: Window,
    pub switching: Switching,
}

impl<E: Environment> TrialLoop<'_, E> {
    /// Events a second that an arm's closed loop attains, by a short run of it alone.
    pub fn measure_capacity(&mut self, mut alone: Arm) -> anyhow::Result<f64> {
        alone.workload.rate_per_s = None;
        alone.treatment = Treatment::default();
        alone.artefact = None;
        alone.window = Window::Time { s: CAPACITY_S };
        let closed = self
            .unrecorded_trial(&alone, CAPACITY_WARMUP_S)?
            .context("interrupted before the first trial")?;
        let no_load = || format!("arm {} has no load that could attain anything", alone.name);
        let load = closed.load.with_context(no_load)?;
        Ok(load.events as f64 * 1e6 / (closed.end_mono_us - closed.begin_mono_us) as f64)
    }

    /// Tries a command that may end by itself, beside its load; the answer is when its windows end. A
    /// command that fails ends the run: there is nothing to be measured. `None`: interrupted.
    pub fn dry_run(
        &mut self,
        name: &str,
        ends: OnExit,
        timeouts: Timeouts,
    ) -> anyhow::Result<Option<DryRun>> {
        const TIMEOUT_FACTOR: f64 = 3.0;
        /// Of one that was tried without its load, and shares one CPU with it in its windows.
        const TIMEOUT_FACTOR_BESIDE: f64 = 50.0;
        const MIN_TIMEOUT_S: f64 = 2.0;
        let arm = self.find_arm(name)?;
        // Long enough to see it fail, or end at once; a dump of an hour is not made twice.
        let at_most_s = timeouts.try_s;
        let mut once = Arm { window: Window::Done { at_most_s }, ..arm.clone() };
        once.treatment.again = false;
        let is_real = self.plan.clock.is_real();
        if !is_real {
            // Idle time costs nothing there, time beside a load does.
            once.meter = Meter::None;
        }
        let factor = if is_real { TIMEOUT_FACTOR } else { TIMEOUT_FACTOR_BESIDE };
        let begun_us = self.env.now_us();
        let closed = self.unrecorded_trial(&once, 0.0).map_err(|error| match error.is::<Tripped>() {
            true => error,
            false => error.context(format!(
                "the dry run of arm {name} failed (run its command by hand until it succeeds)"
            )),
        })?;
        let Some(closed) = closed else { return Ok(None) };
        let took_s = closed.ended_by_treatment.then_some(closed.runs.1 as f64 / 1e6);
        let (window, says) = match (ends, took_s) {
            (OnExit::Again, Some(s)) => {
                (arm.window, format!("takes {s:.2} s, and is run again until its window ends"))
            }
            (OnExit::Again, None) => {
                (arm.window, format!("does not end within {at_most_s:.1} s, and is not run again"))
            }
            (_, Some(s)) => {
                let at_most_s = timeouts.window_s.unwrap_or((factor * s).max(MIN_TIMEOUT_S));
                let window = match arm.window {
                    Window::Done { .. } => arm.window,
                    _ => Window::Done { at_most_s },
                };
                (window, format!("ends by itself, here after {s:.2} s: its end closes its window"))
            }
            (OnExit::ClosesWindow, None) => (
                arm.window,
                format!(
                    "does not end within {at_most_s:.1} s: its windows last until it does, {} s at most",
                    arm.window.at_most_s()
                ),
            ),
            (_, None) => {
                (arm.window, format!("does not end within {at_most_s:.1} s: it runs throughout its windows"))
            }
        };
        self.env.print_line(&format!("the command of {name} {says}"));
        let around_us = self.env.now_us() - begun_us - (closed.end_mono_us - closed.begin_mono_us);
        let switching = Switching {
            tried: 1,
            around_s: around_us.saturating_sub(closed.switched.counted_us) as f64 / 1e6,
            done_s: took_s,
            ..Switching::default()
        };
        Ok(Some(DryRun { window, switching }))
    }

    pub(super) fn unrecorded_trial(
        &mut self,
        arm: &Arm,
        settle_s: f64,
    ) -> anyhow::Result<Option<ClosedWindow>> {
        self.env.set_dry_run(true);
        let closed = self.run_trial(arm, TrialParams { settle_s, counted: true, ..TrialParams::default() });
        self.env.set_dry_run(false);
        closed
    }

    pub(super) fn find_arm(&self, name: &str) -> anyhow::Result<Arm> {
        let arm = self.plan.arms.iter().find(|arm| arm.name == name);
        arm.cloned().with_context(|| format!("the plan has no arm `{name}`"))
    }
}
