//! How does a process that has opened what it needs go on with as little as possible?

use crate::forbidden;
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgroups, setresgid, setresuid};
use std::ffi::CString;
use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum RightsError {
    #[error("there is no user {0}: name one of this host")]
    NoUser(String),
    #[error("only root can go on as {0}: run as root, or leave --user away")]
    NotRoot(String),
    #[error("cannot {what}: {source}")]
    Failed { what: &'static str, source: io::Error },
}

/// linux/capability.h
const VERSION_3: u32 = 0x2008_0522;
/// To write where a file's owner may.
const DAC_OVERRIDE: u32 = 1 << 1;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up every capability, and the user with them where another is named; nothing that is started later gets any
/// back, and no other program can be started. Root that stays root keeps the right to write into others' directories. To
/// be called before there are other threads: capabilities are each thread's own.
///
/// # Errors
/// No such user, not root, or the kernel refuses: then nothing may be taken for given up.
pub fn give_up_rights(user: Option<&str>) -> Result<(), RightsError> {
    let failed = |what: &'static str| move |source: io::Error| RightsError::Failed { what, source };
    if let Some(name) = user {
        let found = User::from_name(name).map_err(|error| failed("look up a user")(error.into()))?;
        let user = found.ok_or_else(|| RightsError::NoUser(name.to_owned()))?;
        if user.uid != geteuid() {
            if !geteuid().is_root() {
                return Err(RightsError::NotRoot(name.to_owned()));
            }
            become_user(&user).map_err(failed("change the user"))?;
        }
    }
    nix::sys::prctl::set_no_new_privs().map_err(|error| failed("forbid new privileges")(error.into()))?;
    keep(if geteuid().is_root() { DAC_OVERRIDE } else { 0 }).map_err(failed("give up capabilities"))?;
    forbidden::forbid().map_err(failed("forbid system calls that a capture has no use for"))
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

/// Keeps those of `wanted` that this thread has.
fn keep(wanted: u32) -> io::Result<()> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Set { effective: 0, permitted: 0, inheritable: 0 }; 2];
    let (head, at) = (&raw mut header, sets.as_mut_ptr());
    // SAFETY: of this version the kernel writes two sets, and both pointers are to what lives through the call.
    let got = unsafe { libc::syscall(libc::SYS_capget, head, at) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let kept = sets[0].permitted & wanted;
    let sets = [
        Set { effective: kept, permitted: kept, inheritable: 0 },
        Set { effective: 0, permitted: 0, inheritable: 0 },
    ];
    let (head, at) = (&raw mut header, sets.as_ptr());
    // SAFETY: as above; the kernel only reads the sets.
    let set = unsafe { libc::syscall(libc::SYS_capset, head, at) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
    fn capabilities_that_were_given_up_are_gone() {
        // In a thread of its own, since they are each thread's own.
        let kept = std::thread::spawn(|| {
            give_up_rights(None).unwrap();
            let started = std::process::Command::new("/bin/true").status();
            (status("CapEff"), status("CapPrm"), status("NoNewPrivs"), started)
        });
        let (effective, permitted, no_new, started) = kept.join().unwrap();
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let expected = if geteuid().is_root() { DAC_OVERRIDE } else { 0 };
        assert!(u64::from_str_radix(&effective, 16).unwrap() & !u64::from(expected) == 0, "{effective}");
        assert_eq!((permitted, no_new.as_str()), (effective, "1"));
    }

    #[test]
    fn a_user_that_is_not_there_is_named() {
        let said = give_up_rights(Some("no-such-user")).unwrap_err().to_string();
        assert_eq!(said, "there is no user no-such-user: name one of this host");
    }
}
