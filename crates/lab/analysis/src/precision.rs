//! Precision over time: interval width after each part of a run, and its extrapolation.

use super::compare::{Comparison, verdict_outcome_name};
use super::windows::Window;
use std::collections::BTreeMap;
use toll_record::{Axis, Chart, ChartKind, ChartSeries, Compare, Plan, Role};
use toll_sys::count_format::format_count;

/// Most points of the line.
const MAX_POINTS: usize = 12;
/// Extrapolation beyond the run's end, seconds.
const EXTRAPOLATION_S: f64 = 600.0;

/// Half-width of the intervals on judged outcomes, median over treatments, by minutes since the first window.
///
/// `None` for fewer rounds than an interval needs, or if outcomes are not ratios.
pub fn chart(plan: &Plan, windows: &[Window], compared: &[BTreeMap<&str, Comparison>]) -> Option<Chart> {
    let begun = windows.iter().map(|w| w.begin_us).min()?;
    let rounds = windows.iter().map(|w| w.round + 1).max()?;
    let ends_s = |round: u32| {
        let of_round = windows.iter().filter(|w| w.round < round).map(|w| w.end_us);
        of_round.max().map(|end| (end - begun) as f64 / 1e6)
    };
    let judged: Vec<&Comparison> = (0..plan.arms.len())
        .filter(|&i| plan.arms[i].role == Role::Treatment)
        .filter_map(|i| compared[i].get(verdict_outcome_name(plan, i)))
        .filter(|c| c.measure() == Compare::LogRatio && c.outcome.ci95_pct.is_some())
        .collect();
    // The width at the end is what the report shows; before, it differs by what was known until then.
    let half_after = |round: u32| -> Option<f64> {
        let halves: Vec<f64> = judged
            .iter()
            .filter_map(|c| {
                let [low, high] = c.outcome.ci95_pct?;
                let until: Vec<f64> = c
                    .pairs
                    .d
                    .iter()
                    .zip(&c.pairs.rounds)
                    .filter(|(_, r)| **r < round as usize)
                    .map(|(d, _)| *d)
                    .collect();
                Some(
                    (high - low) / 2.0 * half_width(&until, plan.alpha)?
                        / half_width(&c.pairs.d, plan.alpha)?,
                )
            })
            .collect();
        (!halves.is_empty() && halves.len() == judged.len()).then(|| toll_stats::median(&halves))
    };
    let fewest = toll_stats::rounds_for_interval(plan.alpha) as u32;
    let step = ((rounds.saturating_sub(fewest)) as usize).div_ceil(MAX_POINTS).max(1);
    let mut at: Vec<u32> = (fewest..rounds).step_by(step).collect();
    at.push(rounds);
    let line: Vec<(f64, f64)> =
        at.into_iter().filter_map(|round| Some((ends_s(round)?, half_after(round)?))).collect();
    let &(end_s, half) = line.last().filter(|_| line.len() > 1)?;
    let then_s = end_s + EXTRAPOLATION_S;
    let then = half * (end_s / then_s).sqrt();
    let points = |line: &[(f64, f64)]| line.iter().map(|(s, half)| (s / 60.0, *half, None, None)).collect();
    Some(Chart {
        id: "precision".into(),
        title: "Width of the intervals by time spent".into(),
        kind: ChartKind::Line,
        x: Axis { label: "time since the first window".into(), unit: "min".into(), ..Axis::default() },
        y: Axis {
            label: "half of an interval's width, median".into(),
            unit: "points".into(),
            ..Axis::default()
        },
        series: vec![
            ChartSeries { name: "so far".into(), points: points(&line) },
            ChartSeries { name: "with more time".into(), points: points(&[(end_s, half), (then_s, then)]) },
        ],
        note: format!(
            "After {} in {:.0} min overheads are known to ±{half:.1} points (median over {}); ten minutes more would make \
             that ±{then:.1}.",
            format_count(rounds.into(), "round"),
            end_s / 60.0,
            format_count(judged.len() as u64, "treatment"),
        ),
    })
}

/// Half-width of a t interval for the mean of `d`. `None` if there is no spread.
fn half_width(d: &[f64], alpha: f64) -> Option<f64> {
    let freedom = u32::try_from(d.len()).ok()?.checked_sub(1).filter(|n| *n > 0)?;
    let half = toll_stats::student_t_quantile(1.0 - alpha / 2.0, freedom) * toll_stats::sd(d)
        / (d.len() as f64).sqrt();
    (half > 0.0).then_some(half)
}
