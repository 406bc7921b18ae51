//! Which effects do the signs of the differences not contradict? Never assumes a bell curve.
//!
//! Under the hypothesis that the true effect is theta, random order within each round makes d_i - theta
//! as likely to be positive as negative. p(theta) is the share of all sign vectors s with
//! |sum s_i (d_i - theta)| >= |sum (d_i - theta)|; the interval holds every theta with p(theta) > alpha.
//!
//! No search is needed. Split the rounds by sign into P and N: since (P + N)^2 <= (P - N)^2 exactly when
//! P N <= 0, the vector counts at theta if and only if theta lies between the mean of the d_i with s_i = +1
//! and the mean of those with s_i = -1. So p(theta), for theta above the mean, is the share of splits whose
//! larger mean reaches theta, and the ends of the interval are order statistics of these means.
//! (J. Hartigan, "Using subsample values as typical values", JASA 64 (1969), knows them as typical values.)

use crate::draws::{Draws, stream};
use crate::interval::{self, Interval, NoInterval};
use crate::moments::mean;

/// Up to here every sign vector is counted; above, [`SIGN_DRAWS`] of them are drawn.
const EXACT_ROUNDS: usize = 16;
/// Sign vectors in a drawn test, the observed one among them.
const SIGN_DRAWS: usize = 20_000;

/// What the sign-flip test says about paired differences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignFlip {
    /// Mean difference; NaN without data.
    pub mean: f64,
    /// Two-sided, for an effect of zero; 1 without data. Never below [`smallest_p`].
    pub p: f64,
    /// Coverage 1 - alpha; for log ratios, [`Interval::toll_pct`] turns it into percent.
    pub interval: Result<Interval, NoInterval>,
}

/// The sign-flip test of d = 0 and its inversion, an interval for the centre of d.
///
/// Exact up to 16 rounds. Above, 20,000 vectors drawn from `seed`, the observed one always among them, which
/// keeps the test valid (p is never too small on average). About 0.3 ms for 16 rounds in a release build.
#[must_use]
pub fn sign_flip(d: &[f64], alpha: f64, seed: u64) -> SignFlip {
    let checked = interval::check(d, rounds_for_interval(alpha), alpha);
    if d.is_empty() || d.iter().any(|v| !v.is_finite()) {
        let reason = checked.err().unwrap_or(NoInterval::NotFinite);
        return SignFlip { mean: f64::NAN, p: 1.0, interval: Err(reason) };
    }
    let centre = mean(d);
    // Splits are taken around the mean: two means of one split then have opposite signs, and no digits
    // are lost where the effect is large beside its spread.
    let centred: Vec<f64> = d.iter().map(|v| v - centre).collect();
    let mut splits = if d.len() <= EXACT_ROUNDS {
        Splits::all(&centred)
    } else {
        Splits::drawn(&centred, &mut Draws::new(seed, stream::SIGNS))
    };
    // Differences that should be ties come out unequal in the last digits; they count as ties.
    let spread = centred.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
    let tie = 1e-12 * spread + 4.0 * f64::EPSILON * centre.abs();
    let interval = checked.map(|()| {
        // p(theta) > alpha while at least this many splits reach theta.
        let reach = (alpha * splits.vectors() as f64 + 1e-9).floor() as usize;
        let (low, high) = splits.ends(reach.max(1));
        Interval { low: centre + low - tie, high: centre + high + tie }
    });
    SignFlip { mean: centre, p: splits.p(-centre, tie), interval }
}

/// The fewest rounds that can give an interval: the smallest n with 2^(1-n) <= alpha (6 for 95%, 8 for 99%).
///
/// With k arms under Holm no verdict can be significant before `rounds_for_interval(alpha / k)` rounds.
/// `usize::MAX` where no number of rounds would do (alpha below 1/20,000).
#[must_use]
pub fn rounds_for_interval(alpha: f64) -> usize {
    (1..=EXACT_ROUNDS + 1).find(|&n| smallest_p(n) <= alpha).unwrap_or(usize::MAX)
}

/// The smallest p that n rounds can give, 2^(1-n) up to 16 rounds: all signs alike, or all opposite.
#[must_use]
pub fn smallest_p(rounds: usize) -> f64 {
    if rounds > EXACT_ROUNDS { 1.0 / SIGN_DRAWS as f64 } else { 2.0 * 0.5_f64.powi(rounds as i32) }
}

/// For each sign vector but the observed one: the larger and the smaller of its two means.
struct Splits {
    above: Vec<f64>,
    below: Vec<f64>,
}

