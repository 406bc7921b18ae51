//! Load-latency charts of a run.
//!
//! The arms decide, not the scenario's name: arms with a rate get load-latency curves.

use std::collections::BTreeMap;
use toll_record::{
    Aggregate, ArmResult, Axis, Chart, ChartKind, ChartSeries, Compare, Definition, LoadColumn, Plan,
    RunResult, Source, Workload,
};
use toll_sys::number_format::capitalise;

/// Multiple of the latency at the lowest rate, beyond which a curve is past its knee.
const KNEE_FACTOR: f64 = 5.0;
/// Share of a rate that must be achieved to count as met.
const RATE_MET_SHARE: f64 = 0.99;
/// Prefix of the curves' ids.
const CURVE_ID_PREFIX: &str = "load-";

/// Load-latency curves: a chart for each outcome that asks for it, a series for each swept arm or transport.
pub fn charts(plan: &Plan, arms: &[ArmResult]) -> Vec<Chart> {
    let mut by_way: BTreeMap<String, Vec<(f64, &ArmResult)>> = BTreeMap::new();
    for (planned, arm) in plan.arms.iter().zip(arms) {
        if let Some(rate) = planned.workload.rate_per_s {
            by_way
                .entry(planned.curve.clone().unwrap_or_else(|| series_name(&planned.workload)))
                .or_default()
                .push((rate, arm));
        }
    }
    for points in by_way.values_mut() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    // Arms at one rate are no curve.
    by_way.retain(|_, points| points.first().zip(points.last()).is_some_and(|(low, high)| low.0 < high.0));
    if by_way.is_empty() {
        return Vec::new();
    }
    let curves = CurveOutcomes::from_definitions(&plan.outcomes);
    let note =
        by_way.iter().map(|(way, points)| curves.describe_knee(way, points)).collect::<Vec<_>>().join(" ");
    plan.outcomes
        .iter()
        .filter(|outcome| outcome.by_rate)
        .map(|outcome| Chart {
            id: format!("{CURVE_ID_PREFIX}{}", outcome.name),
            title: format!("{} by rate", capitalise(outcome.column_title())),
            kind: ChartKind::Line,
            x: Axis { label: "rate asked for".into(), unit: "events/s".into(), ..Axis::default() },
            y: Axis {
                label: outcome.title.clone(),
                unit: outcome.unit.clone(),
                log: outcome.compare == Compare::LogRatio,
                ..Axis::default()
            },
            series: by_way
                .iter()
                .map(|(way, points)| ChartSeries {
                    name: way.clone(),
                    points: curves.curve(points, &outcome.name),
                })
                .filter(|series| !series.points.is_empty())
                .collect(),
            note: note.clone(),
        })
        .filter(|chart| !chart.series.is_empty())
        .collect()
}

/// The first load-latency curve of the run. Its note covers all.
pub fn find_load_curve(run: &RunResult) -> Option<&Chart> {
    run.charts.iter().find(|chart| chart.id.starts_with(CURVE_ID_PREFIX))
}

fn series_name(workload: &Workload) -> String {
    let protocol = if workload.prepared { "" } else { ", text" };
    let connections = if workload.reconnect_every == 0 { "" } else { ", short connections" };
    format!("{}{protocol}{connections}", workload.transport)
}

/// Outcomes of the curves, if the plan has them.
struct CurveOutcomes<'a> {
    /// Events achieved a second.
    achieved: Option<&'a str>,
    /// The latency that rises first.
    tail: Option<&'a str>,
}

impl<'a> CurveOutcomes<'a> {
    fn from_definitions(outcomes: &'a [Definition]) -> Self {
        let made_of = |source: Source, aggregate| {
            let mut found = outcomes.iter().filter(|o| o.source == source && o.aggregate == aggregate);
            found.next().map(|outcome| outcome.name.as_str())
        };
        CurveOutcomes {
            achieved: made_of(Source::Load { column: LoadColumn::Events }, Aggregate::Rate),
            tail: made_of(Source::Latency, Aggregate::Quantile(0.99)),
        }
    }

    /// One outcome by rate, up to the first rate that is not met.
    ///
    /// Beyond that rate, latencies depend only on the length of the window.
    fn curve(
        &self,
        points: &[(f64, &ArmResult)],
        outcome: &str,
    ) -> Vec<(f64, f64, Option<f64>, Option<f64>)> {
        let met = points.iter().take_while(|(rate, arm)| self.unmet_rate(*rate, arm).is_none()).count();
        points
            .iter()
            .take(met + 1)
            .filter_map(|(rate, arm)| Some((*rate, arm.outcomes.get(outcome)?.mean, None, None)))
            .collect()
    }

