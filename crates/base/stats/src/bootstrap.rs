//! Bootstrap intervals (bootstrap-t and BCa) over whole rounds.
//!
//! A round is the unit of randomisation. Its windows stay together in every draw, for every statistic. With
//! fewer than 12 rounds, a resample repeats too few distinct rounds to estimate the tails.
//!
//! # Invariants
//! Never draws less than whole rounds.

use crate::interval::{self, Interval, IntervalError};
use crate::moments::{mean, median, sd};
use crate::quantiles::{normal_cdf, normal_quantile};
use crate::seeded_rng::{SeededRng, stream};

/// Fewest rounds that may be resampled.
pub const MIN_BOOTSTRAP_ROUNDS: usize = 12;
/// B + 1 is divisible by every usual alpha, so that quantiles of the draws are themselves draws.
const RESAMPLES: usize = 9_999;

/// Studentized (bootstrap-t) interval for the mean of `d`: quantiles of (mean* - mean) / se* replace those of t.
///
/// Source: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap" (1993), section 12.5.
///
/// # Errors
/// Fewer than 12 rounds; a value that is not finite.
pub fn bootstrap_t(d: &[f64], alpha: f64, seed: u64) -> Result<Interval, IntervalError> {
    interval::check_sample(d, MIN_BOOTSTRAP_ROUNDS, alpha)?;
    let centre = mean(d);
    let centred: Vec<f64> = d.iter().map(|v| v - centre).collect();
    let root_n = (d.len() as f64).sqrt();
    let standard_error = sd(&centred) / root_n;
    let mut draws = SeededRng::new(seed, stream::PAIRS);
    let mut drawn = vec![0.0; d.len()];
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill_with(|| centred[draws.below(d.len() as u32) as usize]);
            let shift = mean(&drawn);
            // One round drawn n times has no spread: its ratio is infinite, and it lies in the tail
            // where it belongs, unless nothing varies at all.
            if shift == 0.0 { 0.0 } else { shift / (sd(&drawn) / root_n) }
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (low, high) =
        (quantile_of_sorted(&ratios, alpha / 2.0), quantile_of_sorted(&ratios, 1.0 - alpha / 2.0));
    require_finite(Interval { low: centre - high * standard_error, high: centre - low * standard_error })
}

/// Bias-corrected and accelerated interval for any `statistic` of `rounds` rounds, given as the indexes of
/// the rounds drawn (with repeats). It is called for the data as it is, for each draw, and for each
/// round left out (the acceleration).
///
/// Source: B. Efron, "Better bootstrap confidence intervals", JASA 82 (1987).
///
/// # Errors
/// Fewer than 12 rounds; a statistic that is not finite.
pub fn bca(
    rounds: usize,
    alpha: f64,
    seed: u64,
    mut statistic: impl FnMut(&[usize]) -> f64,
) -> Result<Interval, IntervalError> {
    interval::check_alpha(alpha)?;
    if rounds < MIN_BOOTSTRAP_ROUNDS {
        return Err(IntervalError::TooFewRounds { have: rounds, need: MIN_BOOTSTRAP_ROUNDS });
    }
    let everything: Vec<usize> = (0..rounds).collect();
    let observed = statistic(&everything);
    let left_out: Vec<f64> = (0..rounds)
        .map(|out| statistic(&everything.iter().copied().filter(|&i| i != out).collect::<Vec<_>>()))
        .collect();
    let mut draws = SeededRng::new(seed, stream::PAIRS);
    let mut rows = everything;
    let mut resampled: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            rows.fill_with(|| draws.below(rounds as u32) as usize);
            statistic(&rows)
        })
        .collect();
    if resampled.iter().chain(&left_out).chain([&observed]).any(|v| !v.is_finite()) {
        return Err(IntervalError::NotFinite);
    }
    resampled.sort_unstable_by(f64::total_cmp);
    let below = resampled.partition_point(|&v| v < observed);
    let not_above = resampled.partition_point(|&v| v <= observed);
    // Statistics of few rounds repeat: a draw equal to the observed value counts as half below it. The bias
    // is kept finite where every draw lies on one side.
    let share = (below + not_above) as f64 / (2 * RESAMPLES) as f64;
    let half_a_draw = 0.5 / RESAMPLES as f64;
    let bias = normal_quantile(share.clamp(half_a_draw, 1.0 - half_a_draw));
    let acceleration = acceleration(&left_out);
    let end = |p: f64| {
        let z = bias + normal_quantile(p);
        quantile_of_sorted(&resampled, normal_cdf(bias + z / (1.0 - acceleration * z)))
    };
    require_finite(Interval { low: end(alpha / 2.0), high: end(1.0 - alpha / 2.0) })
}

/// BCa interval for the median of `d`.
///
/// # Errors
/// Fewer than 12 rounds; a value that is not finite.
pub fn bca_median(d: &[f64], alpha: f64, seed: u64) -> Result<Interval, IntervalError> {
    let mut drawn = Vec::with_capacity(d.len());
    bca(d.len(), alpha, seed, |rows| {
        drawn.clear();
        drawn.extend(rows.iter().map(|&round| d[round]));
        median(&drawn)
    })
}

