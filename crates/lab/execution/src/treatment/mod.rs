//! Treatment of an arm: switched on, polled and switched off.
//!
//! An arm may be nothing, statements, a server's log, one process or a set of them. All look alike to the
//! conductor: a [`Treatment`] that starts, reports its state, and always stops.

mod artefact;
mod entry;
mod kernel;
mod member;
mod pause;
mod process;
mod proctree;
mod statements;
mod usage;
mod words;

pub use artefact::LogPlace;
pub use kernel::KernelStaysOn;
pub use pause::Pausable;
pub use process::{Group, Place};
pub use proctree::{cpu_of_process_us, resident_bytes};
pub use statements::{Admin, NotPutBack, Switched};

use crate::stage::rig::FarEnd;
use anyhow::Context;
use artefact::ArtefactFile;
use kernel::Kernel;
use member::Member;
use std::path::{Path, PathBuf};
use toll_journal::Journal;
use toll_model::artefacts::{self, Shape, Writer};
use toll_model::fill::Fill;
use toll_record::{Arm, OutputSample, PacketCounts, ProcessEnd};
use toll_sys::cancel::CancelToken;

/// Directory in memory (tmpfs, on every Linux with POSIX shared memory).
const MEMORY: &str = "/dev/shm";

/// Context of a running treatment.
pub struct Bench<'a> {
    /// Absent if there is no server.
    pub admin: Option<&'a mut Admin>,
    pub journal: &'a Journal,
    pub cancel: &'a CancelToken,
    pub far_end: Option<&'a FarEnd>,
    /// Directory in which the server may write a log.
    pub logs: Option<&'a LogPlace>,
    /// The load, if it may be paused.
    pub load: Option<Pausable>,
    /// The run's control group, if one could be made.
    pub cgroup: Option<&'a Path>,
    /// Further groups that a process on this host enters.
    pub limits: &'a [PathBuf],
    /// Directory of artefacts and of the tools' output.
    pub dir: &'a Path,
}

impl Bench<'_> {
    /// The session for statements.
    fn admin(&mut self) -> anyhow::Result<&mut Admin> {
        self.admin.as_deref_mut().context("statements need a server, and this run has none")
    }
}

/// A treatment that is on.
#[derive(Debug, Default)]
pub struct Treatment {
    /// The trial in which it is on.
    trial: u32,
    members: Vec<Member>,
    far_end: Option<Group>,
    /// True if the link to the far end has another rate than the rig's.
    reshaped: bool,
    switched: Option<Switched>,
    kernel: Option<Kernel>,
    count: Option<String>,
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
pub struct Stopped {
    /// Unusual events.
    pub notes: Vec<String>,
    pub processes: Vec<ProcessEnd>,
    /// Server settings that could not be restored: nothing can be measured on this server any more.
    pub not_put_back: Option<NotPutBack>,
    /// Kernel settings that could not be restored; they stay in the journal.
    pub kernel_not_put_back: Option<anyhow::Error>,
}

impl Treatment {
    /// Switches the arm on. Returns once it reports that it is on.
    ///
    /// # Errors
    /// A process, a setting or a statement failed, and the arm was switched off again. An error of that restore has
    /// precedence.
    pub fn start(arm: &Arm, fill: &Fill, trial: u32, bench: &mut Bench<'_>) -> anyhow::Result<Self> {
        let stem = format!("{}-{trial}", arm.name);
        let row = arm.artefact.map(artefacts::of).filter(|row| row.shape != Shape::None);
        let name = row.map(|row| format!("{stem}.{}", row.extension));
        let artefact = match (&name, row) {
            (Some(name), Some(row)) if row.writer == Writer::Server => {
                let place = bench.logs.context("the server has no place for its log that toll may read")?;
                Some(place.make(&format!("{}-{name}", bench.journal.run_id()), bench.journal)?)
            }
            (Some(name), Some(row)) => {
                let own = if arm.in_memory {
                    PathBuf::from(format!("{MEMORY}/toll-{}-{name}.of", bench.journal.run_id()))
                } else {
                    bench.dir.join(format!("{name}.of"))
                };
                Some(ArtefactFile::of_tool(own, name, row.shape, bench.journal)?)
            }
            _ => None,
        };
        let mut fill = fill.clone();
        if let Some(artefact) = &artefact {
            fill.set("artefact", artefact.there.display().to_string());
        }
        let count = arm.treatment.count.clone();
        let mut treatment = Self { trial, count, artefact, artefact_name: name, ..Self::default() };
        match treatment.switch_on(arm, &mut fill, &stem, bench) {
            Ok(()) => Ok(treatment),
            Err(error) => {
                let stopped = treatment.stop(bench);
                treatment.discard(bench.journal);
                // That it stays on weighs more than that it did not come on.
                let stays = stopped.not_put_back.map(anyhow::Error::new).or(stopped.kernel_not_put_back);
                Err(stays.unwrap_or(error))
            }
        }
    }

