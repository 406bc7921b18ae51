//! Charts of packet losses by stage, and of ladder limits.
//!
//! Draws the results of `packet_accounting` and `limits`. Never computes its own.

use toll_record::{
    ArmResult, Axis, Chart, ChartKind, ChartPoint, ChartSeries, LedgerStage, LimitResult, Plan,
};
use toll_sys::number_format::capitalise;

/// Shares lost before each stage, by arm. `None` if nothing was lost, or nothing counted.
pub fn loss_chart(plan: &Plan, arms: &[ArmResult]) -> Option<Chart> {
    let mut counted: Vec<(&str, &ArmResult)> = plan
        .arms
        .iter()
        .zip(arms)
        .filter(|(_, arm)| arm.ledger.is_some())
        .map(|(planned, arm)| (planned.varied.first().map_or("", |(_, value)| value.as_str()), arm))
        .collect();
    // Arms that a scenario made by varying keys are grouped by the first key.
    let mut groups: Vec<&str> = Vec::new();
    for (group, _) in &counted {
        if !groups.contains(group) {
            groups.push(group);
        }
    }
    counted.sort_by_key(|(group, _)| groups.iter().position(|known| known == group));
    let stages = |arm: &'_ ArmResult| arm.ledger.iter().flat_map(|l| l.stages.clone()).collect::<Vec<_>>();
    let has_loss = |stage: &LedgerStage| stage.lost_pct.is_some_and(|pct| pct > 0.0);
    let mut names: Vec<String> = Vec::new();
    for stage in counted.iter().flat_map(|(_, arm)| stages(arm)).filter(has_loss) {
        if !names.contains(&stage.name) {
            names.push(stage.name);
        }
    }
    let series = |name: &String| {
        let share = |(at, (_, arm)): (usize, &(&str, &ArmResult))| -> Option<ChartPoint> {
            let stage = arm.ledger.as_ref()?.stages.iter().find(|stage| stage.name == *name)?;
            Some((at as f64, stage.lost_pct?, None, None))
        };
        ChartSeries {
            name: format!("before {name}"),
            points: counted.iter().enumerate().filter_map(share).collect(),
        }
    };
    (!names.is_empty()).then(|| Chart {
        id: "ledger".into(),
        title: "Packets lost on their way, by stage".into(),
        kind: ChartKind::Stacked,
        x: Axis {
            label: "variant".into(),
            categories: counted.iter().map(|(_, arm)| arm.name.clone()).collect(),
            ..Axis::default()
        },
        y: Axis { label: "lost of those first counted".into(), unit: "%".into(), ..Axis::default() },
        series: names.iter().map(series).collect(),
        note: "Means over trials; each part was lost before the stage that it is named by, after the one before.".into(),
    })
}

/// One chart for each kind of limit: the highest rung of every ladder.
pub fn limit_charts(limits: &[LimitResult]) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    for limit in limits {
        let id = format!("limit-{}", limit.name);
        let values = |of: fn(&(String, String)) -> &String| {
            limit.of.iter().map(of).cloned().collect::<Vec<_>>().join(", ")
        };
        let place = if limit.of.is_empty() { limit.name.clone() } else { values(|(_, value)| value) };
        let chart = match charts.iter_mut().find(|chart| chart.id == id) {
            Some(chart) => chart,
            None => {
                charts.push(Chart {
                    id,
                    title: capitalise(&limit.title),
                    kind: ChartKind::Bar,
                    x: Axis { label: values(|(key, _)| key), ..Axis::default() },
                    y: Axis { label: capitalise(&limit.title), unit: limit.unit.clone(), ..Axis::default() },
                    series: ["median of the rounds", "in every round"]
                        .map(|name| ChartSeries { name: name.into(), points: Vec::new() })
                        .to_vec(),
                    note: "0: not even the lowest rung holds. A bar that reaches the highest rung may end above it.".into(),
                });
                let last = charts.len() - 1;
                &mut charts[last]
            }
        };
        let at = chart.x.categories.len() as f64;
        chart.x.categories.push(place);
        let [low, high] = limit.ci95.map_or([None, None], |ends| ends.map(Some));
        chart.series[0].points.push((at, limit.median, low, high));
        chart.series[1].points.push((at, limit.in_all, None, None));
    }
    charts
}
