//! Control groups (cgroup v2) that track all processes of a treatment.
//!
//! A control group holds every process started in it and all their descendants until they end. It also
//! accounts for their resource usage. So processes are found that left their process group or cleared their
//! environment.
//!
//! # Invariants
//! Never sets a limit. No group is created where membership would change how the processes are scheduled.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After SIGKILL only a process stuck in the kernel is left.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Directory under which this process may create groups. `None` without cgroup v2, or without write
/// permission there.
pub fn base() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (place, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    })?;
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let base = mount.join(own);
    // A group beside others would get its own share of the CPU: that would be part of what is priced.
    let shared_out = std::fs::read_to_string(base.join("cgroup.subtree_control")).ok()?;
    let schedules = shared_out.split_ascii_whitespace().any(|controller| controller == "cpu");
    let may_write = nix::unistd::access(&base, nix::unistd::AccessFlags::W_OK).is_ok();
    (may_write && !schedules).then_some(base)
}

/// Processes in the group and in those below it.
pub fn members(group: &Path) -> Vec<i32> {
    let pids = |path: &Path| {
        let text = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse::<i32>().ok()).collect::<Vec<_>>()
    };
    let mut found = pids(group);
    found.extend(below(group).iter().flat_map(|path| pids(path)));
    found
}

/// CPU time of all processes of the group so far, including ended ones, microseconds. `None` if the group no
/// longer exists.
pub fn cpu_us(group: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(group.join("cpu.stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
}

/// Resource usage of a group's processes, including ended ones. A field is `None` if the kernel does not
/// provide it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub memory_peak_bytes: Option<u64>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// Time in which some process of the group waited for a CPU, a device, memory; microseconds.
    pub waited_cpu_us: Option<u64>,
    pub waited_io_us: Option<u64>,
    pub waited_memory_us: Option<u64>,
}

/// Reads the resource usage of a group. Peak memory and I/O need controllers that may not be delegated on
/// this host. Wait times need pressure stall information (PSI) in the kernel.
pub fn figures(group: &Path) -> Figures {
    let text = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let io = text("io.stat");
    let bytes = |key: &str| {
        let values = io.as_deref()?.split_ascii_whitespace().filter_map(|field| field.strip_prefix(key));
        Some(values.filter_map(|value| value.parse::<u64>().ok()).sum())
    };
    let waited = |name: &str| pressure_us(&text(name)?);
    Figures {
        memory_peak_bytes: text("memory.peak").and_then(|peak| peak.trim().parse().ok()),
        read_bytes: bytes("rbytes="),
        written_bytes: bytes("wbytes="),
        waited_cpu_us: waited("cpu.pressure"),
        waited_io_us: waited("io.pressure"),
        waited_memory_us: waited("memory.pressure"),
    }
}

/// Parses `total` of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
fn pressure_us(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

/// Kills the remaining processes of the group and removes it. Returns the number of processes killed; `None`
/// if the group no longer existed.
#[allow(clippy::disallowed_methods)] // members of a control group that this run made
pub fn remove(group: &Path) -> Result<Option<usize>> {
    if !group.exists() {
        return Ok(None);
    }
    let failed = || format!("cannot remove control group {}", group.display());
    let left = members(group);
    let begun = Instant::now();
    while !members(group).is_empty() {
        // Since Linux 5.14 for all at once; before that one by one, until no new ones come.
        if std::fs::write(group.join("cgroup.kill"), "1").is_err() {
            for pid in members(group) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if begun.elapsed() > GONE_WITHIN {
            bail!(
                "processes {:?} of control group {} are stuck in the kernel",
                members(group),
                group.display()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for path in below(group).iter().map(PathBuf::as_path).chain([group]) {
        // The last process is gone from the list a moment before the group is free.
        while let Err(error) = std::fs::remove_dir(path) {
            match error.kind() {
                ErrorKind::NotFound => break,
                ErrorKind::ResourceBusy if begun.elapsed() < GONE_WITHIN => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return Err(error).with_context(failed),
            }
        }
    }
    Ok(Some(left.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_far_as_there_are_any() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(figures(group.path()), Figures::default());
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        write("memory.peak", "4096\n");
        write("io.stat", "8:0 rbytes=10 wbytes=3 rios=1 wios=1\n254:0 rbytes=5 wbytes=4 rios=1\n");
        write("cpu.pressure", "some avg10=0.00 avg60=1.10 avg300=0.20 total=777\nfull avg10=0.0 total=1\n");
        let expected = Figures {
            memory_peak_bytes: Some(4096),
            read_bytes: Some(15),
            written_bytes: Some(7),
            waited_cpu_us: Some(777),
            ..Figures::default()
        };
        assert_eq!(figures(group.path()), expected);
    }
}
