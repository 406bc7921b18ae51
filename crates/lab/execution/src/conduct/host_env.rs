//! Environment of a real host, with real servers.

use super::clock::Clock;
use super::cross_check::Cut;
use super::environment::Environment;
use super::guard::Guard;
use super::host_probe::HostProbe;
use super::ledger::{self, Counted};
use super::load::Load;
use super::meter::Meter;
use super::run_dir_guard::RunDirGuard;
use super::run_log::RunLog;
use super::treatments::{Off, Treatments};
use super::trial::{Closed, Place};
use super::ui::Ui;
use super::writeback::WritebackBarrier;
use super::{Progress, StaysOn, readings};
use crate::held::Survey;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::stage::rig::LinkCounters;
use crate::treatment::{Bench, KernelStaysOn, NotPutBack, Pausable, Reading, Treatment};
use crate::workload::{Counter, Driver, Feed, Ground, Live, WindowLoad};
use anyhow::Context;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toll_model::artefacts;
use toll_record::{Arm, Artefact, Bin, Cpu, ProcessEnd, Sample, TrialLine};
use toll_sys::cancel::CancelToken;
use toll_sys::{clock, memory, redact};

/// The stage of a run with what plays on it now.
pub struct HostEnv<'a> {
    pub(super) stage: &'a mut Stage,
    pub(super) recorder: &'a Recorder,
    interrupt: &'a CancelToken,
    pub(super) progress: &'a dyn Progress,
    /// All randomness of the load comes from it.
    seed: u64,
    pub(super) keep_artefacts: bool,
    guard: RunDirGuard<'a>,
    meter: Option<Counting>,
    pub(super) treatment: Treatment,
    /// Of which arm, and what.
    not_put_back: Option<(String, NotPutBack)>,
    /// Known after the pilot.
    barrier: Option<WritebackBarrier>,
    /// What is known of each arm's first artefact.
    pub(super) of_arm: BTreeMap<String, Artefact>,
    /// The trial that goes on is for a second opinion.
    seeking: bool,
    /// When the load that runs began to connect.
    pub(super) load_began_wall_us: u64,
    pub(super) cuts: Vec<Cut>,
    /// Where the files of the rehearsal go that is going on.
    pub(super) rehearsal: Option<PathBuf>,
    /// Of the rig's link, before the arm was switched on that needs it.
    link: Option<LinkCounters>,
    /// What the capture file of the trial holds and lacks.
    pub(super) survey: Option<Survey>,
}

/// What counts, and perhaps what makes the load that is counted.
enum Counting {
    Driver(Box<Driver>),
    Counter(Counter),
}

impl<'a> HostEnv<'a> {
    pub fn new(
        stage: &'a mut Stage,
        recorder: &'a Recorder,
        dir: &Path,
        interrupt: &'a CancelToken,
        progress: &'a dyn Progress,
        seed: u64,
        keep_artefacts: bool,
    ) -> Self {
        Self {
            stage,
            recorder,
            interrupt,
            progress,
            seed,
            keep_artefacts,
            guard: RunDirGuard::new(recorder, dir.to_owned()),
            meter: None,
            treatment: Treatment::default(),
            not_put_back: None,
            barrier: None,
            of_arm: BTreeMap::new(),
            seeking: false,
            load_began_wall_us: 0,
            cuts: Vec::new(),
            rehearsal: None,
            link: None,
            survey: None,
        }
    }

    /// Has pt-query-digest count the stretches that were set aside; no load may run any more.
    pub fn count_cross_checks(&mut self) {
        if self.cuts.is_empty() {
            return;
        }
        self.progress.say("pt-query-digest counts a stretch of each artefact");
        for cut in std::mem::take(&mut self.cuts) {
            if self.interrupt.is_cancelled() {
                return;
            }
            self.recorder.artefact(cut.count(&self.stage.journal, self.interrupt));
        }
    }

