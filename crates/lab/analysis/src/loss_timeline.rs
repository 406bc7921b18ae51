//! Chart of packet loss over time within trials.

use super::run_data::RunData;
use super::windows::Window;
use std::collections::BTreeMap;
use toll_record::{Axis, Chart, ChartKind, ChartSeries, Losses};

/// Most lines: the arms with the highest losses are drawn.
const MOST_LINES: usize = 12;
/// Most points of a line.
const MOST_POINTS: usize = 100;

/// A line for each arm with stamped packets and losses. `None` if there are none.
pub fn chart(recorded: &RunData, windows: &[Window]) -> Option<Chart> {
    let losses: BTreeMap<u32, &Losses> =
        recorded.artefacts.iter().filter_map(|a| Some((a.trial, a.losses.as_ref()?))).collect();
    let mut lines: Vec<(u64, ChartSeries)> = Vec::new();
    for (arm, planned) in recorded.plan.arms.iter().enumerate() {
        let of_arm: Vec<&Losses> =
            windows.iter().filter(|w| w.arm == arm).filter_map(|w| losses.get(&w.trial).copied()).collect();
        let lost = of_arm.iter().flat_map(|losses| &losses.lost).sum();
        if lost > 0 {
            lines.push((lost, ChartSeries { name: planned.name.clone(), points: loss_points(&of_arm) }));
        }
    }
    lines.sort_by_key(|(lost, _)| std::cmp::Reverse(*lost));
    let left_out = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    (!lines.is_empty()).then(|| Chart {
        id: "loss-by-time".into(),
        title: "Packets lost, by when they were sent".into(),
        kind: ChartKind::Line,
        x: Axis { label: "since the first packet".into(), unit: "s".into(), ..Axis::default() },
        y: Axis { label: "lost of those sent then".into(), unit: "%".into(), ..Axis::default() },
        series: lines.into_iter().map(|(_, series)| series).collect(),
        note: match left_out {
            0 => "All trials of a variant together.".into(),
            n => format!("All trials of a variant together; {n} variants that lost less are left out."),
        },
    })
}

/// Middle of each stretch in seconds, and the share lost in it over all trials.
fn loss_points(trials: &[&Losses]) -> Vec<(f64, f64, Option<f64>, Option<f64>)> {
    let bins = trials.iter().map(|losses| losses.sent.len()).max().unwrap_or(0);
    let width = bins.div_ceil(MOST_POINTS).max(1);
    let bin_s = trials.first().map_or(0.0, |losses| losses.bin_us as f64 / 1e6);
    let within = |of: &[u64], from: usize| of.iter().skip(from).take(width).sum::<u64>();
    let stretch = |from: usize| {
        let sent: u64 = trials.iter().map(|losses| within(&losses.sent, from)).sum();
        let lost: u64 = trials.iter().map(|losses| within(&losses.lost, from)).sum();
        let middle_s = (from as f64 + width as f64 / 2.0) * bin_s;
        (sent > 0).then(|| (middle_s, 100.0 * lost as f64 / sent as f64, None, None))
    };
    (0..bins).step_by(width).filter_map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_trials_and_stretches_in_which_nothing_was_sent_have_none() {
        let one = Losses { bin_us: 10_000, sent: vec![10, 0, 20], lost: vec![5, 0, 0] };
        let other = Losses { bin_us: 10_000, sent: vec![10], lost: vec![0] };
        let points = loss_points(&[&one, &other]);
        assert_eq!(points, [(0.005, 25.0, None, None), (0.025, 0.0, None, None)]);
    }

    #[test]
    fn a_long_trial_has_wider_stretches() {
        let long = Losses { bin_us: 10_000, sent: vec![1; 250], lost: vec![1; 250] };
        let points = loss_points(&[&long]);
        assert_eq!((points.len(), points[0]), (84, (0.015, 100.0, None, None)));
    }
}