impl Splits {
    /// A vector and its opposite make the same split, so half of them are enough.
    fn all(centred: &[f64]) -> Self {
        let sums = SubsetSums::new(centred);
        let mut splits = Splits::with_capacity(1 << (centred.len() - 1));
        for mask in 1..(1_u64 << (centred.len() - 1)) {
            splits.push(sums.of(&[mask]), mask.count_ones() as usize, centred.len());
        }
        splits
    }

    fn drawn(centred: &[f64], draws: &mut Draws) -> Self {
        let sums = SubsetSums::new(centred);
        let mut splits = Splits::with_capacity(SIGN_DRAWS);
        let mut mask = vec![0_u64; centred.len().div_ceil(64)];
        let unused = mask.len() * 64 - centred.len();
        for _ in 1..SIGN_DRAWS {
            for word in &mut mask {
                *word = draws.bits();
            }
            if let Some(last) = mask.last_mut() {
                *last >>= unused;
            }
            let positive: u32 = mask.iter().map(|word| word.count_ones()).sum();
            splits.push(sums.of(&mask), positive as usize, centred.len());
        }
        splits
    }

    fn with_capacity(n: usize) -> Self {
        Splits { above: Vec::with_capacity(n), below: Vec::with_capacity(n) }
    }

    /// `sum` is over the `positive` of `n` centred differences, so the others sum to its opposite.
    fn push(&mut self, sum: f64, positive: usize, n: usize) {
        let (one, other) = if positive == 0 || positive == n {
            // All signs alike: as extreme as the data at every theta.
            (f64::INFINITY, f64::NEG_INFINITY)
        } else {
            (sum / positive as f64, -sum / (n - positive) as f64)
        };
        self.above.push(one.max(other));
        self.below.push(one.min(other));
    }

    /// Including the observed one.
    fn vectors(&self) -> usize {
        self.above.len() + 1
    }

    /// p at `theta`, counted from the mean.
    fn p(&self, theta: f64, tie: f64) -> f64 {
        let reached = if theta > 0.0 {
            self.above.iter().filter(|&&mean| mean + tie >= theta).count()
        } else {
            self.below.iter().filter(|&&mean| mean - tie <= theta).count()
        };
        (reached + 1) as f64 / self.vectors() as f64
    }

    /// The values that exactly `reach` splits reach, below and above the mean.
    fn ends(&mut self, reach: usize) -> (f64, f64) {
        let index = reach.min(self.above.len()) - 1;
        let (_, low, _) = self.below.select_nth_unstable_by(index, f64::total_cmp);
        let (_, high, _) = self.above.select_nth_unstable_by(index, |a, b| b.total_cmp(a));
        (*low, *high)
    }
}

/// Sums over any subset, eight members at a time.
struct SubsetSums {
    tables: Vec<[f64; 256]>,
}

impl SubsetSums {
    fn new(x: &[f64]) -> Self {
        let table = |chunk: &[f64]| {
            let mut sums = [0.0; 256];
            for (bit, value) in chunk.iter().enumerate() {
                for mask in 0..1_usize << bit {
                    sums[mask | 1 << bit] = sums[mask] + value;
                }
            }
            sums
        };
        SubsetSums { tables: x.chunks(8).map(table).collect() }
    }

