//! CPU and memory limits of servers and treatments, by control groups.
//!
//! With cgroup version 2 one group holds all of them; with version 1 there is one in each limiting hierarchy.
//! toll itself, its driver and the far end of a link stay outside.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use toll_journal::{Journal, Undo};
use toll_record::Limits;
use toll_sys::cgroup::{Own, shares_out};

/// The groups of a run.
#[derive(Debug, Default)]
pub struct LimitGroups {
    /// Groups that each limited process enters.
    pub groups: Vec<PathBuf>,
    /// The version 2 group inside which treatments' groups are made: there a process has only one group.
    pub parent: Option<PathBuf>,
}

/// Period of CPU limits, microseconds. A group that has used its quota waits for the next period.
const PERIOD_US: f64 = 100_000.0;

/// Creates the groups, empty.
///
/// # Errors
/// The kernel has no control groups, or does not let this user create any.
pub fn create_limit_groups(limits: &Limits, journal: &Journal) -> anyhow::Result<LimitGroups> {
    let own = Own::read()?;
    let name = format!("toll-{}-limits", journal.run_id());
    let wanted = [("cpu", limits.cpus.is_some()), ("memory", limits.memory_bytes.is_some())];
    let wanted = wanted.into_iter().filter(|(_, is)| *is).map(|(controller, _)| controller);
    let mut limited = LimitGroups::default();
    for controller in wanted {
        let Some(place) = find_group_dir(&own, controller) else {
            bail!(
                "the profile has `limits`, and this host has no control groups for {controller}: choose another profile"
            );
        };
        let (GroupDir::V1(above) | GroupDir::V2(above)) = &place;
        let group = above.join(&name);
        if !limited.groups.contains(&group) {
            journal.record(Undo::Cgroup { path: group.clone() })?;
            std::fs::create_dir_all(&group).with_context(|| {
                format!(
                    "the profile has `limits`, and toll may not make {}: run toll with sudo",
                    group.display()
                )
            })?;
            limited.groups.push(group.clone());
        }
        for (file, value) in limit_files(&place, controller, limits) {
            let path = group.join(file);
            std::fs::write(&path, &value)
                .with_context(|| format!("cannot write {value} to {}", path.display()))?;
        }
        if matches!(place, GroupDir::V2(_)) {
            limited.parent = Some(group);
        }
    }
    // Of version 2, processes live in the groups below.
    if limited.parent.is_some() {
        limited.groups.clear();
    }
    Ok(limited)
}

impl LimitGroups {
    /// Moves a server into the groups, with all its threads.
    ///
    /// # Errors
    /// The kernel refuses the process.
    pub fn add_process(&self, pid: i32, name: &str) -> anyhow::Result<()> {
        let below = self.parent.as_ref().map(|holds| holds.join(name));
        if let Some(below) = &below {
            std::fs::create_dir_all(below).with_context(|| format!("cannot make {}", below.display()))?;
        }
        for group in self.groups.iter().chain(&below) {
            let list = group.join("cgroup.procs");
            std::fs::write(&list, pid.to_string())
                .with_context(|| format!("cannot put the server into {}", group.display()))?;
        }
        Ok(())
    }
}

/// Directory for new groups with a controller, by the version of the hierarchy.
#[derive(Debug, PartialEq, Eq)]
enum GroupDir {
    V1(PathBuf),
    V2(PathBuf),
}

fn find_group_dir(own: &Own, controller: &str) -> Option<GroupDir> {
    if let Some(group) = own.legacy(controller) {
        return Some(GroupDir::V1(group));
    }
    // At the top: where this process is, there are processes beside it, and such a group cannot be shared out.
    let top = own.unified_top()?;
    shares_out(&top, controller)?.then_some(GroupDir::V2(top))
}

/// Files of a group, and their values.
fn limit_files(place: &GroupDir, controller: &str, limits: &Limits) -> Vec<(&'static Path, String)> {
    let quota = limits.cpus.map(|cpus| (cpus * PERIOD_US).round());
    let memory = limits.memory_bytes.map(|bytes| bytes.to_string());
    let of = |file: &'static str, value: Option<String>| value.map(|value| (Path::new(file), value));
    match (place, controller) {
        (GroupDir::V1(_), "cpu") => vec![
            of("cpu.cfs_period_us", Some(PERIOD_US.to_string())),
            of("cpu.cfs_quota_us", quota.map(|q| q.to_string())),
        ],
        (GroupDir::V1(_), _) => vec![of("memory.limit_in_bytes", memory)],
        (GroupDir::V2(_), "cpu") => vec![of("cpu.max", quota.map(|q| format!("{q} {PERIOD_US}")))],
        (GroupDir::V2(_), _) => vec![of("memory.max", memory)],
    }
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_where_this_process_is_in_each_hierarchy_that_limits() {
        let own = |mounts: &str| Own::of(mounts.into(), "1:cpu,cpuacct:/a/b\n0::/x\n".into());
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let two = format!("none {} cgroup2 rw 0 0\n", top.path().display());
        let both = own(&format!("{two}none /c/cpu cgroup rw,cpu,cpuacct 0 0\n"));
        assert_eq!(find_group_dir(&both, "cpu"), Some(GroupDir::V1("/c/cpu/a/b".into())));
        assert_eq!(find_group_dir(&both, "memory"), Some(GroupDir::V2(top.path().into())));
        assert_eq!(
            (find_group_dir(&both, "io"), find_group_dir(&own("none /nowhere cgroup2 rw 0 0"), "cpu")),
            (None, None)
        );
    }

    #[test]
    fn limits_are_written_as_each_version_reads_them() {
        let limits = Limits { cpus: Some(1.5), memory_bytes: Some(512 << 20) };
        let written = |place: GroupDir, controller| {
            let all = limit_files(&place, controller, &limits).into_iter();
            all.map(|(file, value)| format!("{}={value}", file.display())).collect::<Vec<_>>()
        };
        let (one, two) = (|| GroupDir::V1("/".into()), || GroupDir::V2("/".into()));
        assert_eq!(written(one(), "cpu"), ["cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000"]);
        assert_eq!(written(one(), "memory"), ["memory.limit_in_bytes=536870912"]);
        assert_eq!(written(two(), "cpu"), ["cpu.max=150000 100000"]);
        assert_eq!(written(two(), "memory"), ["memory.max=536870912"]);
    }
}
