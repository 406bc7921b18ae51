//! Estimate of the undisturbed probe latency, with its uncertainty.
//!
//! Learned in short pauses of the dump. The users' load drifts by the minute, and a p99 of the hundred
//! samples of one pause is almost meaningless. So two quantities are tracked. The *scale* is the recent
//! median, which few samples estimate well. The *shape* is the distance of the other quantiles from the
//! median. It changes slowly and is collected over many pauses. The undisturbed p99 is scale times shape.
//!
//! A moment in which the host stalled would dominate a p99 of ten seconds. The limit would then allow
//! latencies that users never have without the dump. So seconds with such a moment have a small weight, until
//! they are frequent. Knows no clock.

use super::controller::LIMIT_QUANTILE;
use super::sketch::{Estimate, Sketch};

/// Minutes matter, seconds do not: users' days drift by the minute, and three pauses lie in it.
const SCALE_HALF_LIFE_S: f64 = 40.0;
const SHAPE_HALF_LIFE_S: f64 = 600.0;
/// A pause whose median lies so many standard errors off tells of another regime, not of chance.
const SHIFT_ERRORS: f64 = 3.0;
/// And so far: less is drift, which the half-life follows.
const SHIFT_MIN: f64 = 0.08;
/// A pause of fewer answers tells no shift.
const SHIFT_SAMPLES: usize = 30;

/// Answers in a second, at the usual probe rate.
pub const SAMPLES_PER_SECOND: usize = 100;
/// A second of which more lies beyond the usual p99 is an odd one: by chance it is one second in 270.
const STALL_SHARE: f64 = 0.04;
/// What an answer of an odd second weighs in the shape.
pub const STALL_WEIGHT: f64 = 0.1;
/// So many odd seconds in a row are the rule.
const MAX_STALLS_IN_A_ROW: u32 = 3;

const NOISE_QUANTILE: f64 = 0.95;
/// What a new second weighs against all before it.
const NOISE_WEIGHT: f64 = 0.05;
/// A second counts as no further off than so many times what is usual, or than so many times this.
const NOISE_CLIP: f64 = 2.0;
const NOISE_MIN: f64 = 0.05;

/// Probe answer: the time of its query, and the logarithm of its latency in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeSample {
    pub sent_s: f64,
    pub ln_us: f64,
}

#[derive(Debug, Clone)]
pub struct Baseline {
    scale: Sketch,
    shape: Sketch,
    /// The shape with odd seconds in full: what chance and the host do to windows.
    shape_unweighted: Sketch,
    stalls_in_a_row: u32,
    /// Variance of a second's p95, as a logarithm, beyond what its few answers explain.
    noise_variance: f64,
    noise_seconds: u32,
    /// Medians before the dump began: what the dump itself leaves behind (a buffer pool full of other
    /// pages) is in every pause, and only told by these.
    initial_median: Option<f64>,
}

impl Default for Baseline {
    fn default() -> Self {
        Self {
            scale: Sketch::new(SCALE_HALF_LIFE_S),
            shape: Sketch::new(SHAPE_HALF_LIFE_S),
            shape_unweighted: Sketch::new(SHAPE_HALF_LIFE_S),
            stalls_in_a_row: 0,
            noise_variance: 0.0,
            noise_seconds: 0,
            initial_median: None,
        }
    }
}

impl Baseline {
    /// Adds the answers of one pause (or of the time before the dump). Returns the shift of the median as a
    /// logarithm, if it exceeds chance and drift.
    pub fn add_pause(&mut self, pause: &[ProbeSample]) -> Option<f64> {
        let fresh = Sketch::from_samples(pause.iter().map(|answer| answer.ln_us));
        let shift = self.median_shift(&fresh, pause.len());
        // Against what was known before: a host that shifts again and again wobbles.
        self.update_noise(pause);
        if shift.is_some() {
            self.scale.clear();
        }
        for answer in pause {
            self.scale.add(answer.sent_s, answer.ln_us);
        }
        let median = self.scale.quantile(0.5)?;
        self.add_to_shape(pause, median);
        if self.initial_median.is_none() {
            self.initial_median = Some(median);
            self.update_noise(pause);
        }
        shift
    }

