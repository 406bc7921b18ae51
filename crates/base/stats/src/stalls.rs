//! Stall detection from load completions, latencies and the harness's own ticker.
//!
//! # Invariants
//! Never treats silence as speed: a bin without completions is a stall.

use crate::moments::median;

/// A bin is stalled below this share of the baseline's median rate.
const STALLED_SHARE: f64 = 0.1;
/// Stalled bins in a row that make a stall: one may be chance.
const STALLED_BINS: usize = 2;
/// Completions that a bin must be expected to hold. Poisson counts around 30 fall
/// below 3 less than once in 10^9 bins, so that chance makes no stall.
const EXPECTED_IN_BIN: f64 = 30.0;
/// Wider bins than this would call anything shorter than two of them smooth.
const WIDEST_BIN_US: u64 = 10_000_000;
/// A latency stall is above this multiple of the baseline's p99...
const LATENCY_MULTIPLE: u64 = 10;
/// ...and never below this.
const LATENCY_FLOOR_US: u64 = 100_000;
/// A 10 ms ticker of toll's own that comes later than this marks a stall of the harness.
pub const HARNESS_LATE_US: u64 = 50_000;

/// A stretch without service, on the clock of its bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    pub begin_us: u64,
    pub end_us: u64,
}

impl Stall {
    #[must_use]
    pub fn length_us(self) -> u64 {
        self.end_us.saturating_sub(self.begin_us)
    }

    /// True if the two overlap in time: a stall beside a harness stall may not be the server's.
    #[must_use]
    pub fn overlaps(self, other: Stall) -> bool {
        self.begin_us < other.end_us && other.begin_us < self.end_us
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallTotals {
    pub count: usize,
    pub total_us: u64,
    pub longest_us: u64,
}

#[must_use]
pub fn stall_totals(stalls: &[Stall]) -> StallTotals {
    StallTotals {
        count: stalls.len(),
        total_us: stalls.iter().map(|s| s.length_us()).sum(),
        longest_us: stalls.iter().map(|s| s.length_us()).max().unwrap_or(0),
    }
}

/// Completions of the load in one short bin, and the slowest that it saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadBin {
    pub end_us: u64,
    pub width_us: u64,
    pub completions: u64,
    /// From the intended start, of those completed in the bin.
    pub latency_us_max: u64,
    /// Age, at the bin's end, of the oldest that has not completed.
    pub oldest_us: u64,
}

impl LoadBin {
    fn begin_us(&self) -> u64 {
        self.end_us.saturating_sub(self.width_us)
    }
}

/// Throughput of a normal bin, measured on the baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThroughputRule {
    /// So many bins are taken together.
    pub bins_per_group: usize,
    /// Completions a second, median over the baseline's (widened) bins.
    pub median_per_s: f64,
}

/// Reason why throughput stalls cannot be distinguished from chance.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StallRuleError {
    #[error("the baseline has no bins: throughput stalls cannot be detected")]
    NoBins,
    /// Either that slow, or windows too short to hold bins that wide.
    #[error(
        "at {per_s:.1} completions/s no bin of up to 10 s holds 30 of them: throughput stalls cannot be \
         detected, use a busier load or longer windows"
    )]
    TooSlow { per_s: f64 },
}

impl ThroughputRule {
    /// The rule of the baseline's windows, one slice of bins for each. Bins are taken together,
    /// never across windows, until the median bin holds at least 30 completions.
    ///
    /// # Errors
    /// No bins, or so few completions that no bin of up to 10 s holds 30.
    pub fn from_baseline(windows: &[&[LoadBin]]) -> Result<Self, StallRuleError> {
        let all = || windows.iter().copied().flatten();
        let completions: u64 = all().map(|bin| bin.completions).sum();
        let width_us: u64 = all().map(|bin| bin.width_us).sum();
        if width_us == 0 {
            return Err(StallRuleError::NoBins);
        }
        let per_s = completions as f64 * 1e6 / width_us as f64;
        let mean_width_us = (width_us / all().count() as u64).max(1);
        let longest = windows.iter().map(|bins| bins.len()).max().unwrap_or(0);
        let widest = longest.min((WIDEST_BIN_US / mean_width_us) as usize);
        let mut widened = 1;
        while widened <= widest {
            let wide: Vec<LoadBin> = windows.iter().flat_map(|bins| group_bins(bins, widened)).collect();
            let counts: Vec<f64> = wide.iter().map(|bin| bin.completions as f64).collect();
            if median(&counts) >= EXPECTED_IN_BIN {
                let rates: Vec<f64> = wide.iter().map(completions_per_s).collect();
                return Ok(ThroughputRule { bins_per_group: widened, median_per_s: median(&rates) });
            }
            // By a quarter each time: a handful of steps, and never much wider than needed.
            widened += widened.div_ceil(4);
        }
        Err(StallRuleError::TooSlow { per_s })
    }

