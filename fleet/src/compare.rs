//! Command `compare`: two selections of rows, judged as `toll digest --compare` judges two captures.

use crate::columns::{histogram, id, int, optional_int, texts, wide_int};
use crate::queries::SUM_OF_TIMES;
use crate::tables::{Tables, TimeRange, rows, unix_us};
use anyhow::{Context, bail, ensure};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, cast, col, lit};
use datafusion::prelude::SessionContext;
use std::collections::HashMap;
use std::str::FromStr;
use toll_digest::classes::{BINS_MAX, Class, Digest, GroupBy, Measure, RestOfClasses, Settings};
use toll_digest::{DigestResult, InputSource, TimeBound};
use toll_wire::attribute::Attribute;
use toll_wire::fingerprint::QueryId;

/// What the selected rows are compared with.
#[derive(Debug, Clone)]
pub enum Baseline {
    /// Those before a moment; the others are those from then on.
    Before(i64),
    Range(TimeRange),
    /// Those of the other hosts in this host's cluster, at the same time.
    ClusterOf(String),
}

/// `FROM..UNTIL`, each as `--since` has it.
#[derive(Debug, Clone, Copy)]
pub struct RangeArgument(pub TimeRange);

impl FromStr for RangeArgument {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (from, until) = text.split_once("..").context("it is FROM..UNTIL, such as 2d..1d")?;
        let us = |text: &str| TimeBound::from_str(text).map(unix_us);
        let range = TimeRange { since_us: us(from)?, until_us: us(until)? };
        ensure!(range.since_us < range.until_us, "it ends before it begins");
        Ok(Self(range))
    }
}

/// Both sides of a comparison.
pub struct Sides {
    pub baseline: DigestResult,
    pub compared: DigestResult,
    /// Queries on neither side: of stretches that begin before the end of a side, and end after it.
    pub straddling: u64,
}

/// Digests of both sides. `condition`: chooses hosts, of each side by what is known of that time.
///
/// # Errors
/// The tables cannot be read, or a side has no rows.
pub async fn sides(
    tables: &Tables,
    range: TimeRange,
    baseline: &Baseline,
    condition: Option<&str>,
) -> anyhow::Result<Sides> {
    let of = tables.chosen(range, condition).await?;
    let (before, after) = match baseline {
        Baseline::Before(moment) => (
            (TimeRange { until_us: *moment, ..range }, None),
            (TimeRange { since_us: *moment, ..range }, None),
        ),
        Baseline::Range(before) => ((*before, None), (range, None)),
        Baseline::ClusterOf(host) => {
            let clusters = clusters_of(tables, range, host).await?;
            let is_host = col("host").eq(lit(host.as_str()));
            let others = col("cluster").in_list(clusters, false).and(Expr::Not(Box::new(is_host.clone())));
            ((range, Some(others)), (range, Some(is_host)))
        }
    };
    let of_baseline = match baseline {
        // Other hosts may have been there then.
        Baseline::Range(before) => tables.chosen(*before, condition).await?,
        Baseline::Before(_) | Baseline::ClusterOf(_) => of.clone(),
    };
    let side = async |(range, side_of): (TimeRange, Option<Expr>), of: Option<Expr>, name: &str| {
        let of = side_of.into_iter().chain(of).reduce(Expr::and);
        let straddling = straddling(tables, range, of.clone()).await?;
        // A compaction has merged rows to hours or days.
        let of = of.into_iter().chain(ends_by(range.until_us)).reduce(Expr::and);
        let digest = side(tables, Side { range, of }).await?.with_context(|| {
            let also = if straddling > 0 { " that end in that time" } else { "" };
            format!("there are no rows {name}{also}: there is nothing to compare")
        })?;
        anyhow::Ok((digest, straddling))
    };
    let (baseline, straddling) = side(before, of_baseline, "before, or of the others").await?;
    let (compared, also) = side(after, of, "after, or of this host").await?;
    Ok(Sides { baseline, compared, straddling: straddling.saturating_add(also) })
}

/// Rows whose stretches end by then; `None`: all do.
fn ends_by(until_us: i64) -> Option<Expr> {
    let end = cast(col("ts"), DataType::Int64) + col("width_us");
    (until_us < TimeRange::ALL.until_us).then(|| end.lt_eq(lit(until_us)))
}

/// Queries of the stretches that begin in a range and end after it.
async fn straddling(tables: &Tables, range: TimeRange, of: Option<Expr>) -> anyhow::Result<u64> {
    let Some(ends_by) = ends_by(range.until_us) else { return Ok(0) };
    let of = of.into_iter().chain([Expr::Not(Box::new(ends_by))]).reduce(Expr::and);
    let session = tables.within(range, of).await?;
    let found = rows(&session, "SELECT sum(n) AS n FROM fleet_digests").await?;
    let n = found.first().and_then(|batch| optional_int(batch, "n"));
    Ok(n.unwrap_or(0).max(0).cast_unsigned())
}

async fn clusters_of(tables: &Tables, range: TimeRange, host: &str) -> anyhow::Result<Vec<Expr>> {
    let session = tables.within(range, Some(col("host").eq(lit(host)))).await?;
    let found = rows(&session, "SELECT DISTINCT cluster FROM coverage").await?;
    let names = found.iter().flat_map(|batch| texts(batch, "cluster")).map(lit).collect::<Vec<Expr>>();
    if names.is_empty() {
        bail!(
            "the tables have nothing of a host {host} in this range of time: `toll-fleet coverage` names them"
        );
    }
    Ok(names)
}

