//! Rows of a table read back, and rows of one stretch of time merged: pure sums, in whatever order.

use super::column::{Column, Values};
use super::lists::TakenLists;
use super::rows::{CoverageRow, DigestRow, TextRow};
use anyhow::{Context, bail};
use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map::Entry};
use std::vec::IntoIter;

/// Columns of a table, taken one by one.
struct InOrder(IntoIter<Column>);

macro_rules! take {
    ($name:ident, $kind:pat => $taken:expr, $of:ty) => {
        fn $name(&mut self) -> anyhow::Result<$of> {
            match self.0.next() {
                Some((_, $kind)) => Ok($taken),
                _ => bail!("the columns are not those of the table"),
            }
        }
    };
}

impl InOrder {
    take!(int, Values::Int(values) | Values::Time(values) => values.into_iter(), IntoIter<i64>);
    take!(optional, Values::OptionalInt(values) => values.into_iter(), IntoIter<Option<i64>>);
    take!(float, Values::Float(values) => values.into_iter(), IntoIter<f64>);
    take!(text, Values::Text(values) => values.into_iter(), IntoIter<String>);
    take!(id, Values::Id(values) => values.into_iter(), IntoIter<[u8; 16]>);
    take!(ints, Values::IntList(lists) => lists.into(), TakenLists<i64>);
    take!(texts, Values::TextList(lists) => lists.into(), TakenLists<String>);
}

/// # Errors
/// They are not the columns of the table, or contradict each other.
pub fn digest_rows(columns: Vec<Column>) -> anyhow::Result<Vec<DigestRow>> {
    let mut columns = InOrder(columns.into_iter());
    let (ts, mut width, mut host, mut cluster, mut source) =
        (columns.int()?, columns.int()?, columns.text()?, columns.text()?, columns.text()?);
    let (mut class, mut n, mut errors, mut tainted, mut time, mut max) =
        (columns.id()?, columns.int()?, columns.int()?, columns.int()?, columns.int()?, columns.int()?);
    let mut sums = (0..6).map(|_| columns.optional()).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut db, mut db_n, mut user, mut user_n) =
        (columns.texts()?, columns.ints()?, columns.texts()?, columns.ints()?);
    let (mut bins, mut bin_n) = (columns.ints()?, columns.ints()?);
    let mut next_sum = |at: usize| one(sums[at].next());
    let mut rows = Vec::with_capacity(ts.len());
    for ts_us in ts {
        rows.push(DigestRow {
            ts_us,
            width_us: one(width.next())?,
            host: one(host.next())?,
            cluster: one(cluster.next())?,
            source: one(source.next())?.into(),
            class: one(class.next())?,
            n: one(n.next())?,
            errors: one(errors.next())?,
            tainted: one(tainted.next())?,
            time_ns: one(time.next())?,
            max_ns: one(max.next())?,
            lock_ns: next_sum(0)?,
            rows_sent: next_sum(1)?,
            rows_examined: next_sum(2)?,
            rows_affected: next_sum(3)?,
            bytes_sent: next_sum(4)?,
            bytes_received: next_sum(5)?,
            dbs: pairs(&mut db, &mut db_n, |name, n| Ok((name, n)))?,
            users: pairs(&mut user, &mut user_n, |name, n| Ok((name, n)))?,
            histogram: pairs(&mut bins, &mut bin_n, bucket)?,
        });
    }
    Ok(rows)
}

fn one<T>(value: Option<T>) -> anyhow::Result<T> {
    value.context("columns of different lengths")
}

/// The next lists of both, whose elements belong together.
fn pairs<K, A, N>(
    keys: &mut TakenLists<K>,
    counts: &mut TakenLists<i64>,
    pair: impl Fn(K, i64) -> anyhow::Result<(A, N)>,
) -> anyhow::Result<Vec<(A, N)>> {
    let (keys, counts) = (one(keys.next_list())?, one(counts.next_list())?);
    anyhow::ensure!(keys.len() == counts.len(), "two lists that belong together have different lengths");
    let mut pairs = Vec::with_capacity(keys.len());
    for (key, count) in keys.zip(counts) {
        pairs.push(pair(key, count)?);
    }
    Ok(pairs)
}

fn bucket(bin: i64, n: i64) -> anyhow::Result<(u16, u64)> {
    let known = u16::try_from(bin).ok().zip(u64::try_from(n).ok());
    known.context("a bucket that this version does not know")
}

