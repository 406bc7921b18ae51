//! Rows of all tables: written as files of each hour and shard, and a manifest of each day; read back whole.

use super::column::table_bytes;
use super::compact::FileRows;
use super::fold::FoldedFiles;
use super::manifest::{ALL_DAYS, Manifest, ManifestFile, is_replaced, live_files, read_manifests};
use super::merge::{coverage_rows, digest_rows, text_rows};
use super::place::{self, Span, Table};
use super::rows::{CoverageRow, DigestRow, TextRow, coverage_table, digest_table, text_table, without};
use super::store::Store;
use anyhow::bail;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Rows of the tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowSet {
    pub digests: Vec<DigestRow>,
    pub texts: Vec<TextRow>,
    pub coverage: Vec<CoverageRow>,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Of the manifests.
    pub grain_us: i64,
    pub replaced: ReplacedFiles,
}

/// What becomes of a file to be written again, whose rows a compaction has merged meanwhile: it would not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplacedFiles {
    /// There are none: its name is new.
    #[default]
    New,
    /// It may hold more than it did: an error.
    Refused,
    /// It holds what it did, and counts already.
    Skipped,
}

impl RowSet {
    /// Writes the rows under this name, as one file for each table, hour and shard, then a manifest for each day.
    ///
    /// # Errors
    /// Files cannot be written. Written again, under the same name, they take the place of those that were.
    pub fn write(&self, store: &dyn Store, name: &str, options: WriteOptions) -> anyhow::Result<()> {
        let mut files = Files { store, options, days: BTreeMap::new() };
        for (place, mut rows) in by_place(&self.digests, |row| (row.ts_us, &row.cluster)) {
            if options.grain_us == 0 {
                let bytes = table_bytes(&digest_table(rows.clone()))?;
                files.write(Table::Digests, place, name, rows.len(), &bytes)?;
                continue;
            }
            // As a compaction leaves them.
            rows.sort_by(|a, b| a.compare_keys(b));
            let mut folded = FoldedFiles::new(options.grain_us, |file| {
                files.write(file.table, place, &file.name(name), file.rows, &file.bytes)
            });
            rows.into_iter().try_for_each(|row| folded.add(Cow::Borrowed(row)))?;
            folded.finish()?;
        }
        for (place, rows) in by_place(&self.texts, |row| (row.first_us, &row.cluster)) {
            files.write(Table::Texts, place, name, rows.len(), &table_bytes(&text_table(rows.clone()))?)?;
        }
        for (place, rows) in by_place(&self.coverage, |row| (row.ts_us, &row.cluster)) {
            files.write(Table::Coverage, place, name, rows.len(), &table_bytes(&coverage_table(&rows))?)?;
        }
        files.days.iter().try_for_each(|(day, manifest)| manifest.write(store, *day, name))
    }

    /// All rows of the tables.
    ///
    /// # Errors
    /// A file is not as its manifest says.
    pub fn read(store: &dyn Store) -> anyhow::Result<Self> {
        let manifests = read_manifests(store, ALL_DAYS)?;
        let mut of_table = BTreeMap::<Table, Vec<ManifestFile>>::new();
        for (path, file) in live_files(manifests.values()) {
            if let Some(table) = place::table_of_path(path) {
                of_table.entry(table).or_default().push(file.clone());
            }
        }
        let files = |table| of_table.get(&table).map_or(&[][..], Vec::as_slice);
        Ok(Self {
            digests: FileRows::new(store, files(Table::Digests), || digest_table(Vec::new()), digest_rows)
                .take_all(|rows| rows.collect())?,
            texts: FileRows::new(store, files(Table::Texts), || text_table(Vec::new()), text_rows)
                .take_all(|rows| rows.collect())?,
            coverage: FileRows::new(store, files(Table::Coverage), || coverage_table(&[]), coverage_rows)
                .take_all(|rows| rows.collect())?,
        })
    }
}

/// A file of a table without rows: its columns.
///
/// # Errors
/// Never, but for a fault of the library.
pub fn empty_file(table: Table) -> anyhow::Result<Bytes> {
    let columns = match table {
        Table::Digests | Table::ClusterDigests | Table::FleetDigests => {
            without(digest_table(Vec::new()), table.folded_columns())
        }
        Table::Texts => text_table(Vec::new()),
        Table::Coverage => coverage_table(&[]),
    };
    Ok(table_bytes(&columns)?.into())
}

/// Hour and shard.
type HourAndShard = (i64, u8);

fn by_place<'a, R>(
    rows: &'a [R],
    place_of: impl Fn(&'a R) -> (i64, &'a String),
) -> BTreeMap<HourAndShard, Vec<&'a R>> {
    let mut places: BTreeMap<HourAndShard, Vec<&R>> = BTreeMap::new();
    for row in rows {
        let (ts_us, cluster) = place_of(row);
        places.entry((place::hour_of(ts_us), place::shard_of(cluster))).or_default().push(row);
    }
    places
}

/// Files being written.
struct Files<'a> {
    store: &'a dyn Store,
    options: WriteOptions,
    /// Manifest of each day since 1970.
    days: BTreeMap<i64, Manifest>,
}

impl Files<'_> {
    fn write(
        &mut self,
        table: Table,
        (hour, shard): HourAndShard,
        name: &str,
        rows: usize,
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let span = Span::Hour(hour);
        let path = format!("{}/{name}.parquet", place::shard_directory(table, span, shard)?);
        if self.options.replaced != ReplacedFiles::New && is_replaced(self.store, span.day(), &path)? {
            if self.options.replaced == ReplacedFiles::Skipped {
                return Ok(());
            }
            bail!(
                "the hours of {} are merged (toll-fleet compact), and what is read again would not count: \
                 write it to another directory",
                path.split('/').find(|part| part.starts_with("day=")).unwrap_or_default()
            );
        }
        self.store.put(&path, bytes)?;
        let grain_us = self.options.grain_us;
        let new = || Manifest { grain_us, ..Manifest::new() };
        let manifest = self.days.entry(span.day()).or_insert_with(new);
        manifest.files.push(ManifestFile::of(path, rows, bytes));
        Ok(())
    }
}
