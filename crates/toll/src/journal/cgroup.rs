//! How are all processes of a treatment found again, even those that left its process group and
//! cleared their environment?
//!
//! A control group (cgroup v2) holds whoever was started in it and all their children, until they
//! have ended, and knows what they used. Sets no limit, and is not made where being in one would
//! change how the processes are scheduled.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After SIGKILL only a process stuck in the kernel is left.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The directory under which this process may make groups; none without cgroup v2, or without the
/// right to write there.
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

/// CPU that all its processes have used so far, those that ended included; microseconds. Absent once
/// the group is gone.
pub fn cpu_us(group: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(group.join("cpu.stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

/// Kills whoever is left in the group and removes it. The answer says how many there were; none
/// where the group was gone.
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
