//! Which figures of its own does this run call for?
//!
//! Decided by what the arms are, not by the scenario's name: arms that ran at a rate give
//! load-latency curves.

use std::collections::BTreeMap;
use toll_record::{ArmResult, Axis, Chart, ChartKind, ChartSeries, Plan, Workload};

/// Latency has left the flat part of its curve when it is this many times what it was at the
/// lowest rate.
const KNEE: f64 = 5.0;
/// A rate is met when this share of it was achieved.
const MET: f64 = 0.99;

/// Load-latency curves, one chart for each latency, one series for each arm that was swept, or
/// each way to the server.
pub fn charts(plan: &Plan, arms: &[ArmResult]) -> Vec<Chart> {
    let mut by_way: BTreeMap<String, Vec<(f64, &ArmResult)>> = BTreeMap::new();
    for (planned, arm) in plan.arms.iter().zip(arms) {
        if let Some(rate) = planned.workload.rate_per_s {
            by_way
                .entry(planned.curve.clone().unwrap_or_else(|| way(&planned.workload)))
                .or_default()
                .push((rate, arm));
        }
    }
    for points in by_way.values_mut() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    if by_way.values().all(|points| points.len() < 2) {
        return Vec::new();
    }
    let note = by_way.iter().map(|(way, points)| knee(way, points)).collect::<Vec<_>>().join(" ");
    [("latency_us_mean", "mean"), ("latency_us_p99", "p99"), ("latency_us_p999", "p99.9")]
        .into_iter()
        .map(|(outcome, word)| Chart {
            id: format!("load-{outcome}"),
            title: format!("Response time ({word}) by rate"),
            kind: ChartKind::Line,
            x: Axis { label: "rate asked for".into(), unit: "events/s".into(), ..Axis::default() },
            y: Axis {
                label: format!("{word} response time"),
                unit: "us".into(),
                log: true,
                ..Axis::default()
            },
            series: by_way
                .iter()
                .map(|(way, points)| ChartSeries { name: way.clone(), points: curve(points, outcome) })
                .filter(|series| !series.points.is_empty())
                .collect(),
            note: note.clone(),
        })
        .filter(|chart| !chart.series.is_empty())
        .collect()
}

fn way(workload: &Workload) -> String {
    let protocol = if workload.prepared { "" } else { ", text" };
    let connections = if workload.reconnect_every == 0 { "" } else { ", short connections" };
    format!("{}{protocol}{connections}", workload.transport)
}

fn curve(points: &[(f64, &ArmResult)], outcome: &str) -> Vec<(f64, f64, Option<f64>, Option<f64>)> {
    points
        .iter()
        .filter_map(|(rate, arm)| Some((*rate, arm.outcomes.get(outcome)?.mean, None, None)))
        .collect()
}

/// Where a curve bends upwards, or where the rate can no longer be met.
fn knee(way: &str, points: &[(f64, &ArmResult)]) -> String {
    let p99 = |arm: &ArmResult| arm.outcomes.get("latency_us_p99").map(|o| o.mean);
    let achieved = |arm: &ArmResult| arm.outcomes.get("tps").map(|o| o.mean);
    let Some(lowest) = points.first().and_then(|(_, arm)| p99(arm)) else {
        return format!("{way}: no p99 at the lowest rate.");
    };
    for (rate, arm) in points {
        if let Some(tps) = achieved(arm)
            && tps < MET * rate
        {
            return format!(
                "{way}: {rate:.0}/s is beyond its capacity ({tps:.0}/s achieved): the backlog grows for as long \
                 as it lasts, so latencies there only say how long the window was."
            );
        }
        if p99(arm).is_some_and(|us| us > KNEE * lowest) {
            return format!(
                "{way}: the knee lies at or below {rate:.0}/s, where p99 is over {KNEE:.0} times its lowest."
            );
        }
    }
    format!("{way}: no knee up to the highest rate.")
}
