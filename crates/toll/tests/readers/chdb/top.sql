WITH merged AS (
  SELECT class, bin, sum(n) AS n FROM digests ARRAY JOIN hist_bin AS bin, hist_n AS n GROUP BY class, bin
), ranked AS (
  SELECT class, bin, sum(n) OVER (PARTITION BY class ORDER BY bin) AS up_to, sum(n) OVER (PARTITION BY class) AS total
  FROM merged
), p99 AS (
  SELECT class, min(bin) AS bin FROM ranked WHERE up_to >= ceil(0.99 * total) GROUP BY class
), sums AS (
  SELECT class, sum(n) AS n, sum(time_ns) AS time_ns, max(max_ns) AS max_ns FROM digests GROUP BY class
)
SELECT hex(class), n, time_ns, least(max_ns, if(bin < 64, bin,
  (64 + bin % 64) * toInt64(pow(2, intDiv(bin, 64) - 1)) + toInt64(floor(pow(2, intDiv(bin, 64) - 2)))))
FROM sums JOIN p99 USING (class) ORDER BY time_ns DESC
