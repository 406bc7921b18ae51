//! Memory of the host and memory available to a new server.
//!
//! Reads /proc and cgroup limits. Never allocates memory to find out.

use crate::cgroup::Own;
use crate::{proc_file, read_trimmed};

/// Total memory of the machine, bytes.
pub fn total_bytes() -> u64 {
    meminfo("MemTotal").unwrap_or(0)
}

/// Memory that a new process can use without swapping, bytes, or the control group's headroom if that is
/// less.
pub fn available_bytes() -> u64 {
    let machine = meminfo("MemAvailable").unwrap_or(0);
    match cgroup_headroom() {
        Some(room) => machine.min(room),
        None => machine,
    }
}

/// Dirty pages and pages under writeback, bytes.
pub fn pending_writeback_bytes() -> u64 {
    meminfo("Dirty").unwrap_or(0) + meminfo("Writeback").unwrap_or(0)
}

fn meminfo(field: &str) -> Option<u64> {
    proc_file::bytes(&read_trimmed("/proc/meminfo"), field)
}

/// Limit minus usage in the cgroup v2 hierarchy, bytes; `None` without a limit.
fn cgroup_headroom() -> Option<u64> {
    let group = Own::read().ok()?.unified()?;
    let bytes = |name| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    Some(bytes("memory.max")?.saturating_sub(bytes("memory.current")?))
}