    fn of(&self, mask: &[u64]) -> f64 {
        let byte = |chunk: usize| (mask[chunk / 8] >> (chunk % 8 * 8)) as usize & 255;
        self.tables.iter().enumerate().map(|(chunk, table)| table[byte(chunk)]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// p(theta) straight from its definition.
    fn p_by_definition(d: &[f64], theta: f64) -> f64 {
        let signed = |mask: u64| -> f64 {
            let sign = |i: usize| if mask >> i & 1 == 1 { 1.0 } else { -1.0 };
            d.iter().enumerate().map(|(i, v)| sign(i) * (v - theta)).sum::<f64>().abs()
        };
        let observed = signed(u64::MAX) * (1.0 - 1e-12);
        let vectors = 1_u64 << d.len();
        (0..vectors).filter(|&mask| signed(mask) >= observed).count() as f64 / vectors as f64
    }

    fn some_differences(n: usize, seed: u64) -> Vec<f64> {
        let mut draws = Draws::new(seed, 0);
        (0..n).map(|_| 0.3 * draws.fraction() - 0.1).collect()
    }

    #[test]
    fn p_and_both_ends_agree_with_the_definition() {
        for n in 6..=12 {
            for seed in 0..4 {
                let d = some_differences(n, seed);
                let got = sign_flip(&d, 0.05, 0);
                assert_eq!(got.p, p_by_definition(&d, 0.0), "n={n} seed={seed}");
                let Interval { low, high } = got.interval.unwrap();
                for (end, outward) in [(low, -1e-7), (high, 1e-7)] {
                    assert!(p_by_definition(&d, end - outward) > 0.05, "n={n} seed={seed}");
                    assert!(p_by_definition(&d, end + outward) <= 0.05, "n={n} seed={seed}");
                }
            }
        }
    }

    #[test]
    fn six_rounds_are_the_fewest_for_95_and_eight_for_99_percent() {
        assert_eq!((rounds_for_interval(0.05), rounds_for_interval(0.01)), (6, 8));
        assert_eq!((rounds_for_interval(0.05 / 16.0), rounds_for_interval(1e-9)), (10, usize::MAX));
        let five = sign_flip(&[1.0, 1.1, 0.9, 1.2, 0.8], 0.05, 0);
        assert_eq!(five.interval, Err(NoInterval::TooFewRounds { have: 5, need: 6 }));
        assert_eq!(five.p, 0.0625);
        assert!(sign_flip(&[1.0, 1.1, 0.9, 1.2, 0.8, 1.0], 0.05, 0).interval.is_ok());
    }

    #[test]
    fn with_six_rounds_the_interval_is_the_range_of_the_data() {
        // 2^-5 = 1/32 <= .05 < 2/32: one split may be left out, and the most extreme is a single value.
        let got = sign_flip(&[0.5, 0.1, 0.4, 0.2, 0.3, 0.9], 0.05, 0).interval.unwrap();
        assert!((got.low - 0.1).abs() < 1e-9 && (got.high - 0.9).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn zero_lies_outside_exactly_when_p_is_at_most_alpha() {
        for seed in 0..200 {
            // On a grid, so that ties are frequent and zero often is an end.
            let whole: Vec<f64> = some_differences(9, seed).iter().map(|v| (v * 20.0).round()).collect();
            let d: Vec<f64> = whole.iter().map(|v| v * 0.1).collect();
            let got = sign_flip(&d, 0.05, 0);
            assert_eq!(got.p, p_by_definition(&whole, 0.0), "{d:?}");
            assert_eq!(got.interval.unwrap().contains(0.0), got.p > 0.05, "{d:?} {got:?}");
        }
    }

    #[test]
    fn drawn_vectors_agree_with_all_vectors() {
        let d = some_differences(16, 5);
        let exact = Splits::all(&centred(&d)).ends(1638);
        let mut drawn = Splits::drawn(&centred(&d), &mut Draws::new(1, stream::SIGNS));
        let (low, high) = drawn.ends(1000);
        let width = exact.1 - exact.0;
        assert!((low - exact.0).abs() < 0.03 * width && (high - exact.1).abs() < 0.03 * width);
    }

    #[test]
    fn drawn_vectors_of_one_sign_count_as_the_observed_one_does() {
        let drawn = Splits::drawn(&centred(&[0.1; 6]), &mut Draws::new(1, stream::SIGNS));
        let p = drawn.p(9.0, 0.0);
        // 1/32 of 20,000 is 625; 4 standard deviations are 98.
        assert!((p * 20_000.0 - 625.0).abs() < 98.0, "{p}");
    }

    fn centred(d: &[f64]) -> Vec<f64> {
        d.iter().map(|v| v - mean(d)).collect()
    }

    #[test]
    fn many_rounds_give_a_narrow_interval_that_repeats_with_the_seed() {
        for n in [17, 64, 65, 130] {
            let d = some_differences(n, 1);
            let got = sign_flip(&d, 0.05, 3);
            let Interval { low, high } = got.interval.unwrap();
            // Uniform on .3 wide: sd .0866, so about +-.17 / sqrt(n) around .05.
            let half = 0.17 / (n as f64).sqrt();
            assert!(((high - low) / 2.0 / half - 1.0).abs() < 0.25, "n={n} {low} {high}");
            assert_eq!(got, sign_flip(&d, 0.05, 3));
        }
    }

    #[test]
    fn constant_differences_are_exact_and_zero_ones_are_no_evidence() {
        let same = sign_flip(&[0.25; 8], 0.05, 0);
        assert_eq!(same.p, smallest_p(8));
        assert!(same.interval.unwrap().contains(0.25) && !same.interval.unwrap().contains(0.2499));
        let none = sign_flip(&[0.0; 8], 0.05, 0);
        assert_eq!((none.p, none.interval), (1.0, Ok(Interval { low: 0.0, high: 0.0 })));
    }

    #[test]
    fn what_is_not_a_number_gives_no_interval_and_no_evidence() {
        assert_eq!(sign_flip(&[], 0.05, 0).interval, Err(NoInterval::TooFewRounds { have: 0, need: 6 }));
        let nan = sign_flip(&[f64::NAN; 8], 0.05, 0);
        assert_eq!((nan.p, nan.interval), (1.0, Err(NoInterval::NotFinite)));
        assert!(matches!(sign_flip(&[1.0; 8], 0.0, 0).interval, Err(NoInterval::Alpha { .. })));
    }
}
