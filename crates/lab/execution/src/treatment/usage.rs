//! Memory and I/O of a treatment's processes over time.
//!
//! Processes are polled while they live, so that activity after the last poll is unknown. Cumulative counters
//! of an ended process stay at their last value.

use super::resident_bytes;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use toll_sys::{clock, proc_file};

/// Usage of one process of a treatment, with all its children.
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
    /// Polls the processes that exist now.
    pub fn poll(&mut self, pids: &[i32]) {
        // A process that has ended holds nothing, and says nothing of what it held.
        let resident = pids.iter().map(|&pid| resident_bytes(pid as u32)).filter(|&bytes| bytes > 0);
        let resident: Vec<u64> = resident.collect();
        if !resident.is_empty() {
            self.memory_peak_bytes = self.memory_peak_bytes.max(Some(resident.iter().sum()));
        }
        self.io.extend(pids.iter().filter_map(|&pid| Some((pid, read_io(pid)?))));
    }

    /// Largest sum of resident sets, bytes.
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

/// Bytes that one process has written, to a file, a pipe, a connection or /dev/null.
#[derive(Debug, Default)]
pub struct OutputMeter {
    writer: Option<u32>,
    /// Time of the last poll (at first the start), and bytes by then.
    last: (u64, u64),
    /// Bytes of `last` that it wrote before it became its program.
    written_before: u64,
    was_seen: bool,
    written: Vec<WriteSample>,
}

/// Bytes written between two polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteSample {
    /// Its end.
    pub mono_us: u64,
    pub width_us: u64,
    pub bytes: u64,
}

impl OutputMeter {
    /// Output of a process that started at that time and wrote `before` bytes before it became its program.
    pub fn of(writer: Option<u32>, begun_us: u64, before: u64) -> Self {
        Self { writer, last: (begun_us, before), written_before: before, ..Self::default() }
    }

    pub fn poll(&mut self) {
        let Some(bytes) = self.writer.and_then(read_output_bytes) else { return };
        let (then, before) = self.last;
        let now = clock::mono_us().max(then + 1);
        self.written.push(WriteSample {
            mono_us: now,
            width_us: now - then,
            bytes: bytes.saturating_sub(before),
        });
        (self.last, self.was_seen) = ((now, bytes.max(before)), true);
    }

    /// True if it has ended and nobody was informed yet.
    pub fn has_writer_ended(&self) -> bool {
        let Some(pid) = self.writer else { return false };
        let only_look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let seen = waitid(Id::Pid(Pid::from_raw(pid as i32)), only_look);
        seen.is_ok_and(|status| status != WaitStatus::StillAlive)
    }

    /// Output since the last call.
    pub fn drain(&mut self) -> Vec<WriteSample> {
        std::mem::take(&mut self.written)
    }

    /// Bytes in total. `None` if they could not be read.
    pub fn bytes(&self) -> Option<u64> {
        self.was_seen.then(|| self.last.1 - self.written_before)
    }
}

/// Bytes by write(2) and similar calls, whatever the descriptor.
fn read_output_bytes(pid: u32) -> Option<u64> {
    proc_file::number(&proc_file::io(pid), "wchar")
}

/// `None` if toll may not read it (another user's process).
fn read_io(pid: i32) -> Option<Io> {
    let text = proc_file::io(pid);
    let field = |name: &str| proc_file::number(&text, name);
    Some(Io { read_bytes: field("read_bytes")?, written_bytes: field("write_bytes")? })
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
        let mut output = OutputMeter::of(Some(child.id()), clock::mono_us(), 0);
        assert!(!output.has_writer_ended());
        drop(child.stdin.take());
        while !output.has_writer_ended() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        output.poll();
        // Its own, and what the children wrote that it waited for.
        assert_eq!(output.bytes(), Some(800_000));
        let written = output.drain();
        assert_eq!(written.iter().map(|written| written.bytes).sum::<u64>(), 800_000);
        assert!(written.iter().all(|written| written.width_us > 0) && output.drain().is_empty());
        child.wait().unwrap();
        let mut nobody = OutputMeter::of(None, 7, 0);
        nobody.poll();
        assert!(nobody.bytes().is_none() && !nobody.has_writer_ended() && nobody.drain().is_empty());
    }

    #[test]
    fn the_peak_stays_and_a_process_that_is_gone_keeps_what_it_wrote() {
        let own = std::process::id() as i32;
        let mut usage = Usage::default();
        usage.poll(&[]);
        assert_eq!((usage.memory_peak_bytes(), usage.read_bytes()), (None, None));
        usage.poll(&[own]);
        let held = usage.memory_peak_bytes();
        assert!(held.is_some_and(|bytes| bytes > 1 << 20), "{held:?}");
        let block = vec![1u8; 64 << 20];
        usage.poll(&[own, -1]);
        assert!(usage.memory_peak_bytes() > held.map(|bytes| bytes + (32 << 20)), "{}", block.len());
        let peak = usage.memory_peak_bytes();
        usage.poll(&[]);
        assert_eq!(usage.memory_peak_bytes(), peak);
        assert!(usage.written_bytes().is_some());
    }
}
