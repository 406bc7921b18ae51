//! Ratio of two latency quantiles over all windows, from merged histograms.
//!
//! A single window may hold too few events for its own quantile. Consecutive rounds are merged into blocks:
//! the smallest ones that give every block enough events on both sides. The blocks are the units of the
//! interval. So a variant and its baseline are compared over the same stretch of time, as within a round.
//!
//! # Invariants
//! Never averages percentiles.

use crate::bootstrap::{MIN_BOOTSTRAP_ROUNDS, bca};
use crate::interval::{Interval, IntervalError};
use crate::signflip::{rounds_for_interval, sign_flip};
use std::ops::Range;

/// Fewest events beyond a quantile, in each block, for it to be worth a number.
const MIN_TAIL_EVENTS: f64 = 10.0;

/// The windows of one round: (value, count) in any order, values as the histogram records them.
#[derive(Debug, Clone, Copy)]
pub struct WindowPair<'a> {
    pub arm: &'a [(u64, u64)],
    pub baseline: &'a [(u64, u64)],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantileRatio {
    /// Quantile of each side's windows merged, in the unit of the values.
    pub arm: u64,
    pub baseline: u64,
    /// ln arm - ln baseline: of all windows merged, or the mean of the blocks' where `used_sign_flips`.
    pub ln_ratio: f64,
    pub blocks: Blocks,
    /// True if the blocks were too few to resample, so that their signs were flipped.
    pub used_sign_flips: bool,
    /// Over whole blocks, of `ln_ratio`.
    pub interval: Result<Interval, IntervalError>,
}

/// Consecutive rounds put together, as evenly as they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    pub count: usize,
    pub rounds: usize,
}

impl Blocks {
    /// Rounds of each block.
    fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        let begin = move |block: usize| block * self.rounds / self.count;
        (0..self.count).map(move |block| begin(block)..begin(block + 1))
    }

    /// Fewest and most rounds in a block.
    #[must_use]
    pub fn sizes(self) -> (usize, usize) {
        (self.rounds / self.count, self.rounds.div_ceil(self.count))
    }

    /// As many as have `need` events each on every side, a side being the events of each round.
    fn with_min_events(sides: &[Vec<u64>], need: u64) -> Result<Self, IntervalError> {
        let rounds = sides.iter().map(Vec::len).min().unwrap_or(0);
        let is_full = |events: &[u64]| events.iter().sum::<u64>() >= need;
        let are_full =
            |blocks: &Blocks| blocks.ranges().all(|b| sides.iter().all(|side| is_full(&side[b.clone()])));
        let have = sides.iter().map(|side| side.iter().sum()).min().unwrap_or(0);
        let mut candidates = (1..=rounds).rev().map(|count| Blocks { count, rounds });
        candidates.find(are_full).ok_or(IntervalError::TooFewEvents { have, need })
    }
}