    fn driver(&self) -> Option<&Driver> {
        match &self.meter {
            Some(Counting::Driver(driver)) => Some(driver),
            _ => None,
        }
    }

    /// Whether what counts now is what the arm wants.
    fn counts_for(&mut self, arm: &Arm) -> anyhow::Result<bool> {
        Ok(match &mut self.meter {
            Some(Counting::Driver(driver)) => {
                driver.workload == arm.workload
                    && arm.meter == toll_record::Meter::Driver
                    && self.stage.needed(&arm.name)?.endpoints.target(&arm.workload.transport)?.address
                        == driver.address
                    && !driver.ended()
            }
            Some(Counting::Counter(counter)) => counter.meter == arm.meter && !counter.feed.ended(),
            None => arm.meter == toll_record::Meter::None,
        })
    }

    /// Remembers what is still on, to be tried again.
    fn stays_on(&mut self, arm: &Arm, not: NotPutBack) -> anyhow::Error {
        let error = anyhow::anyhow!("{not}").context(StaysOn);
        self.not_put_back = Some((arm.name.clone(), not));
        error
    }

    /// What processes have written since this was called last.
    fn record_output(&mut self) {
        for sample in self.treatment.take_output() {
            if self.rehearsal.is_none() {
                self.recorder.sample(Sample::Output(sample));
            }
        }
    }

    /// `None`: the arm does nothing with the rig's link.
    fn link_counters(&self, arm: &Arm) -> anyhow::Result<Option<LinkCounters>> {
        let link = self.stage.rig.link.as_ref().filter(|_| arm.needs.rig.iter().any(|kind| kind == "link"));
        link.map(|link| link.counters()).transpose()
    }

    fn pausable(&self) -> Option<Pausable> {
        self.driver().and_then(Driver::pausable)
    }
}

/// What the treatment may lean on; a rehearsal's files go with the private ones.
fn bench<'s>(stage: &'s mut Stage, arm: &Arm, rehearsal: Option<&'s Path>) -> Bench<'s> {
    let bench = stage.bench(&arm.name);
    Bench { dir: rehearsal.unwrap_or(bench.dir), ..bench }
}

impl Clock for HostEnv<'_> {
    fn now_us(&self) -> u64 {
        clock::mono_us()
    }

    fn wall_us(&self) -> u64 {
        clock::wall_us()
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_cancelled()
    }

    fn sleep_until(&self, moment_us: u64) -> bool {
        self.interrupt.sleep_until(moment_us)
    }
}

