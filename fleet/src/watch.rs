//! Command `watch`: alerts for classes that are slower or new, and for hosts that fell silent.
//!
//! Keeps no state: each answer follows from the tables. A class is reported once two intervals in a row differ from the day before
//! them, so that chance has to strike twice.

use crate::columns;
use crate::compare::{self, Side};
use crate::tables::{Tables, TimeRange, rows};
use anyhow::{Context, ensure};
use datafusion::logical_expr::{Expr, col, lit};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use toll_digest::compare::{Change, Comparison, SLICES_MIN, compare};
use toll_sys::count_format::format_count;
use toll_sys::number_format::format_duration_s;
use toll_sys::prometheus::{MetricSpec, MetricsPage};

/// The time before, with which intervals are compared.
const BASELINE_US: i64 = 86_400_000_000;
/// A collector of alerts that answers later is not waited for.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Metrics of `--metrics`.
pub const METRICS: [MetricSpec; 3] = [
    ("toll_fleet_alert", "gauge", "An alert of the last interval; kind is slower, new or silent."),
    ("toll_fleet_alerts", "gauge", "Alerts of the last interval."),
    ("toll_fleet_judged_timestamp_seconds", "gauge", "End of the last interval that was judged."),
];

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Alert {
    /// `slower`, `new` or `silent`.
    pub kind: &'static str,
    pub cluster: String,
    /// Of a host that is silent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Of a class: its ID, and what it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub summary: String,
}

/// What two intervals show.
#[derive(Debug, Default)]
pub struct Judged {
    pub alerts: Vec<Alert>,
    /// Clusters of which no class can be found slower: a side has too few stretches of time with queries.
    pub untested: Vec<String>,
}

impl Judged {
    /// In words, for who watches; `None`: all is tested.
    pub fn warning(&self) -> Option<String> {
        (!self.untested.is_empty()).then(|| {
            format!(
                "no class of {} can be found slower: an interval, or the day before, has fewer than {SLICES_MIN} stretches of time with \
                 queries; take intervals of {SLICES_MIN} stretches or more (--every)",
                self.untested.join(", ")
            )
        })
    }
}

/// Judges two intervals of `every_us` that end at `at_us`.
///
/// # Errors
/// The tables cannot be read, or their stretches are longer than an interval.
pub async fn judge(
    tables: &Tables,
    at_us: i64,
    every_us: i64,
    min_change_pct: f64,
) -> anyhow::Result<Judged> {
    let range = |since_us, until_us| TimeRange { since_us, until_us };
    let baseline = range(at_us - 2 * every_us - BASELINE_US, at_us - 2 * every_us);
    let intervals = [range(baseline.until_us, at_us - every_us), range(at_us - every_us, at_us)];
    for interval in intervals {
        check_stretches(tables, interval, every_us).await?;
    }
    let mut judged = Judged::default();
    for (cluster, silent) in clusters(tables, baseline, intervals[1]).await? {
        let name = |host| Alert { kind: "silent", cluster: cluster.clone(), host, ..Alert::of("", "") };
        judged.alerts.extend(silent.into_iter().map(name));
        let of: Expr = col("cluster").eq(lit(cluster.as_str()));
        let Some(before) = compare::side(tables, Side { range: baseline, of: Some(of.clone()) }).await?
        else {
            continue;
        };
        let mut found: Option<BTreeSet<Alert>> = None;
        let mut is_tested = true;
        for range in intervals {
            let Some(after) = compare::side(tables, Side { range, of: Some(of.clone()) }).await? else {
                found = None;
                break;
            };
            let comparison = compare(&before, &after, min_change_pct);
            is_tested &= comparison.slices.is_some();
            let reported = reported(&comparison, &cluster);
            found = Some(match found {
                None => reported,
                Some(earlier) => earlier.intersection(&reported).cloned().collect(),
            });
        }
        judged.alerts.extend(found.unwrap_or_default());
        if !is_tested {
            judged.untested.push(cluster);
        }
    }
    Ok(judged)
}

/// Rows of longer stretches stand in one interval with what happened in several. Some may be there beside others: a server that could
/// not be polled for a while has one.
///
/// # Errors
/// There are no others.
async fn check_stretches(tables: &Tables, interval: TimeRange, every_us: i64) -> anyhow::Result<()> {
    // A stretch that begins before may reach into it.
    let range = TimeRange { since_us: interval.since_us.saturating_sub(BASELINE_US), ..interval };
    let session = tables.within(range, None).await?;
    let sql = format!(
        "SELECT min(width_us) AS width_us FROM fleet_digests WHERE CAST(ts AS BIGINT) + width_us > {}",
        interval.since_us
    );
    let least = rows(&session, &sql).await?;
    let width_us = least.first().and_then(|batch| columns::optional_int(batch, "width_us")).unwrap_or(0);
    ensure!(
        width_us <= every_us,
        "the tables have an interval in stretches of {}, as a compaction leaves them: compact later (--older-than), or take longer \
         intervals (--every)",
        format_duration_s(width_us as f64 / 1e6)
    );
    Ok(())
}

