//! Locks against a second run on the same host or server.
//!
//! Two runs at once would measure each other's overhead. Each would also take settings changed by the other
//! for the original ones. Both locks are released when their holder dies, for any reason.

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use toll_mysql::{Connection, Target};
use toll_sys::paths;

/// Exclusive lock for measurements on this host, held until it is dropped.
///
/// The file is empty: who holds it is the kernel's word. What anybody may write into it would be shown to a user, and
/// a run's id there would tell everybody how its processes are marked.
#[derive(Debug)]
pub struct HostLock(#[allow(dead_code)] Flock<File>);

impl HostLock {
    /// Never waits. Fails with the holder's process if another run holds the lock.
    ///
    /// The run's id is written nowhere that others can read.
    pub fn acquire() -> anyhow::Result<Self> {
        Self::acquire_at(&paths::lock_file())
    }

    fn acquire_at(path: &Path) -> anyhow::Result<Self> {
        let file =
            open_lock_file(path).with_context(|| format!("cannot open the lock file {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self(lock)),
            Err((file, _)) => bail!(
                "another toll run is active on this host ({}). Runs would disturb each other: wait for it, or \
                 end it.",
                describe_holder(&file).unwrap_or_else(|| "a process that cannot be seen from here".into())
            ),
        }
    }
}

/// Every user of the host locks the same file, in a directory that all may write to. Never follows a link that somebody has
/// put there, nor waits for the other end of a pipe.
fn open_lock_file(path: &Path) -> std::io::Result<File> {
    let open = |options: &mut OpenOptions| {
        options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path)
    };
    let there = || open(OpenOptions::new().read(true));
    let make = || -> std::io::Result<File> {
        let file = open(OpenOptions::new().read(true).write(true).create_new(true).mode(0o644))?;
        // Whatever the umask: another user's run locks it too, for which reading it is enough.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        Ok(file)
    };
    let file = match there() {
        Err(error) if error.kind() == ErrorKind::NotFound => match make() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => there()?,
            made => made?,
        },
        opened => opened?,
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(std::io::Error::other("it is not a plain file: remove it"));
    }
    Ok(file)
}

/// The process that holds a lock on this file, its program and its user, by the kernel's list of locks.
fn describe_holder(file: &File) -> Option<String> {
    let inode = file.metadata().ok()?.ino();
    let pid = find_holder(&toll_sys::read_trimmed("/proc/locks"), inode)?;
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid());
    let user = owner.map(|uid| match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => format!(", user {}", user.name),
        _ => format!(", uid {uid}"),
    });
    // A process names itself as it likes.
    let program = toll_sys::read_trimmed(&format!("/proc/{pid}/comm"));
    let program: String = program.chars().filter(|c| c.is_ascii_graphic()).collect();
    let program = if program.is_empty() { String::new() } else { format!(", {program}") };
    Some(format!("pid {pid}{program}{}", user.unwrap_or_default()))
}

/// proc_locks(5): `1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF`; a device has many files, and /run/lock few.
fn find_holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = words[..] else { return None };
        let same = file.rsplit_once(':')?.1.parse() == Ok(inode);
        pid.parse().ok().filter(|pid| same && *pid > 0)
    })
}

const LOCK_NAME: &str = "toll: one run at a time";
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes the exclusive lock for measurements on an existing server, which the session holds until it ends.
///
/// # Errors
/// Another session holds it, or the server at `target` does not answer.
pub fn take_server_lock(connection: &mut Connection, target: &Target) -> anyhow::Result<()> {
    connection.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    // Should the session say nothing for long, the server would end it.
    connection.exec_drop("SET SESSION wait_timeout = 31536000")?;
    let taken = connection.query(&format!("SELECT GET_LOCK('{LOCK_NAME}', 0)"))?;
    if taken.scalar() != Some("1") {
        let holder = connection.query(&format!("SELECT IS_USED_LOCK('{LOCK_NAME}')"))?;
        bail!(
            "another toll run is going on on the server at {} (its connection {}): one at a time, or each \
             takes what the other has switched on for the server's own; wait for it, or end it",
            target.address,
            holder.scalar().unwrap_or("is not known")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_is_told_who_holds_the_host_by_the_kernel_and_a_third_gets_it() {
        // In memory, as /run is: the kernel's list names other inodes where one file system covers another.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("lock");
        // Whatever anybody has written there is not shown.
        std::fs::write(&path, "7 pid 7, \x1b[2Jnobody").unwrap();
        let first = HostLock::acquire_at(&path).unwrap();
        let refused = HostLock::acquire_at(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("(pid {}, ", std::process::id())), "{refused}");
        assert!(refused.contains("user ") || refused.contains("uid "), "{refused}");
        assert!(!refused.contains('\x1b') && !refused.contains("nobody"), "{refused}");
        drop(first);
        HostLock::acquire_at(&path).unwrap();
    }

    #[test]
    fn the_lock_says_nothing_and_only_its_owner_may_write_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _held = HostLock::acquire_at(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o644);
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1a:55 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 00:1a:56 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 00:1a:55 0 EOF\n3: FLOCK  ADVISORY  WRITE 10 00:1a:55 0 EOF\n";
        assert_eq!((find_holder(locks, 55), find_holder(locks, 57)), (Some(10), None));
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed_and_a_pipe_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("lock"), dir.path().join("other"));
        std::fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(HostLock::acquire_at(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&other, &path).unwrap();
        assert!(HostLock::acquire_at(&path).is_err());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(HostLock::acquire_at(&path).is_err());
    }
}
