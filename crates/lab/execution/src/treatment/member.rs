//! One process of a treatment, from its start to its end, with restarts.

use super::Bench;
use super::artefact::ArtefactFile;
use super::process::{Group, Place, signal};
use super::usage::Written;
use super::words::{packet_counts, sent};
use crate::stage::rig::FarEnd;
use anyhow::Context;
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::time::Duration;
use toll_model::fill::Fill;
use toll_record::{PacketCounts, Process, ProcessEnd};
use toll_sys::clock;

/// A process (or pipeline) of the plan with every placeholder filled in.
#[derive(Debug)]
pub struct Member {
    name: String,
    stages: Vec<Vec<String>>,
    stdout: Option<PathBuf>,
    ready: Option<String>,
    stop: Signal,
    probe: Option<Signal>,
    env: Vec<String>,
    stem: String,
    /// Restarted whenever it has ended.
    again: bool,
    /// Runs as long as the other processes.
    background: bool,
    /// Runs at the far end of a link.
    far: bool,
    /// Time without output before it is ended.
    drain: Duration,
    keep_stdout: bool,
    /// Start time on the monotonic clock. Absent once it was started.
    due_us: Option<u64>,
    group: Option<Group>,
    has_ended: bool,
    /// CPU time of the earlier runs, microseconds.
    earlier_cpu_us: u64,
    earlier_written: Vec<Written>,
    begun_us: u64,
    runs: Runs,
}

/// Runs of a process that ended by themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Runs {
    pub count: u32,
    /// Duration of all together, microseconds.
    pub took_us: u64,
    /// Begin of the last one.
    pub begun_us: u64,
    pub ended_us: u64,
}

/// Time limit for a tool to report that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(10);

