//! Sign-flip test (randomisation test) and its confidence interval. Never assumes a normal distribution.
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
//!
//! Several variants are flipped together, round by round. Each vector counts against a variant at theta where
//! the largest statistic of *any* variant under it reaches that variant's own at theta (single-step max-T: P.
//! Westfall and S. Young, "Resampling-Based Multiple Testing" (1993); J. Romano and M. Wolf, JASA 100
//! (2005)). The statistic is Student's t. That of the variant itself counts exactly where the splits say.
//! Those of the others are centred on their own means, so that their effects widen no other interval. Since
//! the spread of a variant does not depend on theta, a vector in which the others reach t counts wherever
//! theta is less than t standard errors from the mean: the ends stay order statistics, now of the farther of
//! the two reaches. Interval and p value come from the same counts, so one excludes zero exactly when the
//! other is at most alpha.

use crate::interval::{self, Interval, IntervalError};
use crate::moments::mean;
use crate::seeded_rng::{SeededRng, stream};

/// Up to here every sign vector is counted; above, [`SIGN_DRAWS`] of them are drawn.
const MAX_EXACT_ROUNDS: usize = 16;
/// Sign vectors in a drawn test, the observed one among them.
const SIGN_DRAWS: usize = 20_000;

/// Result of the sign-flip test of paired differences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignFlip {
    /// Mean difference; NaN without data.
    pub mean: f64,
    /// Two-sided, for an effect of zero, adjusted for the arms that were tested together; 1 without data. Never
    /// below [`smallest_p`].
    pub p: f64,
    /// Coverage 1 - alpha, of all arms tested together at once; for log ratios, [`Interval::to_pct`] turns it
    /// into percent. Excludes zero exactly when `p` is at most alpha.
    pub interval: Result<Interval, IntervalError>,
}

/// The sign-flip test of d = 0 and its inversion, an interval for the centre of d.
///
/// Exact up to 16 rounds. Above, 20,000 vectors drawn from `seed`, the observed one always among them, which
/// keeps the test valid (p is never too small on average).
#[must_use]
pub fn sign_flip(d: &[f64], alpha: f64, seed: u64) -> SignFlip {
    let alone: Vec<Option<f64>> = d.iter().copied().map(Some).collect();
    let found = simultaneous_sign_flips(&[&alone], alpha, seed);
    found.first().copied().unwrap_or(SignFlip::without_interval(IntervalError::NotFinite))
}

/// The same for several arms at once: the chance that *any* of the intervals misses its arm's effect, and that any
/// p of an arm without effect is at most alpha, is alpha.
///
/// `arms[k][i]` is the difference of arm k in round i, absent where the round gave none; their units may differ. With
/// one arm it is [`sign_flip`]. An arm without an interval of its own (too few rounds, a value that is not
/// finite) takes no part in what the others have to exceed. Answers stand in the order of `arms`.
#[must_use]
pub fn simultaneous_sign_flips(arms: &[&[Option<f64>]], alpha: f64, seed: u64) -> Vec<SignFlip> {
    let need = rounds_for_interval(alpha);
    let checked: Vec<Result<(), IntervalError>> = arms
        .iter()
        .map(|arm| interval::check_sample(&arm.iter().flatten().copied().collect::<Vec<_>>(), need, alpha))
        .collect();
    let length = arms.iter().map(|arm| arm.len()).max().unwrap_or(0);
    // A round in which no arm has a difference has no sign to flip.
    let held: Vec<usize> = (0..length)
        .filter(|&round| arms.iter().any(|arm| arm.get(round).copied().flatten().is_some()))
        .collect();
    let vectors = SignVectors::draw(held.len(), seed);
    let centred: Vec<Option<Centred>> = arms.iter().map(|arm| Centred::new(arm, &held, &vectors)).collect();
    // An arm alone has nobody to exceed.
    let company = if arms.len() > 1 { vectors.count() } else { 0 };
    let family = LargestStatistics::new(
        company,
        centred.iter().zip(&checked).map(|(arm, checked)| arm.as_ref().filter(|_| checked.is_ok())),
    );
    let one = |(k, (arm, checked)): (usize, (Option<Centred>, Result<(), IntervalError>))| match arm {
        Some(arm) => test_arm(&arm, checked, &vectors, family.excluding(k), alpha),
        None => SignFlip::without_interval(checked.err().unwrap_or(IntervalError::NotFinite)),
    };
    centred.into_iter().zip(checked).enumerate().map(one).collect()
}

