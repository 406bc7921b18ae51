//! Rows of many files of digests, one by one in the order of their keys: a part of each file is in memory.

use super::column_reader::TableReader;
use super::manifest::ManifestFile;
use super::merge::digest_rows;
use super::rows::{DigestRow, digest_table};
use super::spool::{Section, Spool};
use super::store::Store;
use anyhow::{Context, ensure};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::vec::IntoIter;

/// Rows in memory, of all files, but for so many of each.
const ROWS: usize = 4_096;
const ROWS_MIN: usize = 16;

/// Rows of files, the least first.
pub struct SortedRows {
    files: BinaryHeap<Box<SortedFile>>,
}

impl SortedRows {
    /// # Errors
    /// A file is not as its manifest says.
    pub fn open(store: &dyn Store, files: &[ManifestFile]) -> anyhow::Result<Self> {
        let mut spool = Spool::new(store)?;
        let batch = (ROWS / files.len().max(1)).max(ROWS_MIN);
        let mut opened = BinaryHeap::with_capacity(files.len());
        for file in files {
            let section = spool.add(&file.read(store)?)?;
            let name = format!("{} in {}", file.path, store.location());
            opened.extend(SortedFile::open(section, file.rows, name, batch)?.map(Box::new));
        }
        Ok(Self { files: opened })
    }

    /// # Errors
    /// A file is not as its manifest says.
    pub fn next(&mut self) -> anyhow::Result<Option<DigestRow>> {
        let Some(mut least) = self.files.peek_mut() else { return Ok(None) };
        match least.next_row()? {
            Some(next) => {
                let row = std::mem::replace(&mut least.row, next);
                ensure!(row.compare_keys(&least.row).is_le(), "rows of {} are not in order", least.name);
                Ok(Some(row))
            }
            None => Ok(Some(PeekMut::pop(least).row)),
        }
    }
}

/// A file with rows left: the next one, and those behind it.
struct SortedFile {
    row: DigestRow,
    read: IntoIter<DigestRow>,
    reader: TableReader<Section>,
    /// Rows read at once.
    batch: usize,
    name: String,
}

impl SortedFile {
    /// `None`: it has no rows.
    fn open(section: Section, rows: u64, name: String, batch: usize) -> anyhow::Result<Option<Self>> {
        let reader = TableReader::new(section, digest_table(Vec::new()))
            .with_context(|| format!("{name} is no table of this version"))?;
        ensure!(reader.rows() == rows, "{name} has {} rows, not {rows}", reader.rows());
        let mut file = Self { row: DigestRow::default(), read: Vec::new().into_iter(), reader, batch, name };
        let first = file.next_row()?;
        Ok(first.map(|row| Self { row, ..file }))
    }

    fn next_row(&mut self) -> anyhow::Result<Option<DigestRow>> {
        if let Some(row) = self.read.next() {
            return Ok(Some(row));
        }
        let read = self.reader.next_rows(self.batch).and_then(|columns| columns.map(digest_rows).transpose());
        let rows = read.with_context(|| format!("{} is no table of this version", self.name))?;
        self.read = rows.unwrap_or_default().into_iter();
        Ok(self.read.next())
    }
}

/// The least row is the greatest file.
impl Ord for SortedFile {
    fn cmp(&self, other: &Self) -> Ordering {
        other.row.compare_keys(&self.row)
    }
}

impl PartialOrd for SortedFile {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortedFile {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SortedFile {}
