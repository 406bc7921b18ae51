//! How is one treatment switched on, watched and switched off again?
//!
//! Whatever an arm is (nothing, a command, a pipeline, statements, a server's log), the
//! conductor sees a [`Treatment`] that starts, answers a few questions, and always stops.

mod artefact;
mod fill;
mod process;
mod proctree;
mod remote;
mod statements;
mod words;

pub use artefact::LogPlace;
pub use fill::{BUILT_IN, Fill, is_name, words_of};
use process::Stop;
pub use process::{Group, Pausable};
pub use proctree::{cpu_of_process_us, resident_bytes};
pub use remote::Remote;
pub use statements::{Admin, NotPutBack, Switched};
pub use words::packet_counts;

use crate::journal::Journal;
use crate::scenario::{Arm, Kind};
use anyhow::Context;
use artefact::ArtefactFile;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toll_record::PacketCounts;

/// What a treatment may lean on while it runs.
pub struct Bench<'a> {
    pub admin: &'a mut Admin,
    pub journal: &'a Journal,
    pub remote: Option<&'a Remote>,
    /// Where the server may write a log.
    pub logs: Option<&'a LogPlace>,
    /// The load, where it may be held up for a moment.
    pub load: Option<Pausable>,
    /// The run's control group, where one could be made.
    pub cgroup: Option<&'a Path>,
    /// Where artefacts and what the tools say go.
    pub dir: &'a Path,
}

/// A treatment that is on.
#[derive(Debug)]
pub struct Treatment {
    group: Option<Group>,
    /// How the group is started; kept for arms that are run again.
    commands: Option<Commands>,
    /// CPU of the groups before this one.
    earlier_cpu_us: u64,
    far_end: Option<Group>,
    switched: Option<Switched>,
    count: Option<String>,
    artefact: Option<ArtefactFile>,
    /// In the run.
    artefact_name: Option<String>,
    probe: Option<nix::sys::signal::Signal>,
    packets_at_begin: Option<PacketCounts>,
}

/// The commands of an arm, filled in.
#[derive(Debug)]
struct Commands {
    stages: Vec<Vec<String>>,
    stdout: Option<PathBuf>,
    stop: Stop,
    stem: String,
    env: Vec<String>,
}

impl Commands {
    fn spawn(&self, bench: &Bench<'_>) -> anyhow::Result<Group> {
        Group::spawn(&self.stages, self.stdout.as_deref(), self.stop, &self.stem, &self.env, bench)
    }
}

/// What is known at a window's edge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    pub artefact_bytes: Option<u64>,
    pub packets: Option<PacketCounts>,
    /// The server's own count, for treatments that leave no file.
    pub server_count: Option<u64>,
}

/// What came of switching a treatment off.
#[derive(Debug, Default)]
pub struct Stopped {
    /// What was out of the ordinary.
    pub notes: Vec<String>,
    /// The server still has settings of this treatment: nothing can be measured on it.
    pub not_put_back: Option<NotPutBack>,
}

/// How long a tool may take to say that it is on.
const READY_WITHIN: Duration = Duration::from_secs(10);

impl Treatment {
    /// Switches the arm on and returns once it says that it is on.
    pub fn start(arm: &Arm, fill: &Fill, trial: u32, bench: &mut Bench<'_>) -> anyhow::Result<Self> {
        let stem = format!("{}-{trial}", arm.name);
        let name = arm
            .artefact
            .filter(|kind| *kind != toll_record::ArtefactKind::Server)
            .map(|kind| format!("{stem}.{}", extension(kind)));
        let artefact = match (&name, arm.kind) {
            (None, _) => None,
            (Some(name), Kind::Log) => {
                let place = bench.logs.context("the server has no place for its log that toll may read")?;
                Some(place.make(&format!("{}-{name}", bench.journal.run_id()), bench.journal)?)
            }
            (Some(name), _) => Some(ArtefactFile::of_tool(bench.dir, name, bench.journal)?),
        };
        let mut fill = fill.clone();
        if let Some(artefact) = &artefact {
            fill.set("artefact", artefact.there.display().to_string());
        }
        let mut treatment = Self {
            count: arm.count.clone(),
            artefact,
            artefact_name: name,
            probe: arm.probe.map(Into::into),
            ..Self::none()
        };
        match treatment.switch_on(arm, &mut fill, &stem, bench) {
            Ok(()) => Ok(treatment),
            Err(error) => {
                let stopped = treatment.stop(bench);
                treatment.discard(bench.journal);
                // That it stays on weighs more than that it did not come on.
                Err(stopped.not_put_back.map_or(error, anyhow::Error::new))
            }
        }
    }

    /// A treatment that is nothing, for readings beside none.
    pub fn none() -> Self {
        Self {
            group: None,
            commands: None,
            earlier_cpu_us: 0,
            far_end: None,
            switched: None,
            count: None,
            artefact: None,
            artefact_name: None,
            probe: None,
            packets_at_begin: None,
        }
    }

    /// Waits until the command has ended by itself; false when `give_up` says so before.
    pub fn wait_done(&mut self, give_up: &dyn Fn() -> bool) -> anyhow::Result<bool> {
        match &mut self.group {
            Some(group) => group.wait_done(give_up),
            None => Ok(true),
        }
    }

