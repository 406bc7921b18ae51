//! Separate cost of dump, commit and upload.
//!
//! They run at the same time, so their times overlap. Their CPU, bytes and memory do not.

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Serialize;
use std::fmt::Display;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toll_sys::proc_file;

/// All of a backup.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BackupCost {
    pub total_s: f64,
    /// The dump programs, as far as the host can see them: what the server does for them is the server's.
    pub dump: StageCost,
    /// toll itself: splitting, hashing, cutting.
    pub split: StageCost,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<StageCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<StageCost>,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct StageCost {
    /// From its begin to its end.
    pub time_s: f64,
    pub cpu_s: f64,
    pub bytes_read: u64,
    pub bytes_stored: u64,
    /// Largest resident set; of toll itself for what toll does by itself.
    pub memory_peak_bytes: u64,
}

/// Resource usage of a process, children included.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessUsage {
    pub cpu_s: f64,
    pub memory_peak_bytes: u64,
}

impl ProcessUsage {
    pub fn combine(self, other: Self) -> Self {
        Self {
            cpu_s: self.cpu_s + other.cpu_s,
            memory_peak_bytes: self.memory_peak_bytes.max(other.memory_peak_bytes),
        }
    }
}

/// Monitor of a running process: its memory figures vanish when it ends.
#[derive(Debug)]
pub struct ProcessMonitor {
    peak: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

/// A program that lives shorter is small.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl ProcessMonitor {
    pub fn start(pid: u32) -> Self {
        let watch = Self { peak: Arc::default(), ended: Arc::default() };
        let (peak, ended) = (watch.peak.clone(), watch.ended.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                peak.fetch_max(peak_bytes(pid), Ordering::Relaxed);
                std::thread::sleep(POLL_INTERVAL);
            }
        });
        watch
    }

    /// Waits for its end. Its CPU is what waiting for it adds to that of all children.
    pub fn wait(self, child: &mut Child) -> Result<(ExitStatus, ProcessUsage)> {
        let before = children_cpu_s()?;
        let status = child.wait().context("cannot wait for a program")?;
        self.ended.store(true, Ordering::Relaxed);
        let cpu_s = children_cpu_s()? - before;
        Ok((status, ProcessUsage { cpu_s, memory_peak_bytes: self.peak.load(Ordering::Relaxed) }))
    }
}

impl Drop for ProcessMonitor {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Largest resident set of toll so far.
pub fn own_peak_bytes() -> u64 {
    peak_bytes("self")
}

/// CPU of this process, all its threads.
pub fn own_cpu_s() -> Result<f64> {
    cpu_seconds(UsageWho::RUSAGE_SELF)
}

pub fn children_cpu_s() -> Result<f64> {
    cpu_seconds(UsageWho::RUSAGE_CHILDREN)
}

fn cpu_seconds(who: UsageWho) -> Result<f64> {
    let usage = getrusage(who).context("cannot read the resource usage")?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn peak_bytes(pid: impl Display) -> u64 {
    proc_file::bytes(&proc_file::status(pid), "VmHWM").unwrap_or(0)
}

/// Seconds since a moment.
pub fn seconds_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64()
}