impl Alert {
    fn of(kind: &'static str, cluster: &str) -> Self {
        Self {
            kind,
            cluster: cluster.to_owned(),
            host: String::new(),
            class: String::new(),
            summary: String::new(),
        }
    }
}

fn reported(comparison: &Comparison<'_>, cluster: &str) -> BTreeSet<Alert> {
    let alert = |kind, class: &toll_digest::classes::Class| Alert {
        class: class.id.to_string(),
        summary: String::from_utf8_lossy(&class.distill).into_owned(),
        ..Alert::of(kind, cluster)
    };
    (comparison.classes.iter())
        .filter_map(|compared| match (compared.change, compared.after) {
            (Change::Slower, Some(class)) => Some(alert("slower", class)),
            (Change::New, Some(class)) => Some(alert("new", class)),
            _ => None,
        })
        .collect()
}

/// Each cluster, and those of its hosts that were there before and are not in the interval.
async fn clusters(
    tables: &Tables,
    before: TimeRange,
    interval: TimeRange,
) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let range = TimeRange { since_us: before.since_us, until_us: interval.until_us };
    let session = tables.within(range, None).await?;
    // A host counts as there while its last stretch reaches into the interval.
    let sql = format!(
        "SELECT cluster, host, max(CAST(ts AS BIGINT) + width_us) > {} AS is_there FROM coverage
         GROUP BY cluster, host ORDER BY cluster, host",
        interval.since_us
    );
    let mut clusters: Vec<(String, Vec<String>)> = Vec::new();
    for batch in rows(&session, &sql).await? {
        let (names, hosts) = (columns::texts(&batch, "cluster"), columns::texts(&batch, "host"));
        let there = batch.column_by_name("is_there").context("no column is_there")?;
        let there = datafusion::arrow::array::AsArray::as_boolean(there).clone();
        for (row, (name, host)) in names.into_iter().zip(hosts).enumerate() {
            if clusters.last().is_none_or(|(last, _)| *last != name) {
                clusters.push((name, Vec::new()));
            }
            if let (false, Some((_, silent))) = (there.value(row), clusters.last_mut()) {
                silent.push(host);
            }
        }
    }
    Ok(clusters)
}

/// The page of `--metrics`.
pub fn metrics(alerts: &[Alert], at_us: i64) -> String {
    let mut page = MetricsPage::new(&METRICS);
    page.add_metric("toll_fleet_alerts", alerts.len());
    page.add_metric("toll_fleet_judged_timestamp_seconds", at_us as f64 / 1e6);
    page.add_family("toll_fleet_alert");
    for Alert { kind, cluster, host, class, summary } in alerts {
        let labels =
            [("kind", *kind), ("cluster", cluster), ("host", host), ("class", class), ("query", summary)];
        page.add_value("toll_fleet_alert", &labels, 1);
    }
    page.into_text()
}

/// Posts the alerts as Prometheus' Alertmanager takes them (`/api/v2/alerts`). They end at `end_us` if they are not posted again.
///
/// # Errors
/// It does not take them.
pub fn post(url: &str, alerts: &[Alert], end_us: i64) -> anyhow::Result<()> {
    let end = Timestamp::from_microsecond(end_us).context("no such time")?.to_string();
    let body: Vec<serde_json::Value> = alerts
        .iter()
        .map(|alert| {
            let mut labels = serde_json::to_value(alert)?;
            labels["alertname"] = format!("toll_fleet_{}", alert.kind).into();
            Ok(serde_json::json!({ "labels": labels, "endsAt": end }))
        })
        .collect::<anyhow::Result<_>>()?;
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(WEBHOOK_TIMEOUT))
        .tls_config(toll_tables::tls_config())
        .build()
        .into();
    let sent = agent.post(url).header("Content-Type", "application/json").send(serde_json::to_string(&body)?);
    sent.map(drop).with_context(|| format!("{url} does not take the alerts"))
}

/// What is to be said of the intervals between two that were judged, by their ends; `None`: there are none.
pub fn passed_over(last_us: i64, due_us: i64, every_us: i64) -> Option<String> {
    let passed = due_us.saturating_sub(last_us) / every_us.max(1) - 1;
    (passed > 0).then(|| {
        format!(
            "{} that ended before now are not judged: the tables were away, or judging takes longer than --every",
            format_count(passed.cast_unsigned(), "interval")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_are_passed_over_are_counted() {
        assert_eq!(passed_over(0, 600, 600), None);
        assert_eq!(passed_over(600, 600, 600), None);
        assert!(passed_over(600, 2_400, 600).is_some_and(|words| words.starts_with("2 intervals")));
    }
}
