//! Folding: rows of digests that come in the order of their keys are merged by stretches, then by hosts, then by clusters.
//!
//! Memory is bounded, however many rows there are: it holds the stretches of one class, and what is written at once.

use super::column::TableFile;
use super::place::Table;
use super::rows::{DigestColumns, DigestRow, without};
use std::borrow::Cow;
use std::mem::take;

/// Folded rows are written where each stands for so many at least, on average.
const FOLDED_MIN: usize = 2;
/// Memory of rows that are written as one group, which a reader skips, or reads, as a whole.
const GROUP_BYTES: usize = 32 << 20;
/// A file ends beyond so many bytes, and another begins.
const FILE_BYTES: usize = 64 << 20;

/// Rows of one class, and of one cluster and one host as far as a table has them, merged by stretch and source.
struct OpenRows {
    table: Table,
    grain_us: i64,
    /// By stretch and source.
    rows: Vec<OpenRow>,
}

struct OpenRow {
    /// Its histogram is of the first of its rows.
    row: DigestRow,
    /// Count of each bucket, once there is a second row.
    counts: Vec<u64>,
}

impl OpenRow {
    fn add(&mut self, row: &DigestRow) {
        self.row.add_sums(row);
        let first = take(&mut self.row.histogram);
        for (bucket, n) in first.iter().chain(&row.histogram) {
            let bucket = usize::from(*bucket);
            if bucket >= self.counts.len() {
                self.counts.resize(bucket + 1, 0);
            }
            self.counts[bucket] = self.counts[bucket].saturating_add(*n);
        }
    }

    /// Its names, the most frequent first.
    fn finish(self) -> DigestRow {
        let Self { mut row, counts } = self;
        if !counts.is_empty() {
            let held = counts.iter().zip(0..).filter(|(n, _)| **n > 0);
            row.histogram = held.map(|(n, bucket)| (bucket, *n)).collect();
        }
        row.dbs.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        row.users.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        row
    }
}

impl OpenRows {
    fn new(table: Table, grain_us: i64) -> Self {
        Self { table, grain_us: grain_us.max(1), rows: Vec::new() }
    }

    /// True if the row belongs to these.
    fn has_place_for(&self, row: &DigestRow) -> bool {
        let is_folded = |column| self.table.folded_columns().contains(&column);
        self.rows.first().is_none_or(|OpenRow { row: open, .. }| {
            open.class == row.class
                && (open.cluster == row.cluster || is_folded("cluster"))
                && (open.host == row.host || is_folded("host"))
        })
    }

    /// A row of a longer stretch is kept apart, where it is.
    fn add(&mut self, row: Cow<'_, DigestRow>) {
        let is_longer = row.width_us > self.grain_us;
        let ts_us = if is_longer { row.ts_us } else { row.ts_us - row.ts_us.rem_euclid(self.grain_us) };
        let width_us = row.width_us.max(self.grain_us);
        let place = self.rows.binary_search_by(|OpenRow { row: open, .. }| {
            (open.ts_us, open.width_us, &*open.source).cmp(&(ts_us, width_us, &*row.source))
        });
        match place {
            Ok(at) => self.rows[at].add(&row),
            Err(at) => {
                let mut row = DigestRow { ts_us, width_us, ..row.into_owned() };
                for column in self.table.folded_columns() {
                    if *column == "host" { row.host.clear() } else { row.cluster.clear() }
                }
                self.rows.insert(at, OpenRow { row, counts: Vec::new() });
            }
        }
    }

    fn take(&mut self) -> impl Iterator<Item = DigestRow> + use<> {
        take(&mut self.rows).into_iter().map(OpenRow::finish)
    }
}

/// A row for each class, host, cluster, source and stretch of `grain_us`.
pub fn merge_digests(mut rows: Vec<DigestRow>, grain_us: i64) -> Vec<DigestRow> {
    rows.sort_by(DigestRow::compare_keys);
    let mut merged = Vec::new();
    let mut open = OpenRows::new(Table::Digests, grain_us);
    for row in rows {
        if !open.has_place_for(&row) {
            merged.extend(open.take());
        }
        open.add(Cow::Owned(row));
    }
    merged.extend(open.take());
    merged
}