impl Load for HostEnv<'_> {
    fn ready_load(&mut self, arm: &Arm, fresh: bool) -> anyhow::Result<()> {
        if fresh || !self.counts_for(arm)? {
            self.stop_load()?;
            self.load_began_wall_us = clock::wall_us();
            self.meter = match &arm.meter {
                toll_record::Meter::Driver => {
                    let workload = &arm.workload;
                    let target = self.stage.needed(&arm.name)?.endpoints.target(&workload.transport)?;
                    let ground = Ground {
                        journal: &self.stage.journal,
                        recorder: self.recorder,
                        cancel: self.interrupt,
                        dir: self.stage.work_dir.clone(),
                        seed: self.seed,
                    };
                    Some(Counting::Driver(Box::new(Driver::start(workload, &target, &ground)?)))
                }
                toll_record::Meter::None => None,
                counter => {
                    let admin = self.stage.server_of(&arm.name).map(|standing| standing.admin.sibling());
                    Some(Counting::Counter(Counter::start(counter, admin, self.recorder)?))
                }
            };
        }
        self.progress.feed(self.meter.as_ref().and_then(Meter::live));
        Ok(())
    }

    fn stop_load(&mut self) -> anyhow::Result<()> {
        match self.meter.take() {
            Some(Counting::Driver(driver)) => driver.stop(&self.stage.journal),
            Some(Counting::Counter(counter)) => {
                counter.stop();
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Treatments for HostEnv<'_> {
    fn switch_on(&mut self, arm: &Arm, trial: u32, lasts_s: f64) -> anyhow::Result<()> {
        let mut fill = self.stage.fill_of(&arm.name);
        fill.set("duration_s", format!("{lasts_s}"));
        self.link = self.link_counters(arm)?;
        let mut bench = bench(self.stage, arm, self.rehearsal.as_deref());
        match Treatment::start(arm, &fill, trial, &mut bench) {
            Ok(treatment) => {
                self.treatment = treatment;
                Ok(())
            }
            Err(error) => match error.downcast::<NotPutBack>() {
                Ok(not) => Err(self.stays_on(arm, not)),
                Err(error) if error.is::<KernelStaysOn>() => Err(error.context(StaysOn)),
                Err(error) => Err(error),
            },
        }
    }

    fn poll_treatment(&mut self, arm: &Arm, may_end: bool) -> anyhow::Result<bool> {
        let bench = bench(self.stage, arm, self.rehearsal.as_deref());
        if !may_end {
            self.treatment.check_alive()?;
        }
        let ended = self.treatment.look(&bench)?;
        self.record_output();
        self.progress.feed(self.meter.as_ref().and_then(Meter::live));
        Ok(ended)
    }

    fn drain_runs(&mut self) -> (u32, u64) {
        self.treatment.take_runs()
    }

    fn read_counters(&mut self, arm: &Arm) -> (Cpu, Reading) {
        let cpu = readings::cpu(self.stage.server_of(&arm.name), self.driver(), &self.treatment);
        let admin = self.stage.standing(&arm.name).map(|standing| &mut standing.admin);
        (cpu, self.treatment.read(admin))
    }

    fn switch_off(&mut self, arm: &Arm) -> Off {
        let load = self.pausable();
        let bench = bench(self.stage, arm, self.rehearsal.as_deref());
        let stopped = self.treatment.stop(&mut Bench { load, ..bench });
        self.record_output();
        let kernel = stopped.kernel_not_put_back.map(|error| error.context(StaysOn));
        let not_put_back = stopped.not_put_back.map(|not| self.stays_on(arm, not)).or(kernel);
        Off { notes: stopped.notes, processes: stopped.processes, not_put_back }
    }

    fn packet_stages(&mut self, arm: &Arm, processes: &[ProcessEnd]) -> Vec<toll_record::Stage> {
        self.survey = self.survey_of(arm);
        let Some(before) = self.link.take() else { return Vec::new() };
        match self.link_counters(arm) {
            Ok(Some(after)) => {
                let held = self.survey.as_ref().map(|survey| survey.held);
                ledger::stages(&Counted { processes, before, after, held, selects: arm.selects })
            }
            Ok(None) => Vec::new(),
            Err(error) => {
                self.progress.say(&format!("no ledger of this trial of {}: {error:#}", arm.name));
                Vec::new()
            }
        }
    }

    fn put_back(&mut self) -> anyhow::Result<()> {
        let Some((arm, NotPutBack { switched, .. })) = self.not_put_back.take() else { return Ok(()) };
        let Bench { admin, journal, .. } = self.stage.bench(&arm);
        Ok(admin.context("the server is gone")?.switch_off(switched, journal)?)
    }

    fn count_artifact(&mut self, arm: &Arm, place: Place, window: Option<&Closed>) {
        let treatment = std::mem::take(&mut self.treatment);
        match window {
            Some(window) if self.seeking => self.set_aside(arm, &treatment, window),
            Some(window) => self.count(arm, place, &treatment, window),
            None => self.let_go(&treatment),
        }
    }

    fn wants_cross_check(&self, arm: &Arm) -> bool {
        let Some(row) = self.of_arm.get(&arm.name).map(|line| artefacts::of(line.kind)) else { return false };
        // Under TLS neither of the two reads a thing; a command that ends by itself ends before the load is back.
        let is_read = row.pt_type.is_some() && !(row.is_of_the_wire && self.is_tls(arm));
        is_read && !arm.window.is_until_done()
    }

    fn set_cross_check(&mut self, on: bool) {
        self.set_dry_run(on);
        self.seeking = on;
    }
}

impl HostProbe for HostEnv<'_> {
    fn unwritten_bytes(&self) -> u64 {
        memory::pending_writeback_bytes()
    }

    fn writeback_barrier(&self) -> Option<WritebackBarrier> {
        self.barrier
    }

    fn set_writeback_barrier(&mut self, barrier: Option<WritebackBarrier>) {
        self.barrier = barrier;
    }

    fn server_restarted(&mut self) -> anyhow::Result<bool> {
        let mut restarted = false;
        for standing in &mut self.stage.servers {
            restarted |= standing.watched.restarted(&mut standing.admin, self.interrupt)?;
            if let Some(lock) = &mut standing.lock {
                lock.keep_alive()?;
            }
        }
        Ok(restarted)
    }
}

impl RunLog for HostEnv<'_> {
    fn set_dry_run(&mut self, on: bool) {
        self.rehearsal = on.then(|| self.stage.work_dir.join("rehearsal"));
        if let Some(dir) = &self.rehearsal {
            // One that cannot be made fails the first that writes there, with its name.
            let _ = std::fs::create_dir_all(dir);
        }
    }

    fn write_trial(&mut self, line: TrialLine) {
        if self.rehearsal.is_none() {
            self.recorder.trial(line);
        }
    }

    fn write_latency(
        &mut self,
        arm: &str,
        trial: u32,
        begin_us: u64,
        width_us: u64,
        of: Box<Histogram<u64>>,
    ) {
        if self.rehearsal.is_none() {
            self.recorder.latency(arm, trial, begin_us, width_us, of);
        }
    }

    fn write_cut(&mut self, reason: &str) {
        let cut = toll_record::Cut { mono_us: clock::mono_us(), reason: redact::redact_text(reason) };
        self.recorder.sample(Sample::Cut(cut));
    }
}

