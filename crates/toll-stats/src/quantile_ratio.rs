//! How do two latency quantiles compare over all windows? Never averages percentiles: histograms are merged.

use crate::bootstrap::bca;
use crate::interval::{Interval, NoInterval};

/// Fewest events beyond a quantile, in each window, for it to be worth a number.
const EVENTS_BEYOND: f64 = 10.0;

/// The windows of one round: (value, count) in any order, values as the histogram records them.
#[derive(Debug, Clone, Copy)]
pub struct WindowPair<'a> {
    pub arm: &'a [(u64, u64)],
    pub baseline: &'a [(u64, u64)],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantileRatio {
    /// Quantile of each side's merged windows, in the unit of the values.
    pub arm: u64,
    pub baseline: u64,
    /// BCa over whole rounds, of ln arm - ln baseline.
    pub interval: Result<Interval, NoInterval>,
}

/// ln of the arm's `quantile` (0..1) over the baseline's, each from its windows merged; inside every
/// bootstrap draw the histograms of the rounds drawn are merged again.
///
/// # Errors
/// No rounds, or a window with fewer than 10 / (1 - quantile) events (1,000 for p99). With fewer than 12
/// rounds the quantiles stand and the interval is missing.
pub fn quantile_ratio(
    pairs: &[WindowPair],
    quantile: f64,
    alpha: f64,
    seed: u64,
) -> Result<QuantileRatio, NoInterval> {
    if pairs.is_empty() {
        return Err(NoInterval::TooFewRounds { have: 0, need: crate::bootstrap::BOOTSTRAP_ROUNDS });
    }
    let arm = Merged::new(pairs.iter().map(|pair| pair.arm));
    let baseline = Merged::new(pairs.iter().map(|pair| pair.baseline));
    let need = events_for_quantile(quantile);
    let have = arm.fewest_events().min(baseline.fewest_events());
    if have < need {
        return Err(NoInterval::TooFewEvents { have, need });
    }
    let everything: Vec<usize> = (0..pairs.len()).collect();
    let log = |side: &Merged, rows: &[usize]| (side.quantile(rows, quantile) as f64).ln();
    Ok(QuantileRatio {
        arm: arm.quantile(&everything, quantile),
        baseline: baseline.quantile(&everything, quantile),
        interval: bca(pairs.len(), alpha, seed, |rows| log(&arm, rows) - log(&baseline, rows)),
    })
}

/// Events that a window needs before its `quantile` is worth a number: 10 / (1 - quantile).
#[must_use]
pub fn events_for_quantile(quantile: f64) -> u64 {
    // 10 / (1 - .99) is 999.99...: rounding dust must neither add an event nor take one.
    (EVENTS_BEYOND / (1.0 - quantile) - 1e-6).ceil() as u64
}

/// Windows on one grid of values, as running counts: the quantile of any choice of windows is then a binary
/// search, with no histogram built.
struct Merged {
    values: Vec<u64>,
    /// For each window, events at or below each of the values.
    running: Vec<Vec<u64>>,
}

impl Merged {
    fn new<'a>(windows: impl Iterator<Item = &'a [(u64, u64)]> + Clone) -> Self {
        let mut values: Vec<u64> = windows.clone().flatten().map(|&(value, _)| value).collect();
        values.sort_unstable();
        values.dedup();
        let running = windows.map(|window| running_counts(&values, window)).collect();
        Merged { values, running }
    }

    fn fewest_events(&self) -> u64 {
        self.running.iter().map(|window| window.last().copied().unwrap_or(0)).min().unwrap_or(0)
    }

    /// The smallest value with at least quantile x events at or below it; 0 where there are no events.
    fn quantile(&self, rows: &[usize], quantile: f64) -> u64 {
        let at_or_below = |value: usize| rows.iter().map(|&row| self.running[row][value]).sum::<u64>();
        let Some(last) = self.values.len().checked_sub(1) else { return 0 };
        let rank = ((quantile * at_or_below(last) as f64).ceil() as u64).max(1);
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = low + (high - low) / 2;
            if at_or_below(middle) < rank { low = middle + 1 } else { high = middle }
        }
        self.values[low]
    }
}

fn running_counts(values: &[u64], window: &[(u64, u64)]) -> Vec<u64> {
    let mut counts = vec![0; values.len()];
    for &(value, count) in window {
        counts[values.partition_point(|&v| v < value)] += count;
    }
    let mut total = 0;
    for count in &mut counts {
        total += *count;
        *count = total;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_windows_give_the_quantile_of_all_events_not_the_mean_of_quantiles() {
        let quick: Vec<(u64, u64)> = (1..=1000).map(|v| (v, 9)).collect();
        let slow = [(50_000, 1000)];
        let merged = Merged::new([&quick[..], &slow[..]].into_iter());
        assert_eq!(merged.quantile(&[0, 1], 0.5), 556);
        assert_eq!(merged.quantile(&[0, 1], 0.9), 1000);
        assert_eq!(merged.quantile(&[0, 1], 0.91), 50_000);
        assert_eq!(merged.quantile(&[0, 0], 0.99), 990);
        assert_eq!(merged.quantile(&[1, 1, 0], 0.5), 612);
    }

    #[test]
    fn a_tenth_more_latency_is_found_within_its_interval() {
        let window = |scale: u64, shift: u64| -> Vec<(u64, u64)> {
            (0..2_000).map(|i| ((1_000 + i + shift) * scale, 1)).collect()
        };
        let windows: Vec<_> = (0..14).map(|i| (window(110, i * 3), window(100, i * 3))).collect();
        let pairs: Vec<_> = windows.iter().map(|(arm, baseline)| WindowPair { arm, baseline }).collect();
        let got = quantile_ratio(&pairs, 0.99, 0.05, 1).unwrap();
        assert!(got.interval.unwrap().contains(1.1_f64.ln()), "{got:?}");
        let few = quantile_ratio(&pairs[..5], 0.99, 0.05, 1).unwrap();
        assert_eq!(few.interval, Err(NoInterval::TooFewRounds { have: 5, need: 12 }));
        assert!(few.arm > few.baseline);
    }

    #[test]
    fn a_p99_needs_a_thousand_events_in_every_window() {
        assert_eq!(
            (events_for_quantile(0.99), events_for_quantile(0.95), events_for_quantile(0.5)),
            (1000, 200, 20)
        );
        assert_eq!(events_for_quantile(0.9), 100);
        // Counts of one value add up.
        let just = [(5, 400), (5, 600)];
        let got = quantile_ratio(&[WindowPair { arm: &just, baseline: &just }], 0.99, 0.05, 1).unwrap();
        assert_eq!((got.arm, got.baseline), (5, 5));
        let (enough, few) = ([(5, 1000)], [(5, 999)]);
        let pairs = [WindowPair { arm: &enough, baseline: &few }];
        assert_eq!(
            quantile_ratio(&pairs, 0.99, 0.05, 1),
            Err(NoInterval::TooFewEvents { have: 999, need: 1000 })
        );
        assert!(quantile_ratio(&[], 0.99, 0.05, 1).is_err());
        assert!(quantile_ratio(&[WindowPair { arm: &[], baseline: &[] }], 0.99, 0.05, 1).is_err());
    }
}
