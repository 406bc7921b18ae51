//! A run on both clocks: what its arms add in counted work, beside what they add in measured time.

use crate::advice::judged_outcome_name;
use toll_record::{
    ArmResult, Axis, Chart, ChartKind, ChartPoint, ChartSeries, Compare, Role, RunResult, Warning, catalogue,
};

/// Name of the chart, by which reports know it.
pub const CHART: &str = "work-and-time";
/// Waiting shows first in the slowest answers.
const SLOWEST: &str = "latency_us_p99";

/// What the measured part warns of, in a report of both.
pub fn warnings_of(measured: RunResult) -> impl Iterator<Item = Warning> {
    let say = |warning: Warning| Warning { text: format!("measured time: {}", warning.text), ..warning };
    measured.warnings.into_iter().map(say)
}

/// Overheads of the arms that were measured, by both clocks. `None`: no arm was measured.
pub fn compare_clocks(counted: &RunResult, measured: &RunResult) -> Option<Chart> {
    let has_windows = |arm: &&ArmResult| arm.windows > 0;
    let arms: Vec<(&ArmResult, &ArmResult)> = counted
        .arms
        .iter()
        .filter(|arm| arm.role != Role::Baseline)
        .filter(has_windows)
        .filter_map(|arm| Some((arm, measured.arms.iter().find(|other| other.name == arm.name)?)))
        .filter(|(_, timed)| has_windows(timed))
        .collect();
    let definition = catalogue::find_definition(&measured.definitions, &measured.primary)?;
    let worked = catalogue::find_definition(&counted.definitions, &counted.primary)?;
    if arms.is_empty() || definition.compare != Compare::LogRatio {
        return None;
    }
    let point = |at: usize, arm: &ArmResult, outcome: &str| -> Option<ChartPoint> {
        let outcome = arm.outcomes.get(outcome)?;
        let [low, high] = outcome.ci95_pct.map_or([None; 2], |ends| ends.map(Some));
        Some((at as f64, outcome.toll_pct?, low, high))
    };
    let series = |name: &str, point_of: &dyn Fn(usize) -> Option<ChartPoint>| ChartSeries {
        name: name.to_owned(),
        points: (0..arms.len()).filter_map(point_of).collect(),
    };
    let all = [
        series("work", &|at| point(at, arms[at].0, judged_outcome_name(counted, arms[at].0))),
        series("time", &|at| point(at, arms[at].1, judged_outcome_name(measured, arms[at].1))),
        series("time, p99", &|at| point(at, arms[at].1, SLOWEST)),
    ];
    let mde = measured.mde.as_ref().and_then(|mde| mde.achieved_pct).map_or_else(
        || "too few for a minimum detectable effect".to_owned(),
        |pct| format!("minimum detectable effect {pct:.1}%"),
    );
    Some(Chart {
        id: CHART.to_owned(),
        title: "Work and time: the same variants by both clocks".to_owned(),
        kind: ChartKind::Table,
        x: Axis {
            label: "variant".to_owned(),
            categories: arms.iter().map(|(arm, _)| arm.name.clone()).collect(),
            ..Axis::default()
        },
        y: Axis {
            label: format!("overhead; work: {}, time: {}", worked.title, definition.title),
            unit: "%".to_owned(),
            ..Axis::default()
        },
        series: all.into_iter().filter(|series| !series.points.is_empty()).collect(),
        note: format!(
            "Work is counted in instructions; time was measured afterwards on this host, in {} rounds ({mde}).",
            measured.rounds_done
        ),
    })
}
