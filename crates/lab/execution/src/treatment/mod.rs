//! Treatment of an arm: switched on, polled and switched off.
//!
//! An arm may be nothing, statements, a server's log, one process or a set of them. All look alike to the
//! trial loop: a [`Treatment`] that starts, reports its state, and always stops.

mod artefact;
mod cgroup_entry;
mod kernel_settings;
mod managed_process;
mod pause;
mod process_group;
mod proctree;
mod remote_host;
mod statements;
mod tool_output;
mod usage;

pub use artefact::LogDirectory;
pub use kernel_settings::KernelNotRestored;
pub use pause::{PausableLoad, PauseGuard};
pub use process_group::{ProcessGroup, ProcessHost};
pub use proctree::{cpu_of_process_us, resident_bytes};
pub use remote_host::RemoteHost;
pub use statements::{AdminSession, AppliedSettings, RestoreError};

use anyhow::Context;
use artefact::ArtefactFile;
use kernel_settings::AppliedKernelSettings;
use managed_process::ManagedProcess;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toll_journal::Journal;
use toll_model::artefacts::{self, Shape, Writer};
use toll_model::placeholders::PlaceholderValues;
use toll_record::{Arm, OutputSample, PacketCounts, ProcessEnd};
use toll_sys::cancel::CancelToken;

/// Directory in memory (tmpfs, on every Linux with POSIX shared memory).
const TMPFS_DIR: &str = "/dev/shm";

/// Time limit for a program to begin, and for a tool to report that it is ready: hosts are busy when they are measured.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Context of a running treatment.
pub struct TreatmentContext<'a> {
    /// Absent if there is no server.
    pub admin: Option<&'a mut AdminSession>,
    pub journal: &'a Journal,
    pub cancel: &'a CancelToken,
    pub far_end: Option<&'a dyn RemoteHost>,
    /// Directory in which the server may write a log.
    pub logs: Option<&'a LogDirectory>,
    /// The load, if it may be paused while the treatment is switched.
    pub load: Option<PausableLoad>,
    /// The run's control group, if one could be made.
    pub cgroup: Option<&'a Path>,
    /// Further groups that a process on this host enters.
    pub limits: &'a [PathBuf],
    /// Directory of artefacts and of the tools' output.
    pub dir: &'a Path,
}

impl TreatmentContext<'_> {
    /// The session for statements.
    fn admin(&mut self) -> anyhow::Result<&mut AdminSession> {
        self.admin.as_deref_mut().context("statements need a server, and this run has none")
    }
}

/// A treatment that is on.
#[derive(Debug, Default)]
pub struct Treatment {
    /// The trial in which it is on.
    trial: u32,
    processes: Vec<ManagedProcess>,
    far_end: Option<ProcessGroup>,
    /// True if the link to the far end has another rate than the rig's.
    link_reshaped: bool,
    applied_settings: Option<AppliedSettings>,
    kernel_settings: Option<AppliedKernelSettings>,
    count_query: Option<String>,
    artefact: Option<ArtefactFile>,
    /// Name of the artefact in the run.
    artefact_name: Option<String>,
}

/// Counters at a window's begin or end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    pub artefact_bytes: Option<u64>,
    pub packets: Option<PacketCounts>,
    /// The server's own count, for treatments without a file.
    pub server_count: Option<u64>,
}

/// Result of switching a treatment off.
#[derive(Debug, Default)]
pub struct StopResult {
    /// Unusual events.
    pub notes: Vec<String>,
    pub processes: Vec<ProcessEnd>,
    /// Server settings that could not be restored: nothing can be measured on this server any more.
    pub restore_error: Option<RestoreError>,
    /// Kernel settings that could not be restored; they stay in the journal.
    pub kernel_restore_error: Option<anyhow::Error>,
}

