//! SQL of each command. `{...}` are numbers that the command fills in.

/// Classes by their time. The histograms of those shown are merged, and no others.
pub fn top(limit: usize) -> String {
    format!(
        "WITH ranked AS (
  SELECT class, sum(time_ns) AS time_ns, sum(n) AS n, sum(errors) AS errors, max(max_ns) AS max_ns,
    count(DISTINCT host) AS hosts
  FROM digests GROUP BY class ORDER BY time_ns DESC, class LIMIT {limit}
), merged AS (
  SELECT class, toll_histogram(hist_bin, hist_n) AS histogram
  FROM digests WHERE class IN (SELECT class FROM ranked) GROUP BY class
), named AS (
  SELECT class, min(summary) AS summary, min(fingerprint) AS fingerprint FROM texts GROUP BY class
), whole AS (
  SELECT sum(time_ns) AS time_ns FROM digests
)
SELECT upper(encode(ranked.class, 'hex')) AS class, coalesce(summary, '(not kept apart)') AS summary,
  ranked.n AS n, ranked.time_ns / 1e9 AS time_s,
  100.0 * ranked.time_ns / whole.time_ns AS time_percent,
  least(toll_quantile(histogram, 0.5), max_ns) / 1e6 AS p50_ms,
  least(toll_quantile(histogram, 0.99), max_ns) / 1e6 AS p99_ms,
  max_ns / 1e6 AS max_ms, ranked.errors AS errors, ranked.hosts AS hosts, coalesce(fingerprint, '') AS fingerprint
FROM ranked CROSS JOIN whole JOIN merged ON merged.class = ranked.class LEFT JOIN named ON named.class = ranked.class
ORDER BY time_s DESC, class"
    )
}

/// One class on each host. `id`: hexadecimal digits.
pub fn class(id: &str) -> String {
    format!(
        "WITH of_host AS (
  SELECT host, cluster, sum(n) AS n, sum(time_ns) AS time_ns, sum(errors) AS errors, max(max_ns) AS max_ns,
    toll_histogram(hist_bin, hist_n) AS histogram
  FROM digests WHERE class = arrow_cast(decode('{id}', 'hex'), 'FixedSizeBinary(16)') GROUP BY host, cluster
)
SELECT host, cluster, n, time_ns / 1e9 AS time_s, time_ns / 1e6 / greatest(n, 1) AS mean_ms,
  least(toll_quantile(histogram, 0.5), max_ns) / 1e6 AS p50_ms,
  least(toll_quantile(histogram, 0.99), max_ns) / 1e6 AS p99_ms, max_ns / 1e6 AS max_ms, errors
FROM of_host ORDER BY time_ns DESC, host, cluster"
    )
}

/// How much of each host's traffic was seen.
pub const COVERAGE: &str =
    "SELECT host, cluster, source, min(ts) AS first, max(arrow_cast(CAST(ts AS BIGINT) + width_us, 'Timestamp(Microsecond, Some(\"UTC\"))')) AS last,
  sum(width_us) / 1e6 AS seen_s, sum(commands) AS commands, sum(tainted) AS tainted, sum(lost) AS lost,
  100.0 * sum(width_us * sampled_share) / greatest(sum(width_us), 1) AS sampled_percent
FROM coverage GROUP BY host, cluster, source ORDER BY cluster, host, source";
