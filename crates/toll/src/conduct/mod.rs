//! In what order do load, treatments and windows follow each other?
//!
//! One conductor for all scenarios. It never looks into an artefact while a window is open, and
//! whatever it switches on is off again when it returns, however it returns.

mod calm;
mod progress;
mod readings;
mod rehearsal;
mod second_opinion;
mod stage;
mod trial;
mod watched;

pub use progress::Progress;
pub use stage::Stage;
pub use watched::Watched;

use crate::clock;
use crate::host::memory::unwritten_bytes;
use crate::recorder::{Recorder, step};
use crate::scenario::Arm;
use crate::treatment::NotPutBack;
use crate::workload::{Driver, Ground};
use anyhow::Context;
use calm::Calm;
use second_opinion::Cut;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_record::{Ends, Plan, Step, Workload};

/// Set by whatever signal asks toll to end; looked at at least ten times a second.
#[derive(Debug, Clone, Copy)]
pub struct Interrupt(&'static AtomicBool);

/// One that nobody raises, for tests.
#[cfg(test)]
impl Default for Interrupt {
    fn default() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self(&NEVER)
    }
}

impl Interrupt {
    pub fn listen() -> anyhow::Result<Self> {
        crate::signals::listen()?;
        Ok(Self(&crate::signals::RAISED))
    }

    pub fn raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps until a moment of the monotonic clock; false when interrupted before it.
    pub fn sleep_until(&self, moment_us: u64) -> bool {
        const SLICE_US: u64 = 50_000;
        loop {
            if self.raised() {
                return false;
            }
            let now = clock::mono_us();
            if now >= moment_us {
                return true;
            }
            clock::sleep_until(moment_us.min(now + SLICE_US));
        }
    }

    pub fn sleep(&self, seconds: f64) -> bool {
        self.sleep_until(clock::mono_us() + (seconds * 1e6) as u64)
    }
}

/// A pilot shorter than this many of the plan's windows makes its own windows shorter.
const PILOT_WINDOWS: f64 = 6.0;
/// Long enough to average over what a busy host does from second to second.
const CAPACITY_US: u64 = 4_000_000;
const CAPACITY_WARMUP_S: f64 = 1.0;
/// A driver's last bin may be this late before the driver is held to be stuck.
const BINS_WITHIN: Duration = Duration::from_secs(5);

/// How a run came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// The confidence sequences had said enough.
    Early,
    Interrupted,
    /// It could not go on, for this reason; what was measured until then holds.
    Cut(String),
}

/// How an arm has fared so far.
#[derive(Debug, Clone, Copy, Default)]
struct Tries {
    windows: u32,
    failures: u32,
}

impl Tries {
    /// One failure may be chance; an arm that never worked costs every round its time.
    fn hopeless(self) -> bool {
        const ENOUGH: u32 = 2;
        self.windows == 0 && self.failures >= ENOUGH
    }
}

/// The run while it goes on.
pub struct Conductor<'a> {
    pub plan: &'a Plan,
    pub arms: &'a [Arm],
    pub stage: &'a mut Stage,
    pub recorder: &'a Recorder,
    pub interrupt: &'a Interrupt,
    pub progress: &'a Progress,
    /// Asked after each round whether enough is known.
    pub enough: &'a mut dyn FnMut() -> anyhow::Result<bool>,
    pub keep_artefacts: bool,
    driver: Option<Driver>,
    /// Known after the pilot.
    calm: Option<Calm>,
    cuts: Vec<Cut>,
    /// What the rehearsal found of commands that may end by themselves.
    ends: BTreeMap<String, Ends>,
}

impl<'a> Conductor<'a> {
    #[allow(clippy::too_many_arguments)] // each is a different room; a struct of them would only rename the list
    pub fn new(
        plan: &'a Plan,
        arms: &'a [Arm],
        stage: &'a mut Stage,
        recorder: &'a Recorder,
        interrupt: &'a Interrupt,
        progress: &'a Progress,
        enough: &'a mut dyn FnMut() -> anyhow::Result<bool>,
        keep_artefacts: bool,
    ) -> Self {
        Self {
            plan,
            arms,
            stage,
            recorder,
            interrupt,
            progress,
            enough,
            keep_artefacts,
            driver: None,
            calm: None,
            cuts: Vec::new(),
            ends: BTreeMap::new(),
        }
    }

