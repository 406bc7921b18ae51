//! Reader of a server's counters by digest: rows of the differences between two readings.

use crate::counters::{Counts, Key, Sums, count_deltas};
use crate::rebin::{Bounds, Rebinned, rebin};
use crate::statement::statement_of;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::time::Duration;
use toll_digest::classes::{Description, TEXT_MAX};
use toll_mysql::{Address, Connection, Error, Target, sql_string};
use toll_tables::{CoverageRow, DigestRow, RowSet, TextRow, merge_digests, merge_texts};
use toll_wire::fingerprint::{QueryId, fingerprint};

/// `source` of the rows.
pub const SOURCE: &str = "performance_schema";
const TIMEOUT: Duration = Duration::from_secs(30);
/// Alias in each statement of this reader, whose classes are left out: digests have no comments.
const MARK: &str = "toll_counters";
const SUMS: &str = "SELECT SCHEMA_NAME AS toll_counters, DIGEST, COUNT_STAR, SUM_TIMER_WAIT, MAX_TIMER_WAIT, \
    SUM_LOCK_TIME, SUM_ERRORS, SUM_ROWS_AFFECTED, SUM_ROWS_SENT, SUM_ROWS_EXAMINED, FIRST_SEEN \
    FROM performance_schema.events_statements_summary_by_digest";
const BOUNDS: &str = "SELECT BUCKET_TIMER_LOW AS toll_counters, BUCKET_TIMER_HIGH \
    FROM performance_schema.events_statements_histogram_global ORDER BY BUCKET_NUMBER";
const IS_ON: &str = "SELECT @@performance_schema AS toll_counters, (SELECT ENABLED \
    FROM performance_schema.setup_consumers WHERE NAME = 'statements_digest')";
/// Error numbers: no such table, and no right to read one.
const NO_SUCH_TABLE: u16 = 1146;
const DENIED: [u16; 2] = [1142, 1044];
/// A list of 450 buckets and their counts is longer than the default of 1,024 bytes.
const LONG_LISTS: &str = "SET SESSION group_concat_max_len = 65536";
/// FIRST_SEEN is shown in the session's zone, by which no restart is to be told.
const UTC: &str = "SET SESSION time_zone = '+00:00'";
/// A look-up of one class takes as long as a scan of so many (MySQL 9.7: 0.7 ms, and 0.04 ms for each).
const CLASSES_OF_A_LOOK_UP: usize = 16;
const PS_PER_NS: u64 = 1_000;

/// One server, and its counters at the last reading.
pub struct CounterReader {
    target: Target,
    host: String,
    cluster: String,
    connection: Option<Connection>,
    baseline: Baseline,
}

/// A server's counters as they were read last.
struct Baseline {
    /// Of the server. A name may lead to another one after a failover.
    identity: String,
    bounds: Vec<Bounds>,
    classes: BTreeMap<Key, ClassState>,
    /// Unix time, microseconds.
    read_us: i64,
}

/// A class of the server's at the last reading.
#[derive(Debug, Clone, Default)]
struct ClassState {
    sums: Sums,
    counts: Counts,
    /// `None`: not read yet.
    statement: Option<Statement>,
}

#[derive(Debug, Clone)]
struct Statement {
    class: [u8; 16],
    fingerprint: String,
    summary: String,
    tables: Vec<String>,
}

impl CounterReader {
    /// Reads the counters as a baseline. `now_us`: Unix time, microseconds.
    ///
    /// # Errors
    /// The server is not reached, does not count, or does not show it to this user.
    pub fn open(target: Target, cluster: String, now_us: i64) -> anyhow::Result<Self> {
        let (mut connection, identity) = log_in(&target)?;
        let baseline = Baseline::read(&mut connection, identity, now_us)?;
        let host = name_of(&target);
        Ok(Self { target, host, cluster, connection: Some(connection), baseline })
    }

    /// Its name in the rows: as it is addressed, with its port where that is not 3306.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Rows of the queries since the last reading that succeeded. `None`: another server answers at the address, whose counters
    /// are the baseline from now on.
    ///
    /// # Errors
    /// The server cannot be reached, or it answers with an error. The next reading covers this one's time.
    pub fn read(&mut self, now_us: i64) -> anyhow::Result<Option<RowSet>> {
        let read = self.try_read(now_us);
        if read.is_err() {
            self.connection = None;
        }
        read
    }

