//! Privilege drop after all resources are open: user, capabilities, system calls.

use crate::seccomp;
use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgroups, setresgid, setresuid};
use std::ffi::CString;
use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PrivilegesError {
    #[error("there is no user {0}: name one of this host")]
    NoUser(String),
    #[error("only root can go on as {0}: run as root, or leave --user away")]
    NotRoot(String),
    #[error("cannot {what}: {source}")]
    Failed { what: &'static str, source: io::Error },
}

/// Drops every capability, and changes to another user if one is named. Nothing that this process starts later gets any back,
/// and it cannot start another program. Root that stays root keeps CAP_DAC_OVERRIDE, to write into others' directories. Call it
/// before there are other threads: capabilities are per thread.
///
/// # Errors
/// No such user, not root, or the kernel refuses: then nothing may be taken for dropped.
pub fn drop_privileges(user: Option<&str>) -> Result<(), PrivilegesError> {
    let failed = |what: &'static str| move |source: io::Error| PrivilegesError::Failed { what, source };
    if let Some(name) = user {
        let found = User::from_name(name).map_err(|error| failed("look up a user")(error.into()))?;
        let user = found.ok_or_else(|| PrivilegesError::NoUser(name.to_owned()))?;
        if user.uid != geteuid() {
            if !geteuid().is_root() {
                return Err(PrivilegesError::NotRoot(name.to_owned()));
            }
            become_user(&user).map_err(failed("change the user"))?;
        }
    }
    nix::sys::prctl::set_no_new_privs().map_err(|error| failed("forbid new privileges")(error.into()))?;
    let wanted = geteuid().is_root().then_some(Capability::CAP_DAC_OVERRIDE);
    restrict_capabilities(wanted).map_err(|error| failed("drop capabilities")(io::Error::other(error)))?;
    seccomp::install().map_err(failed("deny system calls that a capture never makes"))
}

fn become_user(user: &User) -> io::Result<()> {
    let name = CString::new(user.name.as_str())?;
    if initgroups(&name, user.gid).is_err() {
        setgroups(&[user.gid])?;
    }
    let (gid, uid): (Gid, Uid) = (user.gid, user.uid);
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// Drops all capabilities of this thread but `wanted`, if it has that one. The kernel clears the ambient set with the other two.
fn restrict_capabilities(wanted: Option<Capability>) -> Result<(), CapsError> {
    let mut kept = CapsHashSet::new();
    if let Some(wanted) = wanted
        && caps::has_cap(None, CapSet::Permitted, wanted)?
    {
        kept.insert(wanted);
    }
    // In this order: no capability may be effective that is not permitted.
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(field: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it is not to start")]
    fn dropped_capabilities_are_gone() {
        const SETS: [&str; 4] = ["CapEff", "CapPrm", "CapInh", "CapAmb"];
        // In a thread of its own, since they are each thread's own.
        let kept = std::thread::spawn(|| {
            if geteuid().is_root() {
                caps::raise(None, CapSet::Inheritable, Capability::CAP_CHOWN).unwrap();
                caps::raise(None, CapSet::Ambient, Capability::CAP_CHOWN).unwrap();
                assert_ne!(status("CapAmb"), "0000000000000000", "there is something to drop");
            }
            drop_privileges(None).unwrap();
            let started = std::process::Command::new("/bin/true").status();
            (SETS.map(status), status("NoNewPrivs"), started)
        });
        let (sets, no_new, started) = kept.join().unwrap();
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(no_new, "1");
        let [effective, permitted, inheritable, ambient] =
            sets.map(|set| u64::from_str_radix(&set, 16).unwrap());
        let most = if geteuid().is_root() { Capability::CAP_DAC_OVERRIDE.bitmask() } else { 0 };
        assert!(effective & !most == 0, "{effective:x}");
        assert_eq!((permitted, inheritable, ambient), (effective, 0, 0));
    }

    #[test]
    fn a_missing_user_is_named() {
        let error = drop_privileges(Some("no-such-user")).unwrap_err().to_string();
        assert_eq!(error, "there is no user no-such-user: name one of this host");
    }
}
