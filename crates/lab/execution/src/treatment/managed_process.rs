//! One process of a treatment, from its start to its end, with restarts.

use super::artefact::ArtefactFile;
use super::process_group::{ProcessGroup, ProcessHost, to_signal};
use super::remote_host::RemoteHost;
use super::tool_output::{parse_packet_counts, parse_sent};
use super::usage::WriteSample;
use super::{START_TIMEOUT, TreatmentContext};
use anyhow::Context;
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::time::Duration;
use toll_model::placeholders::PlaceholderValues;
use toll_record::{PacketCounts, Process, ProcessEnd};
use toll_sys::clock;

/// A process (or pipeline) of the plan with every placeholder filled in.
#[derive(Debug)]
pub struct ManagedProcess {
    name: String,
    stages: Vec<Vec<String>>,
    stdout: Option<PathBuf>,
    ready: Option<String>,
    stop: Signal,
    probe: Option<Signal>,
    env: Vec<String>,
    stem: String,
    /// Restarted whenever it has ended.
    repeats: bool,
    /// Runs as long as the other processes.
    background: bool,
    /// Runs at the far end of a link.
    far: bool,
    /// Time without output before it is ended.
    drain: Duration,
    keep_stdout: bool,
    /// Start time on the monotonic clock. Absent once it was started.
    due_us: Option<u64>,
    group: Option<ProcessGroup>,
    has_ended: bool,
    /// CPU time of the earlier runs, microseconds.
    earlier_cpu_us: u64,
    earlier_writes: Vec<WriteSample>,
    begun_us: u64,
    runs: Runs,
}

/// Runs of a process that ended by themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Runs {
    pub count: u32,
    /// Duration of all together, microseconds.
    pub duration_us: u64,
    /// Begin of the last one.
    pub begun_us: u64,
    pub ended_us: u64,
}