    fn try_read(&mut self, now_us: i64) -> anyhow::Result<Option<RowSet>> {
        if self.connection.is_none() {
            let (mut connection, identity) = log_in(&self.target)?;
            if identity != self.baseline.identity {
                self.baseline = Baseline::read(&mut connection, identity, now_us)?;
                self.connection = Some(connection);
                return Ok(None);
            }
            self.connection = Some(connection);
        }
        let Self { connection: Some(connection), baseline, .. } = self else {
            bail!("no connection: a fault of toll's");
        };
        let Baseline { classes, bounds, .. } = baseline;
        let all_sums = read_sums(connection)?;
        let has_changed =
            |(key, sums): &&(Key, Sums)| classes.get(key).is_none_or(|class| class.sums != *sums);
        let changed = all_sums.iter().filter(has_changed).count();
        let is_scanned = changed * CLASSES_OF_A_LOOK_UP >= all_sums.len();
        let mut counts_of = if is_scanned { read_counts(connection, None)? } else { BTreeMap::new() };
        let mut deltas = Vec::new();
        let mut next = BTreeMap::new();
        for (key, sums) in all_sums {
            let mut before = classes.get(&key).cloned().unwrap_or_default();
            if before.sums.first_seen != sums.first_seen {
                // The server was restarted, or its table truncated: all its counts are new.
                before = ClassState { statement: before.statement, ..ClassState::default() };
            }
            let Some(delta) = sums.delta_since(&before.sums) else {
                next.insert(key, ClassState { sums, ..before });
                continue;
            };
            let statement = match before.statement {
                Some(statement) => Some(statement),
                None => read_statement(connection, &key)?,
            };
            if !is_scanned {
                counts_of = read_counts(connection, Some(&key))?;
            }
            let counts = counts_of.remove(&key).unwrap_or_default();
            let counted = count_deltas(&counts, &before.counts, bounds);
            // The table was truncated after its sums were read: the next reading decides.
            if counted.is_empty() && key.digest.is_some() {
                next.insert(key, ClassState { statement, ..before });
                continue;
            }
            let is_own = statement.as_ref().is_some_and(|of| of.fingerprint.contains(MARK));
            if !is_own {
                let max_ns = (sums.max_ps > before.sums.max_ps).then_some(sums.max_ps / PS_PER_NS);
                let times = rebin(&counted, delta.time_ps / PS_PER_NS, max_ns);
                let schema = key.schema.clone();
                deltas.push(ClassDelta { schema, sums: delta, times, statement: statement.clone() });
            }
            next.insert(key, ClassState { sums, counts, statement });
        }
        baseline.classes = next;
        let begin_us = std::mem::replace(&mut baseline.read_us, now_us);
        Ok(Some(self.rows(deltas, begin_us, now_us)))
    }

    fn rows(&self, deltas: Vec<ClassDelta>, begin_us: i64, end_us: i64) -> RowSet {
        let width_us = end_us.saturating_sub(begin_us).max(1);
        let commands = deltas.iter().map(ClassDelta::count).sum();
        let texts = deltas.iter().filter_map(|class| {
            let of = class.statement.as_ref()?;
            Some(TextRow {
                class: of.class,
                cluster: self.cluster.clone(),
                fingerprint: of.fingerprint.clone(),
                summary: of.summary.clone(),
                tables: of.tables.clone(),
                first_us: begin_us,
            })
        });
        let texts = merge_texts(texts);
        let rows =
            deltas.into_iter().map(|class| class.into_row(&self.host, &self.cluster, begin_us, width_us));
        RowSet {
            // Two of the server's classes may be one of toll's.
            digests: merge_digests(rows.collect(), 1),
            texts,
            coverage: vec![CoverageRow {
                ts_us: begin_us,
                width_us,
                host: self.host.clone(),
                cluster: self.cluster.clone(),
                source: SOURCE.into(),
                commands,
                tainted: 0,
                lost: 0,
                sampled_share: 1.0,
                toll_version: env!("CARGO_PKG_VERSION").into(),
            }],
        }
    }
}