    /// Runs the baseline's load alone, in windows as long as the plan's where time allows, and
    /// answers with each one's mean event latency in microseconds.
    pub fn pilot(&mut self, seconds: f64) -> anyhow::Result<Vec<f64>> {
        let mut means = Vec::new();
        let mut unwritten = Vec::new();
        if seconds <= 0.0 {
            return Ok(means);
        }
        let workload = self.arm(&self.plan.baseline)?.1;
        self.ensure_driver(&workload, false)?;
        self.progress.say(&format!("pilot of {seconds:.0} s: how noisy is this host?"));
        let length_us = (self.plan.window_s.min(seconds / PILOT_WINDOWS) * 1e6) as u64;
        let last = clock::mono_us() + (seconds * 1e6) as u64;
        while clock::mono_us() + length_us <= last {
            let driver = self.driver.as_mut().context("no driver")?;
            driver.check()?;
            let width = driver.feed.bin_width_us();
            let begin = driver.feed.edge_at_or_after(clock::mono_us());
            let end = begin + length_us.div_ceil(width).max(1) * width;
            driver.feed.open_window(begin, end);
            if !self.interrupt.sleep_until(end) {
                break;
            }
            unwritten.push(unwritten_bytes());
            let driver = self.driver.as_mut().context("no driver")?;
            if let Some(load) = driver.feed.close_window(BINS_WITHIN)
                && load.events > 0
            {
                means.push(load.latency_us_sum as f64 / load.events as f64);
            }
        }
        self.calm = Calm::of(unwritten, Duration::from_secs_f64(self.plan.window_s));
        Ok(means)
    }

    /// Has pt-query-digest count the stretches that were set aside; no load runs any more.
    pub fn second_opinions(&mut self) {
        if self.cuts.is_empty() {
            return;
        }
        self.progress.say("pt-query-digest counts a stretch of each artefact");
        for cut in std::mem::take(&mut self.cuts) {
            if self.interrupt.raised() {
                return;
            }
            self.recorder.artefact(cut.count(self.stage.port, &self.stage.journal));
        }
    }

    /// Events a second that an arm's closed loop attains, by a short run of it alone.
    pub fn capacity(&mut self, workload: &Workload) -> anyhow::Result<f64> {
        let closed = Workload { rate_per_s: None, ..workload.clone() };
        self.ensure_driver(&closed, false)?;
        if !self.interrupt.sleep(CAPACITY_WARMUP_S) {
            anyhow::bail!("interrupted before the first trial");
        }
        let driver = self.driver.as_mut().context("no driver")?;
        let begin = driver.feed.edge_at_or_after(clock::mono_us());
        let end = begin + CAPACITY_US;
        driver.feed.open_window(begin, end);
        if !self.interrupt.sleep_until(end) {
            anyhow::bail!("interrupted before the first trial");
        }
        let driver = self.driver.as_mut().context("no driver")?;
        let load = driver.feed.close_window(BINS_WITHIN).context("the load driver fell silent")?;
        Ok(load.events as f64 * 1e6 / CAPACITY_US as f64)
    }

    /// Takes the load down.
    pub fn stop_load(&mut self) -> anyhow::Result<()> {
        self.driver.take().map_or(Ok(()), |driver| driver.stop(&self.stage.journal))
    }

    /// All rounds, in the order of the plan.
    ///
    /// # Errors
    /// What keeps the run from going on before anything was measured; later it is [`Ending::Cut`].
    pub fn run(&mut self) -> anyhow::Result<Ending> {
        let mut tries: BTreeMap<&str, Tries> = BTreeMap::new();
        match self.rounds(&mut tries) {
            Err(error) if tries.values().any(|tries| tries.windows > 0) => {
                Ok(Ending::Cut(format!("{error:#}")))
            }
            ending => ending,
        }
    }

