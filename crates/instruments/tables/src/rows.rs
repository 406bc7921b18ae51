//! Rows of the tables, and their columns.

use super::column::{Column, Values};
use super::lists::Lists;
use std::borrow::Cow;
use std::mem::take;
use toll_digest::classes::{Class, Digest, NameCounts};
use toll_wire::attribute::Attribute;

/// One class of queries on one host in one stretch of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DigestRow {
    pub ts_us: i64,
    pub width_us: i64,
    pub host: String,
    pub cluster: String,
    /// What the queries were read from: `packets`, `sockets`, or the type of a file (`slowlog`).
    pub source: Cow<'static, str>,
    /// MD5 of the fingerprint, as pt-query-digest has it. All zero: classes that the host did not keep apart.
    pub class: [u8; 16],
    pub n: i64,
    pub errors: i64,
    pub tainted: i64,
    /// Of all its queries, nanoseconds.
    pub time_ns: i64,
    pub max_ns: i64,
    /// Absent where the source cannot know.
    pub lock_ns: Option<i64>,
    pub rows_sent: Option<i64>,
    pub rows_examined: Option<i64>,
    pub rows_affected: Option<i64>,
    pub bytes_sent: Option<i64>,
    pub bytes_received: Option<i64>,
    /// Names and their counts, the most frequent first.
    pub dbs: Vec<(String, i64)>,
    pub users: Vec<(String, i64)>,
    /// Buckets of query times that hold values (`toll_digest::classes::HISTOGRAM_SCHEME`), in order, and their counts.
    pub histogram: Vec<(u16, u64)>,
}

/// What of a digest is the same in all its rows.
pub struct RowContext<'a> {
    pub ts_us: i64,
    pub width_us: i64,
    pub host: &'a str,
    pub cluster: &'a str,
    pub source: &'static str,
}

impl DigestRow {
    pub fn of(class: &Class, id: [u8; 16], digest: &Digest, context: &RowContext<'_>) -> Self {
        let sum = |attribute| class.measure(attribute).map(|measure| to_i64(measure.sum));
        let times = class.measure(Attribute::QueryTime);
        Self {
            ts_us: context.ts_us,
            width_us: context.width_us,
            host: context.host.to_owned(),
            cluster: context.cluster.to_owned(),
            source: context.source.into(),
            class: id,
            n: to_i64(class.count),
            errors: to_i64(class.errors),
            tainted: to_i64(class.tainted),
            time_ns: times.map_or(0, |measure| to_i64(measure.sum)),
            max_ns: times.map_or(0, |measure| to_i64(measure.max)),
            lock_ns: sum(Attribute::LockTime),
            rows_sent: sum(Attribute::RowsSent),
            rows_examined: sum(Attribute::RowsExamined),
            rows_affected: sum(Attribute::RowsAffected),
            bytes_sent: sum(Attribute::BytesSent),
            bytes_received: sum(Attribute::BytesReceived),
            dbs: names(&class.dbs, digest),
            users: names(&class.users, digest),
            histogram: times.map(|measure| measure.histogram.buckets()).unwrap_or_default(),
        }
    }

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let names = self.dbs.iter().chain(&self.users).map(|(name, _)| name.len() + 32);
        size_of::<Self>()
            + self.host.len()
            + self.cluster.len()
            + names.sum::<usize>()
            + self.histogram.len() * size_of::<(u16, u64)>()
    }
}

/// What stands for a number that is too great for its column.
fn to_i64<N: TryInto<i64>>(number: N) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn names(counts: &NameCounts, digest: &Digest) -> Vec<(String, i64)> {
    let text = |id| String::from_utf8_lossy(digest.name(id)).into_owned();
    counts.by_count().into_iter().map(|(id, n)| (text(id), to_i64(n))).collect()
}

/// By class first: a reader of one class skips the rest.
pub fn digest_table(mut rows: Vec<&DigestRow>) -> Vec<Column> {
    rows.sort_by(|a, b| a.compare_keys(b));
    let mut columns = DigestColumns::default();
    rows.into_iter().for_each(|row| columns.add(row));
    columns.take()
}

