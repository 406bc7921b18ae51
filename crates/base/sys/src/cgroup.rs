//! Control groups: those of this process, and those (cgroup v2) that track all processes of a treatment.
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
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Groups of this process in each hierarchy, and where the hierarchies are mounted.
#[derive(Debug)]
pub struct Own {
    /// As /proc/self/mounts.
    mounts: String,
    /// As /proc/self/cgroup.
    groups: String,
}

impl Own {
    pub fn read() -> Result<Self> {
        let text = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        Ok(Self::of(text("/proc/self/mounts")?, text("/proc/self/cgroup")?))
    }

    /// From the text of both files.
    pub fn of(mounts: String, groups: String) -> Self {
        Self { mounts, groups }
    }

    /// Top of the version 2 hierarchy.
    pub fn unified_top(&self) -> Option<PathBuf> {
        self.mounted("cgroup2", None)
    }

    /// This process's group of version 2.
    pub fn unified(&self) -> Option<PathBuf> {
        let path = self.groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Some(self.unified_top()?.join(path))
    }

    /// This process's group in the version 1 hierarchy of a controller.
    pub fn legacy(&self, controller: &str) -> Option<PathBuf> {
        let path = self.groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            controllers.split(',').any(|c| c == controller).then_some(path)
        })?;
        Some(self.mounted("cgroup", Some(controller))?.join(path.trim_start_matches('/')))
    }

    fn mounted(&self, kind: &str, option: Option<&str>) -> Option<PathBuf> {
        self.mounts.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (at, of_kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let has = option.is_none_or(|option| options.split(',').any(|o| o == option));
            (of_kind == kind && has).then(|| PathBuf::from(at))
        })
    }
}

/// True if a version 2 group divides this resource among those below it. `None` if that cannot be read.
pub fn shares_out(group: &Path, controller: &str) -> Option<bool> {
    let controllers = std::fs::read_to_string(group.join("cgroup.subtree_control")).ok()?;
    Some(controllers.split_ascii_whitespace().any(|c| c == controller))
}

/// Directory under which this process may create groups. `None` without cgroup v2, or without write
/// permission there.
pub fn find_parent_group() -> Option<PathBuf> {
    let base = Own::read().ok()?.unified()?;
    // A group beside others would get its own share of the CPU: that would be part of what is priced.
    let schedules = shares_out(&base, "cpu")?;
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
    found.extend(list_subgroups(group).iter().flat_map(|path| pids(path)));
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
pub struct ResourceUsage {
    pub memory_peak_bytes: Option<u64>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// Time in which some process of the group waited for a CPU, a device, memory; microseconds.
    pub cpu_pressure_us: Option<u64>,
    pub io_pressure_us: Option<u64>,
    pub memory_pressure_us: Option<u64>,
}

/// Reads the resource usage of a group. Peak memory and I/O need controllers that may not be delegated on
/// this host. Wait times need pressure stall information (PSI) in the kernel.
pub fn read_resource_usage(group: &Path) -> ResourceUsage {
    let text = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let io = text("io.stat");
    let bytes = |key: &str| {
        let values = io.as_deref()?.split_ascii_whitespace().filter_map(|field| field.strip_prefix(key));
        Some(values.filter_map(|value| value.parse::<u64>().ok()).sum())
    };
    let waited = |name: &str| pressure_us(&text(name)?);
    ResourceUsage {
        memory_peak_bytes: text("memory.peak").and_then(|peak| peak.trim().parse().ok()),
        read_bytes: bytes("rbytes="),
        written_bytes: bytes("wbytes="),
        cpu_pressure_us: waited("cpu.pressure"),
        io_pressure_us: waited("io.pressure"),
        memory_pressure_us: waited("memory.pressure"),
    }
}

/// Parses `total` of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
fn pressure_us(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

fn list_subgroups(group: &Path) -> Vec<PathBuf> {
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
        if begun.elapsed() > KILL_TIMEOUT {
            bail!(
                "processes {:?} of control group {} are stuck in the kernel",
                members(group),
                group.display()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for path in list_subgroups(group).iter().map(PathBuf::as_path).chain([group]) {
        // The last process is gone from the list a moment before the group is free.
        while let Err(error) = std::fs::remove_dir(path) {
            match error.kind() {
                ErrorKind::NotFound => break,
                ErrorKind::ResourceBusy if begun.elapsed() < KILL_TIMEOUT => {
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
    fn each_hierarchy_has_its_group_of_this_process() {
        let mounts = "none /c/cpuset cgroup rw,cpuset 0 0\nnone /c/memory cgroup rw,memory 0 0\n\
                      none /c/cpu cgroup rw,cpu,cpuacct 0 0\nnone /c/u cgroup2 rw 0 0\n";
        let own = |groups: &str| Own::of(mounts.into(), groups.into());
        let both = own("4:cpuset:/s\n3:io:/\n2:cpu,cpuacct:/a/b\n1:memory:/\n0::/x\n");
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!((both.unified_top(), both.unified()), (path("/c/u"), path("/c/u/x")));
        assert_eq!((both.legacy("cpu"), both.legacy("memory")), (path("/c/cpu/a/b"), path("/c/memory/")));
        assert_eq!((both.legacy("io"), both.legacy("cpuset")), (None, path("/c/cpuset/s")));
        assert_eq!((own("0::/\n").unified(), own("1:cpu:/\n").unified()), (path("/c/u/"), None));
        assert_eq!(Own::of(String::new(), "0::/x\n1:cpu:/\n".into()).unified(), None);
    }

    #[test]
    fn a_group_shares_out_what_it_names_as_a_word() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(shares_out(group.path(), "cpu"), None);
        std::fs::write(group.path().join("cgroup.subtree_control"), "cpuset memory\n").unwrap();
        assert_eq!(["cpu", "memory"].map(|c| shares_out(group.path(), c)), [Some(false), Some(true)]);
    }

    #[test]
    fn figures_are_read_as_far_as_there_are_any() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(read_resource_usage(group.path()), ResourceUsage::default());
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        write("memory.peak", "4096\n");
        write("io.stat", "8:0 rbytes=10 wbytes=3 rios=1 wios=1\n254:0 rbytes=5 wbytes=4 rios=1\n");
        write("cpu.pressure", "some avg10=0.00 avg60=1.10 avg300=0.20 total=777\nfull avg10=0.0 total=1\n");
        let expected = ResourceUsage {
            memory_peak_bytes: Some(4096),
            read_bytes: Some(15),
            written_bytes: Some(7),
            cpu_pressure_us: Some(777),
            ..ResourceUsage::default()
        };
        assert_eq!(read_resource_usage(group.path()), expected);
    }
}