impl Ui for HostEnv<'_> {
    fn print_line(&self, text: &str) {
        self.progress.say(text);
    }

    fn show_precision(&self, finds_pct: f64) {
        self.progress.finds(finds_pct);
    }

    fn show_trial(&self, place: Place, arm: &str) {
        self.progress.trial(place.round, place.trial, arm);
    }
}

impl Environment for HostEnv<'_> {
    fn load(&mut self) -> Option<&mut dyn Load> {
        Some(self)
    }

    fn meter(&mut self) -> Option<&mut dyn Meter> {
        self.meter.as_mut().map(|meter| meter as &mut dyn Meter)
    }

    fn guard(&mut self) -> Option<&mut dyn Guard> {
        Some(&mut self.guard)
    }
}

impl Counting {
    fn feed(&self) -> &Feed {
        match self {
            Self::Driver(driver) => &driver.feed,
            Self::Counter(counter) => &counter.feed,
        }
    }
}

impl Meter for Counting {
    fn check(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Driver(driver) => driver.check(),
            Self::Counter(counter) => counter.check(),
        }
    }

    fn live(&self) -> Option<Live> {
        self.feed().live()
    }

    fn bin_width_us(&self) -> u64 {
        self.feed().bin_width_us()
    }

    fn bins_since(&self, moment_us: u64) -> Vec<Bin> {
        self.feed().bins_since(moment_us)
    }

    fn edge_at_or_after(&self, moment_us: u64) -> u64 {
        self.feed().edge_at_or_after(moment_us)
    }

    fn open_window(&mut self, begin_us: u64, end_us: u64) {
        self.feed().open_window(begin_us, end_us);
    }

    fn counted(&self) -> (u64, u64) {
        self.feed().counted()
    }

    fn close_at(&mut self, edge_us: u64) -> u64 {
        self.feed().close_at(edge_us)
    }

    fn close_window(&mut self, within: Duration) -> Option<WindowLoad> {
        self.feed().close_window(within)
    }
}