    fn add_to_shape(&mut self, pause: &[ProbeSample], median: f64) {
        let seconds = || pause.chunks(SAMPLES_PER_SECOND);
        let is_first = self.initial_median.is_none();
        for (at, second) in seconds().enumerate() {
            let usual = if is_first {
                // Nothing is usual yet but the other seconds.
                let others = seconds().enumerate().filter(|(other, _)| *other != at);
                let usual = Sketch::from_samples(
                    others.flat_map(|(_, second)| second).map(|answer| answer.ln_us - median),
                );
                usual.estimate(LIMIT_QUANTILE).map(|p99| p99.ln)
            } else {
                self.shape.quantile(LIMIT_QUANTILE)
            };
            let is_odd = usual.is_some_and(|usual| is_stalled_second(second, median + usual));
            self.stalls_in_a_row = if is_odd { self.stalls_in_a_row + 1 } else { 0 };
            let weighs =
                if is_odd && self.stalls_in_a_row <= MAX_STALLS_IN_A_ROW { STALL_WEIGHT } else { 1.0 };
            for answer in second {
                self.shape.add_weighted(answer.sent_s, answer.ln_us - median, weighs);
                self.shape_unweighted.add(answer.sent_s, answer.ln_us - median);
            }
        }
    }

    /// True if the host stalled for a part of this second, compared with usual seconds.
    pub fn is_stalled(&self, second: &[ProbeSample]) -> bool {
        self.estimate(LIMIT_QUANTILE).is_some_and(|usual| is_stalled_second(second, usual.ln))
    }

    fn update_noise(&mut self, pause: &[ProbeSample]) {
        let Some(usual) = self.estimate(NOISE_QUANTILE) else { return };
        for second in pause.chunks(SAMPLES_PER_SECOND) {
            let own = Sketch::from_samples(second.iter().map(|answer| answer.ln_us));
            let Some(own) = own.estimate(NOISE_QUANTILE) else { continue };
            // One second in which the host stood still is no habit of it.
            let most = NOISE_CLIP * self.noise().max(NOISE_MIN);
            let off = (own.ln - usual.ln).clamp(-most, most);
            let beyond_chance = (off * off - own.error * own.error).max(0.0);
            self.noise_seconds += 1;
            self.noise_variance += (beyond_chance - self.noise_variance)
                * (1.0 / f64::from(self.noise_seconds)).max(NOISE_WEIGHT);
        }
    }

    /// The host's own noise: standard deviation of the logarithm of the undisturbed p95 between seconds,
    /// beyond chance.
    pub fn noise(&self) -> f64 {
        self.noise_variance.sqrt()
    }

    fn median_shift(&self, fresh: &Sketch, samples: usize) -> Option<f64> {
        if samples < SHIFT_SAMPLES {
            return None;
        }
        let shift = fresh.estimate(0.5)?.relative_to(self.scale.estimate(0.5)?);
        let error = shift.error.hypot(self.noise());
        (shift.ln.abs() > (SHIFT_ERRORS * error).max(SHIFT_MIN)).then_some(shift.ln)
    }

    /// Logarithm of the undisturbed latency that the share `p` lies below, microseconds.
    pub fn estimate(&self, p: f64) -> Option<Estimate> {
        let (scale, shape) = (self.scale.estimate(0.5)?, self.shape.estimate(p)?);
        Some(Estimate { ln: scale.ln + shape.ln, error: scale.error.hypot(shape.error) })
    }

    /// Share of undisturbed answers that take longer than `factor` times the undisturbed latency at `p`.
    pub fn share_above(&self, p: f64, factor: f64) -> Option<f64> {
        Some(self.shape_unweighted.share_above(self.shape.quantile(p)? + factor.ln()))
    }

    /// Change of the undisturbed median since before the dump, as a logarithm.
    pub fn drift_since_start(&self) -> Option<f64> {
        Some(self.scale.quantile(0.5)? - self.initial_median?)
    }
}