impl Baseline {
    fn read(connection: &mut Connection, identity: String, now_us: i64) -> anyhow::Result<Self> {
        check_counts(connection)?;
        let bounds = read_bounds(connection)?;
        let sums = read_sums(connection)?;
        let mut all = read_counts(connection, None)?;
        let classes = sums.into_iter().map(|(key, sums)| {
            let counts = all.remove(&key).unwrap_or_default();
            (key, ClassState { sums, counts, statement: None })
        });
        Ok(Self { identity, bounds, classes: classes.collect(), read_us: now_us })
    }
}

/// The connection, and the identity of the server that answers.
fn log_in(target: &Target) -> anyhow::Result<(Connection, String)> {
    let mut connection =
        Connection::connect(target).with_context(|| format!("cannot log in as {}", target.user))?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.exec_drop(LONG_LISTS)?;
    connection.exec_drop(UTC)?;
    let identity = connection.identity()?;
    Ok((connection, identity))
}

/// Queries of one of the server's classes between two readings.
struct ClassDelta {
    schema: Option<String>,
    sums: Sums,
    times: Rebinned,
    statement: Option<Statement>,
}

impl ClassDelta {
    /// From the histogram, which is read after the sums and may have a few more queries: the next reading has their sums. Statements
    /// beyond the size of the server's table have no histogram.
    fn count(&self) -> i64 {
        let buckets = &self.times.buckets;
        if buckets.is_empty() {
            return to_i64(self.sums.count);
        }
        buckets.iter().fold(0, |sum, (_, count)| to_i64(*count).saturating_add(sum))
    }