/// ln of the arm's `quantile` (0..1) over the baseline's, by blocks of rounds with 10 / (1 - quantile) events on
/// either side (1,000 for p99).
///
/// From 12 blocks on: of all windows merged, with a BCa interval over whole blocks, whose histograms are merged again
/// inside every draw. From 6 (at 95%): the mean of the blocks' own, with the interval of sign flips.
///
/// # Errors
/// All rounds together have too few events on one side. With too few blocks the quantiles stand and the interval is
/// missing.
pub fn quantile_ratio(
    pairs: &[WindowPair],
    quantile: f64,
    alpha: f64,
    seed: u64,
) -> Result<QuantileRatio, IntervalError> {
    let arm = MergedWindows::new(pairs.iter().map(|pair| pair.arm));
    let baseline = MergedWindows::new(pairs.iter().map(|pair| pair.baseline));
    let need = events_for_quantile(quantile);
    let blocks = Blocks::with_min_events(&[arm.count_events(), baseline.count_events()], need)?;
    let (arm, baseline) = (arm.merge_blocks(blocks), baseline.merge_blocks(blocks));
    let log = |rows: &[usize]| {
        (arm.quantile(rows, quantile) as f64).ln() - (baseline.quantile(rows, quantile) as f64).ln()
    };
    let everything: Vec<usize> = (0..blocks.count).collect();
    let need = rounds_for_interval(alpha);
    let too_few = match pairs.len() {
        have if have < need => IntervalError::TooFewRounds { have, need },
        _ => IntervalError::TooFewBlocks { have: blocks.count, need },
    };
    let merged = QuantileRatio {
        arm: arm.quantile(&everything, quantile),
        baseline: baseline.quantile(&everything, quantile),
        ln_ratio: log(&everything),
        blocks,
        used_sign_flips: false,
        interval: Err(too_few),
    };
    if blocks.count >= MIN_BOOTSTRAP_ROUNDS {
        let interval = bca(blocks.count, alpha, seed, log);
        return Ok(QuantileRatio { interval, ..merged });
    }
    if blocks.count < need {
        return Ok(merged);
    }
    let by_block: Vec<f64> = everything.iter().map(|&block| log(&[block])).collect();
    let found = sign_flip(&by_block, alpha, seed);
    Ok(QuantileRatio { ln_ratio: found.mean, used_sign_flips: true, interval: found.interval, ..merged })
}

/// The `quantile` of all `windows` merged, and of each block of them that has the events for it.
///
/// # Errors
/// All windows together have too few events.
pub fn block_quantiles(windows: &[&[(u64, u64)]], quantile: f64) -> Result<(u64, Vec<u64>), IntervalError> {
    let merged = MergedWindows::new(windows.iter().copied());
    let blocks = Blocks::with_min_events(&[merged.count_events()], events_for_quantile(quantile))?;
    let merged = merged.merge_blocks(blocks);
    let everything: Vec<usize> = (0..blocks.count).collect();
    let of_blocks = everything.iter().map(|&block| merged.quantile(&[block], quantile)).collect();
    Ok((merged.quantile(&everything, quantile), of_blocks))
}

/// Events that a block needs before its `quantile` is worth a number: 10 / (1 - quantile).
#[must_use]
pub fn events_for_quantile(quantile: f64) -> u64 {
    // 10 / (1 - .99) is 999.99...: rounding dust must neither add an event nor take one.
    (MIN_TAIL_EVENTS / (1.0 - quantile) - 1e-6).ceil() as u64
}

/// Windows on one grid of values, as running counts: the quantile of any choice of windows is then a binary
/// search, with no histogram built.
struct MergedWindows {
    values: Vec<u64>,
    /// For each window, events at or below each of the values.
    cumulative: Vec<Vec<u64>>,
}