/// `others`: for each vector, the largest statistic of the other arms.
fn test_arm(
    arm: &Centred,
    checked: Result<(), IntervalError>,
    vectors: &SignVectors,
    others: impl Fn(usize) -> f64,
    alpha: f64,
) -> SignFlip {
    let mut splits = ThetaBounds::new(arm, vectors, others);
    let interval = checked.and_then(|()| {
        // p(theta) > alpha while at least this many splits reach theta.
        let reach = (alpha * splits.vectors() as f64 + 1e-9).floor() as usize;
        let (low, high) = splits.find_bounds(reach.max(1));
        let (low, high) = (arm.mean + low - arm.tie, arm.mean + high + arm.tie);
        if low.is_finite() && high.is_finite() {
            Ok(Interval { low, high })
        } else {
            // Another arm's rounds differ so little in size that a few flips leave it no spread at all.
            Err(IntervalError::TooFewRounds { have: arm.rounds, need: arm.rounds + 1 })
        }
    });
    SignFlip { mean: arm.mean, p: splits.p(-arm.mean, arm.tie), interval }
}

/// The fewest rounds that can give an interval: the smallest n with 2^(1-n) <= alpha (6 for 95%, 8 for 99%), of however
/// many arms at once.
///
/// `usize::MAX` where no number of rounds would do (alpha below 1/20,000).
#[must_use]
pub fn rounds_for_interval(alpha: f64) -> usize {
    (1..=MAX_EXACT_ROUNDS + 1).find(|&n| smallest_p(n) <= alpha).unwrap_or(usize::MAX)
}

/// The smallest p that n rounds can give, 2^(1-n) up to 16 rounds: all signs alike, or all opposite.
#[must_use]
pub fn smallest_p(rounds: usize) -> f64 {
    if rounds > MAX_EXACT_ROUNDS { 1.0 / SIGN_DRAWS as f64 } else { 2.0 * 0.5_f64.powi(rounds as i32) }
}

impl SignFlip {
    fn without_interval(reason: IntervalError) -> Self {
        SignFlip { mean: f64::NAN, p: 1.0, interval: Err(reason) }
    }
}

/// All sign vectors but the observed one, a bit for each round. A vector and its opposite make the same split, so
/// half of them are enough where all are counted.
pub(crate) struct SignVectors {
    /// `words` of each vector after those of the one before.
    bits: Vec<u64>,
    words: usize,
}

impl SignVectors {
    pub(crate) fn draw(rounds: usize, seed: u64) -> Self {
        let words = rounds.div_ceil(64).max(1);
        if rounds <= MAX_EXACT_ROUNDS {
            let all = 1..(1_u64 << rounds.saturating_sub(1));
            return SignVectors { bits: all.collect(), words };
        }
        let mut draws = SeededRng::new(seed, stream::SIGNS);
        let mut bits = vec![0; (SIGN_DRAWS - 1) * words];
        for vector in bits.chunks_exact_mut(words) {
            vector.fill_with(|| draws.next_u64());
            if let Some(last) = vector.last_mut() {
                *last >>= words * 64 - rounds;
            }
        }
        SignVectors { bits, words }
    }

    fn iter(&self) -> impl Iterator<Item = &[u64]> {
        self.bits.chunks_exact(self.words)
    }

    fn count(&self) -> usize {
        self.bits.len() / self.words
    }
}

/// Differences of one arm about their mean.
struct Centred {
    mean: f64,
    /// Of the mean.
    standard_error: f64,
    /// Differences that should be ties come out unequal in the last digits; this near they count as ties.
    tie: f64,
    rounds: usize,
    /// A bit for each round in which the arm has a difference.
    present: Vec<u64>,
    /// For each vector, the sum of the differences that it leaves positive; the others sum to the opposite.
    sums: Vec<f64>,
}

impl Centred {
    /// `held`: the rounds that `vectors` are of. `None` without data, or where a value is not finite.
    fn new(arm: &[Option<f64>], held: &[usize], vectors: &SignVectors) -> Option<Self> {
        let by_sign: Vec<Option<f64>> = held.iter().map(|&round| arm.get(round).copied().flatten()).collect();
        let d: Vec<f64> = by_sign.iter().flatten().copied().collect();
        if d.is_empty() || d.iter().any(|v| !v.is_finite()) {
            return None;
        }
        // Splits are taken around the mean: two means of one split then have opposite signs, and no digits
        // are lost where the effect is large beside its spread.
        let mean = mean(&d);
        let mut present = vec![0_u64; held.len().div_ceil(64)];
        for (sign, _) in by_sign.iter().enumerate().filter(|(_, v)| v.is_some()) {
            present[sign / 64] |= 1 << (sign % 64);
        }
        let about: Vec<f64> = by_sign.iter().map(|v| v.map_or(0.0, |v| v - mean)).collect();
        let n = d.len() as f64;
        let squares: f64 = about.iter().map(|v| v * v).sum();
        let spread = about.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
        Some(Centred {
            mean,
            standard_error: (squares / (n * (n - 1.0).max(1.0))).sqrt(),
            tie: 1e-12 * spread + 4.0 * f64::EPSILON * mean.abs(),
            rounds: d.len(),
            present,
            sums: SubsetSums::new(&about).sums_for(vectors),
        })
    }

