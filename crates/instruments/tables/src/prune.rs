//! Retention: whole days are removed.

use super::place::{self, Table};
use super::store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Removes all days that ended at or before `until_us`, and returns how many.
///
/// # Errors
/// A file cannot be removed; what is left of its day is in no answer, and the next call removes it.
pub fn prune(store: &Arc<dyn Store>, until_us: i64) -> anyhow::Result<u64> {
    let _lock = Arc::clone(store).lock()?;
    let until_day = until_us.div_euclid(86_400_000_000);
    let mut removed = BTreeSet::new();
    // A file that no manifest names counts no more.
    for table in std::iter::once("manifests").chain(Table::ALL.map(Table::name)) {
        for (day, dir) in place::day_directories(&**store, table)? {
            if day < until_day {
                store.remove_all(&dir)?;
                removed.insert(day);
            }
        }
    }
    Ok(removed.len() as u64)
}
