//! User id of nobody, for a server that executes what somebody else wrote.
//!
//! No account has it and no process runs as it, so what runs as it can read and write what everybody can, and its own
//! files. An account such as `mysql` would not do: a production server's files may be its.

use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Group, Uid, User};
use std::collections::HashSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toll_sys::child_process;

/// Range of systemd's dynamic users, which no distribution gives to an account.
const IDS: std::ops::RangeInclusive<u32> = 61_184..=65_519;

/// A user and a group of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnprivilegedUser {
    id: u32,
}

impl UnprivilegedUser {
    /// Finds a free id. Only root can start processes as it.
    ///
    /// # Errors
    /// There is none, or this host does not let root become it (a container with a single user).
    pub fn allocate() -> Result<Self> {
        let in_use = process_owners();
        let is_free = |id: &u32| {
            !in_use.contains(id)
                && matches!(User::from_uid(Uid::from_raw(*id)), Ok(None))
                && matches!(Group::from_gid(Gid::from_raw(*id)), Ok(None))
        };
        // Two that look at the same time begin at two places.
        let (first, count) = (*IDS.start(), IDS.end() - IDS.start() + 1);
        let from = std::process::id() % count;
        let found = (0..count).map(|step| first + (from + step) % count).find(is_free);
        let Some(id) = found else { bail!("no user id from {first} to {} is free", IDS.end()) };
        let user = Self { id };
        let mut probe = child_process::clean_env_command("true");
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        user.run_as(&mut probe, Path::new("/"));
        probe.status().with_context(|| format!("no process can run as user id {id} here"))?;
        Ok(user)
    }

    /// Has the command run as this user, in `dir`, with no group of toll's.
    pub(super) fn run_as(self, command: &mut Command, dir: &Path) {
        command.uid(self.id).gid(self.id).current_dir(dir);
    }

    /// Gives it a file or directory.
    pub(super) fn own(self, path: &Path) -> Result<()> {
        lchown(path, Some(self.id), Some(self.id))
            .with_context(|| format!("cannot give {} to user id {}", path.display(), self.id))
    }

    /// `dir` where this user can get to it, else the host's directory for large temporary files. Root's own cache is
    /// for root alone.
    pub(super) fn reachable_dir(dir: PathBuf) -> Result<PathBuf> {
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let fallback = PathBuf::from("/var/tmp");
        [dir, fallback].into_iter().find(|dir| is_reachable(dir)).context(
            "no directory that every user can reach: set XDG_CACHE_HOME to one for the scratch server's files",
        )
    }
}

/// True if everybody may pass through it and all directories above.
fn is_reachable(dir: &Path) -> bool {
    let passes = |dir: &Path| {
        std::fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o001 != 0)
    };
    // Without the links on its way, which lead elsewhere.
    dir.canonicalize().is_ok_and(|dir| dir.ancestors().all(passes))
}

fn process_owners() -> HashSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok().map(|meta| meta.uid())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn a_directory_behind_a_closed_one_is_not_reachable() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        let close = |mode| std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        close(0o755);
        assert_eq!(is_reachable(&below), is_reachable(&std::env::temp_dir()));
        close(0o700);
        assert!(!is_reachable(&below));
        assert!(!is_reachable(&dir.path().join("none")));
    }

    #[test]
    fn an_id_of_nobody_is_no_accounts_and_no_processes() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let Ok(user) = UnprivilegedUser::allocate() else { return };
        assert!(IDS.contains(&user.id) && !process_owners().contains(&user.id));
        let dir = tempfile::tempdir().unwrap();
        let mut command = child_process::clean_env_command("sh");
        command.args(["-c", "id -u; id -g; id -G"]);
        user.run_as(&mut command, Path::new("/"));
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(said, format!("{0}\n{0}\n{0}\n", user.id));
        user.own(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(dir.path()).unwrap().uid(), user.id);
    }
}
