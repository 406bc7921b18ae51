//! Environment of a real host, with real servers.

use super::clock::Clock;
use super::cross_check::CrossCheckSample;
use super::environment::Environment;
use super::host_probe::HostProbe;
use super::load::LoadControl;
use super::meter::Meter;
use super::packet_accounting::{self, TrialCounters};
use super::run_dir_guard::RunDirGuard;
use super::run_log::RunLog;
use super::treatments::{SwitchOffReport, TreatmentControl};
use super::trial::{ClosedWindow, TrialParams};
use super::ui::Ui;
use super::work_meter::WorkMeter;
use super::writeback::WritebackBarrier;
use super::{Progress, StaysOn, readings};
use crate::capture_survey::Survey;
use crate::guard::{Guard, Tripped};
use crate::live::LiveGuard;
use crate::recorder::Recorder;
use crate::testbed::Testbed;
use crate::testbed::rig::LinkCounters;
use crate::treatment::{
    KernelNotRestored, PausableLoad, PauseGuard, Reading, RestoreError, Treatment, TreatmentContext,
};
use crate::workload::{Counter, Driver, DriverContext};
use anyhow::Context;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toll_model::artefacts;
use toll_record::{Arm, Artefact, Cpu, Plan, ProcessEnd, Sample, TrialLine};
use toll_sys::cancel::CancelToken;
use toll_sys::{clock, memory, redact};

/// The stage of a run with what plays on it now.
pub struct HostEnv<'a> {
    pub(super) testbed: &'a mut Testbed,
    pub(super) recorder: &'a Recorder,
    pub(super) interrupt: &'a CancelToken,
    pub(super) progress: &'a dyn Progress,
    /// All randomness of the load comes from it.
    seed: u64,
    clock: toll_record::Clock,
    pub(super) keep_artefacts: bool,
    guards: Guards<'a>,
    meter: Option<WorkMeter>,
    pub(super) treatment: Treatment,
    /// What the trials before have written, bytes.
    written_before: u64,
    /// Of which arm, and what.
    restore_error: Option<(String, RestoreError)>,
    /// Known after the pilot.
    barrier: Option<WritebackBarrier>,
    /// What is known of each arm's first artefact.
    pub(super) artefact_by_arm: BTreeMap<String, Artefact>,
    /// The current trial is for the cross-check.
    is_cross_check: bool,
    /// When the load that runs began to connect.
    pub(super) load_began_wall_us: u64,
    pub(super) cross_check_samples: Vec<CrossCheckSample>,
    /// Where the files of the rehearsal go that is going on.
    pub(super) dry_run_dir: Option<PathBuf>,
    /// Of the rig's link, before the arm was switched on that needs it.
    link: Option<LinkCounters>,
    /// What the capture file of the trial holds and lacks.
    pub(super) survey: Option<Survey>,
}

/// Whatever may end the run.
struct Guards<'a> {
    dir: RunDirGuard<'a>,
    /// One for each server that serves users, in their order.
    live: Vec<LiveGuard>,
}

impl Guard for Guards<'_> {
    fn check(&mut self, now_us: u64) -> Result<(), Tripped> {
        self.dir.check(now_us)?;
        self.live.iter_mut().try_for_each(|guard| guard.check(now_us))
    }
}

impl<'a> HostEnv<'a> {
    pub fn new(
        testbed: &'a mut Testbed,
        recorder: &'a Recorder,
        dir: &Path,
        interrupt: &'a CancelToken,
        progress: &'a dyn Progress,
        plan: &Plan,
        keep_artefacts: bool,
    ) -> Self {
        Self {
            testbed,
            recorder,
            interrupt,
            progress,
            seed: plan.seed,
            clock: plan.clock,
            keep_artefacts,
            guards: Guards { dir: RunDirGuard::new(recorder, dir.to_owned()), live: Vec::new() },
            meter: None,
            treatment: Treatment::default(),
            written_before: 0,
            restore_error: None,
            barrier: None,
            artefact_by_arm: BTreeMap::new(),
            is_cross_check: false,
            load_began_wall_us: 0,
            cross_check_samples: Vec::new(),
            dry_run_dir: None,
            link: None,
            survey: None,
        }
    }

