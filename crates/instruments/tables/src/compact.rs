//! Compaction: many small files of an hour or a day become one for each shard, and their rows one for each stretch.
//!
//! # Invariants
//! Every row counts once at every moment, whenever the process is killed: a manifest that is written last replaces the files
//! that the new ones are made of, and only then are those removed. Two compactions of one directory exclude each other.

use super::column::{Column, write_table};
use super::column_reader::read_table;
use super::manifest::{ALL_DAYS, Manifest, ManifestFile, live_files, read_manifests};
use super::merge::{
    coverage_rows, digest_rows, fold_hosts, merge_coverage, merge_digests, merge_texts, text_rows,
};
use super::place::{self, HOUR_US, Table};
use super::rows::{cluster_digest_table, coverage_table, digest_table, text_table};
use super::store::Store;
use anyhow::{Context, bail, ensure};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of the stretches that rows are merged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    TenMinutes,
    Hour,
    Day,
}

impl Grain {
    /// Of the files that become one: they lie by hours.
    fn hours(self) -> i64 {
        match self {
            Self::TenMinutes | Self::Hour => 1,
            Self::Day => 24,
        }
    }

    fn us(self) -> i64 {
        match self {
            Self::TenMinutes => HOUR_US / 6,
            Self::Hour | Self::Day => self.hours() * HOUR_US,
        }
    }
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Stretches with something to merge.
    pub stretches: u64,
    pub files_before: u64,
    pub files_after: u64,
    pub rows_before: u64,
    pub rows_after: u64,
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// Merges all stretches that end at or before `until_us`. `progress` gets the stretches done, and all there are.
///
/// # Errors
/// A file is not as its manifest says, or cannot be written: what is done until then is whole.
pub fn compact(
    store: &Arc<dyn Store>,
    grain: Grain,
    until_us: i64,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64, u64),
) -> anyhow::Result<Compacted> {
    let mut lock = Arc::clone(store).lock()?;
    let store = &**store;
    // A compaction may have been killed before it had removed what it had replaced.
    remove_replaced(store)?;
    let due = due(&read_manifests(store, ALL_DAYS)?, grain, until_us);
    let mut done = Compacted::default();
    let all = due.len() as u64;
    for (number, (stretch, groups)) in (0..).zip(due) {
        progress(number, all);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        lock.renew()?;
        let hour = stretch * grain.hours();
        let mut manifest = Manifest { grain_us: grain.us(), ..Manifest::new() };
        for ((table, shard), files) in groups {
            merge_group(store, &Group { table, shard, hour, grain }, &files, &mut manifest)?;
            done.files_before += files.len() as u64;
            done.rows_before += rows_of(&files);
            done.bytes_before += files.iter().map(|file| file.bytes).sum::<u64>();
        }
        done.stretches += 1;
        done.files_after += manifest.files.len() as u64;
        done.rows_after += rows_of(&manifest.files);
        done.bytes_after += manifest.files.iter().map(|file| file.bytes).sum::<u64>();
        let name = hash(manifest.replaces.iter());
        manifest.write(store, hour, &name)?;
        manifest.replaces.iter().try_for_each(|path| store.remove(path))?;
    }
    remove_replaced(store)?;
    Ok(done)
}

/// Each once: those of digests stand without their hosts again.
fn rows_of(files: &[ManifestFile]) -> u64 {
    let once = files.iter().filter(|file| place::table_of_path(&file.path) != Some(Table::ClusterDigests));
    once.map(|file| file.rows).sum()
}

/// Table and number of the shard.
type GroupKey = (Table, u8);

/// Files to merge, by stretch of time (in hours or days since 1970), table and shard; those of digests with what is made of them.
fn due(
    manifests: &BTreeMap<String, Manifest>,
    grain: Grain,
    until_us: i64,
) -> BTreeMap<i64, BTreeMap<GroupKey, Vec<ManifestFile>>> {
    let merged: BTreeSet<&str> = manifests
        .values()
        .filter(|manifest| manifest.grain_us >= grain.us())
        .flat_map(|manifest| &manifest.files)
        .map(|file| file.path.as_str())
        .collect();
    let mut stretches = BTreeMap::<i64, BTreeMap<GroupKey, Vec<ManifestFile>>>::new();
    for (path, file) in live_files(manifests.values()) {
        let place = place::table_of_path(path).zip(place::hour_of_path(path)).zip(place::shard_of_path(path));
        let Some(((table, hour), shard)) = place else { continue };
        // What is made of digests is replaced with them.
        let table = if table == Table::ClusterDigests { Table::Digests } else { table };
        let stretch = hour.div_euclid(grain.hours());
        if (stretch + 1).saturating_mul(grain.hours() * HOUR_US) <= until_us {
            let groups = stretches.entry(stretch).or_default();
            groups.entry((table, shard)).or_default().push(file.clone());
        }
    }
    for groups in stretches.values_mut() {
        groups.retain(|_, files| files.iter().any(|file| !merged.contains(file.path.as_str())));
    }
    stretches.retain(|_, groups| !groups.is_empty());
    stretches
}

struct Group {
    table: Table,
    shard: u8,
    /// At which they begin, since 1970.
    hour: i64,
    grain: Grain,
}

