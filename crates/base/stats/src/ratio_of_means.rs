//! Ratio of two effects measured in the same rounds, with its interval.
//!
//! The ratio r of two means makes the mean of a - r b zero. The interval holds every r that the signs of
//! these differences do not contradict (E. Fieller, JRSS B 16 (1954), with the sign-flip test in place of
//! Student's t). Noise of a round that both effects share widens it little. The ratio is unbounded where b is
//! not distinguishable from zero.

use crate::interval::{self, Interval, IntervalError};
use crate::moments::mean;
use crate::signflip::{SignVectors, SubsetSums, rounds_for_interval};

/// Ratios beyond this count as unbounded.
const MAX_RATIO: f64 = 1e6;
/// Halvings of a bracket: to 12 digits of it.
const BISECTIONS: usize = 40;

/// Mean of `a` over mean of `b` and its interval, from paired values.
///
/// # Errors
/// Too few pairs, or a value that is not finite; [`IntervalError::Unbounded`] where `b` is not distinguishable
/// from zero.
pub fn ratio_of_means(a: &[f64], b: &[f64], alpha: f64, seed: u64) -> Result<(f64, Interval), IntervalError> {
    let need = rounds_for_interval(alpha);
    interval::check_sample(a, need, alpha)?;
    interval::check_sample(b, need, alpha)?;
    let flips = FlippedSums::new(a, b, seed);
    if flips.p_below() <= alpha {
        let ratio = mean(a) / mean(b);
        let end = |side: f64| flips.find_bound(ratio, side, alpha);
        if let (Some(low), Some(high)) = (end(-1.0), end(1.0)) {
            return Ok((ratio, Interval { low, high }));
        }
    }
    Err(IntervalError::Unbounded)
}

/// Sums of both sides, as they are and under each sign vector.
struct FlippedSums {
    sums: (f64, f64),
    flipped: Vec<(f64, f64)>,
}

impl FlippedSums {
    fn new(a: &[f64], b: &[f64], seed: u64) -> Self {
        let vectors = SignVectors::draw(a.len().min(b.len()), seed);
        let side = |values: &[f64]| {
            let all: f64 = values.iter().sum();
            let flipped = SubsetSums::new(values).sums_for(&vectors).into_iter();
            (all, flipped.map(move |positive| 2.0 * positive - all).collect::<Vec<_>>())
        };
        let ((all_a, a), (all_b, b)) = (side(a), side(b));
        FlippedSums { sums: (all_a, all_b), flipped: a.into_iter().zip(b).collect() }
    }

    /// Share of the sign vectors, the observed one among them, under which the statistic is as large.
    fn tail_share(&self, statistic: impl Fn((f64, f64)) -> f64) -> f64 {
        let observed = statistic(self.sums).abs() * (1.0 - 1e-12);
        let as_large = self.flipped.iter().filter(|sums| statistic(**sums).abs() >= observed).count();
        (as_large + 1) as f64 / (self.flipped.len() + 1) as f64
    }

    fn p(&self, ratio: f64) -> f64 {
        self.tail_share(|(a, b)| a - ratio * b)
    }

    /// Of the side below the line.
    fn p_below(&self) -> f64 {
        self.tail_share(|(_, b)| b)
    }

    /// The last ratio on this side that is not contradicted; `None`: there is no last one.
    fn find_bound(&self, ratio: f64, side: f64, alpha: f64) -> Option<f64> {
        let (mut inside, mut step) = (ratio, 1e-3 * ratio.abs().max(1e-3));
        let mut outside = loop {
            let next = ratio + side * step;
            if next.abs() > MAX_RATIO {
                return None;
            }
            if self.p(next) <= alpha {
                break next;
            }
            (inside, step) = (next, 2.0 * step);
        };
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (inside + outside);
            *if self.p(middle) > alpha { &mut inside } else { &mut outside } = middle;
        }
        Some(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded_rng::SeededRng;

    /// Two effects in company: their noise is that of the round, and each one's own.
    fn effects(rounds: usize, of: (f64, f64), noise: f64, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut draws = SeededRng::new(seed, 3);
        let mut about = |centre: f64, shared: f64| centre + shared + noise * (draws.next_fraction() - 0.5);
        let shared: Vec<f64> = (0..rounds).map(|_| about(0.0, 0.0)).collect();
        shared.iter().map(|shared| (about(of.0, *shared), about(of.1, *shared))).unzip()
    }

    #[test]
    fn effects_without_noise_have_their_ratio_and_hardly_an_interval() {
        let (a, b) = effects(12, (0.02, 0.08), 1e-6, 1);
        let (ratio, interval) = ratio_of_means(&a, &b, 0.05, 0).unwrap();
        assert!((ratio - 0.25).abs() < 1e-4 && interval.contains(0.25), "{ratio} {interval:?}");
        assert!(interval.high - interval.low < 1e-3, "{interval:?}");
    }

    #[test]
    fn the_true_ratio_lies_inside_as_often_as_is_said() {
        const TRIES: u64 = 400;
        for rounds in [10, 30] {
            let inside = (0..TRIES).filter(|seed| {
                let (a, b) = effects(rounds, (0.03, 0.1), 0.08, 1_000 + seed);
                ratio_of_means(&a, &b, 0.05, *seed).is_ok_and(|(_, interval)| interval.contains(0.3))
            });
            let inside = inside.count();
            // Three standard deviations below 95%, and not all: an interval of everything would be none.
            assert!((367..TRIES as usize).contains(&inside), "{rounds} rounds: {inside} of {TRIES}");
        }
    }

    #[test]
    fn each_end_is_where_the_signs_begin_to_contradict() {
        let (a, b) = effects(14, (0.05, 0.1), 0.05, 7);
        let (_, Interval { low, high }) = ratio_of_means(&a, &b, 0.05, 0).unwrap();
        let p = |ratio: f64| {
            let d: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - ratio * b).collect();
            crate::sign_flip(&d, 0.05, 0).p
        };
        for (end, outward) in [(low, -1e-6), (high, 1e-6)] {
            assert!(
                p(end - outward) > 0.05 && p(end + outward) <= 0.05,
                "{end}: {} {}",
                p(end),
                p(end + outward)
            );
        }
    }

    #[test]
    fn below_a_line_that_may_be_zero_there_is_no_bound() {
        let (a, b) = effects(12, (0.05, 0.0), 0.1, 2);
        assert_eq!(ratio_of_means(&a, &b, 0.05, 0), Err(IntervalError::Unbounded));
        let few = ratio_of_means(&a[..5], &b[..5], 0.05, 0);
        assert_eq!(few, Err(IntervalError::TooFewRounds { have: 5, need: 6 }));
        assert_eq!(ratio_of_means(&[f64::NAN; 8], &[1.0; 8], 0.05, 0), Err(IntervalError::NotFinite));
    }
}
