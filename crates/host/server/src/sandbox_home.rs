//! Directory of a sandbox: creation, owner, and the place of its socket.
//!
//! Only its owner may look inside. Never takes a directory that is there already.

use super::unprivileged::UnprivilegedUser;
use anyhow::{Context, Result, bail};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use toll_journal::{Journal, Undo, UndoId};

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
    let id = journal.record(Undo::Path { path: home.to_owned() })?;
    let make = || -> Result<()> {
        let tmp = home.join("tmp");
        private_dir(home)?;
        private_dir(&tmp)?;
        user.map_or(Ok(()), |user| user.own(home).and_then(|()| user.own(&tmp)))
    };
    if let Err(error) = make() {
        journal.undo(id)?;
        return Err(error).with_context(|| format!("cannot make {}", home.display()));
    }
    Ok(id)
}

/// In the sandbox's directory where that is short enough, else in a private one under /tmp.
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
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    let short = std::env::temp_dir().join(format!("toll-{name}"));
    let socket = short.join("server.sock");
    if socket.as_os_str().len() > SOCKET_PATH_MAX {
        bail!("{} is too long for a Unix socket: set TMPDIR to a shorter directory", socket.display());
    }
    directories.push(journal.record(Undo::Path { path: short.clone() })?);
    private_dir(&short).with_context(|| format!("cannot make {}", short.display()))?;
    if let Some(user) = user {
        user.own(&short)?;
    }
    Ok(socket)
}

fn private_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}
