//! Which backups and pieces may go?
//!
//! Manifests first, oldest first; then the pieces that none of those left names. Whatever cannot be read is a
//! reason to remove no piece.

use crate::manifest::{Backups, Listed};
use crate::upload::{each_piece, object};
use crate::{Error, Name, Opening, Result, Running, Sealing, Store};
use std::collections::HashSet;

const INDEX: &str = "pieces-of";

/// What was removed, or would be.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    pub backups: Vec<String>,
    pub backups_left: u64,
    pub pieces: u64,
    pub bytes: u64,
    pub pieces_left: u64,
    pub bytes_left: u64,
    /// Files without a name, which killed runs left in a folder.
    pub unfinished: u64,
}

/// Removes all but the latest `keep` backups, if told, and every piece that none of those left names.
/// `alone` shows that no backup goes on.
pub fn prune(
    store: &Store,
    opening: &Opening,
    keep: Option<usize>,
    dry_run: bool,
    alone: &Running,
) -> Result<Pruned> {
    let backups = Backups::list(store)?;
    if let Some(broken) = backups.broken.first() {
        return Err(Error::Mismatch {
            id: broken.object.clone(),
            reason: format!("{}; it is no backup: remove it by hand, then prune", broken.reason),
        });
    }
    let old = backups.whole.len().saturating_sub(keep.unwrap_or(usize::MAX));
    let (old, left) = backups.whole.split_at(old);
    let mut named = HashSet::new();
    for listed in left {
        named_by(store, opening, listed, &mut named)?;
    }
    let mut pruned = Pruned { backups_left: left.len() as u64, ..Pruned::default() };
    for listed in old {
        if !dry_run {
            store.delete(&listed.object)?;
            store.delete(&index_of(listed))?;
        }
        pruned.backups.push(listed.id.clone());
    }
    let mut unnamed = Vec::new();
    each_piece(store, |name, bytes| {
        if named.contains(&name) {
            pruned.pieces_left += 1;
            pruned.bytes_left += u64::from(bytes);
        } else {
            pruned.bytes += u64::from(bytes);
            unnamed.push(name);
        }
    })?;
    unnamed.sort_unstable();
    unnamed.dedup();
    pruned.pieces = unnamed.len() as u64;
    if !dry_run {
        store.delete_all(unnamed.iter().map(object).collect())?;
        pruned.unfinished = store.remove_unfinished()?;
        alone.forget_dead()?;
    }
    Ok(pruned)
}

/// Pieces that whole backups name; none where one of them cannot be read.
pub fn named(store: &Store, opening: &Opening) -> Result<HashSet<Name>> {
    let mut named = HashSet::new();
    for listed in &Backups::list(store)?.whole {
        named_by(store, opening, listed, &mut named)?;
    }
    Ok(named)
}

/// Beside a manifest that only a key opens: the names of its pieces, so that the host that backs up can prune
/// without being able to read. To be put before the manifest; needs no secret, since the pieces' objects
/// show the same names.
pub fn put_index(
    store: &Store,
    sealing: &Sealing,
    id: &str,
    pieces: impl Iterator<Item = Name>,
) -> Result<()> {
    if !sealing.encrypts() {
        return Ok(());
    }
    let names: Vec<u8> = pieces.flat_map(|name| name.0).collect();
    let index = [&Name::of(&names).0[..], &names].concat();
    store.put(&format!("{INDEX}/{id}"), index)
}

fn index_of(listed: &Listed) -> String {
    format!("{INDEX}/{}", listed.id)
}

fn named_by(store: &Store, opening: &Opening, listed: &Listed, named: &mut HashSet<Name>) -> Result<()> {
    if !listed.is_encrypted() {
        named.extend(listed.read(store, opening)?.pieces().map(|piece| piece.name()));
        return Ok(());
    }
    let index = store.get(&index_of(listed))?;
    let (sum, names) = index.split_at_checked(32).unwrap_or((&[], &[]));
    if sum != Name::of(names).0 || !names.len().is_multiple_of(32) {
        let reason = "the list of its pieces is damaged: no piece can be removed".to_owned();
        return Err(Error::Mismatch { id: listed.id.clone(), reason });
    }
    named.extend(names.chunks_exact(32).filter_map(|name| name.try_into().ok()).map(Name));
    Ok(())
}
