//! Retention: whole days are removed.

use super::compact::lock;
use super::place::{self, Table};
use anyhow::Context;
use std::collections::BTreeSet;
use std::path::Path;

/// Removes all days that ended at or before `until_us`, and returns how many.
///
/// # Errors
/// A directory cannot be removed; what is left of its day is in no answer, and the next call removes it.
pub fn prune(root: &Path, until_us: i64) -> anyhow::Result<u64> {
    let _lock = lock(root)?;
    let until_day = until_us.div_euclid(86_400_000_000);
    let mut removed = BTreeSet::new();
    // A file that no manifest names counts no more.
    for table in std::iter::once("manifests").chain(Table::ALL.map(Table::name)) {
        for (day, dir) in place::day_directories(root, table)? {
            if day < until_day {
                std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
                removed.insert(day);
            }
        }
    }
    Ok(removed.len() as u64)
}