impl Treatment {
    /// Switches the arm on. Returns once it reports that it is on.
    ///
    /// # Errors
    /// A process, a setting or a statement failed, and the arm was switched off again. An error of that restore has
    /// precedence.
    pub fn start(
        arm: &Arm,
        placeholders: &PlaceholderValues,
        trial: u32,
        context: &mut TreatmentContext<'_>,
    ) -> anyhow::Result<Self> {
        let _pause = context.load.map(PausableLoad::pause_if_slow);
        let stem = format!("{}-{trial}", arm.name);
        let row = arm.artefact.map(artefacts::spec_of).filter(|row| row.shape != Shape::None);
        let name = row.map(|row| format!("{stem}.{}", row.extension));
        let artefact = match (&name, row) {
            (Some(name), Some(row)) if row.writer == Writer::Server => {
                let place = context.logs.context("the server has no log directory that toll can read")?;
                Some(place.create_log(&format!("{}-{name}", context.journal.run_id()), context.journal)?)
            }
            (Some(name), Some(row)) => {
                let place = if arm.in_memory { Path::new(TMPFS_DIR) } else { context.dir };
                Some(ArtefactFile::for_tool(place, name, row.shape, context.journal)?)
            }
            _ => None,
        };
        let mut placeholders = placeholders.clone();
        if let Some(artefact) = &artefact {
            placeholders.set("artefact", artefact.writer_path.display().to_string());
        }
        let count = arm.treatment.count.clone();
        let mut treatment =
            Self { trial, count_query: count, artefact, artefact_name: name, ..Self::default() };
        match treatment.switch_on(arm, &mut placeholders, &stem, context) {
            Ok(()) => Ok(treatment),
            Err(error) => {
                let stopped = treatment.stop(context);
                treatment.discard_artefact(context.journal);
                // That it stays on weighs more than that it did not come on.
                let stays = stopped.restore_error.map(anyhow::Error::new).or(stopped.kernel_restore_error);
                Err(stays.unwrap_or(error))
            }
        }
    }

    fn switch_on(
        &mut self,
        arm: &Arm,
        placeholders: &mut PlaceholderValues,
        stem: &str,
        context: &mut TreatmentContext<'_>,
    ) -> anyhow::Result<()> {
        if let Some(port) = arm.treatment.remote_port {
            let remote = context.far_end.context("the rig has no far end")?;
            let far_file = self.artefact_path().context("a remote needs an artefact to write")?.to_owned();
            self.far_end = Some(remote.listen(port, &far_file, stem, context)?);
            placeholders.set("remote_ip", remote.ip().to_string());
            placeholders.set("remote_port", port.to_string());
        }
        if let Some(rate) = &arm.treatment.far_rate {
            context.far_end.context("the rig has no far end")?.shape(Some(rate))?;
            self.link_reshaped = true;
        }
        if !arm.treatment.sysctl.is_empty() {
            self.kernel_settings =
                Some(AppliedKernelSettings::switch_on(&arm.treatment.sysctl, context.journal)?);
        }
        if arm.treatment.has_statements() {
            let journal = context.journal;
            self.applied_settings = Some(context.admin()?.switch_on(arm, placeholders, journal)?);
        }
        for process in &arm.treatment.processes {
            self.processes.push(ManagedProcess::new(
                process,
                arm.treatment.again,
                placeholders,
                stem,
                context.far_end,
            )?);
        }
        self.processes.iter_mut().try_for_each(|member| member.start_if_due(context))
    }

    /// Starts what is due, polls what runs, and restarts ended processes if the arm says so.
    ///
    /// True if all processes have ended with success.
    ///
    /// # Errors
    /// A process failed.
    pub fn poll(&mut self, context: &TreatmentContext<'_>) -> anyhow::Result<bool> {
        let mut all = self.processes.iter().any(|member| !member.is_background());
        // Of several, one that ends must not take what the others still write.
        let is_alone = self.processes.len() == 1;
        for member in &mut self.processes {
            all &= member.poll(self.artefact.as_mut().filter(|_| is_alone), context)?;
        }
        Ok(all)
    }

    /// Output of its processes since the last call.
    pub fn drain_output(&mut self) -> Vec<OutputSample> {
        let trial = self.trial;
        let samples = self.processes.iter_mut().filter_map(ManagedProcess::drain_writes).flat_map(
            |(process, written)| {
                written.into_iter().map(move |written| OutputSample {
                    mono_us: written.mono_us,
                    width_us: written.width_us,
                    trial,
                    process: process.to_owned(),
                    output_bytes: written.bytes,
                })
            },
        );
        samples.collect()
    }

