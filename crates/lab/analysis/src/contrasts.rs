//! Contrasts: an arm's outcome as a multiple of another arm's.
//!
//! The plan defines them. They are paired by rounds on the log scale, like every ratio of a run, and each
//! interval is independent. A contrast of overheads compares two arms with the same third one.

use super::compare::ArmWindows;
use toll_record::{Axis, Chart, ChartKind, ChartSeries, Contrast, ContrastResult, Plan};
use toll_stats::{PairError, Pairs, ZeroHandling};

/// All contrasts of the plan, in its order.
pub fn estimate_contrasts(plan: &Plan, windows: &[ArmWindows]) -> Vec<ContrastResult> {
    plan.contrasts.iter().map(|contrast| estimate_contrast(plan, contrast, windows)).collect()
}

fn estimate_contrast(plan: &Plan, contrast: &Contrast, windows: &[ArmWindows]) -> ContrastResult {
    let none = ArmWindows::default();
    let of_arm = |name: &str| {
        let position = plan.arms.iter().position(|arm| arm.name == name);
        position.map_or(&none, |i| &windows[i])
    };
    let (upper, lower) = (of_arm(&contrast.of), of_arm(&contrast.over));
    let mut result = ContrastResult {
        name: contrast.name.clone(),
        title: contrast.title.clone(),
        outcome: contrast.outcome.clone(),
        of: contrast.of.clone(),
        over: contrast.over.clone(),
        factor: contrast.factor,
        beyond: contrast.beyond.clone(),
        pairs: 0,
        ratio: None,
        ci95: None,
        method: String::new(),
    };
    if let Some(beyond) = &contrast.beyond {
        return estimate_overhead_contrast(plan, upper, lower, of_arm(beyond), result);
    }
    let values = |arm: &ArmWindows| arm.values(&contrast.outcome);
    let pairs = match toll_stats::log_ratios(&values(upper), &values(lower), ZeroHandling::Refuse) {
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

/// Contrast of overheads on the log scale, without the host's drift, in rounds where all three arms have
/// values.
fn estimate_overhead_contrast(
    plan: &Plan,
    upper: &ArmWindows,
    lower: &ArmWindows,
    beyond: &ArmWindows,
    mut result: ContrastResult,
) -> ContrastResult {
    let outcome = result.outcome.as_str();
    let rounds = plan.order.len();
    let overheads =
        |arm: &ArmWindows| pair_overheads(arm, beyond, outcome).map(|pairs| pairs.by_round(rounds));
    let (a, b): (Vec<f64>, Vec<f64>) = match (overheads(upper), overheads(lower)) {
        (Ok(upper), Ok(lower)) => upper.into_iter().zip(lower).filter_map(|(a, b)| Some((a?, b?))).unzip(),
        (Err(error), _) | (_, Err(error)) => {
            return ContrastResult { method: format!("none: {error}"), ..result };
        }
    };
    result.pairs = a.len() as u32;
    match toll_stats::ratio_of_means(&a, &b, plan.alpha, plan.seed) {
        Ok((ratio, interval)) => {
            result.ratio = Some(ratio / result.factor);
            result.ci95 = Some([interval.low / result.factor, interval.high / result.factor]);
            result.method = "ratio of means, sign-flip".into();
        }
        Err(reason) => result.method = format!("none: {reason}"),
    }
    result
}

fn pair_overheads(arm: &ArmWindows, beyond: &ArmWindows, outcome: &str) -> Result<Pairs, PairError> {
    let mut pairs =
        toll_stats::log_ratios(&arm.values(outcome), &beyond.values(outcome), ZeroHandling::Refuse)?;
    if let Some((of_arm, of_beyond)) = arm.drifts.get(outcome).zip(beyond.drifts.get(outcome)) {
        pairs.subtract_drift(of_arm, of_beyond);
    }
    Ok(pairs)
}

/// Chart with a row for each contrast. `None` if there are none.
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
    let label = |c: &ContrastResult| {
        let tolls = c.beyond.as_ref().map_or_else(String::new, |beyond| format!(", both beyond {beyond}"));
        format!("{} ({} over {}{tolls})", c.title, c.of, format_multiple(c))
    };
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
pub fn format_multiple(contrast: &ContrastResult) -> String {
    if contrast.factor == 1.0 {
        contrast.over.clone()
    } else {
        format!("{} times {}", contrast.factor, contrast.over)
    }
}
