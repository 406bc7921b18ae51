//! Locks against a second run on the same host or server.
//!
//! Two runs at once would measure each other's overhead. Each would also take settings changed by the other
//! for the original ones. Both locks are released when their holder dies, for any reason.

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use toll_mysql::{Connection, Target};
use toll_sys::paths;
use toll_sys::process::ProcessId;

/// Exclusive lock for measurements on this host, held until it is dropped.
#[derive(Debug)]
pub struct HostLock(#[allow(dead_code)] Flock<File>);

impl HostLock {
    /// Never waits. Fails with the holder's run id if another run holds the lock.
    pub fn acquire(run_id: &str) -> anyhow::Result<Self> {
        Self::acquire_at(&paths::lock_file(), run_id)
    }

    fn acquire_at(path: &Path, run_id: &str) -> anyhow::Result<Self> {
        let file =
            open_lock_file(path).with_context(|| format!("cannot open the lock file {}", path.display()))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, _)) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = holder.split_once(' ').map_or("", |(_, said)| said).trim();
                bail!(
                    "another toll run is active on this host ({}). Runs would disturb each other: wait for \
                     it, or end it.",
                    if holder.is_empty() { "unknown process" } else { holder }
                );
            }
        };
        // Only for those who are told to wait; whoever may not write here holds the lock all the same.
        if let Ok(own) = ProcessId::current() {
            let line = format!("{} pid {}, {run_id}\n", own.start_ticks, own.pid);
            let _ =
                lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| lock.write_all(line.as_bytes()));
        }
        Ok(Self(lock))
    }
}

/// Every user of the host locks the same file, in a directory that all may write to. Never follows a
/// link that somebody has put there, nor writes to a file that has another name elsewhere.
fn open_lock_file(path: &Path) -> std::io::Result<File> {
    let make = || -> std::io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(path)?;
        // Whatever the umask: another user's run writes its own line there.
        file.set_permissions(std::fs::Permissions::from_mode(0o666))?;
        Ok(file)
    };
    let there = |write: bool| {
        OpenOptions::new().read(true).write(write).custom_flags(nix::libc::O_NOFOLLOW).open(path)
    };
    let file = match there(true) {
        Err(error) if error.kind() == ErrorKind::NotFound => match make() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => there(true)?,
            made => made?,
        },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => there(false)?,
        opened => opened?,
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(std::io::Error::other("it is not a plain file: remove it"));
    }
    Ok(file)
}

/// Exclusive lock for measurements on an existing server: a session with a user-level lock.
#[derive(Debug)]
pub struct ServerLock {
    target: Target,
    connection: Connection,
}

const LOCK_NAME: &str = "toll: one run at a time";
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

impl ServerLock {
    pub fn acquire(target: &Target) -> anyhow::Result<Self> {
        let mut connection = Connection::connect(target)?;
        connection.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        // The session says nothing until the run has ended, which may be hours.
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
        Ok(Self { target: target.clone(), connection })
    }

    /// Renews the lock after a restart of the server or a kill of the session.
    pub fn keep_alive(&mut self) -> anyhow::Result<()> {
        if self.connection.ping().is_err() {
            *self = Self::acquire(&self.target)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_is_told_who_holds_the_host_and_a_third_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = HostLock::acquire_at(&path, "run-one").unwrap();
        let refused = HostLock::acquire_at(&path, "run-two").unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}, run-one", std::process::id())), "{refused}");
        drop(first);
        HostLock::acquire_at(&path, "run-three").unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("lock"), dir.path().join("other"));
        std::fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(HostLock::acquire_at(&path, "run").is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&other, &path).unwrap();
        assert!(HostLock::acquire_at(&path, "run").is_err());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
    }
}