impl ManagedProcess {
    pub fn new(
        process: &Process,
        again: bool,
        placeholders: &PlaceholderValues,
        stem: &str,
        far_end: Option<&dyn RemoteHost>,
    ) -> anyhow::Result<Self> {
        let enter = match (process.far, far_end) {
            (false, _) => Vec::new(),
            (true, far_end) => far_end.context("the rig has no far end")?.enter_command(),
        };
        let filled = |words: &Vec<String>| -> anyhow::Result<Vec<String>> {
            let words =
                words.iter().map(|word| placeholders.fill_in(word)).collect::<anyhow::Result<Vec<_>>>()?;
            Ok([enter.clone(), words].concat())
        };
        // A name is a file's and a control group's too.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        Ok(Self {
            name: process.name.clone(),
            stages: process.stages.iter().map(filled).collect::<anyhow::Result<_>>()?,
            stdout: process
                .stdout
                .as_deref()
                .map(|path| placeholders.fill_in(path))
                .transpose()?
                .map(PathBuf::from),
            ready: process.ready.clone(),
            stop: to_signal(process.stop),
            probe: process.probe.map(to_signal),
            env: process.env.clone(),
            stem: format!("{stem}.{}", process.name.chars().map(plain).collect::<String>()),
            repeats: again && !process.background,
            background: process.background,
            far: process.far,
            drain: Duration::try_from_secs_f64(process.drain_s).unwrap_or_default(),
            keep_stdout: process.keep_stdout,
            due_us: Some(clock::mono_us() + (process.after_s * 1e6) as u64),
            group: None,
            has_ended: false,
            earlier_cpu_us: 0,
            earlier_writes: Vec::new(),
            begun_us: 0,
            runs: Runs::default(),
        })
    }

    pub fn start_if_due(&mut self, context: &TreatmentContext<'_>) -> anyhow::Result<()> {
        if self.due_us.is_none_or(|due_us| clock::mono_us() < due_us) {
            return Ok(());
        }
        self.due_us = None;
        self.spawn(context)?;
        match (&self.ready, &mut self.group) {
            (Some(text), Some(group)) => group.wait_for_output(text, START_TIMEOUT),
            _ => Ok(()),
        }
    }

    fn spawn(&mut self, context: &TreatmentContext<'_>) -> anyhow::Result<()> {
        self.begun_us = clock::mono_us();
        if self.keep_stdout {
            self.stdout = Some(context.dir.join(format!("{}.stdout", self.stem)));
        }
        let stdout = self.stdout.as_deref();
        let place = if self.far { ProcessHost::FarEnd } else { ProcessHost::Local };
        let group =
            ProcessGroup::spawn(&self.stages, stdout, self.stop, &self.stem, &self.env, place, context)?;
        self.group = Some(group);
        Ok(())
    }

    /// Starts it if due, and restarts it if it has ended and should run again, with an empty `artefact`.
    ///
    /// True if it has ended for good, by itself and with success.
    ///
    /// # Errors
    /// The process failed.
    pub fn poll(
        &mut self,
        artefact: Option<&mut ArtefactFile>,
        context: &TreatmentContext<'_>,
    ) -> anyhow::Result<bool> {
        self.start_if_due(context)?;
        let Some(group) = &mut self.group else { return Ok(self.background) };
        if self.background {
            group.poll_if_due();
            group.check_alive()?;
            return Ok(true);
        }
        if self.has_ended {
            return Ok(true);
        }
        group.poll_if_due();
        if !group.has_ended()? {
            return Ok(false);
        }
        let ended_us = clock::mono_us();
        self.runs.count += 1;
        self.runs.duration_us += ended_us.saturating_sub(self.begun_us);
        (self.runs.begun_us, self.runs.ended_us) = (self.begun_us, ended_us);
        if self.repeats {
            group.finish(context.journal, None);
            self.earlier_cpu_us += group.cpu_us();
            self.earlier_writes.extend(group.drain_writes());
            artefact.map_or(Ok(()), ArtefactFile::reset)?;
            self.spawn(context)?;
            return Ok(false);
        }
        self.has_ended = true;
        Ok(true)
    }

    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        self.group.as_mut().map_or(Ok(()), ProcessGroup::check_alive)
    }

    /// Runs since the last call.
    pub fn drain_runs(&mut self) -> Runs {
        std::mem::take(&mut self.runs)
    }

    /// Output since the last call, under the process's name.
    pub fn drain_writes(&mut self) -> Option<(&str, Vec<WriteSample>)> {
        let mut written = std::mem::take(&mut self.earlier_writes);
        written.extend(self.group.as_mut()?.drain_writes());
        (!written.is_empty()).then_some((self.name.as_str(), written))
    }

    pub fn is_repeated(&self) -> bool {
        self.repeats
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
        parse_packet_counts(&self.output_text()?)
    }

    /// Its messages, on whichever stream it prints them.
    fn output_text(&self) -> Option<String> {
        let group = self.group.as_ref()?;
        let on_stdout = if self.keep_stdout { group.stdout_text() } else { String::new() };
        Some(group.stderr_text() + &on_stdout)
    }

    pub fn has_drain(&self) -> bool {
        !self.drain.is_zero()
    }

    /// Waits until it has written everything that it has received.
    pub fn drain(&mut self) {
        if let Some(group) = &mut self.group {
            group.drain(self.drain);
        }
    }

    pub fn cpu_us(&self) -> u64 {
        self.earlier_cpu_us + self.group.as_ref().map_or(0, ProcessGroup::cpu_us)
    }

    pub fn request_stop(&mut self) {
        self.due_us = None;
        if let Some(group) = &mut self.group {
            group.request_stop();
        }
    }

    /// Waits for its end. Returns unusual events.
    pub fn finish(&mut self, context: &TreatmentContext<'_>) -> Vec<String> {
        self.group.as_mut().map_or_else(Vec::new, |group| group.finish(context.journal, context.load).notes())
    }

    /// Summary of the ended process. `None` if it was never started.
    pub fn process_end(&self) -> Option<ProcessEnd> {
        let end = self.group.as_ref()?.process_end(&self.name);
        let said = self.output_text()?;
        Some(ProcessEnd {
            cpu_us: end.cpu_us + self.earlier_cpu_us,
            sent: parse_sent(&said),
            packets: parse_packet_counts(&said),
            ..end
        })
    }
}