/// # Errors
/// They are not the columns of the table.
pub fn text_rows(columns: Vec<Column>) -> anyhow::Result<Vec<TextRow>> {
    let mut columns = InOrder(columns.into_iter());
    let (class, mut cluster, mut fingerprint, mut summary, mut tables, mut first) =
        (columns.id()?, columns.text()?, columns.text()?, columns.text()?, columns.texts()?, columns.int()?);
    class
        .map(|class| {
            Ok(TextRow {
                class,
                cluster: one(cluster.next())?,
                fingerprint: one(fingerprint.next())?,
                summary: one(summary.next())?,
                tables: one(tables.next_list())?.collect(),
                first_us: one(first.next())?,
            })
        })
        .collect()
}

/// # Errors
/// They are not the columns of the table.
pub fn coverage_rows(columns: Vec<Column>) -> anyhow::Result<Vec<CoverageRow>> {
    let mut columns = InOrder(columns.into_iter());
    let (ts, mut width, mut host, mut cluster, mut source) =
        (columns.int()?, columns.int()?, columns.text()?, columns.text()?, columns.text()?);
    let (mut commands, mut tainted, mut lost, mut share, mut version) =
        (columns.int()?, columns.int()?, columns.int()?, columns.float()?, columns.text()?);
    ts.map(|ts_us| {
        Ok(CoverageRow {
            ts_us,
            width_us: one(width.next())?,
            host: one(host.next())?,
            cluster: one(cluster.next())?,
            source: one(source.next())?.into(),
            commands: one(commands.next())?,
            tainted: one(tainted.next())?,
            lost: one(lost.next())?,
            sampled_share: one(share.next())?,
            toll_version: one(version.next())?.into(),
        })
    })
    .collect()
}

/// Of the stretch that a time is in.
fn begin_of(ts_us: i64, grain_us: i64) -> i64 {
    ts_us - ts_us.rem_euclid(grain_us)
}

impl DigestRow {
    /// Two rows of one merge differ in these.
    pub fn compare_keys(&self, other: &Self) -> Ordering {
        let key = |row: &Self| (row.ts_us, row.width_us);
        self.class
            .cmp(&other.class)
            .then_with(|| self.cluster.cmp(&other.cluster))
            .then_with(|| self.host.cmp(&other.host))
            .then_with(|| key(self).cmp(&key(other)))
            .then_with(|| self.source.cmp(&other.source))
    }

    /// Adds all but the histogram.
    pub fn add_sums(&mut self, other: &Self) {
        let sums = [
            (&mut self.n, other.n),
            (&mut self.errors, other.errors),
            (&mut self.tainted, other.tainted),
            (&mut self.time_ns, other.time_ns),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.max_ns = self.max_ns.max(other.max_ns);
        let optional = [
            (&mut self.lock_ns, other.lock_ns),
            (&mut self.rows_sent, other.rows_sent),
            (&mut self.rows_examined, other.rows_examined),
            (&mut self.rows_affected, other.rows_affected),
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.bytes_received, other.bytes_received),
        ];
        for (sum, more) in optional {
            *sum = match (*sum, more) {
                (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                (known, None) | (None, known) => known,
            };
        }
        add_counts(&mut self.dbs, &other.dbs);
        add_counts(&mut self.users, &other.users);
    }
}

/// By name, each once.
fn add_counts(counts: &mut Vec<(String, i64)>, more: &[(String, i64)]) {
    let add = |first: &mut i64, n: i64| *first = first.saturating_add(n);
    // Nearly always both have one name, and the same.
    if let ([first], [(name, n)]) = (counts.as_mut_slice(), more)
        && first.0 == *name
    {
        return add(&mut first.1, *n);
    }
    counts.extend_from_slice(more);
    counts.sort_by(|a, b| a.0.cmp(&b.0));
    counts.dedup_by(|later, first| {
        let is_same = later.0 == first.0;
        if is_same {
            add(&mut first.1, later.1);
        }
        is_same
    });
}

/// The text of a class once for each cluster.
pub fn merge_texts(rows: impl IntoIterator<Item = TextRow>) -> Vec<TextRow> {
    let mut merged = BTreeMap::<_, TextRow>::new();
    for row in rows {
        let known = merged.entry((row.class, row.cluster.clone())).or_insert_with(|| row.clone());
        known.first_us = known.first_us.min(row.first_us);
    }
    merged.into_values().collect()
}

/// A row for each host, cluster, source and stretch of `grain_us`; its width is the time that they have together. Rows that begin together
/// are parts of one stretch, as where a file of a receiver ended in it. A longer stretch is kept apart, where it is.
pub fn merge_coverage(rows: impl IntoIterator<Item = CoverageRow>, grain_us: i64) -> Vec<CoverageRow> {
    let mut stretches = BTreeMap::<_, CoverageRow>::new();
    for row in rows {
        let key = (row.cluster.clone(), row.host.clone(), row.source.clone(), row.ts_us);
        match stretches.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(row);
            }
            Entry::Occupied(mut entry) => {
                let width_us = entry.get().width_us.max(row.width_us);
                entry.get_mut().add(row);
                entry.get_mut().width_us = width_us;
            }
        }
    }
    let mut merged = BTreeMap::<_, CoverageRow>::new();
    for ((cluster, host, source, ts_us), row) in stretches {
        let is_longer = row.width_us > grain_us;
        let ts_us = if is_longer { ts_us } else { begin_of(ts_us, grain_us) };
        match merged.entry((cluster, host, source, ts_us, is_longer)) {
            Entry::Vacant(entry) => {
                entry.insert(CoverageRow { ts_us, ..row });
            }
            Entry::Occupied(mut entry) => {
                // Stretches that overlap otherwise are no more time than there is.
                let most_us = grain_us.max(entry.get().width_us).max(row.width_us);
                entry.get_mut().add(row);
                entry.get_mut().width_us = entry.get().width_us.min(most_us);
            }
        }
    }
    merged.into_values().collect()
}

