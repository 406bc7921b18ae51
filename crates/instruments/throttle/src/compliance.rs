//! Compliance with the latency limit, window by window, and the misses expected by chance.
//!
//! A window is ten seconds of all probe answers, pauses included: the latency that users had. Its p99 rests
//! on a few of the slowest answers, so a window can miss the limit by chance. The expected rate of such
//! misses is computed from the undisturbed answers and reported too. Knows no clock.

use super::baseline::Baseline;
use super::controller::LIMIT_QUANTILE;
use super::sketch::Sketch;
use serde::Serialize;

pub const WINDOW_S: f64 = 10.0;
/// One-sided, 5%.
const Z_ONE_SIDED_95: f64 = 1.645;

#[derive(Debug)]
pub struct LimitCompliance {
    answers: Sketch,
    samples_in_window: u64,
    /// The dump's begin: what was asked before it is none of its windows'.
    dump_start_s: f64,
    window_start_s: f64,
    windows: WindowCounts,
    /// Sum over windows of the chance that an undisturbed one would have been kept.
    expected_by_chance: f64,
}

/// Windows of a dump by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WindowCounts {
    pub length_s: f64,
    /// Windows with answers enough for a p99.
    pub judged: u32,
    /// Windows whose measured p99 was within the limit.
    pub kept: u32,
    /// Windows whose p99 exceeded the limit by more than its error (one-sided, 95%).
    pub broken_surely: u32,
    /// Percent of the judged.
    pub kept_pct: Option<f64>,
    /// Percent of windows expected within the limit without a dump, given chance and the window length.
    pub kept_undisturbed_pct: Option<f64>,
}

impl LimitCompliance {
    pub fn new(now_s: f64) -> Self {
        Self {
            answers: Sketch::new(f64::INFINITY),
            samples_in_window: 0,
            dump_start_s: now_s,
            window_start_s: now_s,
            windows: WindowCounts { length_s: WINDOW_S, ..WindowCounts::default() },
            expected_by_chance: 0.0,
        }
    }

    /// Counts in the window in which it comes, however long ago it was asked: the slowest answers are the last to come.
    pub fn add_sample(&mut self, sent_s: f64, latency_us: f64) {
        if sent_s >= self.dump_start_s {
            self.answers.add(sent_s, latency_us.max(1e-3).ln());
            self.samples_in_window += 1;
        }
    }

    /// Closes the window if it is over. `max_toll` is the latency limit in it.
    pub fn advance(&mut self, now_s: f64, baseline: &Baseline, max_toll: f64) {
        if now_s - self.window_start_s < WINDOW_S {
            return;
        }
        if let (Some(now), Some(base)) =
            (self.answers.estimate(LIMIT_QUANTILE), baseline.estimate(LIMIT_QUANTILE))
        {
            let overhead = now.relative_to(base);
            let limit = max_toll.ln_1p();
            self.windows.judged += 1;
            self.windows.kept += u32::from(overhead.ln <= limit);
            self.windows.broken_surely += u32::from(overhead.ln - Z_ONE_SIDED_95 * overhead.error > limit);
            let above = baseline.share_above(LIMIT_QUANTILE, 1.0 + max_toll).unwrap_or(0.0);
            self.expected_by_chance += chance_within_limit(self.samples_in_window, above);
        }
        self.answers.clear();
        self.samples_in_window = 0;
        self.window_start_s = now_s;
    }

    pub fn windows(&self) -> WindowCounts {
        let pct =
            |part: f64| (self.windows.judged > 0).then(|| 100.0 * part / f64::from(self.windows.judged));
        WindowCounts {
            kept_pct: pct(f64::from(self.windows.kept)),
            kept_undisturbed_pct: pct(self.expected_by_chance),
            ..self.windows
        }
    }
}

