//! Questions to the tables, and their SQL.

use crate::columns;
use crate::tables::{self, Tables, TimeRange};
use anyhow::bail;
use datafusion::arrow::array::RecordBatch;
use datafusion::logical_expr::Expr;

/// A question to the tables.
pub enum Question {
    Sql(String),
    /// So many classes, first ranked by what is cheap to read: histograms are those of the ranked alone.
    Top(usize),
    /// How many queries of each of so many classes were under way at once, on average, in steps of at least so many microseconds.
    Load(usize, i64),
}

/// Rows of a range of time, and of what a condition chooses; `None`: all.
///
/// # Errors
/// The tables cannot be read, or the SQL is wrong.
pub async fn answer(
    tables: &Tables,
    range: TimeRange,
    of: Option<Expr>,
    question: &Question,
) -> anyhow::Result<Vec<RecordBatch>> {
    let session = tables.within(range, of).await?;
    let rows = async |sql: &str| tables::rows(&session, sql).await;
    match question {
        Question::Sql(sql) => rows(sql).await,
        Question::Top(limit) => {
            let ranked = rows(&ranked(*limit)).await?;
            let ids: Vec<String> = ranked.iter().flat_map(|batch| columns::texts(batch, "class")).collect();
            let whole_ns = ranked.first().filter(|batch| batch.num_rows() > 0);
            match whole_ns.map(|batch| columns::wide_int(batch, "whole_ns", 0)) {
                Some(whole_ns) => rows(&top(&ids, whole_ns)).await,
                None => Ok(Vec::new()),
            }
        }
        Question::Load(limit, step_us) => {
            // Of queries: of coverage a compaction adds up the time that was seen, which is no stretch.
            let widest = rows("SELECT max(width_us) AS width_us FROM fleet_digests").await?;
            let width_us =
                widest.first().and_then(|batch| columns::optional_int(batch, "width_us")).unwrap_or(0);
            // Stretches that are wider than a step would stand in the first of its steps alone.
            let step_us = width_us.max(1) * (step_us / width_us.max(1)).max(1);
            rows(&load(*limit, step_us)).await
        }
    }
}

/// # Errors
/// It is none.
pub fn checked_id(id: &str) -> anyhow::Result<&str> {
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("{id} is no ID of a class: it has 32 hexadecimal digits, as `toll-fleet top` shows them");
    }
    Ok(id)
}

/// In 64 bits the time of all queries ends after 292 years, which a thousand hosts with a hundred queries under way have in a day.
macro_rules! sum_of_times {
    () => {
        "sum(CAST(time_ns AS DECIMAL(38, 0)))"
    };
}
pub const SUM_OF_TIMES: &str = sum_of_times!();

/// Classes by their time, with the time of all.
fn ranked(limit: usize) -> String {
    format!(
        "SELECT upper(encode(class, 'hex')) AS class, time_ns, sum(time_ns) OVER () AS whole_ns
FROM (SELECT class, {SUM_OF_TIMES} AS time_ns FROM fleet_digests GROUP BY class) AS of_class
ORDER BY time_ns DESC, class LIMIT {limit}"
    )
}

/// These classes, of which `ids` are the hexadecimal digits. Rows and texts of others are not read.
/// Number of hosts: null, where a class arrives between the two readings.
fn top(ids: &[String], whole_ns: i128) -> String {
    let ids: Vec<String> = ids.iter().map(|id| literal(id)).collect();
    let ids = ids.join(", ");
    format!(
        "WITH of_class AS (
  SELECT class, CAST({SUM_OF_TIMES} AS DOUBLE) AS time_ns, sum(n) AS n, sum(errors) AS errors, max(max_ns) AS max_ns,
    toll_histogram(hist_bin, hist_n) AS histogram
  FROM fleet_digests WHERE class IN ({ids}) GROUP BY class
), on_hosts AS (
  SELECT class, count(DISTINCT host) AS hosts FROM digests WHERE class IN ({ids}) GROUP BY class
), named AS (
  SELECT class, min(summary) AS summary, min(fingerprint) AS fingerprint FROM texts WHERE class IN ({ids}) GROUP BY class
)
SELECT upper(encode(of_class.class, 'hex')) AS class, coalesce(summary, '(not kept apart)') AS summary,
  of_class.n AS n, of_class.time_ns / 1e9 AS time_s, 100.0 * of_class.time_ns / greatest({whole_ns}.0, 1.0) AS time_percent,
  least(toll_quantile(histogram, 0.5), max_ns) / 1e6 AS p50_ms,
  least(toll_quantile(histogram, 0.99), max_ns) / 1e6 AS p99_ms,
  max_ns / 1e6 AS max_ms, of_class.errors AS errors, on_hosts.hosts AS hosts, coalesce(fingerprint, '') AS fingerprint
FROM of_class LEFT JOIN on_hosts ON on_hosts.class = of_class.class LEFT JOIN named ON named.class = of_class.class
ORDER BY time_s DESC, class"
    )
}

fn load(limit: usize, step_us: i64) -> String {
    format!(
        "WITH shown AS (
  SELECT class FROM fleet_digests GROUP BY class ORDER BY {SUM_OF_TIMES} DESC, class LIMIT {limit}
), named AS (
  SELECT class, min(summary) AS summary FROM texts GROUP BY class
), steps AS (
  SELECT CAST(ts AS BIGINT) / {step_us} * {step_us} AS begin_us, shown.class AS class, CAST({SUM_OF_TIMES} AS DOUBLE) / {step_us}.0 / 1000 AS active
  FROM fleet_digests AS digest LEFT JOIN shown ON shown.class = digest.class GROUP BY 1, 2
)
SELECT begin_us, {step_us} AS step_us, coalesce(upper(encode(steps.class, 'hex')), '') AS class,
  CASE WHEN steps.class IS NULL THEN '' ELSE coalesce(summary, '(not kept apart)') END AS summary, active
FROM steps LEFT JOIN named ON named.class = steps.class ORDER BY begin_us, class"
    )
}