    fn switch_on(
        &mut self,
        arm: &Arm,
        fill: &mut Fill,
        stem: &str,
        bench: &mut Bench<'_>,
    ) -> anyhow::Result<()> {
        if let (Some(port), Some(remote)) = (arm.remote_port, bench.remote) {
            let far_file = self.artefact_path().context("a remote needs an artefact to write")?.to_owned();
            self.far_end = Some(remote.listen(port, &far_file, stem, bench)?);
            fill.set("remote_ip", remote.ip().to_owned());
            fill.set("remote_port", port.to_string());
        }
        if matches!(arm.kind, Kind::Sql | Kind::Log) {
            self.switched = Some(bench.admin.switch_on(arm, fill, bench.journal)?);
        }
        let stages: Vec<&String> = arm.command.iter().chain(arm.stages.iter().flatten()).collect();
        if stages.is_empty() {
            return Ok(());
        }
        let stages = stages.into_iter().map(|s| words_of(s, fill)).collect::<anyhow::Result<Vec<_>>>()?;
        let stdout = arm.stdout.as_deref().map(|s| fill.apply(s)).transpose()?.map(PathBuf::from);
        let (stop, env) = (arm.stop.into(), arm.env.clone());
        let commands = Commands { stages, stdout, stop, stem: stem.to_owned(), env };
        let mut group = commands.spawn(bench)?;
        self.commands = Some(commands);
        if let Some(text) = &arm.ready {
            let ready = group.wait_until_it_says(text, READY_WITHIN);
            self.group = Some(group);
            return ready;
        }
        self.group = Some(group);
        Ok(())
    }

    /// Ends early treatments with what they said last.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match &mut self.group {
            Some(group) => group.check_alive(),
            None => Ok(()),
        }
    }

    /// Whether the commands have ended by themselves, with success; a failure is an error.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        self.group.as_mut().map_or(Ok(false), Group::has_ended)
    }

    /// Starts the commands once more, now that they have ended.
    pub fn run_again(&mut self, bench: &Bench<'_>) -> anyhow::Result<()> {
        if let (Some(commands), Some(mut ended)) = (&self.commands, self.group.take()) {
            ended.stop(bench.journal, None);
            self.earlier_cpu_us += ended.cpu_us();
            self.group = Some(commands.spawn(bench)?);
        }
        Ok(())
    }

    /// Reads what the treatment has done so far; asks the tool for its counters where it has any.
    pub fn read(&mut self, admin: &mut Admin) -> Reading {
        let packets = match (&mut self.group, self.probe) {
            (Some(group), Some(signal)) => group.probe(signal),
            _ => None,
        };
        Reading {
            artefact_bytes: self.artefact_bytes(),
            packets,
            server_count: self.count.as_deref().and_then(|sql| admin.number(sql)),
        }
    }

    /// What the artefact holds at this moment; absent for treatments that leave no file.
    pub fn artefact_bytes(&self) -> Option<u64> {
        self.artefact_path().map(file_len)
    }

    /// CPU of the treatment's and of the far end's processes so far, microseconds.
    pub fn cpu_us(&self) -> (u64, u64) {
        let of = |g: &Option<Group>| g.as_ref().map_or(0, Group::cpu_us);
        (self.earlier_cpu_us + of(&self.group), of(&self.far_end))
    }

    /// Switches everything off, whatever it takes.
    pub fn stop(&mut self, bench: &mut Bench<'_>) -> Stopped {
        let mut stopped = Stopped::default();
        if let Some(group) = &mut self.group {
            stopped.notes.extend(group.stop(bench.journal, bench.load).notes());
        }
        if let Some(switched) = self.switched.take() {
            stopped.not_put_back = bench.admin.switch_off(switched, bench.journal).err();
        }
        if let Some(far_end) = &mut self.far_end {
            stopped.notes.extend(far_end.stop(bench.journal, None).notes());
        }
        stopped
    }

    /// Lets the artefact go.
    pub fn discard(&self, journal: &Journal) {
        if let Some(artefact) = &self.artefact {
            // What cannot be removed now stays in the journal.
            let _ = artefact.remove(journal);
        }
    }

    /// Leaves the artefact in the run; the answer is its name there.
    pub fn keep(&self, bench: &Bench<'_>) -> anyhow::Result<Option<String>> {
        let (Some(artefact), Some(name)) = (&self.artefact, &self.artefact_name) else { return Ok(None) };
        artefact.keep(bench.dir, name, bench.journal)?;
        Ok(Some(format!("artefacts/{name}")))
    }

    /// Where the artefact lies, as seen from here.
    pub fn artefact_path(&self) -> Option<&Path> {
        self.artefact.as_ref().map(|artefact| artefact.here.as_path())
    }

    /// The tool's last words on packets, over its whole life.
    pub fn final_packets(&self) -> Option<PacketCounts> {
        self.group.as_ref().and_then(|g| packet_counts(&g.said()))
    }

    /// Remembers the counters at the window's begin, so that the window's own can be told.
    pub fn mark_begin(&mut self, reading: &Reading) {
        self.packets_at_begin = reading.packets;
    }

    pub fn window_packets(&self, at_end: &Reading) -> Option<PacketCounts> {
        let (a, b) = (self.packets_at_begin?, at_end.packets?);
        Some(PacketCounts {
            captured: b.captured.saturating_sub(a.captured),
            received: b.received.saturating_sub(a.received),
            dropped: b.dropped.saturating_sub(a.dropped),
        })
    }
}

/// 0 until the tool has made its file.
fn file_len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

fn extension(kind: toll_record::ArtefactKind) -> &'static str {
    use toll_record::ArtefactKind as K;
    match kind {
        K::Pcap => "pcap",
        K::TcpdumpText => "txt",
        K::SlowLog | K::GeneralLog | K::AuditLog => "log",
        K::Lines => "lines",
        K::Server | K::Bytes | K::Unknown => "bin",
    }
}