    /// How many differences `vector` leaves positive.
    fn count_positive(&self, vector: &[u64]) -> usize {
        let count: u32 =
            vector.iter().zip(&self.present).map(|(v, present)| (v & present).count_ones()).sum();
        count as usize
    }

    /// Student's t of the differences under each vector, about zero, without its sign.
    fn t_statistics(&self) -> impl Iterator<Item = f64> {
        let n = self.rounds as f64;
        self.sums.iter().map(move |sum| {
            let mean = 2.0 * sum.abs() / n;
            if mean <= 2.0 * self.tie {
                return 0.0;
            }
            // Flipping signs leaves the sum of squares as it is, so that a mean takes its square from the variance.
            mean / (self.standard_error.powi(2) - mean * mean / (n - 1.0)).max(0.0).sqrt()
        })
    }
}

/// For each vector, the two largest statistics of any arm: whichever arm is left out, the largest of the others
/// is one of them.
struct LargestStatistics {
    first: Vec<(f64, usize)>,
    second: Vec<f64>,
}

impl LargestStatistics {
    fn new<'a>(count: usize, family: impl Iterator<Item = Option<&'a Centred>>) -> Self {
        let mut largest =
            LargestStatistics { first: vec![(0.0, usize::MAX); count], second: vec![0.0; count] };
        for (k, arm) in family.enumerate() {
            let Some(arm) = arm else { continue };
            let rows = largest.first.iter_mut().zip(&mut largest.second);
            for (t, (first, second)) in arm.t_statistics().zip(rows) {
                if t > first.0 {
                    (*second, *first) = (first.0, (t, k));
                } else if t > *second {
                    *second = t;
                }
            }
        }
        largest
    }

    /// The largest of all arms but `k`, by vector.
    fn excluding(&self, k: usize) -> impl Fn(usize) -> f64 {
        move |vector| match self.first.get(vector) {
            Some(&(_, arm)) if arm == k => self.second[vector],
            Some(&(t, _)) => t,
            None => 0.0,
        }
    }
}

/// For each sign vector but the observed one: how far from the mean it counts, above and below.
struct ThetaBounds {
    above: Vec<f64>,
    below: Vec<f64>,
}

impl ThetaBounds {
    fn new(arm: &Centred, vectors: &SignVectors, others: impl Fn(usize) -> f64) -> Self {
        let one = |(i, vector): (usize, &[u64])| {
            let (sum, positive) = (arm.sums[i], arm.count_positive(vector));
            let reached = others(i) * arm.standard_error;
            if positive == 0 || positive == arm.rounds {
                // All signs alike: as extreme as the data at every theta.
                return (f64::INFINITY, f64::NEG_INFINITY);
            }
            let (one, other) = (sum / positive as f64, -sum / (arm.rounds - positive) as f64);
            (one.max(other).max(reached), one.min(other).min(-reached))
        };
        let (above, below) = vectors.iter().enumerate().map(one).unzip();
        ThetaBounds { above, below }
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
    fn find_bounds(&mut self, reach: usize) -> (f64, f64) {
        let index = reach.min(self.above.len()) - 1;
        let (_, low, _) = self.below.select_nth_unstable_by(index, f64::total_cmp);
        let (_, high, _) = self.above.select_nth_unstable_by(index, |a, b| b.total_cmp(a));
        (*low, *high)
    }
}

/// Sums over any subset, eight members at a time.
pub(crate) struct SubsetSums {
    tables: Vec<[f64; 256]>,
}

impl SubsetSums {
    pub(crate) fn new(x: &[f64]) -> Self {
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

    pub(crate) fn sums_for(&self, vectors: &SignVectors) -> Vec<f64> {
        vectors.iter().map(|vector| self.masked_sum(vector)).collect()
    }

    fn masked_sum(&self, mask: &[u64]) -> f64 {
        let byte = |chunk: usize| (mask[chunk / 8] >> (chunk % 8 * 8)) as usize & 255;
        self.tables.iter().enumerate().map(|(chunk, table)| table[byte(chunk)]).sum()
    }
}

#[cfg(test)]
mod tests;
