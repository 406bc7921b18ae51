//! Charts that a scenario defines: outcomes over the values of its matrix.
//!
//! Lines over named positions. Knows neither rates nor data sets, and compares nothing: a point is an arm's
//! own value.

use toll_record::catalogue::find_definition;
use toll_record::{
    ArmResult, Axis, Chart, ChartKind, ChartPoint, ChartSeries, Charted, Compare, Definition, Outcome, Plan,
    Verdict,
};
use toll_sys::number_format::capitalise;

/// Prefix of these charts' ids, so that a scenario's name cannot collide with another figure's id.
const CHART_ID_PREFIX: &str = "varied-";

/// One chart for each definition in the plan and each value of its panels, if arms have points.
pub fn charts(plan: &Plan, arms: &[ArmResult]) -> Vec<Chart> {
    plan.charts.iter().flat_map(|wish| build_charts(plan, wish, arms)).collect()
}

/// An arm by its values of the matrix.
struct ChartedArm<'a> {
    panel: Vec<&'a str>,
    line: Vec<&'a str>,
    x: &'a str,
    arm: &'a ArmResult,
}

fn build_charts(plan: &Plan, wish: &Charted, arms: &[ArmResult]) -> Vec<Chart> {
    let outcomes: Vec<&Definition> =
        wish.outcomes.iter().filter_map(|name| find_definition(&plan.outcomes, name)).collect();
    let Some(&first) = outcomes.first() else { return Vec::new() };
    let all = select_charted_arms(plan, wish, arms);
    // The same places in all panels, or they could not be held against each other.
    let places = distinct(all.iter().map(|placed| placed.x));
    let panels = distinct(all.iter().map(|placed| placed.panel.clone()));
    let chart = |panel: Vec<&str>| -> Option<Chart> {
        let here: Vec<&ChartedArm> = all.iter().filter(|placed| placed.panel == panel).collect();
        let mut series = build_lines(plan, &outcomes, &places, &here);
        if series.is_empty() {
            return None;
        }
        let has_intervals = series.iter().flat_map(|line| &line.points).any(|point| point.2.is_some());
        series.extend(wish.diagonal.as_ref().map(|name| build_diagonal(name, &places)));
        Some(Chart {
            id: format!("{CHART_ID_PREFIX}{}", [&[wish.name.as_str()][..], &panel[..]].concat().join("-")),
            title: match panel.as_slice() {
                [] => wish.title.clone(),
                values => format!("{}: {}", wish.title, values.join(", ")),
            },
            kind: ChartKind::Line,
            x: Axis {
                label: wish.x_title.clone().unwrap_or_else(|| wish.x.clone()),
                categories: places.iter().map(|place| (*place).to_owned()).collect(),
                ..Axis::default()
            },
            y: Axis {
                label: if outcomes.len() == 1 { capitalise(&first.title) } else { wish.title.clone() },
                unit: first.unit.clone(),
                ..Axis::default()
            },
            series,
            note: describe_chart(plan, &outcomes, has_intervals),
        })
    };
    panels.into_iter().filter_map(chart).collect()
}

/// Arms of the chart that have one of its outcomes. Copies at other rates of a sweep are left out.
fn select_charted_arms<'a>(plan: &'a Plan, wish: &Charted, arms: &'a [ArmResult]) -> Vec<ChartedArm<'a>> {
    let has_any = |arm: &ArmResult| wish.outcomes.iter().any(|name| arm.outcomes.contains_key(name));
    let own = plan.arms.iter().zip(arms).filter(|(planned, arm)| planned.curve.is_none() && has_any(arm));
    own.filter_map(|(planned, arm)| {
        let mut values = wish.key_values(&planned.varied)?;
        let x = values.pop()?;
        let line = values.split_off(wish.panels.len());
        Some(ChartedArm { panel: values, line, x, arm })
    })
    .collect()
}

/// Each value once, in the order of its first occurrence.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// A line for each value of the line keys, and each outcome.
fn build_lines(
    plan: &Plan,
    outcomes: &[&Definition],
    places: &[&str],
    here: &[&ChartedArm],
) -> Vec<ChartSeries> {
    let line = |values: &[&str], outcome: &Definition| {
        let of_line = |placed: &&&ChartedArm| placed.line == values;
        let mut points: Vec<ChartPoint> = here
            .iter()
            .filter(of_line)
            .filter_map(|placed| {
                let at = places.iter().position(|place| *place == placed.x)?;
                let (value, low, high) = own_value(plan, placed.arm.outcomes.get(&outcome.name)?);
                Some((at as f64, value, low, high))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let name = match (values.is_empty(), outcomes.len()) {
            (true, _) => outcome.column_title().to_owned(),
            (false, 1) => values.join(", "),
            (false, _) => format!("{}, {}", values.join(", "), outcome.column_title()),
        };
        ChartSeries { name, points }
    };
    let mut series = Vec::new();
    for values in distinct(here.iter().map(|placed| placed.line.clone())) {
        series.extend(outcomes.iter().map(|outcome| line(&values, outcome)));
    }
    series.retain(|line| !line.points.is_empty());
    series
}

/// The arm's own value, with its interval if there are enough rounds.
fn own_value(plan: &Plan, outcome: &Outcome) -> (f64, Option<f64>, Option<f64>) {
    let (value, ends) = match (outcome.verdict, outcome.effect) {
        (Verdict::NotCompared, Some(own)) => (own, outcome.ci95),
        // Compared, so that its interval is that of a difference.
        _ => {
            let interval = toll_stats::sign_flip(&outcome.values, plan.alpha, plan.seed).interval.ok();
            (outcome.mean, interval.map(|interval| [interval.low, interval.high]))
        }
    };
    (value, ends.map(|[low, _]| low), ends.map(|[_, high]| high))
}

/// The line of equal values, if the positions are numbers.
fn build_diagonal(name: &str, places: &[&str]) -> ChartSeries {
    let number = |place: &&str| place.parse::<f64>().ok().filter(|number| number.is_finite());
    let points = places.iter().enumerate();
    let points = points.filter_map(|(at, place)| Some((at as f64, number(place)?, None, None)));
    ChartSeries { name: name.to_owned(), points: points.collect() }
}

fn describe_chart(plan: &Plan, outcomes: &[&Definition], has_intervals: bool) -> String {
    let medians = outcomes.iter().filter(|outcome| outcome.compare == Compare::Median).count();
    let what = match medians {
        0 => "Means",
        all if all == outcomes.len() => "Medians",
        _ => "Medians or means",
    };
    let pct = 100.0 * (1.0 - plan.alpha);
    if has_intervals {
        format!("{what} of each variant's own windows, with {pct:.0}% intervals.")
    } else {
        let need = toll_stats::rounds_for_interval(plan.alpha);
        format!("{what} of each variant's own windows; an interval needs {need} rounds or more.")
    }
}
