//! Files and directories that only their owner can read, for secrets and for what people's queries hold.

use crate::atomic_file::AtomicFile;
use anyhow::{Context, Result};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes the file, or replaces it, whole or not at all.
pub fn write(path: &Path, text: &str) -> Result<()> {
    AtomicFile::begin(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.replace()
        })
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a file that is read under its name while it grows. Never opens one that is there, nor follows a link.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Creates the directory, or removes all permissions of other users from an existing one.
pub fn create_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o700)))
        .with_context(|| format!("cannot create {}", path.display()))
}