    /// The achieved rate, if it is below the requested one.
    fn unmet_rate(&self, rate: f64, arm: &ArmResult) -> Option<f64> {
        arm.outcomes
            .get(self.achieved?)
            .map(|found| found.mean)
            .filter(|achieved| *achieved < RATE_MET_SHARE * rate)
    }

    /// The knee of a curve, and the first rate that is not met.
    fn describe_knee(&self, way: &str, points: &[(f64, &ArmResult)]) -> String {
        // The median round: one in which the host stood still bends no curve.
        let p99 = |arm: &ArmResult| arm.outcomes.get(self.tail?).map(|o| toll_stats::median(&o.values));
        let Some(lowest) = points.first().and_then(|(_, arm)| p99(arm)) else {
            return format!("{way}: no p99 at the lowest rate.");
        };
        let bend = points.iter().find(|(_, arm)| p99(arm).is_some_and(|us| us > KNEE_FACTOR * lowest));
        let bend = match bend {
            Some((rate, _)) => {
                format!(
                    "the knee lies at or below {rate:.0}/s, where p99 is over {KNEE_FACTOR:.0} times its lowest"
                )
            }
            None => "no knee up to the highest rate".into(),
        };
        match points.iter().find_map(|(rate, arm)| Some((rate, self.unmet_rate(*rate, arm)?))) {
            Some((rate, achieved)) => format!(
                "{way}: {bend}; {rate:.0}/s is beyond its capacity ({achieved:.0}/s achieved), where the \
                 backlog grows for as long as the load lasts."
            ),
            None => format!("{way}: {bend}."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_record::{Outcome, Role, StallTotals, Verdict};

    fn outcome(values: &[f64]) -> Outcome {
        Outcome {
            unit: "us".into(),
            higher_is_better: false,
            mean: toll_stats::mean(values),
            sd: 0.0,
            values: values.to_vec(),
            toll_pct: None,
            ci95_pct: None,
            effect: None,
            ci95: None,
            method: String::new(),
            p: None,
            standard_error: None,
            p_adjusted: None,
            planned_ci95_pct: None,
            verdict: Verdict::Baseline,
        }
    }

    /// An arm that achieved so many events a second, with the p99 of each round.
    fn arm(tps: f64, p99: &[f64]) -> ArmResult {
        ArmResult {
            name: String::new(),
            title: String::new(),
            role: Role::Treatment,
            command: String::new(),
            against: None,
            judged_by: None,
            unavailable: None,
            windows: p99.len() as u32,
            outcomes: [("tps", outcome(&[tps])), ("latency_us_p99", outcome(p99))]
                .map(|(name, outcome)| (name.to_owned(), outcome))
                .into(),
            artefact: None,
            ledger: None,
            executed: 0,
            captured_ratio: None,
            stalls: StallTotals::default(),
            latency_curve: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_curve_bends_where_most_rounds_do_and_ends_where_its_rate_is_not_met() {
        let arms = [
            (100.0, arm(100.0, &[10.0, 11.0, 10.0])),
            (200.0, arm(199.0, &[12.0, 900.0, 11.0])),
            (300.0, arm(300.0, &[60.0, 70.0, 12.0])),
            (400.0, arm(350.0, &[9_000.0, 9_000.0, 9_000.0])),
            (500.0, arm(350.0, &[90_000.0, 90_000.0, 90_000.0])),
        ];
        let points: Vec<_> = arms.iter().map(|(rate, arm)| (*rate, arm)).collect();
        let curves = CurveOutcomes::from_definitions(&toll_record::catalogue::CATALOGUE.outcomes);
        assert_eq!(curves.describe_knee("tcp", &points[..2]), "tcp: no knee up to the highest rate.");
        assert_eq!(
            curves.describe_knee("tcp", &points),
            "tcp: the knee lies at or below 300/s, where p99 is over 5 times its lowest; 400/s is beyond its \
             capacity (350/s achieved), where the backlog grows for as long as the load lasts."
        );
        let rates: Vec<_> = curves.curve(&points, "latency_us_p99").iter().map(|point| point.0).collect();
        assert_eq!(rates, [100.0, 200.0, 300.0, 400.0]);
    }
}