    fn rounds(&mut self, tries: &mut BTreeMap<&'a str, Tries>) -> anyhow::Result<Ending> {
        let mut number = 0u32;
        let plan = self.plan;
        let jitters = toll_stats::jitters(
            plan.seed,
            plan.order.iter().map(Vec::len).sum(),
            plan.jitter * plan.window_s,
        );
        for (round, order) in plan.order.iter().enumerate() {
            for name in order {
                if self.interrupt.raised() {
                    return Ok(Ending::Interrupted);
                }
                self.recorder.check()?;
                let trial = number;
                number += 1;
                let tries = tries.entry(name).or_default();
                if tries.hopeless() {
                    continue;
                }
                self.server_restarted()?;
                self.progress.trial(round as u32, trial, name);
                match self.trial(trial, round as u32, name, jitters[trial as usize]) {
                    Ok(true) => tries.windows += 1,
                    Ok(false) => return Ok(Ending::Interrupted),
                    Err(error) => self.failed(trial, round as u32, name, error, tries)?,
                }
                if plan.gap_s > 0.0 && !self.interrupt.sleep(plan.gap_s) {
                    return Ok(Ending::Interrupted);
                }
            }
            if plan.early_stop && (self.enough)()? {
                return Ok(Ending::Early);
            }
        }
        Ok(Ending::Done)
    }

    /// Writes down why a trial has no window; an error where the run cannot go on either.
    fn failed(
        &mut self,
        trial: u32,
        round: u32,
        name: &str,
        error: anyhow::Error,
        tries: &mut Tries,
    ) -> anyhow::Result<()> {
        let mut line = step(trial, round, name, Step::Failed);
        if self.interrupt.raised() {
            line.note = Some(format!("{error:#}"));
            self.recorder.trial(line);
            return Ok(());
        }
        let restarted = self.server_restarted().with_context(|| format!("arm {name} failed ({error:#})"));
        let why = match &restarted {
            Ok(true) => format!("the server restarted: {error:#}"),
            _ => format!("{error:#}"),
        };
        self.progress.say(&format!("arm {name} failed: {why}"));
        line.note = Some(why);
        self.recorder.trial(line);
        if !restarted? {
            tries.failures += 1;
        }
        match error.downcast::<NotPutBack>() {
            // Every window from now on would be one of this arm too.
            Ok(NotPutBack { switched, .. }) => {
                let again = self.stage.admin.switch_off(switched, &self.stage.journal);
                again.with_context(|| format!("arm {name} stays on"))
            }
            // The baseline is in every pair: without it there is nothing to go on for.
            Err(error) if *name == self.plan.baseline && tries.windows == 0 => {
                Err(error.context("the baseline failed"))
            }
            Err(_) => Ok(()),
        }
    }

    /// Looks whether the server is still the same process; holds the lock on the one that is there now.
    fn server_restarted(&mut self) -> anyhow::Result<bool> {
        let stage = &mut *self.stage;
        let restarted = stage.server.restarted(&mut stage.admin, self.interrupt)?;
        if let Some(lock) = &mut stage.lock {
            lock.keep()?;
        }
        if restarted {
            self.progress.say("the server has restarted: windows that it cut are left out");
        }
        Ok(restarted)
    }

    fn arm(&self, name: &str) -> anyhow::Result<(&'a Arm, Workload)> {
        let arm = self.arms.iter().find(|a| a.name == name);
        let planned = self.plan.arms.iter().find(|a| a.name == name);
        match (arm, planned) {
            (Some(arm), Some(planned)) => Ok((arm, planned.workload.clone())),
            _ => anyhow::bail!("the plan has no arm `{name}`"),
        }
    }

    /// Keeps the running driver where it does the right thing, starts another where not.
    fn ensure_driver(&mut self, workload: &Workload, fresh: bool) -> anyhow::Result<&mut Driver> {
        let keeps = !fresh && self.driver.as_mut().is_some_and(|d| d.workload == *workload && !d.ended());
        if !keeps {
            if let Some(old) = self.driver.take() {
                old.stop(&self.stage.journal)?;
            }
            let ground = Ground {
                endpoints: &self.stage.endpoints,
                journal: &self.stage.journal,
                recorder: self.recorder,
                dir: self.stage.work_dir.clone(),
                seed: self.plan.seed,
            };
            self.driver = Some(Driver::start(workload, &ground)?);
        }
        let driver = self.driver.as_mut().context("no driver")?;
        self.progress.feed(driver.feed.live());
        Ok(driver)
    }
}