    fn switch_on(
        &mut self,
        arm: &Arm,
        fill: &mut Fill,
        stem: &str,
        bench: &mut Bench<'_>,
    ) -> anyhow::Result<()> {
        if let Some(port) = arm.treatment.remote_port {
            let remote = bench.far_end.context("the rig has no far end")?;
            let far_file = self.artefact_path().context("a remote needs an artefact to write")?.to_owned();
            self.far_end = Some(remote.listen(port, &far_file, stem, bench)?);
            fill.set("remote_ip", remote.ip().to_string());
            fill.set("remote_port", port.to_string());
        }
        if let Some(rate) = &arm.treatment.far_rate {
            bench.far_end.context("the rig has no far end")?.shape(Some(rate))?;
            self.reshaped = true;
        }
        if !arm.treatment.sysctl.is_empty() {
            self.kernel = Some(Kernel::switch_on(&arm.treatment.sysctl, bench.journal)?);
        }
        if arm.treatment.has_statements() {
            let journal = bench.journal;
            self.switched = Some(bench.admin()?.switch_on(arm, fill, journal)?);
        }
        for process in &arm.treatment.processes {
            self.members.push(Member::new(process, arm.treatment.again, fill, stem, bench.far_end)?);
        }
        self.members.iter_mut().try_for_each(|member| member.start_if_due(bench))
    }

    /// Starts what is due, polls what runs, and restarts ended processes if the arm says so.
    ///
    /// True if all processes have ended with success.
    ///
    /// # Errors
    /// A process failed.
    pub fn look(&mut self, bench: &Bench<'_>) -> anyhow::Result<bool> {
        let mut all = self.members.iter().any(|member| !member.is_background());
        // Of several, one that ends must not take what the others still write.
        let is_alone = self.members.len() == 1;
        for member in &mut self.members {
            all &= member.look(self.artefact.as_mut().filter(|_| is_alone), bench)?;
        }
        Ok(all)
    }

    /// Output of its processes since the last call.
    pub fn take_output(&mut self) -> Vec<OutputSample> {
        let trial = self.trial;
        let samples =
            self.members.iter_mut().filter_map(Member::take_written).flat_map(|(process, written)| {
                written.into_iter().map(move |written| OutputSample {
                    mono_us: written.mono_us,
                    width_us: written.width_us,
                    trial,
                    process: process.to_owned(),
                    output_bytes: written.bytes,
                })
            });
        samples.collect()
    }

    /// Fails if a process has ended by itself that should last; the error quotes its messages.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        self.members.iter_mut().try_for_each(Member::check_alive)
    }

    /// Processes that ended by themselves since the last call, and the duration of these runs in
    /// microseconds.
    ///
    /// The duration reaches from the first begin to the last end.
    pub fn take_runs(&mut self) -> (u32, u64) {
        let waited_for = self.members.iter_mut().filter(|member| !member.is_background());
        let runs: Vec<_> = waited_for.map(Member::take_runs).collect();
        let took_us = if self.members.iter().any(Member::is_again) {
            runs.iter().map(|runs| runs.took_us).sum()
        } else {
            let begun = runs.iter().filter(|runs| runs.count > 0).map(|runs| runs.begun_us).min();
            let ended = runs.iter().map(|runs| runs.ended_us).max();
            ended.zip(begun).map_or(0, |(ended, begun)| ended.saturating_sub(begun))
        };
        // A set that ends once has ended once.
        let count = if self.members.iter().any(Member::is_again) {
            runs.iter().map(|runs| runs.count).sum()
        } else {
            runs.iter().map(|runs| runs.count).min().unwrap_or(0)
        };
        (count, took_us)
    }