/// A class as the tables have it.
fn literal(id: &str) -> String {
    format!("arrow_cast(decode('{id}', 'hex'), 'FixedSizeBinary(16)')")
}

/// One class on each host. `id`: hexadecimal digits.
pub fn class(id: &str) -> String {
    format!(
        "WITH of_host AS (
  SELECT host, cluster, sum(n) AS n, CAST({SUM_OF_TIMES} AS DOUBLE) AS time_ns, sum(errors) AS errors, max(max_ns) AS max_ns,
    toll_histogram(hist_bin, hist_n) AS histogram
  FROM digests WHERE class = {} GROUP BY host, cluster
)
SELECT host, cluster, n, time_ns / 1e9 AS time_s, time_ns / 1e6 / greatest(n, 1) AS mean_ms,
  least(toll_quantile(histogram, 0.5), max_ns) / 1e6 AS p50_ms,
  least(toll_quantile(histogram, 0.99), max_ns) / 1e6 AS p99_ms, max_ns / 1e6 AS max_ms, errors
FROM of_host ORDER BY time_ns DESC, host, cluster",
        literal(id)
    )
}

/// Each host beside its cluster: its query time, over the time that the other hosts of the cluster would have taken for the same
/// queries, class by class. A host that runs another mix is not slower for that.
pub const HOSTS: &str = concat!(
    "WITH of_host AS (
  SELECT cluster, host, class, sum(n) AS n, ",
    sum_of_times!(),
    " AS time_ns, sum(errors) AS errors
  FROM digests GROUP BY cluster, host, class
), of_cluster AS (
  SELECT cluster, class, sum(n) AS n, sum(time_ns) AS time_ns FROM of_host GROUP BY cluster, class
), beside AS (
  SELECT of_host.*, CAST(of_host.time_ns AS DOUBLE) AS own_ns,
    CAST(of_cluster.time_ns - of_host.time_ns AS DOUBLE) / (of_cluster.n - of_host.n) * of_host.n AS expected_ns
  FROM of_host JOIN of_cluster ON of_cluster.cluster = of_host.cluster AND of_cluster.class = of_host.class
  WHERE of_cluster.n > of_host.n
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY cluster, host ORDER BY own_ns - expected_ns DESC, class) AS rank FROM beside
), compared AS (
  SELECT cluster, host, sum(time_ns) AS time_ns, sum(expected_ns) AS expected_ns,
    max(CASE WHEN rank = 1 THEN class END) AS most, max(CASE WHEN rank = 1 THEN own_ns - expected_ns END) AS most_ns
  FROM ranked GROUP BY cluster, host
), named AS (
  SELECT class, min(summary) AS summary FROM texts GROUP BY class
), whole AS (
  SELECT cluster, host, sum(n) AS n, sum(time_ns) AS time_ns, sum(errors) AS errors FROM of_host GROUP BY cluster, host
)
SELECT whole.host AS host, whole.cluster AS cluster, whole.n AS n, CAST(whole.time_ns AS DOUBLE) / 1e9 AS time_s, whole.errors AS errors,
  CAST(compared.time_ns AS DOUBLE) / nullif(compared.expected_ns, 0) AS ratio,
  100.0 * CAST(whole.time_ns - coalesce(compared.time_ns, 0) AS DOUBLE) / greatest(CAST(whole.time_ns AS DOUBLE), 1.0) AS own_percent,
  most_ns / 1e9 AS most_s, upper(encode(most, 'hex')) AS most, coalesce(summary, '') AS summary
FROM whole LEFT JOIN compared ON compared.cluster = whole.cluster AND compared.host = whole.host
  LEFT JOIN named ON named.class = compared.most
ORDER BY ratio DESC NULLS LAST, cluster, host"
);

/// Clusters, and the time that the tables have of each.
pub const EXTENT: &str = "SELECT cluster, count(DISTINCT host) AS hosts, min(CAST(ts AS BIGINT)) AS first_us,
  max(CAST(ts AS BIGINT) + width_us) AS last_us
FROM coverage GROUP BY cluster ORDER BY cluster";

/// How much of each host's traffic was seen. Two rows that begin together are parts of one stretch, as where a file of a receiver
/// ended in it.
pub const COVERAGE: &str =
    "SELECT host, cluster, source, min(ts) AS first, max(arrow_cast(CAST(ts AS BIGINT) + width_us, 'Timestamp(Microsecond, Some(\"UTC\"))')) AS last,
  sum(width_us) / 1e6 AS seen_s, sum(commands) AS commands, sum(tainted) AS tainted, sum(lost) AS lost,
  100.0 * sum(width_us * sampled_share) / greatest(sum(width_us), 1) AS sampled_percent
FROM (
  SELECT host, cluster, source, ts, max(width_us) AS width_us, sum(commands) AS commands, sum(tainted) AS tainted, sum(lost) AS lost,
    sum(width_us * sampled_share) / greatest(sum(width_us), 1) AS sampled_share
  FROM coverage GROUP BY host, cluster, source, ts
) AS stretches GROUP BY host, cluster, source ORDER BY cluster, host, source";
