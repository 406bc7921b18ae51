// Dashboard of `toll-fleet serve` for Grafana, whose PostgreSQL source reads it: docs/howto/fleet-dashboard.json.
//
// `node build.mjs` writes it. fleet/tests/serving.rs runs the SQL of every panel.

import type { Builder, Dataquery } from '@grafana/grafana-foundation-sdk/cog';
import * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import * as table from '@grafana/grafana-foundation-sdk/table';
import * as timeseries from '@grafana/grafana-foundation-sdk/timeseries';
import * as units from '@grafana/grafana-foundation-sdk/units';

const SOURCE = { type: 'grafana-postgresql-datasource', uid: '${datasource}' };
// What the dashboard shows: a time, and some clusters.
const CHOSEN = '$__timeFilter(ts) AND cluster IN (${cluster:sqlstring})';
const TIME = '$__timeGroupAlias(ts, $__interval)';
// A thousand hosts leave 64 bits of nanoseconds in a day.
const TIME_NS = 'sum(CAST(time_ns AS DOUBLE))';

// The kit has no builder for this source.
class Sql implements Builder<Dataquery> {
  constructor(
    private readonly rawSql: string,
    private readonly format: 'table' | 'time_series',
  ) {}

  build(): Dataquery {
    const query = {
      refId: 'A',
      rawSql: this.rawSql,
      format: this.format,
      rawQuery: true,
      editorMode: 'code',
    };
    return { ...query, datasource: SOURCE, _implementsDataqueryVariant() {} } as Dataquery;
  }
}

const TOP = `WITH ranked AS (
  SELECT class, ${TIME_NS} AS time_ns, sum(n) AS n, sum(errors) AS errors, max(max_ns) AS max_ns
  FROM cluster_digests WHERE ${CHOSEN} GROUP BY class ORDER BY time_ns DESC LIMIT 20
), merged AS (
  SELECT class, toll_histogram(hist_bin, hist_n) AS histogram
  FROM cluster_digests WHERE ${CHOSEN} AND class IN (SELECT class FROM ranked) GROUP BY class
), on_hosts AS (
  SELECT class, count(DISTINCT host) AS hosts
  FROM digests WHERE ${CHOSEN} AND class IN (SELECT class FROM ranked) GROUP BY class
), named AS (
  SELECT class, min(summary) AS summary, min(fingerprint) AS fingerprint FROM texts GROUP BY class
)
SELECT coalesce(summary, '(not kept apart)') AS query, n, time_ns / 1e9 AS "time, s",
  least(toll_quantile(histogram, 0.5), max_ns) / 1e6 AS "p50, ms",
  least(toll_quantile(histogram, 0.99), max_ns) / 1e6 AS "p99, ms", max_ns / 1e6 AS "max, ms", errors, hosts,
  upper(encode(ranked.class, 'hex')) AS class, coalesce(fingerprint, '') AS fingerprint
FROM ranked JOIN merged ON merged.class = ranked.class LEFT JOIN on_hosts ON on_hosts.class = ranked.class
  LEFT JOIN named ON named.class = ranked.class
ORDER BY time_ns DESC`;

const LOAD = `WITH top AS (
  SELECT class FROM cluster_digests WHERE ${CHOSEN} GROUP BY class ORDER BY ${TIME_NS} DESC LIMIT 10
), named AS (
  SELECT class, min(summary) AS summary FROM texts GROUP BY class
)
SELECT ${TIME}, coalesce(summary, '(not kept apart)') AS metric, ${TIME_NS} / 1e9 AS value
FROM cluster_digests AS digest LEFT JOIN named ON named.class = digest.class
WHERE ${CHOSEN} AND digest.class IN (SELECT class FROM top)
GROUP BY 1, 2 ORDER BY 1, 2`;

const P99 = `SELECT ${TIME}, cluster AS metric,
  least(toll_quantile(toll_histogram(hist_bin, hist_n), 0.99), max(max_ns)) / 1e6 AS value
FROM cluster_digests WHERE ${CHOSEN} GROUP BY 1, 2 ORDER BY 1, 2`;

const QUERIES = `SELECT ${TIME}, cluster AS metric, sum(n) AS value
FROM cluster_digests WHERE ${CHOSEN} GROUP BY 1, 2 ORDER BY 1, 2`;

const HOSTS = `WITH of_host AS (
  SELECT cluster, host, class, sum(n) AS n, ${TIME_NS} AS time_ns FROM digests WHERE ${CHOSEN} GROUP BY cluster, host, class
), of_cluster AS (
  SELECT cluster, class, sum(n) AS n, sum(time_ns) AS time_ns FROM of_host GROUP BY cluster, class
)
SELECT of_host.host, of_host.cluster, sum(of_host.n) AS n, sum(of_host.time_ns) / 1e9 AS "time, s",
  sum(of_host.time_ns) / sum((of_cluster.time_ns - of_host.time_ns) / (of_cluster.n - of_host.n) * of_host.n)
    AS "times its cluster's"
FROM of_host JOIN of_cluster ON of_cluster.cluster = of_host.cluster AND of_cluster.class = of_host.class
WHERE of_cluster.n > of_host.n GROUP BY of_host.host, of_host.cluster ORDER BY 5 DESC LIMIT 50`;

const COVERAGE = `SELECT host, cluster, source, max(ts) AS last, sum(width_us) / 1e6 AS "seen, s", sum(commands) AS commands,
  sum(tainted) AS tainted, sum(lost) AS lost, min(sampled_share) AS "least sampled"
FROM coverage WHERE ${CHOSEN} GROUP BY host, cluster, source ORDER BY last, lost DESC LIMIT 50`;

const rows = (title: string, sql: string, height: number) =>
  new table.PanelBuilder()
    .title(title)
    .datasource(SOURCE)
    .withTarget(new Sql(sql, 'table'))
    .height(height)
    .span(24);

const lines = (title: string, sql: string, unit: string) =>
  new timeseries.PanelBuilder()
    .title(title)
    .datasource(SOURCE)
    .withTarget(new Sql(sql, 'time_series'))
    .unit(unit)
    .height(8)
    .span(8);

export const built = new dashboard.DashboardBuilder('Queries of many hosts')
  .uid('toll-fleet')
  .tags(['toll'])
  .refresh('5m')
  .time({ from: 'now-6h', to: 'now' })
  .withVariable(new dashboard.DatasourceVariableBuilder('datasource').type('grafana-postgresql-datasource'))
  .withVariable(
    new dashboard.QueryVariableBuilder('cluster')
      .query('SELECT DISTINCT cluster FROM coverage ORDER BY cluster')
      .datasource(SOURCE)
      .multi(true)
      .includeAll(true),
  )
  .withPanel(lines('Query time by class', LOAD, units.Seconds))
  .withPanel(lines('99th percentile by cluster', P99, units.Milliseconds))
  .withPanel(lines('Queries by cluster', QUERIES, units.Short))
  .withPanel(rows('Classes by query time', TOP, 12))
  .withPanel(rows('Hosts compared with their clusters', HOSTS, 8))
  .withPanel(rows('What was seen of each host', COVERAGE, 8))
  .build();
