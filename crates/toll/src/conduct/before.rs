//! What must be known before the first trial: how noisy the host is, what a closed loop attains, whether a
//! command ends by itself?
//!
//! All of it by trials like any other, of which nothing reaches the run.

use super::Conductor;
use super::trial::{Closed, Place};
use super::world::World;
use crate::scenario::Ends;
use anyhow::Context;
use std::time::Duration;
use toll_record::{Arm, Treatment, Window};

/// A pilot shorter than this many of the plan's windows makes its own windows shorter.
const PILOT_WINDOWS: f64 = 6.0;
/// Long enough to average over what a busy host does from second to second.
const CAPACITY_S: f64 = 4.0;
const CAPACITY_WARMUP_S: f64 = 1.0;

impl<W: World> Conductor<'_, W> {
    /// Runs the baseline's load alone for the plan's pilot, in windows as long as the plan's where time
    /// allows, and answers with each one's mean event latency in microseconds.
    pub fn pilot(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut means = Vec::new();
        let seconds = self.plan.pilot_s;
        if seconds <= 0.0 {
            return Ok(means);
        }
        self.world.say(&format!("pilot of {seconds:.0} s: how noisy is this host?"));
        let length_s = self.plan.window_s.min(seconds / PILOT_WINDOWS);
        let baseline = self.arm(&self.plan.baseline)?;
        let alone = Arm {
            window: Window::Time { s: length_s },
            treatment: Treatment::default(),
            artefact: None,
            ..baseline
        };
        self.world.ready_meter(&alone, false)?;
        let mut unwritten = Vec::new();
        let last = self.world.now_us() + (seconds * 1e6) as u64;
        while self.world.now_us() + (length_s * 1e6) as u64 <= last {
            let Some(closed) = self.rehearsed(&alone, 0.0)? else { break };
            unwritten.push(self.world.unwritten_bytes());
            let load = closed.load.filter(|load| load.events > 0);
            means.extend(load.map(|load| load.latency_us_sum as f64 / load.events as f64));
        }
        self.world.calm_is(unwritten, Duration::from_secs_f64(self.plan.window_s));
        Ok(means)
    }

    /// Events a second that an arm's closed loop attains, by a short run of it alone.
    pub fn capacity(&mut self, mut alone: Arm) -> anyhow::Result<f64> {
        alone.workload.rate_per_s = None;
        alone.treatment = Treatment::default();
        alone.artefact = None;
        alone.window = Window::Time { s: CAPACITY_S };
        let closed =
            self.rehearsed(&alone, CAPACITY_WARMUP_S)?.context("interrupted before the first trial")?;
        let no_load = || format!("arm {} has no load that could attain anything", alone.name);
        let load = closed.load.with_context(no_load)?;
        Ok(load.events as f64 * 1e6 / (closed.end_mono_us - closed.begin_mono_us) as f64)
    }

    /// Tries a command that may end by itself, beside its load; the answer is when its windows end. A
    /// command that fails ends the run: there is nothing to be measured. `None`: interrupted.
    pub fn rehearse(&mut self, name: &str, ends: Ends) -> anyhow::Result<Option<Window>> {
        let arm = self.arm(name)?;
        // Long enough to see it fail, or end at once; a dump of an hour is not made twice.
        let at_most_s = self.plan.settle_s + self.plan.window_s;
        let mut once = Arm { window: Window::Done { at_most_s }, ..arm.clone() };
        once.treatment.again = false;
        let closed = self.rehearsed(&once, 0.0).with_context(|| {
            format!(
                "arm {name} was tried before the first trial and cannot be measured; \
                 run its command by hand until it succeeds"
            )
        })?;
        let Some(closed) = closed else { return Ok(None) };
        let took_s = closed.is_done.then_some(closed.runs.1 as f64 / 1e6);
        let (window, says) = match (ends, took_s) {
            (Ends::Again, Some(s)) => {
                (arm.window, format!("takes {s:.2} s, and is run again until its window ends"))
            }
            (Ends::Again, None) => {
                (arm.window, format!("does not end within {at_most_s:.1} s, and is not run again"))
            }
            (_, Some(s)) => {
                let window = match arm.window {
                    Window::Done { .. } => arm.window,
                    _ => Window::Done { at_most_s: self.plan.window_s },
                };
                (window, format!("ends by itself, here after {s:.2} s: its end closes its window"))
            }
            (Ends::ClosesWindow, None) => (
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
        self.world.say(&format!("the command of arm {name} {says}"));
        Ok(Some(window))
    }

    fn rehearsed(&mut self, arm: &Arm, settle_s: f64) -> anyhow::Result<Option<Closed>> {
        self.world.rehearse(true);
        let closed = self.trial(arm, Place { settle_s, ..Place::default() });
        self.world.rehearse(false);
        closed
    }

    fn arm(&self, name: &str) -> anyhow::Result<Arm> {
        let arm = self.plan.arms.iter().find(|arm| arm.name == name);
        arm.cloned().with_context(|| format!("the plan has no arm `{name}`"))
    }
}
