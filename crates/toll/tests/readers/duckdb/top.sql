WITH buckets AS (
  SELECT class, unnest(hist_bin) AS bin, unnest(hist_n) AS n FROM digests
), merged AS (
  SELECT class, bin, sum(n) AS n FROM buckets GROUP BY class, bin
), ranked AS (
  SELECT class, bin, sum(n) OVER (PARTITION BY class ORDER BY bin) AS up_to,
    sum(n) OVER (PARTITION BY class) AS total FROM merged
), p99 AS (
  SELECT class, min(bin) AS bin FROM ranked WHERE up_to >= ceil(0.99 * total) GROUP BY class
)
SELECT hex(class) AS class, sum(n) AS n, sum(time_ns) AS time_ns,
  least(max(max_ns), CASE WHEN bin < 64 THEN bin
    ELSE (64 + bin % 64) * pow(2, bin // 64 - 1) + floor(pow(2, bin // 64 - 2)) END) AS p99_ns
FROM digests JOIN p99 USING (class) GROUP BY class, bin ORDER BY time_ns DESC