fn is_stalled_second(second: &[ProbeSample], usual_p99: f64) -> bool {
    let beyond = second.iter().filter(|answer| answer.ln_us > usual_p99).count();
    beyond as f64 > STALL_SHARE * SAMPLES_PER_SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers whose logarithms lie evenly between `low` and `low + 1`, in a scattered order.
    fn pause(at_s: f64, low: f64, count: u32) -> Vec<ProbeSample> {
        let place = |i: u32| f64::from(i * 7_919 % count) / f64::from(count);
        let answer = |i| ProbeSample { sent_s: at_s + f64::from(i) * 0.01, ln_us: low + place(i) };
        (0..count).map(answer).collect()
    }

    #[test]
    fn a_drift_moves_the_scale_and_leaves_the_shape() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.add_pause(&pause(0.0, 6.0, 1_000)), None);
        for look in 1..=60 {
            // 3% in each of 60 pauses, 20 s apart: six times as slow in the end.
            let shift = baseline.add_pause(&pause(f64::from(look) * 20.0, 6.0 + 0.03 * f64::from(look), 100));
            assert_eq!(shift, None, "pause {look}");
        }
        let p99 = baseline.estimate(0.99).unwrap();
        // The scale follows with a lag of a half-life or so, 0.1 here.
        assert!((p99.ln - 8.79).abs() < 0.15, "{p99:?}");
        let spread = p99.ln - baseline.estimate(0.5).unwrap().ln;
        assert!((spread - 0.49).abs() < 0.06, "{spread}");
        assert!((baseline.drift_since_start().unwrap() - 1.8).abs() < 0.15);
    }

    #[test]
    fn another_regime_is_told_from_chance_and_believed_at_once() {
        let mut baseline = Baseline::default();
        baseline.add_pause(&pause(0.0, 6.0, 1_000));
        let shift = baseline.add_pause(&pause(20.0, 7.0, 100)).unwrap();
        assert!((shift - 1.0).abs() < 0.05, "{shift}");
        assert!((baseline.estimate(0.5).unwrap().ln - 7.5).abs() < 0.05);
        assert_eq!(baseline.add_pause(&pause(40.0, 8.0, 10)), None, "ten answers tell nothing");
    }

    #[test]
    fn a_moment_in_which_the_host_stood_still_is_no_habit_until_it_is_the_rule() {
        let stalled = |at_s: f64| {
            let mut second = pause(at_s, 6.0, 100);
            // For 60 ms nothing was answered.
            second[40..46].iter_mut().for_each(|answer| answer.ln_us = 9.0);
            second
        };
        let p99 = |baseline: &Baseline| baseline.estimate(LIMIT_QUANTILE).unwrap().ln;
        let mut baseline = Baseline::default();
        let before: Vec<ProbeSample> =
            (0..6).flat_map(|s| if s == 2 { stalled(2.0) } else { pause(f64::from(s), 6.0, 100) }).collect();
        baseline.add_pause(&before);
        assert!((p99(&baseline) - 6.99).abs() < 0.03, "{}", p99(&baseline));
        // What windows have to expect is told from all: six in 600.
        assert!((baseline.share_above(LIMIT_QUANTILE, 1.1).unwrap() - 0.01).abs() < 1e-3);
        baseline.add_pause(&stalled(20.0));
        assert!((p99(&baseline) - 6.99).abs() < 0.03, "{}", p99(&baseline));
        for look in 3..=10 {
            baseline.add_pause(&stalled(f64::from(look) * 20.0));
        }
        assert!((p99(&baseline) - 9.0).abs() < 0.03, "{}", p99(&baseline));
    }

    #[test]
    fn a_host_that_wobbles_is_told_from_one_that_does_not() {
        let (mut steady, mut wobbly) = (Baseline::default(), Baseline::default());
        for second in 0..40 {
            let at_s = f64::from(second);
            steady.add_pause(&pause(at_s, 6.0, 100));
            wobbly.add_pause(&pause(at_s, 6.0 + if second % 2 == 0 { 0.15 } else { -0.15 }, 100));
        }
        assert!(steady.noise() < 0.02, "{}", steady.noise());
        assert!((wobbly.noise() - 0.15).abs() < 0.08, "{}", wobbly.noise());
    }

    #[test]
    fn nothing_is_known_before_anything_was_seen() {
        let baseline = Baseline::default();
        assert_eq!((baseline.estimate(0.5), baseline.share_above(0.99, 1.1)), (None, None));
        let mut baseline = baseline;
        baseline.add_pause(&pause(0.0, 6.0, 1_000));
        // Evenly over one unit: of the last 1%, nothing lies 2% of that further on.
        assert_eq!(baseline.share_above(0.99, 1.1), Some(0.0));
        assert!((baseline.share_above(0.5, 1.1).unwrap() - 0.405).abs() < 0.02);
    }
}