/// Probability that of `answers` no more than one in a hundred lies above a bound which each passes with
/// probability `above`: the binomial distribution, summed from its first term.
fn chance_within_limit(answers: u64, above: f64) -> f64 {
    let n = answers as f64;
    if above <= 0.0 {
        return 1.0;
    }
    let most = (n * (1.0 - LIMIT_QUANTILE)).floor() as u64;
    let mut term_ln = n * (-above).ln_1p();
    let mut sum = term_ln.exp();
    for k in 1..=most.min(answers) {
        term_ln += ((n - k as f64 + 1.0) / k as f64).ln() + (above / (1.0 - above)).ln();
        sum += term_ln.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::baseline::ProbeSample;
    use super::*;

    /// Logarithms evenly over one unit from `low`, so that the p99 lies at `low + 0.99`.
    fn evenly(count: u32, low: f64) -> impl Iterator<Item = f64> {
        (0..count).map(move |i| low + f64::from(i) / f64::from(count))
    }

    #[test]
    fn a_window_is_kept_or_broken_by_its_own_p99() {
        let mut baseline = Baseline::default();
        let before: Vec<ProbeSample> =
            evenly(10_000, 6.0).map(|ln_us| ProbeSample { sent_s: 0.0, ln_us }).collect();
        baseline.add_pause(&before);
        let mut compliance = LimitCompliance::new(0.0);
        for (window, slower) in [0.0, 0.05, 0.15, 0.5].into_iter().enumerate() {
            let begin_s = 10.0 * window as f64;
            for ln in evenly(1_000, 6.0 + slower) {
                compliance.add_sample(begin_s + 1.0, ln.exp());
            }
            compliance.advance(begin_s + 5.0, &baseline, 0.10);
            compliance.advance(begin_s + 10.0, &baseline, 0.10);
        }
        // A window of fifty answers has no p99, and is not judged.
        evenly(50, 9.0).for_each(|ln| compliance.add_sample(41.0, ln.exp()));
        compliance.advance(50.0, &baseline, 0.10);
        let windows = compliance.windows();
        assert_eq!((windows.judged, windows.kept, windows.broken_surely), (4, 2, 2));
        assert_eq!(windows.kept_pct, Some(50.0));
        assert_eq!(windows.kept_undisturbed_pct, Some(100.0));
    }

    #[test]
    fn what_a_server_that_stood_still_answers_late_counts_in_the_window_in_which_it_comes() {
        let mut baseline = Baseline::default();
        let before: Vec<ProbeSample> =
            evenly(10_000, 6.0).map(|ln_us| ProbeSample { sent_s: 0.0, ln_us }).collect();
        baseline.add_pause(&before);
        let mut compliance = LimitCompliance::new(0.0);
        // Asked before the dump: of no window.
        evenly(500, 15.0).for_each(|ln| compliance.add_sample(-1.0, ln.exp()));
        evenly(500, 6.0).for_each(|ln| compliance.add_sample(2.0, ln.exp()));
        compliance.advance(10.0, &baseline, 0.10);
        // Asked in the first window, answered in the second.
        evenly(500, 15.0).for_each(|ln| compliance.add_sample(7.0, ln.exp()));
        evenly(500, 6.0).for_each(|ln| compliance.add_sample(16.0, ln.exp()));
        compliance.advance(20.0, &baseline, 0.10);
        let windows = compliance.windows();
        assert_eq!((windows.judged, windows.kept, windows.broken_surely), (2, 1, 1));
    }

    #[test]
    fn chance_is_the_binomial_distribution() {
        // 1,000 answers of which 1% lie above: ten or fewer in 58.3% of windows.
        assert!((chance_within_limit(1_000, 0.01) - 0.583).abs() < 0.001);
        assert!((chance_within_limit(1_000, 0.005) - 0.987).abs() < 0.001);
        assert!((chance_within_limit(100, 0.5) - 8e-29).abs() < 1e-27);
        assert_eq!(chance_within_limit(1_000, 0.0), 1.0);
    }
}
