//! How much memory do a treatment's processes hold, what have they read and written, and when?
//!
//! Looked at while they live: what a process does after the last look is not known. Cumulative figures
//! of a process that has ended stay as last seen.

use super::resident_bytes;
use crate::clock;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::BTreeMap;

/// Of one process of a treatment, with all its children.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    memory_peak_bytes: Option<u64>,
    io: BTreeMap<i32, Io>,
}

#[derive(Debug, Clone, Copy)]
struct Io {
    read_bytes: u64,
    written_bytes: u64,
}

impl Usage {
    /// Looks at the processes that are there now.
    pub fn look(&mut self, pids: &[i32]) {
        // A process that has ended holds nothing, and says nothing of what it held.
        let resident = pids.iter().map(|&pid| resident_bytes(pid as u32)).filter(|&bytes| bytes > 0);
        let resident: Vec<u64> = resident.collect();
        if !resident.is_empty() {
            self.memory_peak_bytes = self.memory_peak_bytes.max(Some(resident.iter().sum()));
        }
        self.io.extend(pids.iter().filter_map(|&pid| Some((pid, io(pid)?))));
    }

    /// Largest sum of resident sets.
    pub fn memory_peak_bytes(&self) -> Option<u64> {
        self.memory_peak_bytes
    }

    pub fn read_bytes(&self) -> Option<u64> {
        self.sum(|io| io.read_bytes)
    }

    pub fn written_bytes(&self) -> Option<u64> {
        self.sum(|io| io.written_bytes)
    }

    fn sum(&self, of: impl Fn(&Io) -> u64) -> Option<u64> {
        (!self.io.is_empty()).then(|| self.io.values().map(of).sum())
    }
}

/// What one process has written, to wherever: a file, a pipe, a connection, nowhere at all.
#[derive(Debug, Default)]
pub struct Output {
    writer: Option<u32>,
    /// At the last look: when, and how much by then.
    last: Option<(u64, u64)>,
    /// Of `last`, what had been written when it was first looked at.
    first: u64,
    written: Vec<Written>,
}

/// A stretch between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Its end.
    pub mono_us: u64,
    pub width_us: u64,
    pub bytes: u64,
}

impl Output {
    /// Of a process that has just been started.
    pub fn of(writer: Option<u32>) -> Self {
        let mut output = Self { writer, ..Self::default() };
        output.look();
        output.first = output.last.map_or(0, |(_, bytes)| bytes);
        output
    }

    pub fn look(&mut self) {
        let Some(bytes) = self.writer.and_then(output_bytes) else { return };
        let now = clock::mono_us();
        if let Some((then, before)) = self.last
            && now > then
        {
            let bytes = bytes.saturating_sub(before);
            self.written.push(Written { mono_us: now, width_us: now - then, bytes });
        }
        self.last = Some((now, bytes));
    }

    /// Whether it has ended, and nobody has been told yet.
    pub fn has_writer_ended(&self) -> bool {
        let Some(pid) = self.writer else { return false };
        let only_look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let seen = waitid(Id::Pid(Pid::from_raw(pid as i32)), only_look);
        seen.is_ok_and(|status| status != WaitStatus::StillAlive)
    }

    /// Since the last call of this.
    pub fn take(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.written)
    }

    /// In all; absent where it could not be seen.
    pub fn bytes(&self) -> Option<u64> {
        self.last.map(|(_, bytes)| bytes.saturating_sub(self.first))
    }
}

/// By write(2) and its like, whatever stands behind the descriptor.
fn output_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar:")?.trim().parse().ok())
}

/// Absent where toll may not look (another user's process).
fn io(pid: i32) -> Option<Io> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Io { read_bytes: field("read_bytes:")?, written_bytes: field("write_bytes:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods)] // a child of this test
    fn what_a_process_writes_is_seen_up_to_its_end_wherever_it_goes() {
        use std::process::{Command, Stdio};
        let words = ["-c", "read x; head -c 300000 /dev/zero | cat; exec head -c 200000 /dev/zero"];
        let mut child =
            Command::new("sh").args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut output = Output::of(Some(child.id()));
        assert!(!output.has_writer_ended());
        drop(child.stdin.take());
        while !output.has_writer_ended() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        output.look();
        // Its own, and what the children wrote that it waited for.
        assert_eq!(output.bytes(), Some(800_000));
        let written = output.take();
        assert_eq!(written.iter().map(|written| written.bytes).sum::<u64>(), 800_000);
        assert!(written.iter().all(|written| written.width_us > 0) && output.take().is_empty());
        child.wait().unwrap();
        assert!(Output::of(None).bytes().is_none() && !Output::of(None).has_writer_ended());
    }

    #[test]
    fn the_peak_stays_and_a_process_that_is_gone_keeps_what_it_wrote() {
        let own = std::process::id() as i32;
        let mut usage = Usage::default();
        usage.look(&[]);
        assert_eq!((usage.memory_peak_bytes(), usage.read_bytes()), (None, None));
        usage.look(&[own]);
        let held = usage.memory_peak_bytes();
        assert!(held.is_some_and(|bytes| bytes > 1 << 20), "{held:?}");
        let block = vec![1u8; 64 << 20];
        usage.look(&[own, -1]);
        assert!(usage.memory_peak_bytes() > held.map(|bytes| bytes + (32 << 20)), "{}", block.len());
        let peak = usage.memory_peak_bytes();
        usage.look(&[]);
        assert_eq!(usage.memory_peak_bytes(), peak);
        assert!(usage.written_bytes().is_some());
    }
}