/// Writes the rows of the files as one file for each table. Digests are written without their hosts, too.
fn merge_group(
    store: &dyn Store,
    group: &Group,
    files: &[ManifestFile],
    manifest: &mut Manifest,
) -> anyhow::Result<()> {
    let Group { table, shard, hour, grain } = *group;
    let name = hash(files.iter().map(|file| &file.path));
    let mut put = |table, rows, columns: &[Column]| {
        let mut bytes = Vec::new();
        write_table(columns, &mut bytes).context("cannot make a Parquet file")?;
        let dir = place::shard_directory(table, hour, shard)?;
        let path = format!("{dir}/{name}.parquet");
        store.put(&path, &bytes)?;
        manifest.files.push(ManifestFile::of(path, rows, &bytes));
        anyhow::Ok(())
    };
    let (rows, columns) = match table {
        Table::Digests => {
            let is_of_hosts = |file: &&ManifestFile| place::table_of_path(&file.path) == Some(table);
            let files: Vec<ManifestFile> = files.iter().filter(is_of_hosts).cloned().collect();
            let rows = FileRows::new(store, &files, || digest_table(Vec::new()), digest_rows);
            let merged = rows.take_all(|rows| merge_digests(rows, grain.us()))?;
            if let Some(folded) = fold_hosts(&merged) {
                put(Table::ClusterDigests, folded.len(), &cluster_digest_table(folded.iter().collect()))?;
            }
            (merged.len(), digest_table(merged.iter().collect()))
        }
        Table::ClusterDigests => bail!("rows without hosts are made of digests alone"),
        Table::Texts => {
            let rows = FileRows::new(store, files, || text_table(Vec::new()), text_rows);
            let merged = rows.take_all(|rows| merge_texts(rows))?;
            (merged.len(), text_table(merged.iter().collect()))
        }
        Table::Coverage => {
            let rows = FileRows::new(store, files, || coverage_table(&[]), coverage_rows);
            let merged = rows.take_all(|rows| merge_coverage(rows, grain.us()))?;
            (merged.len(), coverage_table(&merged.iter().collect::<Vec<_>>()))
        }
    };
    put(table, rows, &columns)?;
    manifest.replaces.extend(files.iter().map(|file| file.path.clone()));
    Ok(())
}

/// Rows of files of one table: no more than one file is read at a time.
pub struct FileRows<'a, C, D> {
    store: &'a dyn Store,
    files: &'a [ManifestFile],
    /// The table's columns without rows.
    like: C,
    /// Rows of columns.
    decode: D,
}

impl<'a, R, C, D> FileRows<'a, C, D>
where
    C: Fn() -> Vec<Column>,
    D: Fn(Vec<Column>) -> anyhow::Result<Vec<R>>,
{
    pub fn new(store: &'a dyn Store, files: &'a [ManifestFile], like: C, decode: D) -> Self {
        Self { store, files, like, decode }
    }

    /// What `take` makes of all rows.
    ///
    /// # Errors
    /// A file is not as its manifest says.
    pub fn take_all<M>(self, take: impl FnOnce(&mut dyn Iterator<Item = R>) -> M) -> anyhow::Result<M> {
        let mut failed = None;
        let read = |file| self.read(file).map_err(|error| failed = Some(error)).ok();
        let taken = take(&mut self.files.iter().map_while(read).flatten());
        failed.map_or(Ok(taken), Err)
    }

    fn read(&self, file: &ManifestFile) -> anyhow::Result<Vec<R>> {
        let name = || format!("{} in {}", file.path, self.store.location());
        let bytes = self.store.get(&file.path)?.with_context(|| format!("{} is not there", name()))?;
        if place::hex(&Sha256::digest(&bytes)) != file.sha256 {
            bail!(
                "{} is not the file that its manifest names: it was changed, or copied in part; copy it again",
                name()
            );
        }
        let read = read_table(bytes.into(), (self.like)())
            .and_then(&self.decode)
            .with_context(|| format!("{} is no table of this version", name()))?;
        ensure!(read.len() as u64 == file.rows, "{} has {} rows, not {}", name(), read.len(), file.rows);
        Ok(read)
    }
}

/// Of what a file or a manifest is made of: another compaction of the same files has the same names.
fn hash<'a>(paths: impl Iterator<Item = &'a String>) -> String {
    let mut hash = Sha256::new();
    for path in paths {
        hash.update((path.len() as u64).to_be_bytes());
        hash.update(path);
    }
    place::hex(&hash.finalize()[..16])
}

/// Removes files that count no more, and manifests of which no file counts. What a compaction replaces stays named in its
/// manifest, so that a file which arrives again is not counted.
fn remove_replaced(store: &dyn Store) -> anyhow::Result<()> {
    let manifests = read_manifests(store, ALL_DAYS)?;
    let replaced: HashSet<&String> = manifests.values().flat_map(|manifest| &manifest.replaces).collect();
    for table in Table::ALL {
        let files = store.list_all(&place::table_directory(table.name()))?;
        files.iter().filter(|path| replaced.contains(path)).try_for_each(|path| store.remove(path))?;
    }
    let live = live_files(manifests.values());
    let counts =
        |manifest: &Manifest| manifest.files.iter().any(|file| live.contains_key(file.path.as_str()));
    let dead = manifests.iter().filter(|(_, manifest)| manifest.replaces.is_empty() && !counts(manifest));
    dead.map(|(path, _)| path).try_for_each(|path| store.remove(path))
}