    fn into_row(self, host: &str, cluster: &str, ts_us: i64, width_us: i64) -> DigestRow {
        let n = self.count();
        let Self { schema, sums, times, statement } = self;
        DigestRow {
            ts_us,
            width_us,
            host: host.to_owned(),
            cluster: cluster.to_owned(),
            source: SOURCE.into(),
            // Without a statement: beyond the size of the server's table.
            class: statement.map_or([0; 16], |statement| statement.class),
            n,
            errors: to_i64(sums.errors),
            tainted: 0,
            time_ns: to_i64(sums.time_ps / PS_PER_NS),
            max_ns: to_i64(times.max_ns),
            lock_ns: Some(to_i64(sums.lock_ps / PS_PER_NS)),
            rows_sent: Some(to_i64(sums.rows_sent)),
            rows_examined: Some(to_i64(sums.rows_examined)),
            rows_affected: Some(to_i64(sums.rows_affected)),
            bytes_sent: None,
            bytes_received: None,
            dbs: schema.into_iter().map(|schema| (schema, n)).collect(),
            users: Vec::new(),
            histogram: times.buckets,
        }
    }
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn name_of(target: &Target) -> String {
    match &target.address {
        Address::Tcp { host, port: 3306 } => host.clone(),
        address => address.to_string(),
    }
}

fn check_counts(connection: &mut Connection) -> anyhow::Result<()> {
    if connection.is_mariadb() {
        bail!(
            "MariaDB keeps no histogram of response times for each digest: read its slow log with `toll digest --parquet`, or \
             run `toll capture --tap sockets` on its host"
        );
    }
    let on = connection.query(IS_ON).map_err(explain_error)?;
    let is = |at: usize, word: &str| {
        on.rows.first().and_then(|row| row.get(at)?.as_deref()).is_some_and(|value| value == word)
    };
    ensure!(is(0, "1"), "its performance_schema is off: set performance_schema = ON, which takes a restart");
    ensure!(
        is(1, "YES"),
        "its performance_schema does not count by digest: UPDATE performance_schema.setup_consumers SET ENABLED = 'YES' \
         WHERE NAME = 'statements_digest'"
    );
    Ok(())
}

/// With its cause and its remedy.
fn explain_error(error: Error) -> anyhow::Error {
    let why = match error.code() {
        code if DENIED.contains(&code) => "its user needs GRANT SELECT ON performance_schema.*",
        NO_SUCH_TABLE => "it keeps no histograms of response times: they came with MySQL 8.0",
        _ => "performance_schema cannot be read",
    };
    anyhow::Error::from(error).context(why)
}

fn query(connection: &mut Connection, sql: &str) -> anyhow::Result<Vec<Vec<Option<String>>>> {
    Ok(connection.query(sql).map_err(explain_error)?.rows)
}

fn number(row: &[Option<String>], at: usize) -> anyhow::Result<u64> {
    let text = row.get(at).and_then(Option::as_deref).unwrap_or_default();
    text.parse().with_context(|| format!("performance_schema has {text:?} for a count"))
}

fn read_bounds(connection: &mut Connection) -> anyhow::Result<Vec<Bounds>> {
    let rows = query(connection, BOUNDS)?;
    let bounds = rows
        .iter()
        .map(|row| Ok(Bounds { low_ns: number(row, 0)? / PS_PER_NS, high_ns: number(row, 1)? / PS_PER_NS }));
    bounds.collect()
}

fn read_sums(connection: &mut Connection) -> anyhow::Result<Vec<(Key, Sums)>> {
    let rows = query(connection, SUMS)?;
    rows.into_iter()
        .map(|row| {
            let of = |at| number(&row, at);
            let sums = Sums {
                first_seen: row.get(10).cloned().flatten().unwrap_or_default(),
                count: of(2)?,
                time_ps: of(3)?,
                max_ps: of(4)?,
                lock_ps: of(5)?,
                errors: of(6)?,
                rows_affected: of(7)?,
                rows_sent: of(8)?,
                rows_examined: of(9)?,
            };
            let mut names = row.into_iter();
            let (schema, digest) = (names.next().flatten(), names.next().flatten());
            Ok((Key { schema, digest }, sums))
        })
        .collect()
}

/// Condition of one class, by the index that the server has for it.
fn class_condition(key: &Key) -> String {
    let is = |name: &str, value: &Option<String>| match value {
        Some(value) => format!("{name} = {}", sql_string(value)),
        None => format!("{name} IS NULL"),
    };
    format!("{} AND {}", is("SCHEMA_NAME", &key.schema), is("DIGEST", &key.digest))
}

/// Counts of one class, or of all.
fn read_counts(connection: &mut Connection, of: Option<&Key>) -> anyhow::Result<BTreeMap<Key, Counts>> {
    let of = of.map_or_else(String::new, |key| format!("{} AND ", class_condition(key)));
    let sql = format!(
        "SELECT SCHEMA_NAME AS {MARK}, DIGEST, GROUP_CONCAT(BUCKET_NUMBER, ':', COUNT_BUCKET) \
         FROM performance_schema.events_statements_histogram_by_digest WHERE {of}COUNT_BUCKET > 0 \
         GROUP BY SCHEMA_NAME, DIGEST"
    );
    let counts = query(connection, &sql)?.into_iter().map(|row| {
        let mut row = row.into_iter();
        let key = Key { schema: row.next().flatten(), digest: row.next().flatten() };
        Ok((key, parse_counts(&row.next().flatten().unwrap_or_default())?))
    });
    counts.collect()
}

/// `3:17,4:2`
fn parse_counts(text: &str) -> anyhow::Result<Counts> {
    let buckets = text.split(',').map(|bucket| {
        let pair = bucket.split_once(':').and_then(|(at, n)| Some((at.parse().ok()?, n.parse().ok()?)));
        pair.with_context(|| format!("performance_schema has {bucket:.40?} for a bucket and its count"))
    });
    buckets.collect()
}

/// `None`: statements beyond the size of the server's table.
fn read_statement(connection: &mut Connection, key: &Key) -> anyhow::Result<Option<Statement>> {
    if key.digest.is_none() {
        return Ok(None);
    }
    let of = class_condition(key);
    let sql = format!(
        "SELECT DIGEST_TEXT AS {MARK} FROM performance_schema.events_statements_summary_by_digest WHERE {of}"
    );
    let rows = query(connection, &sql)?;
    let text = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
    let schema = key.schema.as_deref().unwrap_or_default();
    Ok(text.map(|text| Statement::of(&statement_of(&text), schema)))
}

impl Statement {
    fn of(text: &str, schema: &str) -> Self {
        let mut key = Vec::new();
        fingerprint(text.as_bytes(), &mut key);
        let class = QueryId::from_fingerprint(&key).0;
        key.truncate(TEXT_MAX);
        let string = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let Description { distill, tables } = Description::of(text.as_bytes(), schema.as_bytes());
        Self {
            class,
            fingerprint: string(key),
            summary: string(distill),
            tables: tables.into_iter().map(string).collect(),
        }
    }
}