    pub fn testbed(&self) -> &Testbed {
        self.testbed
    }

    fn tell_guard(&self, arm: &Arm, is_on: bool) {
        let guard = self.guards.live.get(self.testbed.setup.server_index(&arm.name));
        guard.into_iter().for_each(|guard| guard.set_on(is_on));
    }

    /// From now on `guard`, of the next server, may end the run, too.
    pub fn guard_with(&mut self, guard: LiveGuard) {
        self.guards.live.push(guard);
    }

    /// The guards of servers that serve users; they end the run no more.
    pub fn take_guards(&mut self) -> Vec<LiveGuard> {
        std::mem::take(&mut self.guards.live)
    }

    /// Has pt-query-digest count the stretches that were set aside; no load may run any more.
    pub fn count_cross_checks(&mut self) {
        if self.cross_check_samples.is_empty() {
            return;
        }
        self.progress.print_line("pt-query-digest counts a stretch of each artefact");
        for cut in std::mem::take(&mut self.cross_check_samples) {
            if self.interrupt.is_cancelled() {
                return;
            }
            self.recorder.record_artefact(cut.count(&self.testbed.journal, self.interrupt));
        }
    }

    fn driver(&self) -> Option<&Driver> {
        match &self.meter {
            Some(WorkMeter::Driver(driver)) => Some(driver),
            _ => None,
        }
    }

    /// Whether what counts now is what the arm wants.
    fn is_metered_for(&mut self, arm: &Arm) -> anyhow::Result<bool> {
        Ok(match &mut self.meter {
            Some(WorkMeter::Driver(driver)) => {
                driver.workload == arm.workload
                    && arm.meter == toll_record::Meter::Driver
                    && self
                        .testbed
                        .require_server(&arm.name)?
                        .endpoints
                        .target(&arm.workload.transport)?
                        .address
                        == driver.address
                    && !driver.has_ended()
            }
            Some(WorkMeter::Counter(counter)) => {
                counter.meter == arm.meter && !counter.bin_stream.has_ended()
            }
            None => arm.meter == toll_record::Meter::None,
        })
    }

    /// Remembers what is still on, to be tried again.
    fn note_stays_on(&mut self, arm: &Arm, not: RestoreError) -> anyhow::Error {
        let error = anyhow::anyhow!("{not}").context(StaysOn);
        self.restore_error = Some((arm.name.clone(), not));
        error
    }

    /// What processes have written since this was called last.
    fn record_output(&mut self) {
        for sample in self.treatment.drain_output() {
            if self.dry_run_dir.is_none() {
                self.recorder.record_sample(Sample::Output(sample));
            }
        }
    }

    /// `None`: the arm does nothing with the rig's link.
    fn link_counters(&self, arm: &Arm) -> anyhow::Result<Option<LinkCounters>> {
        let link = self.testbed.rig.link.as_ref().filter(|_| arm.needs.rig.iter().any(|kind| kind == "link"));
        link.map(|link| link.read_counters()).transpose()
    }

    fn pausable(&self) -> Option<PausableLoad> {
        self.driver().and_then(|driver| driver.pausable(self.clock))
    }
}

/// What the treatment may lean on; a rehearsal's files go with the private ones.
fn treatment_context<'s>(
    testbed: &'s mut Testbed,
    arm: &Arm,
    rehearsal: Option<&'s Path>,
) -> TreatmentContext<'s> {
    let context = testbed.treatment_context(&arm.name);
    TreatmentContext { dir: rehearsal.unwrap_or(context.dir), ..context }
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

