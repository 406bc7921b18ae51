//! How much memory do a treatment's processes hold, and what have they read and written?
//!
//! Looked at while they live: what a process does after the last look is not known. Cumulative figures
//! of a process that has ended stay as last seen.

use super::resident_bytes;
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
