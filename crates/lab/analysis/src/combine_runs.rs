//! Combination of several runs: like ones pooled, different platforms overlaid.
//!
//! The runs' own data decides which. An option could only contradict it: unlike runs have no common overhead,
//! and like ones are one platform.

use super::meta_analysis::{self, find_question_difference};
use super::platform::{self, AnalysedRun};
use toll_record::{
    Axis, Chart, ChartKind, ChartPoint, ChartSeries, Compare, Definition, Overlay, Platform, Pooled, Role,
    RunResult,
};

/// Results of several runs together.
#[derive(Debug, Clone, PartialEq)]
pub enum CombinedRuns {
    Pooled(Pooled),
    Overlaid(Overlay),
    /// The runs have different questions; the text names the difference.
    Incompatible(String),
}

/// Combines runs. `names`, one for each run, differ from each other. `None` for fewer than two runs.
pub fn combine_runs(runs: &[AnalysedRun], names: &[String]) -> Option<CombinedRuns> {
    let [first, others @ ..] = runs else { return None };
    if others.is_empty() {
        return None;
    }
    if let Some(what) = others.iter().find_map(|other| find_question_difference(first.result, other.result)) {
        return Some(CombinedRuns::Incompatible(format!("they differ in {what}")));
    }
    let facts = platform::platform_facts(runs);
    let differ_in = platform::differing_facts(runs, &facts);
    let results: Vec<&RunResult> = runs.iter().map(|run| run.result).collect();
    if differ_in.is_empty() {
        return Some(
            meta_analysis::pool_runs(&results).map_or_else(CombinedRuns::Incompatible, CombinedRuns::Pooled),
        );
    }
    let platforms = names.iter().zip(facts).map(|(name, facts)| Platform { name: name.clone(), facts });
    let mut charts = overlay_lines(runs, names);
    if charts.is_empty() {
        charts.extend(overlay_arms(&results, names));
    }
    Some(CombinedRuns::Overlaid(Overlay { differ_in, platforms: platforms.collect(), charts }))
}

/// One chart for each line of a chart over named positions, with a line for each run.
fn overlay_lines(runs: &[AnalysedRun], names: &[String]) -> Vec<Chart> {
    let over_places = |chart: &&Chart| chart.kind == ChartKind::Line && !chart.x.categories.is_empty();
    let mut found: Vec<Chart> = Vec::new();
    for chart in runs.iter().flat_map(|run| run.result.charts.iter()).filter(over_places) {
        for line in &chart.series {
            let id = format!("{}-of-{}", chart.id, line.name);
            // A line that no run measured is the same in all of them.
            if found.iter().any(|known| known.id == id) || is_diagonal(runs, &line.name) {
                continue;
            }
            let same: Vec<(&String, &Chart, &ChartSeries)> = runs
                .iter()
                .zip(names)
                .filter_map(|(run, name)| {
                    let same = |other: &&Chart| other.id == chart.id && other.y.unit == chart.y.unit;
                    let other = run.result.charts.iter().find(same)?;
                    Some((name, other, other.series.iter().find(|series| series.name == line.name)?))
                })
                .collect();
            let places = merge_positions(same.iter().map(|(_, chart, _)| *chart));
            let series = same.iter().map(|(name, chart, series)| ChartSeries {
                name: (*name).clone(),
                points: move_points(series, &chart.x.categories, &places),
            });
            let title = match chart.series.len() {
                1 => chart.title.clone(),
                _ => format!("{}: {}", chart.title, line.name),
            };
            let series: Vec<ChartSeries> = series.collect();
            found.push(Chart {
                id,
                title,
                x: Axis { categories: places, ..chart.x.clone() },
                series,
                ..chart.clone()
            });
        }
    }
    found
}

fn is_diagonal(runs: &[AnalysedRun], line: &str) -> bool {
    let mut wishes = runs.iter().flat_map(|run| &run.plan.charts);
    wishes.any(|wish| wish.diagonal.as_deref() == Some(line))
}

/// Positions of all charts. Positions of later charts follow their predecessor there.
fn merge_positions<'a>(charts: impl Iterator<Item = &'a Chart>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for chart in charts {
        let mut next = 0;
        for place in &chart.x.categories {
            match all.iter().position(|known| known == place) {
                Some(at) => next = at + 1,
                None => {
                    all.insert(next, place.clone());
                    next += 1;
                }
            }
        }
    }
    all
}

/// A line's points, moved to their positions among all.
fn move_points(series: &ChartSeries, places: &[String], all: &[String]) -> Vec<ChartPoint> {
    let points = series.points.iter();
    let mut moved: Vec<ChartPoint> = points
        .filter_map(|&(x, y, low, high)| {
            let place = places.get(x as usize)?;
            let at = all.iter().position(|known| known == place)?;
            Some((at as f64, y, low, high))
        })
        .collect();
    moved.sort_by(|a, b| a.0.total_cmp(&b.0));
    moved
}

/// Every arm's overhead on the primary outcome in each run. `None` if no run has one.
fn overlay_arms(runs: &[&RunResult], names: &[String]) -> Option<Chart> {
    let first = runs.first()?;
    let primary = toll_record::catalogue::find_definition(&first.definitions, &first.primary)?;
    let is_treatment = |run: &RunResult, name: &str| {
        run.arms.iter().any(|arm| arm.name == name && arm.role != Role::Baseline)
    };
    let of = |run: &RunResult, name: &str| -> Option<(f64, Option<[f64; 2]>)> {
        let outcome = run.arms.iter().find(|arm| arm.name == name)?.outcomes.get(&primary.name)?;
        match outcome.toll_pct {
            Some(toll) => Some((toll, outcome.ci95_pct)),
            None => Some((outcome.effect?, outcome.ci95)),
        }
    };
    let mut arms: Vec<&str> = Vec::new();
    for (run, arm) in runs.iter().flat_map(|run| run.arms.iter().map(move |arm| (run, arm))) {
        if is_treatment(run, &arm.name) && of(run, &arm.name).is_some() && !arms.contains(&arm.name.as_str())
        {
            arms.push(&arm.name);
        }
    }
    let series = runs.iter().zip(names).map(|(run, name)| ChartSeries {
        name: name.clone(),
        points: arms
            .iter()
            .enumerate()
            .filter_map(|(at, arm)| {
                let (toll, ends) = of(run, arm)?;
                Some((at as f64, toll, ends.map(|ends| ends[0]), ends.map(|ends| ends[1])))
            })
            .collect(),
    });
    (!arms.is_empty()).then(|| Chart {
        id: "tolls-by-platform".into(),
        title: format!("Overhead in {}, by platform", primary.title),
        kind: ChartKind::Table,
        x: Axis {
            label: "variant".into(),
            categories: arms.iter().map(|arm| (*arm).to_owned()).collect(),
            ..Axis::default()
        },
        y: Axis { label: "toll".into(), unit: outcome_unit(primary), ..Axis::default() },
        series: series.collect(),
        note: "Each against the baseline of its own run, with that run's interval.".into(),
    })
}

fn outcome_unit(outcome: &Definition) -> String {
    if outcome.compare == Compare::LogRatio { "%".into() } else { outcome.unit.clone() }
}
