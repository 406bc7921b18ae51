//! Rows of a table read back, and those of one stretch of time merged: pure sums, in whatever order.

use super::column::{Column, Values};
use super::lists::TakenLists;
use super::rows::{CoverageRow, DigestRow, TextRow};
use anyhow::{Context, bail};
use std::cmp::Ordering;
use std::collections::hash_map::Entry as HashEntry;
use std::collections::{BTreeMap, HashMap, btree_map::Entry};
use std::vec::IntoIter;

/// Rows of a cluster are kept without their hosts, too, where each stands for so many at least, on average.
const FOLDED_MIN: usize = 2;

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

/// A row for each class, host, cluster, source and stretch of `grain_us`. A row of a longer stretch is kept apart.
///
/// Holds what comes of the rows, not the rows: they may be read as they are taken.
pub fn merge_digests(rows: impl IntoIterator<Item = DigestRow>, grain_us: i64) -> Vec<DigestRow> {
    let mut names = Names::default();
    let mut merged = HashMap::new();
    for row in rows {
        let (ts_us, width_us) = (begin_of(row.ts_us, grain_us), row.width_us.max(grain_us));
        let [cluster, host, source] =
            [&row.cluster, &row.host, row.source.as_ref()].map(|name| names.number(name));
        match merged.entry((row.class, cluster, host, source, ts_us, width_us)) {
            HashEntry::Vacant(entry) => {
                entry.insert(DigestRow { ts_us, width_us, ..row });
            }
            HashEntry::Occupied(mut entry) => entry.get_mut().add(&row),
        }
    }
    let mut merged: Vec<DigestRow> = merged.into_values().collect();
    merged.sort_unstable_by(DigestRow::compare_keys);
    in_order_of_count(merged)
}

/// A key of numbers is found sooner than one of names, and takes less.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    fn number(&mut self, name: &str) -> usize {
        let next = self.0.len();
        match self.0.get(name) {
            Some(number) => *number,
            None => *self.0.entry(name.to_owned()).or_insert(next),
        }
    }
}

/// Of the stretch that a time is in.
fn begin_of(ts_us: i64, grain_us: i64) -> i64 {
    ts_us - ts_us.rem_euclid(grain_us)
}

/// The rows of each class, cluster and source as one, without their hosts; stretches stay apart. `None`: they would hardly be fewer.
pub fn fold_hosts<'a>(rows: impl IntoIterator<Item = &'a DigestRow>) -> Option<Vec<DigestRow>> {
    let mut folded = BTreeMap::new();
    let mut all = 0;
    for row in rows {
        all += 1;
        let key = (row.class, row.cluster.as_str(), &row.source, row.ts_us, row.width_us);
        match folded.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(DigestRow { host: String::new(), ..row.clone() });
            }
            Entry::Occupied(mut entry) => entry.get_mut().add(row),
        }
    }
    let is_worth_a_file = folded.len() * FOLDED_MIN <= all;
    is_worth_a_file.then(|| in_order_of_count(folded.into_values().collect()))
}

/// Their names, the most frequent first.
fn in_order_of_count(mut rows: Vec<DigestRow>) -> Vec<DigestRow> {
    for row in &mut rows {
        row.dbs.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        row.users.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    }
    rows
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

    fn add(&mut self, other: &Self) {
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
        add_counts(&mut self.dbs, &other.dbs, i64::saturating_add);
        add_counts(&mut self.users, &other.users, i64::saturating_add);
        add_counts(&mut self.histogram, &other.histogram, u64::saturating_add);
    }
}

/// By key, each once. Histograms are in order, and names hardly ever two.
fn add_counts<K: Ord + Clone, N: Copy>(counts: &mut Vec<(K, N)>, more: &[(K, N)], add: fn(N, N) -> N) {
    let is_in_order = |list: &[(K, N)]| list.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if !is_in_order(counts) || !is_in_order(more) {
        counts.extend_from_slice(more);
        counts.sort_by(|a, b| a.0.cmp(&b.0));
        counts.dedup_by(|later, first| {
            let is_same = later.0 == first.0;
            if is_same {
                first.1 = add(first.1, later.1);
            }
            is_same
        });
        return;
    }
    // After the first rows most keys are known: then nothing moves.
    let (mut at, known) = (0, counts.len());
    for (key, n) in more {
        while at < known && counts[at].0 < *key {
            at += 1;
        }
        match counts[..known].get_mut(at).filter(|(known, _)| known == key) {
            Some((_, count)) => *count = add(*count, *n),
            None => counts.push((key.clone(), *n)),
        }
    }
    if counts.len() > known {
        counts.sort_by(|a, b| a.0.cmp(&b.0));
    }
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

/// A row for each host, cluster, source and stretch of `grain_us`; its width is the time that they have together.
pub fn merge_coverage(rows: impl IntoIterator<Item = CoverageRow>, grain_us: i64) -> Vec<CoverageRow> {
    let mut merged = BTreeMap::<_, CoverageRow>::new();
    for row in rows {
        let ts_us = begin_of(row.ts_us, grain_us);
        let key = (row.cluster.clone(), row.host.clone(), row.source.clone(), ts_us);
        match merged.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(CoverageRow { ts_us, ..row });
            }
            Entry::Occupied(mut entry) => entry.get_mut().add(row),
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
    fn counts_are_added_by_key_whether_they_stand_in_order_or_not() {
        let [ours, theirs] = [[(2, 1), (5, 10), (9, 100)], [(1, 7), (5, 20), (9, 300)]];
        let expected = vec![(1, 7), (2, 1), (5, 30), (9, 400)];
        let reversed = |list: [(u16, u64); 3]| list.into_iter().rev().collect::<Vec<_>>();
        for ours in [ours.to_vec(), reversed(ours)] {
            for theirs in [theirs.to_vec(), reversed(theirs)] {
                let mut counts = ours.clone();
                add_counts(&mut counts, &theirs, u64::saturating_add);
                assert_eq!(counts, expected, "{ours:?} {theirs:?}");
            }
        }
        let mut counts = vec![(3, u64::MAX)];
        add_counts(&mut counts, &[(3, 1), (4, 2)], u64::saturating_add);
        add_counts(&mut counts, &[], u64::saturating_add);
        assert_eq!(counts, [(3, u64::MAX), (4, 2)]);
    }
}