    /// Fails if a process has ended by itself that should last; the error quotes its messages.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        self.processes.iter_mut().try_for_each(ManagedProcess::check_alive)
    }

    /// Processes that ended by themselves since the last call, and the duration of these runs in
    /// microseconds.
    ///
    /// The duration reaches from the first begin to the last end.
    pub fn drain_runs(&mut self) -> (u32, u64) {
        let waited_for = self.processes.iter_mut().filter(|member| !member.is_background());
        let runs: Vec<_> = waited_for.map(ManagedProcess::drain_runs).collect();
        let took_us = if self.processes.iter().any(ManagedProcess::is_repeated) {
            runs.iter().map(|runs| runs.duration_us).sum()
        } else {
            let begun = runs.iter().filter(|runs| runs.count > 0).map(|runs| runs.begun_us).min();
            let ended = runs.iter().map(|runs| runs.ended_us).max();
            ended.zip(begun).map_or(0, |(ended, begun)| ended.saturating_sub(begun))
        };
        // A set that ends once has ended once.
        let count = if self.processes.iter().any(ManagedProcess::is_repeated) {
            runs.iter().map(|runs| runs.count).sum()
        } else {
            runs.iter().map(|runs| runs.count).min().unwrap_or(0)
        };
        (count, took_us)
    }

    /// Reads the treatment's counters so far, from the tools too if they have any.
    pub fn read_counters(&mut self, admin: Option<&mut AdminSession>) -> Reading {
        Reading {
            artefact_bytes: self.artefact_bytes(),
            packets: sum_packet_counts(self.processes.iter_mut().filter_map(ManagedProcess::probe)),
            server_count: self
                .count_query
                .as_deref()
                .zip(admin)
                .and_then(|(sql, admin)| admin.query_number(sql)),
        }
    }

    /// Size of the artefact now, bytes. `None` for treatments without a file.
    pub fn artefact_bytes(&self) -> Option<u64> {
        self.artefact.as_ref().map(ArtefactFile::bytes)
    }

    /// CPU time so far of the treatment's and of the far end's processes, microseconds.
    pub fn cpu_us(&self) -> (u64, u64) {
        let listener = self.far_end.as_ref().map_or(0, ProcessGroup::cpu_us);
        let of = |far: bool| {
            self.processes.iter().filter(|m| m.is_far() == far).map(ManagedProcess::cpu_us).sum::<u64>()
        };
        (of(false), listener + of(true))
    }

    /// Switches everything off, by force if necessary.
    pub fn stop(&mut self, context: &mut TreatmentContext<'_>) -> StopResult {
        let mut stopped = StopResult::default();
        // All are asked before any is waited for, so that none works on alone; but what drains does so once nothing comes
        // to it any more.
        self.processes.iter_mut().filter(|member| !member.has_drain()).for_each(ManagedProcess::request_stop);
        for member in self.processes.iter_mut().filter(|member| member.has_drain()) {
            member.drain();
            member.request_stop();
        }
        for member in &mut self.processes {
            stopped.notes.extend(member.finish(context));
            stopped.processes.extend(member.process_end());
        }
        if let Some(kernel) = self.kernel_settings.take() {
            stopped.kernel_restore_error = kernel.switch_off(context.journal).err();
        }
        if let (Some(switched), Some(admin)) = (self.applied_settings.take(), context.admin.as_deref_mut()) {
            stopped.restore_error = admin.switch_off(switched, context.journal).err();
        }
        if let Some(far_end) = &mut self.far_end {
            far_end.request_stop();
            stopped.notes.extend(far_end.finish(context.journal, None).notes());
        }
        if std::mem::take(&mut self.link_reshaped)
            && let Some(Err(error)) = context.far_end.map(|far_end| far_end.shape(None))
        {
            stopped.notes.push(format!("the link to the far end keeps this arm's rate: {error:#}"));
        }
        stopped
    }

    /// Removes the artefact.
    pub fn discard_artefact(&self, journal: &Journal) {
        if let Some(artefact) = &self.artefact {
            // What cannot be removed now stays in the journal.
            let _ = artefact.remove(journal);
        }
    }

    /// Keeps the artefact in the run. Returns its name there.
    pub fn keep_artefact(&self, context: &TreatmentContext<'_>) -> anyhow::Result<Option<String>> {
        let (Some(artefact), Some(name)) = (&self.artefact, &self.artefact_name) else { return Ok(None) };
        let kept = artefact.move_to_run(context.dir, name, context.journal)?;
        Ok(kept.map(|name| format!("artefacts/{name}")))
    }

    /// Path of the artefact, as toll sees it.
    pub fn artefact_path(&self) -> Option<&Path> {
        self.artefact.as_ref().map(|artefact| artefact.local_path.as_path())
    }

    /// All files of the artefact, oldest first.
    pub fn artefact_files(&self) -> Vec<PathBuf> {
        self.artefact.as_ref().map_or_else(Vec::new, ArtefactFile::files)
    }

    /// The tools' final packet counters, over their whole life.
    pub fn final_packets(&self) -> Option<PacketCounts> {
        sum_packet_counts(self.processes.iter().filter_map(ManagedProcess::packets))
    }
}

fn sum_packet_counts(counts: impl Iterator<Item = PacketCounts>) -> Option<PacketCounts> {
    counts.reduce(|a, b| PacketCounts {
        captured: a.captured + b.captured,
        received: a.received + b.received,
        dropped: a.dropped + b.dropped,
    })
}