impl Member {
    pub fn new(
        process: &Process,
        again: bool,
        fill: &Fill,
        stem: &str,
        far_end: Option<&FarEnd>,
    ) -> anyhow::Result<Self> {
        let enter = match (process.far, far_end) {
            (false, _) => Vec::new(),
            (true, far_end) => far_end.context("the rig has no far end")?.enter(),
        };
        let filled = |words: &Vec<String>| -> anyhow::Result<Vec<String>> {
            let words = words.iter().map(|word| fill.apply(word)).collect::<anyhow::Result<Vec<_>>>()?;
            Ok([enter.clone(), words].concat())
        };
        // A name is a file's and a control group's too.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        Ok(Self {
            name: process.name.clone(),
            stages: process.stages.iter().map(filled).collect::<anyhow::Result<_>>()?,
            stdout: process.stdout.as_deref().map(|path| fill.apply(path)).transpose()?.map(PathBuf::from),
            ready: process.ready.clone(),
            stop: signal(process.stop),
            probe: process.probe.map(signal),
            env: process.env.clone(),
            stem: format!("{stem}.{}", process.name.chars().map(plain).collect::<String>()),
            again: again && !process.background,
            background: process.background,
            far: process.far,
            drain: Duration::try_from_secs_f64(process.drain_s).unwrap_or_default(),
            keep_stdout: process.keep_stdout,
            due_us: Some(clock::mono_us() + (process.after_s * 1e6) as u64),
            group: None,
            has_ended: false,
            earlier_cpu_us: 0,
            earlier_written: Vec::new(),
            begun_us: 0,
            runs: Runs::default(),
        })
    }

    pub fn start_if_due(&mut self, bench: &Bench<'_>) -> anyhow::Result<()> {
        if self.due_us.is_none_or(|due_us| clock::mono_us() < due_us) {
            return Ok(());
        }
        self.due_us = None;
        self.spawn(bench)?;
        match (&self.ready, &mut self.group) {
            (Some(text), Some(group)) => group.wait_until_it_says(text, READY_WITHIN),
            _ => Ok(()),
        }
    }

    fn spawn(&mut self, bench: &Bench<'_>) -> anyhow::Result<()> {
        self.begun_us = clock::mono_us();
        if self.keep_stdout {
            self.stdout = Some(bench.dir.join(format!("{}.stdout", self.stem)));
        }
        let stdout = self.stdout.as_deref();
        let place = if self.far { Place::Far } else { Place::Here };
        let group = Group::spawn(&self.stages, stdout, self.stop, &self.stem, &self.env, place, bench)?;
        self.group = Some(group);
        Ok(())
    }

    /// Starts it if due, and restarts it if it has ended and should run again, with an empty `artefact`.
    ///
    /// True if it has ended for good, by itself and with success.
    ///
    /// # Errors
    /// The process failed.
    pub fn look(&mut self, artefact: Option<&mut ArtefactFile>, bench: &Bench<'_>) -> anyhow::Result<bool> {
        self.start_if_due(bench)?;
        let Some(group) = &mut self.group else { return Ok(self.background) };
        if self.background {
            group.look_now_and_then();
            group.check_alive()?;
            return Ok(true);
        }
        if self.has_ended {
            return Ok(true);
        }
        group.look_now_and_then();
        if !group.has_ended()? {
            return Ok(false);
        }
        let ended_us = clock::mono_us();
        self.runs.count += 1;
        self.runs.took_us += ended_us.saturating_sub(self.begun_us);
        (self.runs.begun_us, self.runs.ended_us) = (self.begun_us, ended_us);
        if self.again {
            group.finish(bench.journal, None);
            self.earlier_cpu_us += group.cpu_us();
            self.earlier_written.extend(group.take_written());
            artefact.map_or(Ok(()), ArtefactFile::begin_anew)?;
            self.spawn(bench)?;
            return Ok(false);
        }
        self.has_ended = true;
        Ok(true)
    }

    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        self.group.as_mut().map_or(Ok(()), Group::check_alive)
    }

    /// Runs since the last call.
    pub fn take_runs(&mut self) -> Runs {
        std::mem::take(&mut self.runs)
    }

    /// Output since the last call, under the process's name.
    pub fn take_written(&mut self) -> Option<(&str, Vec<Written>)> {
        let mut written = std::mem::take(&mut self.earlier_written);
        written.extend(self.group.as_mut()?.take_written());
        (!written.is_empty()).then_some((self.name.as_str(), written))
    }

    pub fn is_again(&self) -> bool {
        self.again
    }

    pub fn is_far(&self) -> bool {
        self.far
    }

    pub fn is_background(&self) -> bool {
        self.background
    }

    pub fn probe(&mut self) -> Option<PacketCounts> {
        let signal = self.probe?;
        self.group.as_mut()?.probe(signal)
    }

    pub fn packets(&self) -> Option<PacketCounts> {
        packet_counts(&self.said()?)
    }

    /// Its messages, on whichever stream it prints them.
    fn said(&self) -> Option<String> {
        let group = self.group.as_ref()?;
        let on_stdout = if self.keep_stdout { group.said_on_stdout() } else { String::new() };
        Some(group.said() + &on_stdout)
    }

    pub fn drains(&self) -> bool {
        !self.drain.is_zero()
    }

    /// Waits until it has written everything that it has received.
    pub fn drain(&mut self) {
        if let Some(group) = &mut self.group {
            group.drain(self.drain);
        }
    }

    pub fn cpu_us(&self) -> u64 {
        self.earlier_cpu_us + self.group.as_ref().map_or(0, Group::cpu_us)
    }

    pub fn ask_to_end(&mut self) {
        self.due_us = None;
        if let Some(group) = &mut self.group {
            group.ask_to_end();
        }
    }

    /// Waits for its end. Returns unusual events.
    pub fn finish(&mut self, bench: &Bench<'_>) -> Vec<String> {
        self.group.as_mut().map_or_else(Vec::new, |group| group.finish(bench.journal, bench.load).notes())
    }

    /// Summary of the ended process. `None` if it was never started.
    pub fn end(&self) -> Option<ProcessEnd> {
        let end = self.group.as_ref()?.end(&self.name);
        let said = self.said()?;
        Some(ProcessEnd {
            cpu_us: end.cpu_us + self.earlier_cpu_us,
            sent: sent(&said),
            packets: packet_counts(&said),
            ..end
        })
    }
}
