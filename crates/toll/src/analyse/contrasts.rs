//! How many times another arm's is one arm's outcome?
//!
//! As the plan's contrasts say; paired by rounds on the log scale, like every ratio of a run. Each interval stands for
//! itself.

use super::compare::ArmWindows;
use toll_record::{Axis, Chart, ChartKind, ChartSeries, Contrast, ContrastResult, Plan};
use toll_stats::Zeros;

/// All of the plan's, in its order.
pub fn find(plan: &Plan, windows: &[ArmWindows]) -> Vec<ContrastResult> {
    plan.contrasts.iter().map(|contrast| of(plan, contrast, windows)).collect()
}

fn of(plan: &Plan, contrast: &Contrast, windows: &[ArmWindows]) -> ContrastResult {
    let values = |name: &str| {
        let position = plan.arms.iter().position(|arm| arm.name == name);
        position.map_or_else(Vec::new, |i| windows[i].values(&contrast.outcome))
    };
    let mut result = ContrastResult {
        name: contrast.name.clone(),
        title: contrast.title.clone(),
        outcome: contrast.outcome.clone(),
        of: contrast.of.clone(),
        over: contrast.over.clone(),
        factor: contrast.factor,
        pairs: 0,
        ratio: None,
        ci95: None,
        method: String::new(),
    };
    let pairs = match toll_stats::log_ratios(&values(&contrast.of), &values(&contrast.over), Zeros::Refuse) {
        Ok(pairs) => pairs,
        Err(error) => return ContrastResult { method: format!("none: {error}"), ..result },
    };
    let times = |ln: f64| ln.exp() / contrast.factor;
    result.pairs = pairs.d.len() as u32;
    result.ratio = (!pairs.d.is_empty()).then(|| times(toll_stats::mean(&pairs.d)));
    match toll_stats::sign_flip(&pairs.d, plan.alpha, plan.seed).interval {
        Ok(interval) => {
            result.ci95 = Some([times(interval.low), times(interval.high)]);
            result.method = "sign-flip".into();
        }
        Err(reason) => result.method = format!("none: {reason}"),
    }
    result
}

/// A row for each, for the page; `None` without any.
pub fn chart(contrasts: &[ContrastResult]) -> Option<Chart> {
    let ends =
        |contrast: &ContrastResult| contrast.ci95.map_or((None, None), |[low, high]| (Some(low), Some(high)));
    let points: Vec<_> = contrasts
        .iter()
        .enumerate()
        .filter_map(|(i, contrast)| {
            let (low, high) = ends(contrast);
            Some((i as f64, contrast.ratio?, low, high))
        })
        .collect();
    let label = |c: &ContrastResult| format!("{} ({} over {})", c.title, c.of, multiple(c));
    (!points.is_empty()).then(|| Chart {
        id: "contrasts".into(),
        title: "Arms as multiples of each other".into(),
        kind: ChartKind::Table,
        x: Axis {
            label: "ratio".into(),
            categories: contrasts.iter().map(label).collect(),
            ..Axis::default()
        },
        y: Axis { label: "times".into(), ..Axis::default() },
        series: vec![ChartSeries { name: "times".into(), points }],
        note: "Paired by rounds; 1 is where both are the same.".into(),
    })
}

/// `5 times direct-1`, or the arm alone.
pub fn multiple(contrast: &ContrastResult) -> String {
    if contrast.factor == 1.0 {
        contrast.over.clone()
    } else {
        format!("{} times {}", contrast.factor, contrast.over)
    }
}
