//! Privilege drop after all resources are open: user, capabilities, system calls, places to write to.

use crate::filesystem::{self, WritePlaces};
use crate::seccomp;
use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgroups, setresgid, setresuid};
use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
/// and it cannot start another program. It leaves no core dump, and nobody of its user can look into its memory. Where the
/// kernel has Landlock (5.13), it writes to `writes` alone ([`filesystem::bound_writes`]). Root that stays root keeps
/// CAP_DAC_OVERRIDE if one of these is another user's. Call it before there are other threads: all of this is per thread.
///
/// False: this process is still root's and may write anywhere, as the kernel has no Landlock.
///
/// # Errors
/// No such user, not root, or the kernel refuses: then nothing may be taken for dropped.
pub fn drop_privileges(user: Option<&str>, writes: &WritePlaces) -> Result<bool, PrivilegesError> {
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
    nix::sys::prctl::set_dumpable(false).map_err(|error| failed("forbid core dumps")(error.into()))?;
    let is_bounded = filesystem::bound_writes(writes)
        .map_err(|error| failed("bound where files are written")(io::Error::other(error)))?;
    let is_anothers = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.uid() != 0);
    let wanted =
        (geteuid().is_root() && writes.iter().any(is_anothers)).then_some(Capability::CAP_DAC_OVERRIDE);
    restrict_capabilities(wanted).map_err(|error| failed("drop capabilities")(io::Error::other(error)))?;
    seccomp::install().map_err(failed("deny system calls that a capture never makes"))?;
    Ok(is_bounded || !geteuid().is_root())
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
            drop_privileges(None, &WritePlaces::default()).unwrap();
            let started = std::process::Command::new("/bin/true").status();
            (SETS.map(status), status("NoNewPrivs"), started)
        });
        let (sets, no_new, started) = kept.join().unwrap();
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(no_new, "1");
        let [effective, permitted, inheritable, ambient] =
            sets.map(|set| u64::from_str_radix(&set, 16).unwrap());
        assert_eq!((effective, permitted, inheritable, ambient), (0, 0, 0, 0));
    }

    #[test]
    fn root_that_stays_root_writes_where_it_said_and_nowhere_else() {
        if !geteuid().is_root() {
            toll_testkit::skip!("it is about root");
            return;
        }
        let (own, anothers, elsewhere) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::chown(anothers.path(), Some(65_534), Some(65_534)).unwrap();
        let places = [own.path(), anothers.path(), elsewhere.path()].map(std::path::Path::to_owned);
        let may_write = |allowed: usize| {
            let (places, writes) = (places.clone(), WritePlaces::from(places[..allowed].to_vec()));
            let dropped = std::thread::spawn(move || {
                let is_bounded = drop_privileges(None, &writes).unwrap();
                (
                    is_bounded,
                    status("CapEff"),
                    places.map(|place| std::fs::write(place.join("file"), "x").is_ok()),
                )
            });
            dropped.join().unwrap()
        };
        let (is_bounded, capabilities, written) = may_write(1);
        if !is_bounded {
            toll_testkit::skip!("this kernel has no Landlock");
            return;
        }
        assert_eq!((capabilities.as_str(), written), ("0000000000000000", [true, false, false]));
        let (_, capabilities, written) = may_write(2);
        assert_eq!((capabilities.as_str(), written), ("0000000000000002", [true, true, false]));
    }

    #[test]
    fn there_is_no_core_dump_after_it() {
        let dumpable = std::thread::spawn(|| {
            drop_privileges(None, &WritePlaces::default()).unwrap();
            nix::sys::prctl::get_dumpable().unwrap()
        });
        assert!(!dumpable.join().unwrap());
    }

    #[test]
    fn a_missing_user_is_named() {
        let error = drop_privileges(Some("no-such-user"), &WritePlaces::default()).unwrap_err().to_string();
        assert_eq!(error, "there is no user no-such-user: name one of this host");
    }
}