/// A sixth of the skewness of the jackknife values.
fn acceleration(left_out: &[f64]) -> f64 {
    let centre = mean(left_out);
    let squares: f64 = left_out.iter().map(|v| (centre - v).powi(2)).sum();
    let cubes: f64 = left_out.iter().map(|v| (centre - v).powi(3)).sum();
    if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

/// The draw at rank p (B + 1), between two draws by interpolation.
pub(crate) fn quantile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let rank = (p * (sorted.len() + 1) as f64 - 1.0).clamp(0.0, (sorted.len() - 1) as f64);
    let (below, share) = (rank.floor() as usize, rank.fract());
    // A share of rounding dust must not reach for a neighbour that is infinite.
    if share < 1e-9 {
        return sorted[below];
    }
    sorted[below] + share * (sorted[below + 1] - sorted[below])
}

fn require_finite(interval: Interval) -> Result<Interval, IntervalError> {
    if interval.low.is_finite() && interval.high.is_finite() {
        Ok(interval)
    } else {
        Err(IntervalError::NotFinite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skewed(n: usize) -> Vec<f64> {
        (0..n).map(|i| ((i as f64 + 0.5) / n as f64).powi(3)).collect()
    }

    #[test]
    fn both_lean_towards_the_long_tail() {
        let d = skewed(24);
        for (what, centre, interval) in [
            ("t", mean(&d), bootstrap_t(&d, 0.05, 1)),
            (
                "bca",
                mean(&d),
                bca(24, 0.05, 1, |rows| rows.iter().map(|&i| d[i]).sum::<f64>() / rows.len() as f64),
            ),
            ("median", median(&d), bca_median(&d, 0.05, 1)),
        ] {
            let Interval { low, high } = interval.unwrap();
            assert!(high - centre > centre - low && low < centre, "{what}: {low} {centre} {high}");
            assert!(low > 0.0 && high < 0.7, "{what}: {low} {high}");
        }
    }

    #[test]
    fn bca_ends_are_the_draws_that_bias_and_skewness_choose() {
        let d = skewed(20);
        let mut seen = Vec::new();
        let got = bca(20, 0.05, 1, |rows| {
            let value = rows.iter().map(|&i| d[i]).sum::<f64>() / rows.len() as f64;
            seen.push(value);
            value
        })
        .unwrap();
        // In the order of calls: the data, each round left out, the draws.
        let mut drawn = seen.split_off(21);
        drawn.sort_unstable_by(f64::total_cmp);
        let below = drawn.iter().filter(|&&v| v < seen[0]).count() as f64 / drawn.len() as f64;
        // For a mean the acceleration is a sixth of the standardised third moment over sqrt(n).
        let moment = |k: i32| d.iter().map(|v| (v - mean(&d)).powi(k)).sum::<f64>() / 20.0;
        let a = moment(3) / moment(2).powf(1.5) / 6.0 / 20_f64.sqrt();
        let z0 = normal_quantile(below);
        for (end, z) in [(got.low, -1.959_964), (got.high, 1.959_964)] {
            let rank = normal_cdf(z0 + (z0 + z) / (1.0 - a * (z0 + z))) * 10_000.0;
            let want = drawn[rank.round() as usize - 1];
            assert!((end - want).abs() < 1e-3, "{end} {want}");
            let plain = drawn[(normal_cdf(z) * 10_000.0).round() as usize - 1];
            assert!(end > plain + 2e-3, "{end} {plain}");
        }
    }

    #[test]
    fn eleven_rounds_are_too_few() {
        let few = Err(IntervalError::TooFewRounds { have: 11, need: 12 });
        assert_eq!(bootstrap_t(&skewed(11), 0.05, 1), few);
        assert_eq!(bca_median(&skewed(11), 0.05, 1), few);
    }

    #[test]
    fn a_seed_gives_the_same_interval_and_another_seed_nearly() {
        let d = skewed(20);
        let (one, again, other) =
            (bootstrap_t(&d, 0.05, 1), bootstrap_t(&d, 0.05, 1), bootstrap_t(&d, 0.05, 2));
        assert_eq!(one, again);
        assert!(one != other && (one.unwrap().low - other.unwrap().low).abs() < 0.02);
    }

    #[test]
    fn constant_data_gives_a_point_and_nonsense_gives_none() {
        let point = Ok(Interval { low: 0.5, high: 0.5 });
        assert_eq!((bootstrap_t(&[0.5; 12], 0.05, 1), bca_median(&[0.5; 12], 0.05, 1)), (point, point));
        assert_eq!(bca(12, 0.05, 1, |_| f64::NAN), Err(IntervalError::NotFinite));
        assert_eq!(bootstrap_t(&[f64::INFINITY; 12], 0.05, 1), Err(IntervalError::NotFinite));
    }

    #[test]
    fn ranks_of_sorted_draws() {
        let sorted = [1.0, 2.0, 3.0, f64::INFINITY];
        for (p, want) in [(0.0, 1.0), (0.2, 1.0), (0.3, 1.5), (0.6, 3.0), (1.0, f64::INFINITY)] {
            assert!(
                quantile_of_sorted(&sorted, p) == want
                    || (quantile_of_sorted(&sorted, p) - want).abs() < 1e-9,
                "{p}"
            );
        }
    }
}