    /// Reads the treatment's counters so far, from the tools too if they have any.
    pub fn read(&mut self, admin: Option<&mut Admin>) -> Reading {
        Reading {
            artefact_bytes: self.artefact_bytes(),
            packets: summed(self.members.iter_mut().filter_map(Member::probe)),
            server_count: self.count.as_deref().zip(admin).and_then(|(sql, admin)| admin.number(sql)),
        }
    }

    /// Size of the artefact now, bytes. `None` for treatments without a file.
    pub fn artefact_bytes(&self) -> Option<u64> {
        self.artefact.as_ref().map(ArtefactFile::bytes)
    }

    /// CPU time so far of the treatment's and of the far end's processes, microseconds.
    pub fn cpu_us(&self) -> (u64, u64) {
        let listener = self.far_end.as_ref().map_or(0, Group::cpu_us);
        let of =
            |far: bool| self.members.iter().filter(|m| m.is_far() == far).map(Member::cpu_us).sum::<u64>();
        (of(false), listener + of(true))
    }

    /// Switches everything off, by force if necessary.
    pub fn stop(&mut self, bench: &mut Bench<'_>) -> Stopped {
        let mut stopped = Stopped::default();
        // All are asked before any is waited for, so that none works on alone; but what drains does so once nothing comes
        // to it any more.
        self.members.iter_mut().filter(|member| !member.drains()).for_each(Member::ask_to_end);
        for member in self.members.iter_mut().filter(|member| member.drains()) {
            member.drain();
            member.ask_to_end();
        }
        for member in &mut self.members {
            stopped.notes.extend(member.finish(bench));
            stopped.processes.extend(member.end());
        }
        if let Some(kernel) = self.kernel.take() {
            stopped.kernel_not_put_back = kernel.switch_off(bench.journal).err();
        }
        if let (Some(switched), Some(admin)) = (self.switched.take(), bench.admin.as_deref_mut()) {
            stopped.not_put_back = admin.switch_off(switched, bench.journal).err();
        }
        if let Some(far_end) = &mut self.far_end {
            far_end.ask_to_end();
            stopped.notes.extend(far_end.finish(bench.journal, None).notes());
        }
        if std::mem::take(&mut self.reshaped)
            && let Some(Err(error)) = bench.far_end.map(|far_end| far_end.shape(None))
        {
            stopped.notes.push(format!("the link to the far end keeps this arm's rate: {error:#}"));
        }
        stopped
    }

    /// Removes the artefact.
    pub fn discard(&self, journal: &Journal) {
        if let Some(artefact) = &self.artefact {
            // What cannot be removed now stays in the journal.
            let _ = artefact.remove(journal);
        }
    }

    /// Keeps the artefact in the run. Returns its name there.
    pub fn keep(&self, bench: &Bench<'_>) -> anyhow::Result<Option<String>> {
        let (Some(artefact), Some(name)) = (&self.artefact, &self.artefact_name) else { return Ok(None) };
        let kept = artefact.keep(bench.dir, name, bench.journal)?;
        Ok(kept.map(|name| format!("artefacts/{name}")))
    }

    /// Path of the artefact, as toll sees it.
    pub fn artefact_path(&self) -> Option<&Path> {
        self.artefact.as_ref().map(|artefact| artefact.here.as_path())
    }

    /// All files of the artefact, oldest first.
    pub fn artefact_files(&self) -> Vec<PathBuf> {
        self.artefact.as_ref().map_or_else(Vec::new, ArtefactFile::files)
    }

    /// The tools' final packet counters, over their whole life.
    pub fn final_packets(&self) -> Option<PacketCounts> {
        summed(self.members.iter().filter_map(Member::packets))
    }
}

fn summed(counts: impl Iterator<Item = PacketCounts>) -> Option<PacketCounts> {
    counts.reduce(|a, b| PacketCounts {
        captured: a.captured + b.captured,
        received: a.received + b.received,
        dropped: a.dropped + b.dropped,
    })
}