/// Rows of a time, and of those hosts and clusters that a condition chooses; `None`: all.
#[derive(Debug, Clone)]
pub struct Side {
    pub range: TimeRange,
    pub of: Option<Expr>,
}

/// Its rows as one digest. `None`: there are none.
///
/// # Errors
/// The tables cannot be read.
pub async fn side(tables: &Tables, side: Side) -> anyhow::Result<Option<DigestResult>> {
    let session = tables.within(side.range, side.of).await?;
    digest_of(&session).await
}

/// All rows as one digest whose bins of time are the repeats. `None`: no rows.
async fn digest_of(session: &SessionContext) -> anyhow::Result<Option<DigestResult>> {
    let bounds = "SELECT min(CAST(ts AS BIGINT)) AS first, max(CAST(ts AS BIGINT)) AS last,
        count(DISTINCT host) AS hosts FROM digests";
    let bounds = rows(session, bounds).await?;
    let bound = |name: &str| bounds.first().and_then(|batch| optional_int(batch, name));
    let (Some(first), Some(last), Some(hosts)) = (bound("first"), bound("last"), bound("hosts")) else {
        return Ok(None);
    };
    let bin_us = (last - first) / (BINS_MAX.cast_signed() - 1) + 1;
    let names = class_names(session).await?;
    let batches = rows(
        session,
        &format!(
            "SELECT (CAST(ts AS BIGINT) - {first}) / {bin_us} AS bin, class, sum(n) AS n, sum(errors) AS errors,
               sum(tainted) AS tainted, {SUM_OF_TIMES} AS time_ns, max(max_ns) AS max_ns,
               min(CAST(ts AS BIGINT)) AS first, max(CAST(ts AS BIGINT) + width_us) AS last,
               toll_histogram(hist_bin, hist_n) AS histogram
             FROM fleet_digests GROUP BY bin, class ORDER BY bin, class"
        ),
    )
    .await?;
    let settings = Settings { group_by: GroupBy::Fingerprint, keep_time_bins: true, ..Settings::default() };
    let mut done = DigestResult::new(settings);
    let mut open: Option<(i64, Digest)> = None;
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let bin = int(batch, "bin", row);
            if open.as_ref().is_none_or(|(of, _)| *of != bin)
                && let Some((_, whole)) = open.replace((bin, Digest::new(settings)))
            {
                add_bin(&mut done, whole);
            }
            if let Some((_, digest)) = &mut open {
                add_row(digest, batch, row, &names)?;
            }
        }
    }
    if let Some((_, whole)) = open {
        add_bin(&mut done, whole);
    }
    let name = if hosts == 1 { "1 host".to_owned() } else { format!("{hosts} hosts") };
    done.inputs.push(InputSource { name, r#type: "parquet", bytes: 0 });
    Ok(Some(done))
}

/// The events of a stretch count as of its middle.
fn add_bin(done: &mut DigestResult, mut digest: Digest) {
    let middle_ns = digest.totals.first_ns.midpoint(digest.totals.last_ns);
    digest.bin_whole(middle_ns);
    done.digest.merge(&digest);
}

/// Fingerprint and summary of each class.
type ClassNames = HashMap<[u8; 16], (String, String)>;

async fn class_names(session: &SessionContext) -> anyhow::Result<ClassNames> {
    let sql =
        "SELECT class, min(fingerprint) AS fingerprint, min(summary) AS summary FROM texts GROUP BY class";
    let mut names = ClassNames::new();
    for batch in rows(session, sql).await? {
        let parts = texts(&batch, "fingerprint").into_iter().zip(texts(&batch, "summary"));
        for (row, name) in parts.enumerate() {
            names.insert(id(&batch, row)?, name);
        }
    }
    Ok(names)
}

fn add_row(digest: &mut Digest, batch: &RecordBatch, row: usize, texts: &ClassNames) -> anyhow::Result<()> {
    let count = |name: &str| int(batch, name, row).max(0).cast_unsigned();
    let ns = |name: &str| count(name).saturating_mul(1_000);
    let id = id(batch, row)?;
    let text = texts.get(&id);
    // What the hosts did not keep apart, and a class whose text is not in the tables, has no name.
    let named = text.and_then(|(fingerprint, _)| Class::from_text(fingerprint.as_bytes(), QueryId(id)));
    let is_named = named.is_some() && digest.classes().len() < digest.settings().classes_max;
    let mut class = named.filter(|_| is_named).unwrap_or_else(Class::new_merged);
    if let (true, Some((_, summary))) = (is_named, text) {
        class.distill = summary.clone().into_bytes();
    }
    (class.count, class.errors, class.tainted) = (count("n"), count("errors"), count("tainted"));
    (class.first_ns, class.last_ns) = (ns("first"), ns("last"));
    let histogram = histogram(batch, row)?;
    let time_ns = wide_int(batch, "time_ns", row).max(0).cast_unsigned();
    if let Some(times) = Measure::of_histogram(time_ns, count("max_ns"), &histogram) {
        class.set_measure(Attribute::QueryTime, times);
    }
    let totals = &mut digest.totals;
    totals.commands = totals.commands.saturating_add(class.count);
    totals.errors = totals.errors.saturating_add(class.errors);
    totals.tainted = totals.tainted.saturating_add(class.tainted);
    totals.first_ns = if totals.first_ns == 0 { class.first_ns } else { totals.first_ns.min(class.first_ns) };
    totals.last_ns = totals.last_ns.max(class.last_ns);
    let count_max = class.count;
    if is_named {
        ensure!(digest.insert(class), "a class is twice in a stretch of time");
    } else {
        digest.insert_rest(RestOfClasses { class, classes: 1, count_max });
    }
    Ok(())
}
