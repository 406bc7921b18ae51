//! Rows of the tables, and their columns.

use super::column::{Column, Values};
use std::borrow::Cow;
use toll_digest::classes::{Class, Digest, NameCounts};
use toll_wire::attribute::Attribute;

/// One class of queries on one host in one stretch of time.
#[derive(Debug, Clone, PartialEq)]
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
    let int = |get: fn(&DigestRow) -> i64| Values::Int(rows.iter().map(|row| get(row)).collect());
    let optional =
        |get: fn(&DigestRow) -> Option<i64>| Values::OptionalInt(rows.iter().map(|row| get(row)).collect());
    let text =
        |get: fn(&DigestRow) -> &String| Values::Text(rows.iter().map(|row| get(row).clone()).collect());
    let named = |get: fn(&DigestRow) -> &Vec<(String, i64)>| {
        let names = rows.iter().map(|row| get(row).iter().map(|(name, _)| name.clone()));
        let counts = rows.iter().map(|row| get(row).iter().map(|(_, n)| *n));
        (Values::TextList(names.collect()), Values::IntList(counts.collect()))
    };
    let (db, db_n) = named(|row| &row.dbs);
    let (user, user_n) = named(|row| &row.users);
    let histogram = |get: fn(&(u16, u64)) -> i64| {
        Values::IntList(rows.iter().map(|row| row.histogram.iter().map(get)).collect())
    };
    vec![
        ("ts", Values::Time(rows.iter().map(|row| row.ts_us).collect())),
        ("width_us", int(|row| row.width_us)),
        ("host", text(|row| &row.host)),
        ("cluster", text(|row| &row.cluster)),
        ("source", Values::Text(rows.iter().map(|row| row.source.to_string()).collect())),
        ("class", Values::Id(rows.iter().map(|row| row.class).collect())),
        ("n", int(|row| row.n)),
        ("errors", int(|row| row.errors)),
        ("tainted", int(|row| row.tainted)),
        ("time_ns", int(|row| row.time_ns)),
        ("max_ns", int(|row| row.max_ns)),
        ("lock_ns", optional(|row| row.lock_ns)),
        ("rows_sent", optional(|row| row.rows_sent)),
        ("rows_examined", optional(|row| row.rows_examined)),
        ("rows_affected", optional(|row| row.rows_affected)),
        ("bytes_sent", optional(|row| row.bytes_sent)),
        ("bytes_received", optional(|row| row.bytes_received)),
        ("db", db),
        ("db_n", db_n),
        ("user", user),
        ("user_n", user_n),
        ("hist_bin", histogram(|(bucket, _)| i64::from(*bucket))),
        ("hist_n", histogram(|(_, n)| to_i64(*n))),
    ]
}

/// The same columns but for the host, of rows that have none.
pub fn cluster_digest_table(rows: Vec<&DigestRow>) -> Vec<Column> {
    let mut columns = digest_table(rows);
    columns.retain(|(name, _)| *name != "host");
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
