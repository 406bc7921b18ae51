//! Paths of toll's own files and directories.
//!
//! Only computes paths. Never creates or removes anything in them.

use anyhow::{Result, anyhow};
use std::path::{Path, PathBuf};

/// Prepared data that may be deleted at any time: `$XDG_CACHE_HOME/toll`, else `~/.cache/toll`.
pub fn cache_dir() -> Result<PathBuf> {
    xdg_dir("XDG_CACHE_HOME", ".cache")
}

/// Data that must survive a crash (undo journals, the background server): `$XDG_STATE_HOME/toll`, else
/// `~/.local/state/toll`.
pub fn state_dir() -> Result<PathBuf> {
    xdg_dir("XDG_STATE_HOME", ".local/state")
}

/// Undo journals, one for each run that is going on or was killed.
pub fn journal_dir() -> Result<PathBuf> {
    Ok(state_dir()?.join("journal"))
}

/// The file that a run locks while it goes on: the same for every user of this host, unless
/// `TOLL_LOCK_DIR` names another place (tests, which run side by side).
pub fn lock_file() -> PathBuf {
    let named = std::env::var_os("TOLL_LOCK_DIR").map(PathBuf::from).filter(|d| d.is_absolute());
    let shared = Path::new("/run/lock");
    let dir = named.unwrap_or_else(|| if shared.is_dir() { shared.into() } else { std::env::temp_dir() });
    dir.join("toll.lock")
}

/// The XDG base directory specification tells applications to ignore relative paths.
fn xdg_dir(variable: &str, below_home: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(variable).map(PathBuf::from).filter(|d| d.is_absolute()) {
        return Ok(dir.join("toll"));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute()).ok_or_else(|| {
        anyhow!("neither {variable} nor HOME is set: set {variable} to a directory that you can write")
    })?;
    Ok(home.join(below_home).join("toll"))
}