    /// Stretches of at least two consecutive bins below 10% of the median. A gap between bins ends a stretch:
    /// nothing was recorded in it.
    #[must_use]
    pub fn stalls(&self, window: &[LoadBin]) -> Vec<Stall> {
        let bins = group_bins(window, self.bins_per_group);
        let stalled = |bin: &LoadBin| completions_per_s(bin) < STALLED_SHARE * self.median_per_s;
        bins.chunk_by(|a, b| stalled(a) == stalled(b) && is_adjacent(a, b))
            .filter(|run| run.len() >= STALLED_BINS && stalled(&run[0]))
            .map(|run| Stall { begin_us: run[0].begin_us(), end_us: run[run.len() - 1].end_us })
            .collect()
    }
}

/// What a request must exceed, from its intended start, to make a latency stall: 10 times the baseline's
/// p99, at least 100 ms.
#[must_use]
pub fn latency_stall_threshold_us(baseline_p99_us: u64) -> u64 {
    baseline_p99_us.saturating_mul(LATENCY_MULTIPLE).max(LATENCY_FLOOR_US)
}

/// Stretches in which some request was under way that took (or had waited) longer than `threshold_us`.
///
/// A request that completes in a bin after L began L before the bin's end, to within the bin's width; its
/// whole life is the stall, cut at the window's begin. Overlapping ones are one stall.
#[must_use]
pub fn latency_stalls(window: &[LoadBin], threshold_us: u64) -> Vec<Stall> {
    let window_begin = window.first().map_or(0, LoadBin::begin_us);
    let mut stalls = Vec::new();
    for bin in window {
        let slowest = bin.latency_us_max.max(bin.oldest_us);
        if slowest > threshold_us {
            let begin_us = bin.end_us.saturating_sub(slowest).max(window_begin);
            merge_stall(&mut stalls, Stall { begin_us, end_us: bin.end_us });
        }
    }
    stalls
}

/// Stretches in which toll's own ticker did not run, from (`mono_us`, `late_us`) of its ticks in order of
/// time. The harness measured nothing then, and whatever else stalled in it may be its doing.
#[must_use]
pub fn harness_stalls(ticks: &[(u64, u64)]) -> Vec<Stall> {
    let mut stalls = Vec::new();
    for &(mono_us, late_us) in ticks.iter().filter(|&&(_, late_us)| late_us > HARNESS_LATE_US) {
        merge_stall(&mut stalls, Stall { begin_us: mono_us.saturating_sub(late_us), end_us: mono_us });
    }
    stalls
}

/// Adds a stall that ends no earlier than those before it, and merges it with the stalls it touches.
fn merge_stall(stalls: &mut Vec<Stall>, mut next: Stall) {
    while let Some(last) = stalls.last().filter(|last| last.end_us >= next.begin_us) {
        next.begin_us = next.begin_us.min(last.begin_us);
        stalls.pop();
    }
    stalls.push(next);
}

/// Takes bins together; a remainder at the end of a stretch without gaps is left out.
fn group_bins(bins: &[LoadBin], by: usize) -> Vec<LoadBin> {
    let together = |group: &[LoadBin]| LoadBin {
        end_us: group[group.len() - 1].end_us,
        width_us: group.iter().map(|bin| bin.width_us).sum(),
        completions: group.iter().map(|bin| bin.completions).sum(),
        latency_us_max: group.iter().map(|bin| bin.latency_us_max).max().unwrap_or(0),
        oldest_us: group[group.len() - 1].oldest_us,
    };
    bins.chunk_by(is_adjacent).flat_map(|run| run.chunks_exact(by)).map(together).collect()
}

/// True if `next` begins where `bin` ends, to within half a bin of jitter.
fn is_adjacent(bin: &LoadBin, next: &LoadBin) -> bool {
    next.begin_us() <= bin.end_us + bin.width_us.max(1) / 2
}

