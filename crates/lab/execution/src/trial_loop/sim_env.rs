//! Simulated environment: host, load and treatments on a clock that moves only when somebody waits.

use super::StaysOn;
use super::clock::Clock;
use super::environment::Environment;
use super::host_probe::HostProbe;
use super::load::LoadControl;
use super::meter::Meter;
use super::run_log::RunLog;
use super::treatments::{SwitchOffReport, TreatmentControl};
use super::trial::{ClosedWindow, TrialParams};
use super::ui::Ui;
use super::writeback::WritebackBarrier;
use crate::guard::{Guard, Tripped};
use crate::treatment::{KernelNotRestored, PauseGuard, Reading};
use crate::workload::{LiveLoad, WindowLoad};
use anyhow::{anyhow, bail};
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::time::Duration;
use toll_record::{Arm, Bin, Cpu, Meter as Counts, ProcessEnd, Stage, Step, TrialLine};

pub const BIN_US: u64 = 100_000;
/// Statements a second of the simulated load.
pub const RATE: u64 = 1_000;

/// What is to go wrong, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    None,
    /// The treatment of this arm fails: to come on, to stay on (after so many us), to go off.
    Start(&'static str),
    Dies(&'static str, u64),
    StaysOn(&'static str),
    KernelStaysOn(&'static str),
    /// The load fails to start, or its meter falls silent, with this arm.
    NoLoad(&'static str),
    Silent(&'static str),
    /// A signal arrives at this moment.
    Interrupt(u64),
    /// The server is another process when it is looked at for the so many-th time.
    Restart(u32),
}

/// Environment in which time passes only when somebody waits.
pub struct SimEnv {
    pub now_us: Cell<u64>,
    fault: Fault,
    has_load: bool,
    meter: Option<SimMeter>,
    /// Arm whose treatment is on, since when, and whether its members last.
    pub on: Option<(String, u64)>,
    /// How long each arm's processes take, microseconds; those of others last.
    pub takes: Vec<(&'static str, u64)>,
    /// Arms whose load slows by a fifth while they come on, for so many microseconds.
    pub slow: Vec<(&'static str, u64)>,
    /// Since when which arm was on, and until when.
    ons: Vec<(String, u64, u64)>,
    /// What counting an arm's artefact takes, microseconds.
    pub counts_for_us: u64,
    /// Bytes that are unwritten at a moment.
    pub unwritten: fn(u64) -> u64,
    pub barrier: Option<WritebackBarrier>,
    pub guard: Option<TripAt>,
    not_put_back: bool,
    looked_at_server: u32,
    rehearsing: bool,
    pub lines: Vec<TrialLine>,
    pub cuts: Vec<String>,
    /// What the user was shown of the run's precision, percent.
    pub shown: RefCell<Vec<f64>>,
    /// What was done, in order.
    pub done: Vec<String>,
}

/// Guard that trips at a moment.
pub struct TripAt {
    pub moment_us: u64,
    /// When it was asked.
    pub asked_us: Vec<u64>,
}

impl TripAt {
    pub fn new(moment_us: u64) -> Self {
        Self { moment_us, asked_us: Vec::new() }
    }
}

impl Guard for TripAt {
    fn check(&mut self, now_us: u64) -> Result<(), Tripped> {
        self.asked_us.push(now_us);
        if now_us < self.moment_us { Ok(()) } else { Err(Tripped { reason: "too slow".into() }) }
    }
}

pub struct SimMeter {
    arm: String,
    silent: bool,
    window: Option<(u64, u64)>,
    now_us: u64,
    /// When the load was slowed, from, until.
    slowed: Vec<(u64, u64)>,
}

impl SimEnv {
    pub fn new(fault: Fault) -> Self {
        Self {
            now_us: Cell::new(1_000_030),
            fault,
            has_load: true,
            meter: None,
            on: None,
            takes: Vec::new(),
            slow: Vec::new(),
            ons: Vec::new(),
            counts_for_us: 0,
            unwritten: |_| 0,
            barrier: None,
            guard: None,
            not_put_back: false,
            looked_at_server: 0,
            rehearsing: false,
            lines: Vec::new(),
            cuts: Vec::new(),
            shown: RefCell::default(),
            done: Vec::new(),
        }
    }

    /// No load to start or stop; users of their own keep a counter busy where `counts`.
    pub fn without_load(counts: bool) -> Self {
        let meter = counts.then(|| SimMeter::of("users", false, 0));
        Self { has_load: false, meter, ..Self::new(Fault::None) }
    }

    pub fn steps(&self, trial: u32) -> Vec<Step> {
        self.lines.iter().filter(|line| line.trial == trial).map(|line| line.step).collect()
    }

    pub fn windows(&self) -> Vec<(&str, u64, u64)> {
        let ends = self.lines.iter().filter(|line| line.step == Step::WindowEnd);
        ends.filter_map(|end| {
            let is_its = |line: &&TrialLine| line.trial == end.trial && line.step == Step::WindowBegin;
            let begin = self.lines.iter().find(is_its)?;
            Some((end.arm.as_str(), begin.mono_us, end.mono_us))
        })
        .collect()
    }
}

impl Clock for SimEnv {
    fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    fn wall_us(&self) -> u64 {
        self.now_us.get() + 7
    }

    fn is_interrupted(&self) -> bool {
        matches!(self.fault, Fault::Interrupt(at) if self.now_us.get() >= at)
    }

    fn sleep_until(&self, moment_us: u64) -> bool {
        let until = match self.fault {
            Fault::Interrupt(at) => moment_us.min(at),
            _ => moment_us,
        };
        self.now_us.set(self.now_us.get().max(until));
        !self.is_interrupted()
    }
}

impl LoadControl for SimEnv {
    fn ensure_load(&mut self, arm: &Arm, fresh: bool) -> anyhow::Result<()> {
        if self.fault == Fault::NoLoad(name_of(arm)) {
            bail!("the driver delivers nothing");
        }
        let silent = self.fault == Fault::Silent(name_of(arm));
        self.done.push(format!("load {}{}", arm.name, if fresh { " anew" } else { "" }));
        self.meter = (arm.meter != Counts::None).then(|| SimMeter::of(&arm.name, silent, self.now_us.get()));
        Ok(())
    }

    fn stop_load(&mut self) -> anyhow::Result<()> {
        self.done.push("stop load".into());
        self.meter = None;
        Ok(())
    }

    fn pause_load(&mut self) -> Option<PauseGuard> {
        None
    }
}

impl TreatmentControl for SimEnv {
    fn switch_on(&mut self, arm: &Arm, trial: u32, lasts_s: f64) -> anyhow::Result<()> {
        assert!(self.on.is_none(), "{} while {:?} is on", arm.name, self.on);
        assert!(lasts_s >= arm.window.at_most_s());
        let tripped = self.guard.as_ref().is_some_and(|guard| guard.moment_us <= self.now_us.get());
        assert!(!tripped, "{} goes on after the guard has tripped", arm.name);
        if self.fault == Fault::Start(name_of(arm)) {
            bail!("no such tool");
        }
        self.now_us.set(self.now_us.get() + 12_345);
        self.done.push(format!("on {} {trial}", arm.name));
        self.on = Some((arm.name.clone(), self.now_us.get()));
        Ok(())
    }

    fn poll_treatment(&mut self, arm: &Arm, may_end: bool) -> anyhow::Result<bool> {
        let (on, since_us) = self.on.clone().expect("looked at a treatment that is off");
        assert_eq!(on, arm.name);
        let lived_us = self.now_us.get() - since_us;
        if matches!(self.fault, Fault::Dies(name, after_us) if name == on && lived_us >= after_us) {
            bail!("member 2 failed");
        }
        let takes = self.takes.iter().find(|(name, _)| *name == on);
        let ended = takes.is_some_and(|(_, us)| lived_us >= *us);
        if ended && !may_end {
            bail!("it ended by itself");
        }
        Ok(ended)
    }

    fn drain_runs(&mut self) -> (u32, u64) {
        match &self.on {
            Some((_, since_us)) => (1, self.now_us.get() - since_us),
            None => (0, 0),
        }
    }

    fn read_counters(&mut self, _arm: &Arm) -> (Cpu, Reading) {
        (Cpu { host_busy_us: self.now_us.get(), ..Cpu::default() }, Reading::default())
    }

    fn switch_off(&mut self, arm: &Arm) -> SwitchOffReport {
        let Some((on, since_us)) = self.on.take() else { return SwitchOffReport::default() };
        self.done.push(format!("off {on}"));
        self.ons.push((on.clone(), since_us, self.now_us.get()));
        let not_put_back = match self.fault {
            Fault::StaysOn(name) if name == arm.name => {
                self.not_put_back = true;
                Some(anyhow!("the server is gone").context(StaysOn))
            }
            Fault::KernelStaysOn(name) if name == arm.name => {
                Some(anyhow!(KernelNotRestored).context(StaysOn))
            }
            _ => None,
        };
        let end = ProcessEnd {
            name: on,
            begin_mono_us: since_us,
            end_mono_us: self.now_us.get(),
            exit: Some(0),
            signal: None,
            cpu_us: 1,
            memory_peak_bytes: None,
            waited_cpu_us: None,
            waited_io_us: None,
            waited_memory_us: None,
            read_bytes: None,
            written_bytes: None,
            output_bytes: None,
            sent: None,
            packets: None,
        };
        SwitchOffReport { notes: Vec::new(), processes: vec![end], restore_error: not_put_back }
    }

    fn packet_stages(&mut self, arm: &Arm, _processes: &[ProcessEnd]) -> Vec<Stage> {
        assert!(self.on.is_none(), "{} is counted while it is on", arm.name);
        Vec::new()
    }

    fn restore_settings(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.not_put_back, "the server is gone still");
        Ok(())
    }

    fn count_artefact(&mut self, arm: &Arm, _place: TrialParams, window: Option<&ClosedWindow>) {
        assert!(self.on.is_none(), "counted while it is on");
        self.now_us.set(self.now_us.get() + self.counts_for_us);
        self.done.push(format!("{} {}", if window.is_some() { "count" } else { "discard" }, arm.name));
    }

    fn wants_cross_check(&self, arm: &Arm) -> bool {
        arm.artefact.is_some()
    }

    fn set_cross_check(&mut self, on: bool) {
        self.rehearsing = on;
    }
}

impl HostProbe for SimEnv {
    fn unwritten_bytes(&self) -> u64 {
        (self.unwritten)(self.now_us.get())
    }

    fn writeback_barrier(&self) -> Option<WritebackBarrier> {
        self.barrier
    }

    fn set_writeback_barrier(&mut self, barrier: Option<WritebackBarrier>) {
        self.barrier = barrier;
    }

    fn server_restarted(&mut self) -> anyhow::Result<bool> {
        self.looked_at_server += 1;
        Ok(self.fault == Fault::Restart(self.looked_at_server))
    }
}

impl RunLog for SimEnv {
    fn set_dry_run(&mut self, on: bool) {
        self.rehearsing = on;
    }

    fn write_trial(&mut self, line: TrialLine) {
        if !self.rehearsing {
            self.lines.push(line);
        }
    }

    fn write_latency(&mut self, _: &str, _: u32, _: u64, _: u64, _: Box<Histogram<u64>>) {}

    fn write_cut(&mut self, reason: &str) {
        self.cuts.push(reason.to_owned());
    }
}

impl Ui for SimEnv {
    fn print_line(&self, _text: &str) {}

    fn show_precision(&self, finds_pct: f64) {
        self.shown.borrow_mut().push(finds_pct);
    }

    fn show_trial(&self, _place: TrialParams, _arm: &str) {}
}

impl Environment for SimEnv {
    fn load(&mut self) -> Option<&mut dyn LoadControl> {
        self.has_load.then_some(self as &mut dyn LoadControl)
    }

    fn meter(&mut self) -> Option<&mut dyn Meter> {
        let now_us = self.now_us.get();
        let slowed_for = |arm: &str| self.slow.iter().find(|(name, _)| *name == arm).map_or(0, |slow| slow.1);
        let on = self.on.iter().map(|(arm, since_us)| (arm.clone(), *since_us, now_us));
        let slowed = self.ons.iter().cloned().chain(on);
        let slowed =
            slowed.map(|(arm, since_us, until_us)| (since_us, until_us.min(since_us + slowed_for(&arm))));
        let slowed = slowed.collect();
        let meter = self.meter.as_mut()?;
        meter.now_us = now_us;
        meter.slowed = slowed;
        Some(meter)
    }

    fn guard(&mut self) -> Option<&mut dyn Guard> {
        self.guard.as_mut().map(|guard| guard as &mut dyn Guard)
    }
}

impl SimMeter {
    fn of(arm: &str, silent: bool, now_us: u64) -> Self {
        Self { arm: arm.to_owned(), silent, window: None, now_us, slowed: Vec::new() }
    }
}

impl Meter for SimMeter {
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn live(&self) -> Option<LiveLoad> {
        None
    }

    fn bin_width_us(&self) -> u64 {
        BIN_US
    }

    fn bins_since(&self, moment_us: u64) -> Vec<Bin> {
        let first = moment_us.div_ceil(BIN_US) + 1;
        let bin = |i: u64| {
            let middle = i * BIN_US - BIN_US / 2;
            let is_slowed = self.slowed.iter().any(|(from, until)| middle >= *from && middle < *until);
            // A hundredth up and down, by no pattern that a window could average out.
            let wobble = ((i * 2_654_435_761) >> 7) % 11;
            let mean_us = if is_slowed { 625 } else { 500 } + wobble - 5;
            Bin {
                mono_us: i * BIN_US,
                width_us: BIN_US,
                // Slowed by a tenth and by a fifth in turn.
                statements: if is_slowed { RATE / 10 * (8 + i % 2) / 10 } else { RATE / 10 },
                events: RATE / 10,
                errors: 0,
                latency_us_sum: mean_us * RATE / 10,
                latency_us_max: None,
                in_flight: 0,
                oldest_us: 0,
                errors_by_code: Default::default(),
            }
        };
        (first..=self.now_us / BIN_US).map(bin).collect()
    }

    fn edge_at_or_after(&self, moment_us: u64) -> u64 {
        moment_us.div_ceil(BIN_US) * BIN_US
    }

    fn open_window(&mut self, begin_us: u64, end_us: u64) {
        assert!(begin_us >= self.now_us, "a window of {} that has begun already", self.arm);
        self.window = Some((begin_us, end_us));
    }

    fn window_counts(&self) -> (u64, u64) {
        let Some((begin_us, _)) = self.window else { return (0, 0) };
        let bins = self.now_us.saturating_sub(begin_us) / BIN_US;
        (bins * RATE * BIN_US / 1_000_000, bins)
    }

    fn close_early(&mut self, edge_us: u64) -> u64 {
        let window = self.window.as_mut().expect("a window is open");
        window.1 = edge_us.min(window.1);
        window.1
    }

    fn close_window(&mut self, _within: Duration) -> Option<WindowLoad> {
        let (begin_us, end_us) = self.window.take()?;
        let statements = (end_us - begin_us) * RATE / 1_000_000;
        let load = WindowLoad {
            statements,
            events: statements,
            latency_us_sum: 500 * statements,
            ..WindowLoad::default()
        };
        (!self.silent).then_some(load)
    }
}

fn name_of(arm: &Arm) -> &'static str {
    ["none", "tool", "dump", "count"].into_iter().find(|name| *name == arm.name).unwrap_or("other")
}
