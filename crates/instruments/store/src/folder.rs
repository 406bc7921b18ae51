//! Folder store: what differs from other stores.
//!
//! The folder is for its owner alone. Killed processes may leave files in it that have no final name yet.

use crate::{Error, Result};
use object_store::local::LocalFileSystem;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The folders of a store.
const STORE_DIRS: [&str; 5] = ["pieces", "backups", "pieces-of", "running", "keys"];

/// `make`: one that is not there is made.
pub fn open(path: &Path, make: bool) -> Result<LocalFileSystem> {
    let failed = |reason: &dyn std::fmt::Display| {
        Error::Destination(format!("cannot use the folder {} as a store: {reason}", path.display()))
    };
    if make {
        // What is in a backup is for its owner alone, also in a folder that others may look into.
        for dir in STORE_DIRS.iter().map(|below| path.join(below)) {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|reason| failed(&reason))?;
        }
    }
    if !path.is_dir() {
        return Err(failed(&"there is none; name one that holds backups"));
    }
    LocalFileSystem::new_with_prefix(path).map_err(|reason| failed(&reason))
}

/// Mode of a folder in which other users can read backups, if there is one. What its group may is the owner's decision.
pub fn mode_for_others(path: &Path) -> Option<u32> {
    let mode = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o777);
    let is_entered = mode(path) & 0o001 != 0;
    let below = STORE_DIRS.iter().map(|below| mode(&path.join(below)));
    below.filter(|mode| is_entered && mode & 0o005 != 0).max()
}

/// The local store writes `NAME#1` and renames it. What lies beside the store's own folders is the user's.
pub fn remove_unfinished(path: &Path) -> std::io::Result<u64> {
    let own = STORE_DIRS.iter().map(|below| path.join(below)).filter(|dir| dir.is_dir());
    own.map(|dir| remove_below(&dir)).sum()
}

fn remove_below(dir: &Path) -> std::io::Result<u64> {
    let mut removed = 0;
    for entry in std::fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed += remove_below(&path)?;
            continue;
        }
        let name = entry.file_name();
        let is_unfinished =
            name.to_str().and_then(|name| name.rsplit_once('#')).is_some_and(|(_, number)| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
        if is_unfinished {
            std::fs::remove_file(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}
