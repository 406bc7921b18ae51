//! Directory of a sandbox: creation, owner, and the place of its socket.
//!
//! Only its owner may look inside. Never takes a directory that is there already.

use super::unprivileged::UnprivilegedUser;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use toll_journal::{Journal, UndoId};
use toll_sys::private_dir::{self, PrivateDir};

/// Longest path that fits `sun_path` (108 bytes with its final zero on Linux).
const SOCKET_PATH_MAX: usize = 107;

/// A run may have several servers.
pub(super) fn unused_home(below: &Path, run_id: &str) -> PathBuf {
    let numbered = (2..).map(|number| below.join(format!("{run_id}-{number}")));
    let mut homes = std::iter::once(below.join(run_id)).chain(numbered);
    homes.find(|home| home.symlink_metadata().is_err()).unwrap_or_else(|| below.join(run_id))
}

/// Only the owner may look inside: it holds the password.
pub(super) fn create_home(home: &Path, user: Option<UnprivilegedUser>, journal: &Journal) -> Result<UndoId> {
    let parent = home.parent().unwrap_or(home);
    std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let (_, id) = journal.create_private_dir_at(home)?;
    let make = || -> Result<()> {
        let tmp = home.join("tmp");
        PrivateDir::create(&tmp)?;
        user.map_or(Ok(()), |user| user.own(home).and_then(|()| user.own(&tmp)))
    };
    if let Err(error) = make() {
        journal.undo(id)?;
        return Err(error).with_context(|| format!("cannot make {}/tmp", home.display()));
    }
    Ok(id)
}

/// In the sandbox's directory where that is short enough, else in a private one for temporary files.
pub(super) fn socket_path(
    home: &Path,
    user: Option<UnprivilegedUser>,
    journal: &Journal,
    directories: &mut Vec<UndoId>,
) -> Result<PathBuf> {
    let socket = home.join("server.sock");
    if socket.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok(socket);
    }
    let (short, id) = journal.create_private_dir(&private_dir::temporary_place()?, "toll-server")?;
    directories.push(id);
    let socket = short.path().join("server.sock");
    if socket.as_os_str().len() > SOCKET_PATH_MAX {
        bail!("{} is too long for a Unix socket: set TMPDIR to a shorter directory", socket.display());
    }
    if let Some(user) = user {
        user.own(short.path())?;
    }
    Ok(socket)
}
