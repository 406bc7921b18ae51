//! Manifests: what a flush wrote, itself written last. Readers take files from manifests, and list no directory.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Files of one flush.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub files: Vec<ManifestFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Below the root, with `/`.
    pub path: String,
    pub rows: u64,
    pub bytes: u64,
    /// Hexadecimal.
    pub sha256: String,
}

impl ManifestFile {
    pub fn of(path: String, rows: usize, bytes: &[u8]) -> Self {
        let sha256 = super::place::hex(&Sha256::digest(bytes));
        Self { path, rows: rows as u64, bytes: bytes.len() as u64, sha256 }
    }
}

/// Writes a file that is whole or not there, and there after a crash of the host once this returns.
///
/// # Errors
/// The directory cannot be made, or there is no room.
pub fn write_whole(root: &Path, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let path = root.join(path);
    let dir = path.parent().context("a file needs a directory")?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut file = tempfile_in(dir).with_context(|| format!("cannot make a file in {}", dir.display()))?;
    let written = file.1.write_all(bytes).and_then(|()| file.1.sync_all());
    let placed =
        written.and_then(|()| std::fs::rename(&file.0, &path)).and_then(|()| File::open(dir)?.sync_all());
    placed
        .inspect_err(|_| drop(std::fs::remove_file(&file.0)))
        .with_context(|| format!("cannot write {}: free space there, or name another place", path.display()))
}

/// Under a name that readers take for no table.
fn tempfile_in(dir: &Path) -> anyhow::Result<(std::path::PathBuf, File)> {
    let random = u128::from_le_bytes(toll_sys::private_dir::random_bytes()?);
    let path = dir.join(format!(".{random:032x}.tmp"));
    let file = File::options().write(true).create_new(true).open(&path)?;
    Ok((path, file))
}