impl MergedWindows {
    fn new<'a>(windows: impl Iterator<Item = &'a [(u64, u64)]> + Clone) -> Self {
        let mut values: Vec<u64> = windows.clone().flatten().map(|&(value, _)| value).collect();
        values.sort_unstable();
        values.dedup();
        let running = windows.map(|window| cumulative_counts(&values, window)).collect();
        MergedWindows { values, cumulative: running }
    }

    /// The windows of each block in one.
    fn merge_blocks(&self, blocks: Blocks) -> MergedWindows {
        let sums = |block: Range<usize>| {
            let at = |value: usize| self.cumulative[block.clone()].iter().map(|window| window[value]).sum();
            (0..self.values.len()).map(at).collect()
        };
        MergedWindows { values: self.values.clone(), cumulative: blocks.ranges().map(sums).collect() }
    }

    /// Of each window.
    fn count_events(&self) -> Vec<u64> {
        self.cumulative.iter().map(|window| window.last().copied().unwrap_or(0)).collect()
    }

    /// The smallest value with at least quantile x events at or below it; 0 where there are no events.
    fn quantile(&self, rows: &[usize], quantile: f64) -> u64 {
        let at_or_below = |value: usize| rows.iter().map(|&row| self.cumulative[row][value]).sum::<u64>();
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

fn cumulative_counts(values: &[u64], window: &[(u64, u64)]) -> Vec<u64> {
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
        let merged = MergedWindows::new([&quick[..], &slow[..]].into_iter());
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
        assert_eq!((got.blocks, got.used_sign_flips), (Blocks { count: 14, rounds: 14 }, false));
        let some = quantile_ratio(&pairs[..8], 0.99, 0.05, 1).unwrap();
        assert!(some.used_sign_flips && some.interval.unwrap().contains(1.1_f64.ln()), "{some:?}");
        assert!(some.interval.unwrap().contains(some.ln_ratio));
        let few = quantile_ratio(&pairs[..5], 0.99, 0.05, 1).unwrap();
        assert_eq!(few.interval, Err(IntervalError::TooFewRounds { have: 5, need: 6 }));
        assert!(few.arm > few.baseline);
    }

    #[test]
    fn thin_windows_are_put_together_until_each_block_has_its_events() {
        let window = |scale: u64| -> Vec<(u64, u64)> { (0..300).map(|i| ((1_000 + i) * scale, 1)).collect() };
        let (slow, quick) = (window(11), window(10));
        let pairs = vec![WindowPair { arm: &slow, baseline: &quick }; 50];
        let got = quantile_ratio(&pairs, 0.99, 0.05, 1).unwrap();
        // Four windows hold 1,200 events, three 900.
        assert_eq!((got.blocks, got.blocks.sizes()), (Blocks { count: 12, rounds: 50 }, (4, 5)));
        assert!(!got.used_sign_flips && (got.interval.unwrap().low - 1.1_f64.ln()).abs() < 1e-9, "{got:?}");
        let fewer = quantile_ratio(&pairs[..25], 0.99, 0.05, 1).unwrap();
        assert_eq!((fewer.blocks.count, fewer.used_sign_flips), (6, true));
        assert!((fewer.ln_ratio - 1.1_f64.ln()).abs() < 1e-9 && fewer.interval.is_ok(), "{fewer:?}");
        let fewest = quantile_ratio(&pairs[..23], 0.99, 0.05, 1).unwrap();
        assert_eq!(fewest.interval, Err(IntervalError::TooFewBlocks { have: 5, need: 6 }));
        // One empty side and there is no block.
        let gone = [WindowPair { arm: &slow, baseline: &[] }; 50];
        let none = Err(IntervalError::TooFewEvents { have: 0, need: 1000 });
        assert_eq!(quantile_ratio(&gone, 0.99, 0.05, 1), none);
        let (all, by_block) = block_quantiles(&vec![&slow[..]; 50], 0.99).unwrap();
        assert_eq!((all, by_block), (14_256, vec![14_256; 12]));
        assert!(block_quantiles(&[&slow], 0.99).is_err() && block_quantiles(&[], 0.5).is_err());
    }

    #[test]
    fn blocks_hold_every_round_once_and_in_order() {
        for (count, rounds) in [(1, 1), (3, 7), (12, 50), (12, 12), (7, 100)] {
            let blocks = Blocks { count, rounds };
            assert_eq!(blocks.ranges().flatten().collect::<Vec<_>>(), (0..rounds).collect::<Vec<_>>());
            let (least, most) = blocks.sizes();
            assert!(blocks.ranges().all(|block| (least..=most).contains(&block.len())), "{blocks:?}");
        }
    }

    #[test]
    fn a_p99_needs_a_thousand_events_on_either_side() {
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
            Err(IntervalError::TooFewEvents { have: 999, need: 1000 })
        );
        assert!(quantile_ratio(&[], 0.99, 0.05, 1).is_err());
        assert!(quantile_ratio(&[WindowPair { arm: &[], baseline: &[] }], 0.99, 0.05, 1).is_err());
    }
}
