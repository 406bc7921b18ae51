//! Free space of a file system and disk usage of a directory.

use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Free space for an unprivileged user on the file system of `path`, bytes.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path)
        .with_context(|| format!("cannot read the free space of {}", path.display()))?;
    Ok(stat.blocks_available() as u64 * stat.fragment_size() as u64)
}

/// Disk usage of everything below `dir`, bytes in allocated blocks. Holes in sparse files do not count.
pub fn used_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => used_bytes(&entry.path()),
            Ok(about) => about.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
