//! Free space of a file system and disk usage of a directory.

use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Free space for an unprivileged user on the file system of `path`, bytes.
pub fn free_bytes(path: &Path) -> Result<u64> {
    free_space(path).map(|(bytes, _)| bytes)
}

/// The same, and its share of the file system, percent.
pub fn free_space(path: &Path) -> Result<(u64, f64)> {
    let stat = nix::sys::statvfs::statvfs(path)
        .with_context(|| format!("cannot read the free space of {}", path.display()))?;
    let (free, all) = (stat.blocks_available() as u64, stat.blocks() as u64);
    Ok((free * stat.fragment_size() as u64, 100.0 * free as f64 / all.max(1) as f64))
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