fn completions_per_s(bin: &LoadBin) -> f64 {
    bin.completions as f64 * 1e6 / bin.width_us.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(completions: &[u64]) -> Vec<LoadBin> {
        let bin = |(i, &completions): (usize, &u64)| LoadBin {
            end_us: (i as u64 + 1) * 100_000,
            width_us: 100_000,
            completions,
            ..LoadBin::default()
        };
        completions.iter().enumerate().map(bin).collect()
    }

    fn spans(stalls: &[Stall]) -> Vec<(u64, u64)> {
        stalls.iter().map(|s| (s.begin_us / 1000, s.end_us / 1000)).collect()
    }

    #[test]
    fn two_empty_bins_in_a_row_are_a_stall_and_one_is_not() {
        let baseline = bins(&[100; 50]);
        let rule = ThroughputRule::from_baseline(&[&baseline]).unwrap();
        assert_eq!((rule.bins_per_group, rule.median_per_s), (1, 1000.0));
        type Case = (&'static [u64], &'static [(u64, u64)]);
        let cases: [Case; 5] = [
            (&[100, 0, 100, 0, 100], &[]),
            (&[100, 9, 9, 100], &[(100, 300)]),
            (&[100, 10, 10, 100], &[]),
            (&[0, 0, 0, 100, 0, 0], &[(0, 300), (400, 600)]),
            (&[], &[]),
        ];
        for (completions, want) in cases {
            assert_eq!(spans(&rule.stalls(&bins(completions))), want, "{completions:?}");
        }
    }

    #[test]
    fn a_slow_load_gets_wider_bins_until_thirty_are_expected() {
        let baseline = bins(&[7; 100]);
        let rule = ThroughputRule::from_baseline(&[&baseline, &baseline]).unwrap();
        assert!(rule.bins_per_group == 5 && (rule.median_per_s - 70.0).abs() < 1e-9, "{rule:?}");
        // Four empty bins are no longer enough: not two wide ones.
        let mut window = [7; 40];
        window[10..14].fill(0);
        assert!(rule.stalls(&bins(&window)).is_empty());
        window[10..20].fill(0);
        assert_eq!(spans(&rule.stalls(&bins(&window))), [(1000, 2000)]);
    }

    #[test]
    fn a_load_too_slow_for_any_bin_is_not_judged() {
        let slow = bins(&[0, 1, 0, 0].repeat(100));
        let error = ThroughputRule::from_baseline(&[&slow]).unwrap_err();
        assert_eq!(error, StallRuleError::TooSlow { per_s: 2.5 });
        assert_eq!(ThroughputRule::from_baseline(&[&[]]), Err(StallRuleError::NoBins));
    }

    #[test]
    fn a_gap_between_bins_is_not_counted_as_stalled_time() {
        let rule = ThroughputRule { bins_per_group: 1, median_per_s: 1000.0 };
        let mut window = bins(&[100, 0, 0, 0, 100]);
        window.remove(2);
        assert!(rule.stalls(&window).is_empty());
        let wide = ThroughputRule { bins_per_group: 2, median_per_s: 1000.0 };
        let mut window = bins(&[0, 0, 0, 0, 0, 0]);
        window.remove(1);
        assert_eq!(spans(&wide.stalls(&window)), [(200, 600)]);
    }

    #[test]
    fn late_bins_are_judged_by_their_rate() {
        let rule = ThroughputRule { bins_per_group: 1, median_per_s: 1000.0 };
        let late =
            |end_us, width_us, completions| LoadBin { end_us, width_us, completions, ..LoadBin::default() };
        // 30 in 400 ms is 7.5% of the rate, though 30% of a normal bin's count.
        let window = [late(400_000, 400_000, 30), late(500_000, 100_000, 5), late(600_000, 100_000, 90)];
        assert_eq!(spans(&rule.stalls(&window)), [(0, 500)]);
    }

    #[test]
    fn a_slow_request_is_a_stall_for_as_long_as_it_was_under_way() {
        let mut window = bins(&[50; 30]);
        window[20].latency_us_max = 900_000;
        window[12].oldest_us = 150_000;
        window[5].latency_us_max = 99_000;
        assert_eq!(spans(&latency_stalls(&window, latency_stall_threshold_us(2_000))), [(1150, 2100)]);
        assert_eq!(spans(&latency_stalls(&window, latency_stall_threshold_us(50_000))), [(1200, 2100)]);
        window[3].latency_us_max = 5_000_000;
        assert_eq!(spans(&latency_stalls(&window[2..], 1_000_000)), [(200, 400)]);
    }

    #[test]
    fn only_ticks_more_than_50_ms_late_are_stalls_of_the_harness() {
        let ticks = [(1_000_000, 50_000), (2_000_000, 50_001), (2_060_000, 70_000), (9_000_000, 300_000)];
        let stalls = harness_stalls(&ticks);
        assert_eq!(spans(&stalls), [(1949, 2060), (8700, 9000)]);
        let totals = stall_totals(&stalls);
        assert_eq!((totals.count, totals.longest_us), (2, 300_000));
        assert_eq!(totals.total_us, 110_001 + 300_000);
        assert!(stalls[0].overlaps(Stall { begin_us: 0, end_us: 1_950_000 }));
        assert!(!stalls[0].overlaps(Stall { begin_us: 2_060_000, end_us: 3_000_000 }));
    }
}