/// A file of a table, whose place and name others know.
pub struct FoldedFile {
    pub table: Table,
    /// Files of the same number have the same rows, folded.
    pub number: usize,
    pub rows: usize,
    pub bytes: Vec<u8>,
}

impl FoldedFile {
    /// Of files that begin with this one.
    pub fn name(&self, first: &str) -> String {
        if self.number == 0 { first.to_owned() } else { format!("{first}-{}", self.number) }
    }
}

/// Files of digests, and of their folds where they are worth a file.
pub struct FoldedFiles<'a> {
    levels: [Level; 3],
    file_bytes: usize,
    number: usize,
    put: Box<dyn FnMut(FoldedFile) -> anyhow::Result<()> + 'a>,
}

impl<'a> FoldedFiles<'a> {
    /// `put` gets each file once it is whole.
    pub fn new(grain_us: i64, put: impl FnMut(FoldedFile) -> anyhow::Result<()> + 'a) -> Self {
        let tables = [Table::Digests, Table::ClusterDigests, Table::FleetDigests];
        let levels = tables.map(|table| Level::new(table, grain_us));
        Self { levels, file_bytes: FILE_BYTES, number: 0, put: Box::new(put) }
    }

    /// Adds a row; all come in the order of their keys.
    ///
    /// # Errors
    /// `put` has failed.
    pub fn add(&mut self, row: Cow<'_, DigestRow>) -> anyhow::Result<()> {
        if !self.levels[0].open.has_place_for(&row) {
            close(&mut self.levels)?;
            if self.levels[0].bytes() > self.file_bytes {
                self.end_files()?;
            }
        }
        self.levels[0].open.add(row);
        Ok(())
    }

    /// # Errors
    /// `put` has failed.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.end_files()
    }

    fn end_files(&mut self) -> anyhow::Result<()> {
        for at in 0..self.levels.len() {
            close(&mut self.levels[at..])?;
        }
        let mut finer = None;
        for level in &mut self.levels {
            let (rows, bytes) = level.finish()?;
            let is_worth_a_file = finer.is_none_or(|finer| rows * FOLDED_MIN <= finer) && rows > 0;
            if is_worth_a_file {
                (self.put)(FoldedFile { table: level.open.table, number: self.number, rows, bytes })?;
                finer = Some(rows);
            }
        }
        self.number += 1;
        Ok(())
    }
}

/// Rows of one table on their way into a file.
struct Level {
    open: OpenRows,
    group: DigestColumns,
    /// Memory of its rows, and how much it may be.
    group_bytes: usize,
    group_bytes_max: usize,
    file: Option<TableFile<Vec<u8>>>,
}

impl Level {
    fn new(table: Table, grain_us: i64) -> Self {
        Self {
            open: OpenRows::new(table, grain_us),
            group: DigestColumns::default(),
            group_bytes: 0,
            group_bytes_max: GROUP_BYTES,
            file: None,
        }
    }

    fn bytes(&self) -> usize {
        self.file.as_ref().map_or(0, TableFile::bytes)
    }

