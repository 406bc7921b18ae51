//! Compaction: many small files of an hour or a day become one for each shard, and their rows one for each stretch.
//!
//! # Invariants
//! Every row counts once at every moment, whenever the process is killed: a manifest that is written last replaces the files
//! that the new ones are made of, and only then are those removed. That is some time later: questions that began before go on to
//! read them. Two compactions of one directory exclude each other.

use super::column::{Column, table_bytes};
use super::column_reader::TableReader;
use super::fold::FoldedFiles;
use super::manifest::{Manifest, ManifestFile, live_files, read_manifests};
use super::merge::{coverage_rows, merge_coverage, merge_texts, text_rows};
use super::place::{self, HOUR_US, Span, Table};
use super::rows::{coverage_table, text_table};
use super::sorted::SortedRows;
use super::store::{Lock, Store};
use anyhow::{Context, ensure};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Length of the stretches that rows are merged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    TenMinutes,
    Hour,
    Day,
}

impl Grain {
    fn us(self) -> i64 {
        match self {
            Self::TenMinutes => HOUR_US / 6,
            Self::Hour => HOUR_US,
            Self::Day => 24 * HOUR_US,
        }
    }

    /// First files become one for each hour that has ended, then those one for each such day.
    fn passes(self) -> [Pass; 2] {
        let hours = Pass {
            span_of: |span| Some(span).filter(|span| matches!(span, Span::Hour(_))),
            grain_us: self.us().min(HOUR_US),
        };
        [hours, Pass { span_of: |span| Some(Span::Day(span.day())), grain_us: self.us() }]
    }
}

/// How often it is looked whether what was replaced is old enough, or the process is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Rows of a file that are decoded at once.
const READ_ROWS: usize = 8_192;

/// Files that become one, and the length of the stretches that their rows are merged to.
struct Pass {
    /// Of what a file becomes part of; `None`: it stays.
    span_of: fn(Span) -> Option<Span>,
    grain_us: i64,
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

/// Which files are merged, and how.
#[derive(Debug, Clone, Copy)]
pub struct CompactOptions {
    pub grain: Grain,
    /// Days that end before it are not looked at: of each day that is, all manifests are read. Unix time, microseconds.
    pub since_us: i64,
    /// Only stretches that end at or before it.
    pub until_us: i64,
    /// What was replaced is removed once that is so long ago.
    pub keep_replaced: Duration,
}

impl Default for CompactOptions {
    /// All there is, to hours; nothing of what is replaced stays.
    fn default() -> Self {
        Self { grain: Grain::Hour, since_us: i64::MIN, until_us: i64::MAX, keep_replaced: Duration::ZERO }
    }
}

/// Merges all stretches that have ended, day after day: in memory are the manifests of one. `progress` gets the stretches done,
/// and all there are.
///
/// # Errors
/// A file is not as its manifest says, or cannot be written: what is done until then is whole.
pub fn compact(
    store: &Arc<dyn Store>,
    options: &CompactOptions,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64, u64),
) -> anyhow::Result<Compacted> {
    let mut lock = Arc::clone(store).lock()?;
    let store = &**store;
    let mut replaced = Replaced { keep: options.keep_replaced, waiting: VecDeque::new() };
    let mut done = Compacted::default();
    let passes = options.grain.passes();
    let days = days_to_do(store, options, &mut *lock, &mut replaced)?;
    let all = days.iter().map(|(_, stretches)| stretches).sum();
    for &(day, _) in &days {
        for pass in &passes {
            // The second sees what the first has made.
            let manifests = read_manifests(store, day..=day)?;
            for (span, groups) in due(&manifests, pass, options.until_us) {
                progress(done.stretches, all);
                if stop.load(Ordering::Relaxed) {
                    return Ok(done);
                }
                let mut merge = Merge {
                    store,
                    lock: &mut *lock,
                    span,
                    grain_us: pass.grain_us,
                    manifest: Manifest { grain_us: pass.grain_us, ..Manifest::new() },
                };
                for (&(table, shard), files) in &groups {
                    merge.merge(table, shard, files)?;
                }
                let manifest = merge.manifest;
                done.add(groups.values().flatten(), &manifest.files);
                let name = hash(manifest.replaces.iter());
                manifest.write(store, span.day(), &name)?;
                replaced.add(manifest.replaces);
                replaced.remove_old(store)?;
            }
        }
    }
    while !replaced.waiting.is_empty() {
        if stop.load(Ordering::Relaxed) {
            return Ok(done);
        }
        lock.renew()?;
        std::thread::sleep(POLL_INTERVAL.min(options.keep_replaced));
        replaced.remove_old(store)?;
    }
    days.iter().try_for_each(|(day, _)| remove_dead(store, *day))?;
    Ok(done)
}