/// Columns that rows are added to one by one.
pub struct DigestColumns(Vec<(&'static str, DigestColumn)>);

/// What of a row a column has, and what it has of the rows so far.
enum DigestColumn {
    Time(fn(&DigestRow) -> i64, Vec<i64>),
    Int(fn(&DigestRow) -> i64, Vec<i64>),
    Optional(fn(&DigestRow) -> Option<i64>, Vec<Option<i64>>),
    Text(fn(&DigestRow) -> &str, Vec<String>),
    Id(fn(&DigestRow) -> [u8; 16], Vec<[u8; 16]>),
    Names(fn(&DigestRow) -> &[(String, i64)], Lists<String>),
    NameCounts(fn(&DigestRow) -> &[(String, i64)], Lists<i64>),
    Buckets(fn(&(u16, u64)) -> i64, Lists<i64>),
}

impl Default for DigestColumns {
    fn default() -> Self {
        use DigestColumn::{Buckets, Id, Int, NameCounts, Names, Optional, Text, Time};
        Self(vec![
            ("ts", Time(|row| row.ts_us, Vec::new())),
            ("width_us", Int(|row| row.width_us, Vec::new())),
            ("host", Text(|row| &row.host, Vec::new())),
            ("cluster", Text(|row| &row.cluster, Vec::new())),
            ("source", Text(|row| &row.source, Vec::new())),
            ("class", Id(|row| row.class, Vec::new())),
            ("n", Int(|row| row.n, Vec::new())),
            ("errors", Int(|row| row.errors, Vec::new())),
            ("tainted", Int(|row| row.tainted, Vec::new())),
            ("time_ns", Int(|row| row.time_ns, Vec::new())),
            ("max_ns", Int(|row| row.max_ns, Vec::new())),
            ("lock_ns", Optional(|row| row.lock_ns, Vec::new())),
            ("rows_sent", Optional(|row| row.rows_sent, Vec::new())),
            ("rows_examined", Optional(|row| row.rows_examined, Vec::new())),
            ("rows_affected", Optional(|row| row.rows_affected, Vec::new())),
            ("bytes_sent", Optional(|row| row.bytes_sent, Vec::new())),
            ("bytes_received", Optional(|row| row.bytes_received, Vec::new())),
            ("db", Names(|row| &row.dbs, Lists::default())),
            ("db_n", NameCounts(|row| &row.dbs, Lists::default())),
            ("user", Names(|row| &row.users, Lists::default())),
            ("user_n", NameCounts(|row| &row.users, Lists::default())),
            ("hist_bin", Buckets(|(bucket, _)| i64::from(*bucket), Lists::default())),
            ("hist_n", Buckets(|(_, n)| to_i64(*n), Lists::default())),
        ])
    }
}

impl DigestColumns {
    pub fn add(&mut self, row: &DigestRow) {
        for (_, column) in &mut self.0 {
            match column {
                DigestColumn::Time(get, values) | DigestColumn::Int(get, values) => values.push(get(row)),
                DigestColumn::Optional(get, values) => values.push(get(row)),
                DigestColumn::Text(get, values) => values.push(get(row).to_owned()),
                DigestColumn::Id(get, values) => values.push(get(row)),
                DigestColumn::Names(get, lists) => lists.push(get(row).iter().map(|(name, _)| name.clone())),
                DigestColumn::NameCounts(get, lists) => lists.push(get(row).iter().map(|(_, n)| *n)),
                DigestColumn::Buckets(get, lists) => lists.push(row.histogram.iter().map(get)),
            }
        }
    }

    /// The columns with all rows, none of which are left.
    pub fn take(&mut self) -> Vec<Column> {
        let columns = self.0.iter_mut().map(|(name, column)| {
            let values = match column {
                DigestColumn::Time(_, values) => Values::Time(take(values)),
                DigestColumn::Int(_, values) => Values::Int(take(values)),
                DigestColumn::Optional(_, values) => Values::OptionalInt(take(values)),
                DigestColumn::Text(_, values) => Values::Text(take(values)),
                DigestColumn::Id(_, values) => Values::Id(take(values)),
                DigestColumn::Names(_, lists) => Values::TextList(take(lists)),
                DigestColumn::NameCounts(_, lists) | DigestColumn::Buckets(_, lists) => {
                    Values::IntList(take(lists))
                }
            };
            (*name, values)
        });
        columns.collect()
    }
}

/// The columns but for these.
pub fn without(mut columns: Vec<Column>, names: &[&str]) -> Vec<Column> {
    columns.retain(|(name, _)| !names.contains(name));
    columns
}

/// The text of a class, once a day and host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRow {
    pub class: [u8; 16],
    pub cluster: String,
    pub fingerprint: String,
    pub summary: String,
    pub tables: Vec<String>,
    pub first_us: i64,
}

pub fn text_table(mut rows: Vec<&TextRow>) -> Vec<Column> {
    rows.sort_by(|a, b| (&a.class, &a.cluster).cmp(&(&b.class, &b.cluster)));
    let text = |get: fn(&TextRow) -> &String| Values::Text(rows.iter().map(|row| get(row).clone()).collect());
    vec![
        ("class", Values::Id(rows.iter().map(|row| row.class).collect())),
        ("cluster", text(|row| &row.cluster)),
        ("fingerprint", text(|row| &row.fingerprint)),
        ("summary", text(|row| &row.summary)),
        ("tables", Values::TextList(rows.iter().map(|row| row.tables.iter().cloned()).collect())),
        ("first_seen", Values::Time(rows.iter().map(|row| row.first_us).collect())),
    ]
}

/// How much of a host's traffic a stretch has.
#[derive(Debug, Clone, PartialEq)]
pub struct CoverageRow {
    pub ts_us: i64,
    pub width_us: i64,
    pub host: String,
    pub cluster: String,
    pub source: Cow<'static, str>,
    pub commands: i64,
    pub tainted: i64,
    /// Packets or calls that were lost.
    pub lost: i64,
    /// Of the connections that were looked at, on average over the time; counts of the digests are theirs alone.
    pub sampled_share: f64,
    pub toll_version: Cow<'static, str>,
}

pub fn coverage_table(rows: &[&CoverageRow]) -> Vec<Column> {
    let int = |get: fn(&CoverageRow) -> i64| Values::Int(rows.iter().map(|row| get(row)).collect());
    let text =
        |get: fn(&CoverageRow) -> &String| Values::Text(rows.iter().map(|row| get(row).clone()).collect());
    vec![
        ("ts", Values::Time(rows.iter().map(|row| row.ts_us).collect())),
        ("width_us", int(|row| row.width_us)),
        ("host", text(|row| &row.host)),
        ("cluster", text(|row| &row.cluster)),
        ("source", Values::Text(rows.iter().map(|row| row.source.to_string()).collect())),
        ("commands", int(|row| row.commands)),
        ("tainted", int(|row| row.tainted)),
        ("lost", int(|row| row.lost)),
        ("sampled_share", Values::Float(rows.iter().map(|row| row.sampled_share).collect())),
        ("toll_version", Values::Text(rows.iter().map(|row| row.toll_version.to_string()).collect())),
    ]
}
