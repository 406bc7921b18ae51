//! Removal of old backups and of unreferenced pieces.
//!
//! Removes manifests first, the oldest first, then the pieces that no remaining manifest names. No piece is
//! removed if anything is unreadable. Servers that share a store do not remove each other's backups.

use crate::archive::manifest::{BackupEntry, Backups, manifest_limit};
use crate::archive::upload::{for_each_piece, piece_object};
use crate::archive::{ActivityMarker, ContentHash, PieceDecoder, PieceEncoder};
use jiff::civil::Date;
use std::collections::{HashMap, HashSet};
use toll_store::{Error, Result, Store};

const INDEX_FOLDER: &str = "pieces-of";
/// Removed between two looks whether others still take this prune for alive.
const BATCH: usize = 1000;

/// How many backups of each source to keep. Each rule keeps the newest backup of so many periods that have one;
/// what any rule keeps stays. All zero: everything stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    pub latest: usize,
    /// Days, ISO weeks and months of UTC.
    pub daily: usize,
    pub weekly: usize,
    pub monthly: usize,
}

/// Backups to keep.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetentionPolicy<'a> {
    pub retention: Retention,
    /// This one, whatever its date: beside one that a wrong clock has dated years ahead, a backup that was
    /// just taken is not among the latest.
    pub keep_id: Option<&'a str>,
}

impl Retention {
    pub fn is_set(&self) -> bool {
        *self != Self::default()
    }
}

/// What the rules of a [`Retention`] have left for one source, from the newest backup to the oldest.
struct RetentionCount {
    counts_latest: bool,
    latest: usize,
    /// Periods still to be kept, and the last one that was: days, weeks, months.
    periods: [(usize, Option<[i32; 3]>); 3],
}

impl RetentionCount {
    fn new(retention: Retention) -> Self {
        let Retention { latest, daily, weekly, monthly } = retention;
        let periods = [daily, weekly, monthly].map(|count| (count, None));
        Self { counts_latest: latest > 0, latest, periods }
    }

    /// True if a rule keeps the next older backup, made on `date`. One without a date stays unless the latest are
    /// counted: no period can be named that it is too old for.
    fn keeps(&mut self, date: Option<Date>) -> bool {
        let mut keeps = self.latest > 0;
        self.latest = self.latest.saturating_sub(1);
        let Some(date) = date else { return keeps || !self.counts_latest };
        let (year, month, day) = (i32::from(date.year()), i32::from(date.month()), i32::from(date.day()));
        let week = date.iso_week_date();
        let of_date =
            [[year, month, day], [i32::from(week.year()), i32::from(week.week()), 0], [year, month, 0]];
        for ((left, last), period) in self.periods.iter_mut().zip(of_date) {
            if *left > 0 && *last != Some(period) {
                (*left, *last) = (*left - 1, Some(period));
                keeps = true;
            }
        }
        keeps
    }
}

/// Objects removed, or to be removed.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PruneSummary {
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
    opening: &PieceDecoder,
    stay: RetentionPolicy<'_>,
    dry_run: bool,
    alone: &ActivityMarker,
) -> Result<PruneSummary> {
    let backups = Backups::list(store)?;
    if let Some(broken) = backups.invalid.first() {
        return Err(Error::Mismatch {
            id: broken.object.clone(),
            reason: format!("{}; it is not a valid backup. Remove it by hand, then prune.", broken.reason),
        });
    }
    let (left, old) = split_by_retention(&backups.valid, stay);
    let mut named = HashSet::new();
    for listed in &left {
        add_references(store, opening, listed, &mut named)?;
    }
    let mut pruned = PruneSummary { backups_left: left.len() as u64, ..PruneSummary::default() };
    for listed in old {
        if !dry_run {
            alone.ensure_valid()?;
            store.delete(&listed.object)?;
            store.delete(&index_object(listed))?;
        }
        pruned.backups.push(listed.id.clone());
    }
    let mut unnamed = Vec::new();
    for_each_piece(store, |name, bytes| {
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
            alone.ensure_valid()?;
            store.delete_all(batch.iter().map(piece_object).collect())?;
        }
        remove_stale_indices(store, &left)?;
        pruned.unfinished = store.remove_unfinished()?;
        alone.remove_dead_markers()?;
    }
    Ok(pruned)
}

/// Those that stay and those that go, both oldest first.
fn split_by_retention<'a>(
    whole: &'a [BackupEntry],
    stay: RetentionPolicy<'_>,
) -> (Vec<&'a BackupEntry>, Vec<&'a BackupEntry>) {
    let mut of_source: HashMap<&str, RetentionCount> = HashMap::new();
    let (mut left, mut old) = (Vec::new(), Vec::new());
    for listed in whole.iter().rev() {
        let count = of_source.entry(listed.source()).or_insert_with(|| RetentionCount::new(stay.retention));
        let stays = !stay.retention.is_set()
            || count.keeps(listed.date())
            || stay.keep_id == Some(listed.id.as_str());
        let side = if stays { &mut left } else { &mut old };
        side.push(listed);
    }
    left.reverse();
    old.reverse();
    (left, old)
}

/// Pieces that whole backups name. One whose manifest is damaged names nothing that could be relied on, and is
/// no reason to take no backup.
pub fn referenced_pieces(store: &Store, opening: &PieceDecoder) -> Result<HashSet<ContentHash>> {
    let mut named = HashSet::new();
    for listed in &Backups::list(store)?.valid {
        match add_references(store, opening, listed, &mut named) {
            Err(Error::Mismatch { .. } | Error::Format { .. }) => {}
            read => read?,
        }
    }
    Ok(named)
}

/// Those of backups that were killed before their manifest was put, or are gone.
fn remove_stale_indices(store: &Store, left: &[&BackupEntry]) -> Result<()> {
    let known: HashSet<String> = left.iter().map(|listed| index_object(listed)).collect();
    let mut others = Vec::new();
    store.list(INDEX_FOLDER, |object| {
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
pub fn write_index(
    store: &Store,
    sealing: &PieceEncoder,
    id: &str,
    pieces: impl Iterator<Item = ContentHash>,
) -> Result<()> {
    if !sealing.encrypts() {
        return Ok(());
    }
    let names: Vec<u8> = pieces.flat_map(|name| name.0).collect();
    let index = [&ContentHash::hash(&names).0[..], &names].concat();
    store.put(&format!("{INDEX_FOLDER}/{id}"), index)
}

fn index_object(listed: &BackupEntry) -> String {
    format!("{INDEX_FOLDER}/{}", listed.id)
}

fn add_references(
    store: &Store,
    opening: &PieceDecoder,
    listed: &BackupEntry,
    named: &mut HashSet<ContentHash>,
) -> Result<()> {
    if !listed.is_encrypted() {
        named.extend(listed.read_unverified(store, opening)?.pieces().map(|piece| piece.name()));
        return Ok(());
    }
    let index = store.get_if_exists(&index_object(listed), manifest_limit())?.unwrap_or_default();
    let (sum, names) = index.split_at_checked(32).unwrap_or((&[], &[]));
    if sum != ContentHash::hash(names).0 || !names.len().is_multiple_of(32) {
        let reason = "its piece index is missing or damaged: no piece can be removed".to_owned();
        return Err(Error::Mismatch { id: listed.id.clone(), reason });
    }
    named.extend(names.chunks_exact(32).filter_map(|name| name.try_into().ok()).map(ContentHash));
    Ok(())
}