/// Days (since 1970) with something to merge or to remove, and the stretches that each merges.
fn days_to_do(
    store: &dyn Store,
    options: &CompactOptions,
    lock: &mut dyn Lock,
    replaced: &mut Replaced,
) -> anyhow::Result<Vec<(i64, u64)>> {
    let mut days = Vec::new();
    for (day, _) in place::day_directories(store, "manifests")? {
        if Span::Day(day).end_us() <= options.since_us {
            continue;
        }
        lock.renew()?;
        let manifests = read_manifests(store, day..=day)?;
        // A compaction may have been killed before it had removed what it had replaced.
        replaced.add(replaced_files(store, day, &manifests)?);
        let passes = options.grain.passes();
        let stretches = passes.iter().map(|pass| due(&manifests, pass, options.until_us).len() as u64).sum();
        if stretches > 0 || dead(&manifests).next().is_some() {
            days.push((day, stretches));
        }
    }
    Ok(days)
}

/// Files that count no more, in the order in which they were replaced.
struct Replaced {
    keep: Duration,
    waiting: VecDeque<(Instant, Vec<String>)>,
}

impl Replaced {
    fn add(&mut self, paths: Vec<String>) {
        if !paths.is_empty() {
            self.waiting.push_back((Instant::now(), paths));
        }
    }

    fn remove_old(&mut self, store: &dyn Store) -> anyhow::Result<()> {
        while self.waiting.front().is_some_and(|(since, _)| since.elapsed() >= self.keep)
            && let Some((_, paths)) = self.waiting.pop_front()
        {
            paths.iter().try_for_each(|path| store.remove(path))?;
        }
        Ok(())
    }
}

impl Compacted {
    fn add<'a>(&mut self, before: impl Iterator<Item = &'a ManifestFile> + Clone, after: &[ManifestFile]) {
        let bytes =
            |files: &mut dyn Iterator<Item = &ManifestFile>| files.map(|file| file.bytes).sum::<u64>();
        self.stretches += 1;
        self.files_before += before.clone().count() as u64;
        self.files_after += after.len() as u64;
        self.rows_before += rows_of(before.clone());
        self.rows_after += rows_of(after.iter());
        self.bytes_before += bytes(&mut before.clone());
        self.bytes_after += bytes(&mut after.iter());
    }
}

/// Each once: those of digests stand without their hosts again.
fn rows_of<'a>(files: impl Iterator<Item = &'a ManifestFile>) -> u64 {
    let is_folded = |table: Table| table != table.finest();
    let once = files.filter(|file| !place::table_of_path(&file.path).is_some_and(is_folded));
    once.map(|file| file.rows).sum()
}

/// Table and number of the shard.
type GroupKey = (Table, u8);

/// Files to merge, by what they become, table and shard; those of digests with what is made of them.
fn due(
    manifests: &BTreeMap<String, Manifest>,
    pass: &Pass,
    until_us: i64,
) -> BTreeMap<Span, BTreeMap<GroupKey, Vec<ManifestFile>>> {
    let merged: BTreeSet<&str> = manifests
        .values()
        .filter(|manifest| manifest.grain_us >= pass.grain_us)
        .flat_map(|manifest| &manifest.files)
        .map(|file| file.path.as_str())
        .collect();
    let mut spans = BTreeMap::<Span, BTreeMap<GroupKey, Vec<ManifestFile>>>::new();
    let mut is_due = BTreeSet::new();
    for (path, file) in live_files(manifests.values()) {
        let place = place::table_of_path(path).zip(place::span_of_path(path)).zip(place::shard_of_path(path));
        let Some(((table, of_file), shard)) = place else { continue };
        let Some(span) = (pass.span_of)(of_file).filter(|span| span.end_us() <= until_us) else { continue };
        // What is made of digests is replaced with them.
        let key = (table.finest(), shard);
        spans.entry(span).or_default().entry(key).or_default().push(file.clone());
        if of_file != span || !merged.contains(path) {
            is_due.insert((span, key));
        }
    }
    for (span, groups) in &mut spans {
        groups.retain(|key, _| is_due.contains(&(*span, *key)));
    }
    spans.retain(|_, groups| !groups.is_empty());
    spans
}