    fn write(&mut self, row: &DigestRow) -> anyhow::Result<()> {
        self.group_bytes += row.bytes();
        self.group.add(row);
        if self.group_bytes > self.group_bytes_max { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> anyhow::Result<()> {
        let columns = without(self.group.take(), self.open.table.folded_columns());
        self.group_bytes = 0;
        let file = match &mut self.file {
            Some(file) => file,
            // Memory that is not written to takes none.
            none => none.insert(TableFile::new(&columns, Vec::with_capacity(FILE_BYTES + GROUP_BYTES))?),
        };
        file.write_group(&columns)
    }

    /// Rows of the file, and its bytes; no rows: there is no file.
    fn finish(&mut self) -> anyhow::Result<(usize, Vec<u8>)> {
        if self.group_bytes > 0 {
            self.write_group()?;
        }
        self.file.take().map_or_else(|| Ok((0, Vec::new())), TableFile::finish)
    }
}

/// Ends what is open at the first of these levels: its rows go into its file, and to the next level.
fn close(levels: &mut [Level]) -> anyhow::Result<()> {
    let Some((level, coarser)) = levels.split_first_mut() else { return Ok(()) };
    for row in level.open.take() {
        if let Some(next) = coarser.first() {
            if !next.open.has_place_for(&row) {
                close(coarser)?;
            }
            coarser[0].open.add(Cow::Borrowed(&row));
        }
        level.write(&row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column_reader::TableReader;
    use crate::merge::digest_rows;
    use crate::rows::digest_table;

    /// Of two classes, three clusters of four hosts, and two stretches.
    fn rows() -> Vec<DigestRow> {
        let mut rows = Vec::new();
        for at in 0..2 * 3 * 4 * 2 {
            let (class, cluster, host, stretch) = (at / 24, at / 8 % 3, at / 2 % 4, at % 2);
            rows.push(DigestRow {
                ts_us: i64::from(stretch) * 60,
                width_us: 60,
                host: format!("host{host}"),
                cluster: format!("cluster{cluster}"),
                source: "packets".into(),
                class: [class; 16],
                n: i64::from(at) + 1,
                histogram: vec![(u16::from(at % 5), 1), (900, u64::from(at))],
                ..DigestRow::default()
            });
        }
        rows
    }

    fn folded(file_bytes: usize) -> Vec<FoldedFile> {
        let mut files = Vec::new();
        let mut folded = FoldedFiles::new(60, |file| {
            files.push(file);
            Ok(())
        });
        folded.file_bytes = file_bytes;
        folded.levels.iter_mut().for_each(|level| level.group_bytes_max = 1_000);
        rows().iter().try_for_each(|row| folded.add(Cow::Borrowed(row))).unwrap();
        folded.finish().unwrap();
        files
    }

    fn read(file: &FoldedFile) -> Vec<DigestRow> {
        // What a fold lacks is in its file as another column, so that it reads as digests do.
        let mut like = digest_table(Vec::new());
        like.iter_mut()
            .filter(|(name, _)| file.table.folded_columns().contains(name))
            .for_each(|column| column.0 = "source");
        let mut reader = TableReader::new(bytes::Bytes::from(file.bytes.clone()), like).unwrap();
        assert_eq!(reader.rows(), file.rows as u64);
        let mut rows = Vec::new();
        while let Some(columns) = reader.next_rows(7).unwrap() {
            rows.extend(digest_rows(columns).unwrap());
        }
        rows
    }

    #[test]
    fn a_row_of_a_longer_stretch_stays_where_it_is() {
        let row = |ts_us, width_us| DigestRow { ts_us, width_us, n: 1, ..DigestRow::default() };
        let merged = merge_digests(vec![row(0, 10), row(50, 10), row(50, 120), row(70, 10)], 60);
        let found: Vec<_> = merged.iter().map(|row| (row.ts_us, row.width_us, row.n)).collect();
        assert_eq!(found, [(0, 60, 2), (50, 120, 1), (60, 60, 1)]);
    }

    #[test]
    fn each_table_has_every_query_once_however_files_are_cut() {
        let sum = |rows: &[DigestRow]| {
            let in_buckets: u64 = rows.iter().flat_map(|row| &row.histogram).map(|(_, n)| n).sum();
            (rows.iter().map(|row| row.n).sum::<i64>(), in_buckets)
        };
        let all = sum(&rows());
        for (file_bytes, cut) in [(usize::MAX, false), (4_000, true), (1, true)] {
            let files = folded(file_bytes);
            let numbers = files.iter().map(|file| file.number).max().unwrap() + 1;
            assert_eq!(numbers > 1, cut);
            for table in [Table::Digests, Table::ClusterDigests, Table::FleetDigests] {
                let of_number = |number| {
                    // What is not worth a file is in that of the finer table.
                    let of = |table| files.iter().find(|file| file.number == number && file.table == table);
                    std::iter::successors(Some(table), |table| table.finer()).find_map(of).map(read)
                };
                let rows: Vec<DigestRow> = (0..numbers).filter_map(of_number).flatten().collect();
                assert_eq!(sum(&rows), all, "{table:?} {file_bytes}");
            }
            if !cut {
                assert_eq!(files.iter().map(|file| file.rows).collect::<Vec<_>>(), [48, 12, 4]);
            }
        }
    }
}
