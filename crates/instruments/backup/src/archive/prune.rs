//! Removal of old backups and of unreferenced pieces.
//!
//! Removes manifests first, the oldest first, then the pieces that no remaining manifest names. No piece is
//! removed if anything is unreadable. Servers that share a store do not remove each other's backups.

use crate::archive::manifest::{Backups, Listed};
use crate::archive::upload::{each_piece, object};
use crate::archive::{Name, Opening, Running, Sealing};
use std::collections::{HashMap, HashSet};
use toll_store::{Error, Result, Store};

const INDEX: &str = "pieces-of";
/// Removed between two looks whether others still take this prune for alive.
const BATCH: usize = 1000;

/// Backups to keep.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stay<'a> {
    /// So many of the latest of each source; none: all.
    pub latest: Option<usize>,
    /// This one, whatever its date: beside one that a wrong clock has dated years ahead, a backup that was
    /// just taken is not among the latest.
    pub also: Option<&'a str>,
}

/// Objects removed, or to be removed.
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

/// Removes all backups but those that stay, and every piece that none of these names. `alone` shows that
/// no backup goes on.
pub fn prune(
    store: &Store,
    opening: &Opening,
    stay: Stay<'_>,
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
    let (left, old) = apart(&backups.whole, stay);
    let mut named = HashSet::new();
    for listed in &left {
        named_by(store, opening, listed, &mut named)?;
    }
    let mut pruned = Pruned { backups_left: left.len() as u64, ..Pruned::default() };
    for listed in old {
        if !dry_run {
            alone.still_believed()?;
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
        for batch in unnamed.chunks(BATCH) {
            alone.still_believed()?;
            store.delete_all(batch.iter().map(object).collect())?;
        }
        remove_other_indices(store, &left)?;
        pruned.unfinished = store.remove_unfinished()?;
        alone.forget_dead()?;
    }
    Ok(pruned)
}

/// Those that stay and those that go, both oldest first.
fn apart<'a>(whole: &'a [Listed], stay: Stay<'_>) -> (Vec<&'a Listed>, Vec<&'a Listed>) {
    let latest = stay.latest.unwrap_or(usize::MAX);
    let mut of_source: HashMap<&str, usize> = HashMap::new();
    let (mut left, mut old) = (Vec::new(), Vec::new());
    for listed in whole.iter().rev() {
        let count = of_source.entry(listed.source()).or_default();
        *count += 1;
        let stays = *count <= latest || stay.also == Some(listed.id.as_str());
        let side = if stays { &mut left } else { &mut old };
        side.push(listed);
    }
    left.reverse();
    old.reverse();
    (left, old)
}

/// Pieces that whole backups name. One whose manifest is damaged names nothing that could be relied on, and is
/// no reason to take no backup.
pub fn named(store: &Store, opening: &Opening) -> Result<HashSet<Name>> {
    let mut named = HashSet::new();
    for listed in &Backups::list(store)?.whole {
        match named_by(store, opening, listed, &mut named) {
            Err(Error::Mismatch { .. } | Error::Format { .. }) => {}
            read => read?,
        }
    }
    Ok(named)
}

/// Those of backups that were killed before their manifest was put, or are gone.
fn remove_other_indices(store: &Store, left: &[&Listed]) -> Result<()> {
    let known: HashSet<String> = left.iter().map(|listed| index_of(listed)).collect();
    let mut others = Vec::new();
    store.list(INDEX, |object| {
        if !known.contains(&object.path) {
            others.push(object.path);
        }
        Ok(())
    })?;
    store.delete_all(others)
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
    let index = store.get_if_there(&index_of(listed))?.unwrap_or_default();
    let (sum, names) = index.split_at_checked(32).unwrap_or((&[], &[]));
    if sum != Name::of(names).0 || !names.len().is_multiple_of(32) {
        let reason = "the list of its pieces is gone or damaged: no piece can be removed".to_owned();
        return Err(Error::Mismatch { id: listed.id.clone(), reason });
    }
    named.extend(names.chunks_exact(32).filter_map(|name| name.try_into().ok()).map(Name));
    Ok(())
}