/// Files of an hour or a day on their way into one for each table and shard.
struct Merge<'a> {
    store: &'a dyn Store,
    lock: &'a mut dyn Lock,
    span: Span,
    grain_us: i64,
    manifest: Manifest,
}

impl Merge<'_> {
    fn merge(&mut self, table: Table, shard: u8, files: &[ManifestFile]) -> anyhow::Result<()> {
        self.lock.renew()?;
        let name = hash(files.iter().map(|file| &file.path));
        match table {
            Table::Digests | Table::ClusterDigests | Table::FleetDigests => {
                let is_of_hosts = |file: &&ManifestFile| place::table_of_path(&file.path) == Some(table);
                let files: Vec<ManifestFile> = files.iter().filter(is_of_hosts).cloned().collect();
                let mut rows = SortedRows::open(self.store, &files)?;
                let mut folded = FoldedFiles::new(self.grain_us, |file| {
                    self.lock.renew()?;
                    self.put(file.table, shard, &file.name(&name), file.rows, &file.bytes)
                });
                while let Some(row) = rows.next()? {
                    folded.add(Cow::Owned(row))?;
                }
                folded.finish()?;
            }
            Table::Texts => {
                let rows = FileRows::new(self.store, files, || text_table(Vec::new()), text_rows);
                let merged = rows.take_all(|rows| merge_texts(rows))?;
                let bytes = table_bytes(&text_table(merged.iter().collect()))?;
                self.put(table, shard, &name, merged.len(), &bytes)?;
            }
            Table::Coverage => {
                let rows = FileRows::new(self.store, files, || coverage_table(&[]), coverage_rows);
                let merged = rows.take_all(|rows| merge_coverage(rows, self.grain_us))?;
                let bytes = table_bytes(&coverage_table(&merged.iter().collect::<Vec<_>>()))?;
                self.put(table, shard, &name, merged.len(), &bytes)?;
            }
        }
        self.manifest.replaces.extend(files.iter().map(|file| file.path.clone()));
        Ok(())
    }

    fn put(&mut self, table: Table, shard: u8, name: &str, rows: usize, bytes: &[u8]) -> anyhow::Result<()> {
        let path = format!("{}/{name}.parquet", place::shard_directory(table, self.span, shard)?);
        self.store.put(&path, bytes)?;
        self.manifest.files.push(ManifestFile::of(path, rows, bytes));
        Ok(())
    }
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
        let bytes = Bytes::from(file.read(self.store)?);
        let read = TableReader::new(bytes, (self.like)())
            .and_then(|mut reader| {
                let mut rows = Vec::new();
                while let Some(columns) = reader.next_rows(READ_ROWS)? {
                    rows.append(&mut (self.decode)(columns)?);
                }
                Ok(rows)
            })
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

/// Files of a day that count no more and are there. They stay named in the manifest of what replaced them, so that a file which
/// arrives again is not counted.
fn replaced_files(
    store: &dyn Store,
    day: i64,
    manifests: &BTreeMap<String, Manifest>,
) -> anyhow::Result<Vec<String>> {
    let replaced: HashSet<&String> = manifests.values().flat_map(|manifest| &manifest.replaces).collect();
    let mut found = Vec::new();
    if !replaced.is_empty() {
        for table in Table::ALL {
            let files = store.list_all(&place::day_directory(table.name(), day)?)?;
            found.extend(files.into_iter().filter(|path| replaced.contains(path)));
        }
    }
    Ok(found)
}

/// Manifests of which no file counts, and that replace none.
fn dead(manifests: &BTreeMap<String, Manifest>) -> impl Iterator<Item = &String> {
    let live = live_files(manifests.values());
    let counts =
        move |manifest: &Manifest| manifest.files.iter().any(|file| live.contains_key(file.path.as_str()));
    let dead =
        manifests.iter().filter(move |(_, manifest)| manifest.replaces.is_empty() && !counts(manifest));
    dead.map(|(path, _)| path)
}

fn remove_dead(store: &dyn Store, day: i64) -> anyhow::Result<()> {
    let manifests = read_manifests(store, day..=day)?;
    dead(&manifests).try_for_each(|path| store.remove(path))
}