impl LoadControl for HostEnv<'_> {
    fn ensure_load(&mut self, arm: &Arm, fresh: bool) -> anyhow::Result<()> {
        if fresh || !self.is_metered_for(arm)? {
            self.stop_load()?;
            self.load_began_wall_us = clock::wall_us();
            self.meter = match &arm.meter {
                toll_record::Meter::Driver => {
                    let workload = &arm.workload;
                    let target =
                        self.testbed.require_server(&arm.name)?.endpoints.target(&workload.transport)?;
                    let context = DriverContext {
                        journal: &self.testbed.journal,
                        recorder: self.recorder,
                        cancel: self.interrupt,
                        dir: self.testbed.work_dir.clone(),
                        seed: self.seed,
                        clock: self.clock,
                    };
                    Some(WorkMeter::Driver(Box::new(Driver::start(workload, &target, &context)?)))
                }
                toll_record::Meter::None => None,
                counter => {
                    let admin = self.testbed.server_of(&arm.name).map(|standing| standing.admin.sibling());
                    Some(WorkMeter::Counter(Counter::start(counter, admin, self.recorder)?))
                }
            };
        }
        self.progress.show_load(self.meter.as_ref().and_then(Meter::live));
        Ok(())
    }

    fn stop_load(&mut self) -> anyhow::Result<()> {
        match self.meter.take() {
            Some(WorkMeter::Driver(driver)) => driver.stop(&self.testbed.journal),
            Some(WorkMeter::Counter(counter)) => {
                counter.stop();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn pause_load(&mut self) -> Option<PauseGuard> {
        self.pausable().map(PausableLoad::pause_if_slow)
    }
}

impl TreatmentControl for HostEnv<'_> {
    fn switch_on(&mut self, arm: &Arm, trial: u32, lasts_s: f64) -> anyhow::Result<()> {
        let mut placeholders = self.testbed.placeholders_of(&arm.name);
        placeholders.set("duration_s", format!("{lasts_s}"));
        self.link = self.link_counters(arm)?;
        // A window that is open would show the pause as the treatment's work.
        let is_in_window = self.clock.is_real() && arm.window.is_until_done();
        let load = if is_in_window { None } else { self.pausable() };
        let context = treatment_context(self.testbed, arm, self.dry_run_dir.as_deref());
        let mut context = TreatmentContext { load, ..context };
        match Treatment::start(arm, &placeholders, trial, &mut context) {
            Ok(treatment) => {
                self.treatment = treatment;
                self.tell_guard(arm, !arm.treatment.is_nothing());
                Ok(())
            }
            Err(error) => match error.downcast::<RestoreError>() {
                Ok(not) => Err(self.note_stays_on(arm, not)),
                Err(error) if error.is::<KernelNotRestored>() => Err(error.context(StaysOn)),
                Err(error) => Err(error),
            },
        }
    }

    fn poll_treatment(&mut self, arm: &Arm, may_end: bool) -> anyhow::Result<bool> {
        let context = treatment_context(self.testbed, arm, self.dry_run_dir.as_deref());
        if !may_end {
            self.treatment.check_alive()?;
        }
        let ended = self.treatment.poll(&context)?;
        self.record_output();
        self.progress.show_load(self.meter.as_ref().and_then(Meter::live));
        Ok(ended)
    }

    fn drain_runs(&mut self) -> (u32, u64) {
        self.treatment.drain_runs()
    }

    fn read_counters(&mut self, arm: &Arm) -> (Cpu, Reading) {
        let server = self.testbed.server_of(&arm.name);
        let cpu = readings::read_cpu(server, self.driver(), &self.treatment, self.clock);
        let admin = self.testbed.server_mut(&arm.name).map(|standing| &mut standing.admin);
        (cpu, self.treatment.read_counters(admin))
    }

    fn switch_off(&mut self, arm: &Arm) -> SwitchOffReport {
        let load = self.pausable();
        let context = treatment_context(self.testbed, arm, self.dry_run_dir.as_deref());
        let stopped = self.treatment.stop(&mut TreatmentContext { load, ..context });
        self.record_output();
        self.tell_guard(arm, false);
        let kernel = stopped.kernel_restore_error.map(|error| error.context(StaysOn));
        let settings = stopped.restore_error.map(|not| self.note_stays_on(arm, not));
        let not_put_back = match (settings, kernel) {
            (Some(settings), Some(kernel)) => Some(kernel.context(format!("{settings:#}"))),
            (settings, kernel) => settings.or(kernel),
        };
        SwitchOffReport { notes: stopped.notes, processes: stopped.processes, restore_error: not_put_back }
    }

    fn packet_stages(&mut self, arm: &Arm, processes: &[ProcessEnd]) -> Vec<toll_record::Stage> {
        self.survey = self.survey_trial_capture(arm);
        let Some(before) = self.link.take() else { return Vec::new() };
        match self.link_counters(arm) {
            Ok(Some(after)) => {
                let held = self.survey.as_ref().map(|survey| survey.held);
                packet_accounting::count_stages(&TrialCounters {
                    processes,
                    before,
                    after,
                    held,
                    selects: arm.selects,
                })
            }
            Ok(None) => Vec::new(),
            Err(error) => {
                self.progress
                    .print_line(&format!("no packet accounting for this trial of {}: {error:#}", arm.name));
                Vec::new()
            }
        }
    }

    fn restore_settings(&mut self) -> anyhow::Result<()> {
        let Some((arm, RestoreError { applied: switched, .. })) = self.restore_error.take() else {
            return Ok(());
        };
        let TreatmentContext { admin, journal, .. } = self.testbed.treatment_context(&arm);
        Ok(admin.context("the server is gone")?.switch_off(switched, journal)?)
    }

    fn count_artefact(&mut self, arm: &Arm, place: TrialParams, window: Option<&ClosedWindow>) {
        let treatment = std::mem::take(&mut self.treatment);
        self.written_before += treatment.artefact_bytes().unwrap_or(0);
        match window {
            Some(window) if self.is_cross_check => self.cut_for_cross_check(arm, &treatment, window),
            // What a treatment writes is counted on the first server.
            Some(_) if self.testbed.setup.is_on_second(&arm.name) => self.discard_artefact(&treatment),
            Some(window) => self.count_artefact_of(arm, place, &treatment, window),
            None => self.discard_artefact(&treatment),
        }
    }

    fn wants_cross_check(&self, arm: &Arm) -> bool {
        let Some(row) = self.artefact_by_arm.get(&arm.name).map(|line| artefacts::spec_of(line.kind)) else {
            return false;
        };
        // Under TLS neither of the two reads a thing; a command that ends by itself ends before the load is back.
        let is_read = row.pt_type.is_some() && !(row.is_from_packets && self.is_tls(arm));
        is_read && !arm.window.is_until_done()
    }

    fn set_cross_check(&mut self, on: bool) {
        self.set_dry_run(on);
        self.is_cross_check = on;
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
        for standing in &mut self.testbed.servers {
            restarted |= standing.restart_detector.has_restarted(&mut standing.admin, self.interrupt)?;
            if let Some(lock) = &mut standing.lock {
                lock.keep_alive()?;
            }
        }
        Ok(restarted)
    }
}

impl RunLog for HostEnv<'_> {
    fn set_dry_run(&mut self, on: bool) {
        self.dry_run_dir = on.then(|| self.testbed.work_dir.join("rehearsal"));
        if let Some(dir) = &self.dry_run_dir {
            // One that cannot be made fails the first that writes there, with its name.
            let _ = std::fs::create_dir_all(dir);
        }
    }

    fn write_trial(&mut self, line: TrialLine) {
        if self.dry_run_dir.is_none() {
            self.recorder.record_trial(line);
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
        if self.dry_run_dir.is_none() {
            self.recorder.record_latency(arm, trial, begin_us, width_us, of);
        }
    }

    fn write_cut(&mut self, reason: &str) {
        let cut = toll_record::Cut { mono_us: clock::mono_us(), reason: redact::redact_text(reason) };
        self.recorder.record_sample(Sample::Cut(cut));
    }
}

impl Ui for HostEnv<'_> {
    fn print_line(&self, text: &str) {
        self.progress.print_line(text);
    }

    fn show_precision(&self, finds_pct: f64) {
        self.progress.show_mde(finds_pct);
    }

    fn show_trial(&self, place: TrialParams, arm: &str) {
        self.progress.begin_trial(place.round, place.trial, arm);
    }
}

impl Environment for HostEnv<'_> {
    fn load(&mut self) -> Option<&mut dyn LoadControl> {
        Some(self)
    }

    fn meter(&mut self) -> Option<&mut dyn Meter> {
        self.meter.as_mut().map(|meter| meter as &mut dyn Meter)
    }

    fn guard(&mut self) -> Option<&mut dyn Guard> {
        for live in &self.guards.live {
            live.set_written(self.written_before + self.treatment.artefact_bytes().unwrap_or(0));
        }
        Some(&mut self.guards)
    }
}