impl CoverageRow {
    fn add(&mut self, other: Self) {
        let (width, more) = (self.width_us as f64, other.width_us as f64);
        if width + more > 0.0 {
            self.sampled_share = (self.sampled_share * width + other.sampled_share * more) / (width + more);
        }
        let sums = [
            (&mut self.width_us, other.width_us),
            (&mut self.commands, other.commands),
            (&mut self.tainted, other.tainted),
            (&mut self.lost, other.lost),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.toll_version = std::mem::take(&mut self.toll_version).max(other.toll_version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_stretch_are_no_more_time_than_it_has() {
        let row = |ts_us, width_us, commands| CoverageRow {
            ts_us,
            width_us,
            host: "db1".into(),
            cluster: "shop".into(),
            source: "queries".into(),
            commands,
            tainted: 0,
            lost: 0,
            sampled_share: 1.0,
            toll_version: "1".into(),
        };
        let merged = |rows: &[CoverageRow], grain_us| {
            let merged = merge_coverage(rows.iter().cloned(), grain_us);
            merged.iter().map(|row| (row.ts_us, row.width_us, row.commands)).collect::<Vec<_>>()
        };
        let whole: Vec<_> = (0..6).map(|minute| row(minute * 10, 10, 5)).collect();
        // Two files of a receiver end within stretches; another was read again with longer ones.
        let cut = [&whole[..], &[row(10, 10, 3), row(30, 10, 1)]].concat();
        assert_eq!(merged(&cut, 60), [(0, 60, 34)]);
        assert_eq!(merged(&[&whole[..4], &[row(0, 30, 7)]].concat(), 60), [(0, 60, 27)]);
        assert_eq!(merged(&[row(0, 10, 5), row(40, 10, 5)], 60), [(0, 20, 10)], "only what was seen");
        assert_eq!(merged(&[row(0, 240, 9), row(10, 10, 5)], 60), [(0, 10, 5), (0, 240, 9)]);
        let around = [&whole[..5], &[row(50, 120, 9)]].concat();
        assert_eq!(merged(&around, 60), [(0, 50, 25), (50, 120, 9)], "a longer one stays where it is");
    }

    #[test]
    fn counts_are_added_by_name_in_whatever_order_they_stand() {
        let list = |names: &[(&str, i64)]| {
            names.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>()
        };
        for (mut counts, more, expected) in [
            (
                list(&[("b", 1), ("a", 10)]),
                list(&[("c", 7), ("a", 20)]),
                list(&[("a", 30), ("b", 1), ("c", 7)]),
            ),
            (list(&[("a", i64::MAX)]), list(&[("a", 1)]), list(&[("a", i64::MAX)])),
            (list(&[("b", 1)]), list(&[("a", 2)]), list(&[("a", 2), ("b", 1)])),
            (list(&[]), list(&[("a", 2)]), list(&[("a", 2)])),
            (list(&[("a", 2)]), list(&[]), list(&[("a", 2)])),
        ] {
            add_counts(&mut counts, &more);
            assert_eq!(counts, expected);
        }
    }
}
