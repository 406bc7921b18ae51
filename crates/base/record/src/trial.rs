//! Log of the steps of each trial, with times and the CPU used so far.

use crate::{PacketCounts, Sent, Stage};
use serde::{Deserialize, Serialize};

/// A line of `trials.ndjson`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TrialLine {
    /// CLOCK_MONOTONIC; the clock of every sample too.
    pub mono_us: u64,
    /// Unix time, to line up with packets and logs.
    pub wall_us: u64,
    /// Counts from 0 through the whole run.
    pub trial: u32,
    /// Counts from 0.
    pub round: u32,
    pub arm: String,
    pub step: Step,
    /// Cumulative CPU of each party; on `window-begin` and `window-end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Size of the artefact at this moment, where it can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artefact_bytes: Option<u64>,
    /// How often the treatment's command ended by itself inside the window, and what these runs of it
    /// took together; on `window-end`, for arms whose command may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_us: Option<u64>,
    /// The processes of the treatment, now that they have ended; on `stopped`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessEnd>,
    /// Packets on their way from the rig's sender to the file, where there is a link; on `stopped`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Error, or an action that was necessary (`killed after TERM was ignored for 2 s`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One process of a treatment, or one pipeline, that has ended: by itself or on a signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ProcessEnd {
    /// Unlike any other's in the treatment: `mariadb-dump 3`.
    pub name: String,
    pub begin_mono_us: u64,
    pub end_mono_us: u64,
    /// Exit status of the last of a pipeline; absent where a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// User and system time, its children's among it.
    pub cpu_us: u64,
    /// Largest resident set of its processes, as last seen; absent where none was seen alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Time in which some of its processes waited for a CPU, a device, memory, by the control group's pressure;
    /// absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_io_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_memory_us: Option<u64>,
    /// From and towards storage, as last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Written by the last command of its pipeline, to wherever; absent where that could not be seen, and in older
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// Packets that it sent, and that it captured, as it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketCounts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The treatment is being switched on.
    Start,
    /// The treatment reports that it is active.
    Ready,
    WindowBegin,
    WindowEnd,
    /// The treatment is off again, whatever it took.
    Stopped,
    /// No window came of this trial; `note` says why.
    Failed,
}

/// CPU time used since some fixed point in the past, by party. Differences count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Cpu {
    /// user + nice + system + irq + softirq of all CPUs.
    pub host_busy_us: u64,
    pub host_steal_us: u64,
    /// Interrupts and softirqs, which the parties' own times leave out; absent where the kernel does not count them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq_us: Option<u64>,
    /// Absent where the server's process is not known. Older runs have 0 there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_us: Option<u64>,
    /// Time that the server's threads, ready to run, have waited for a CPU; absent where its process is not known, in older runs, and
    /// on the counted clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_wait_us: Option<u64>,
    pub driver_us: u64,
    /// The treatment's process group, living and reaped.
    pub treatment_us: u64,
    /// What stands in for the far end of the network (a real one would not cost this host).
    pub remote_us: u64,
    /// toll itself: trial loop, recorder, collectors.
    pub toll_us: u64,
}
