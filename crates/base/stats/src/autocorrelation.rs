//! Autocorrelation check of the rounds, and a bootstrap for dependent rounds.
//!
//! Never corrects silently: the dependence found is returned.

use crate::bootstrap::{MIN_BOOTSTRAP_ROUNDS, quantile_of_sorted};
use crate::interval::{self, Interval, IntervalError};
use crate::moments::mean;
use crate::quantiles::{normal_quantile, student_t_quantile};
use crate::seeded_rng::{SeededRng, stream};

const RESAMPLES: usize = 9_999;

/// Correlation of each round's difference with the next round's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Autocorrelation {
    /// Lag-1 autocorrelation, -1..1.
    pub lag1: f64,
    /// 2 / sqrt(n): independent rounds stay within it about 95 times in 100.
    pub noise_bound: f64,
}

impl Autocorrelation {
    /// True if intervals that assume independent rounds are not trustworthy.
    #[must_use]
    pub fn is_significant(self) -> bool {
        self.lag1.abs() > self.noise_bound
    }
}

/// The lag-1 check of paired differences in the order of rounds; absent with fewer than three, or a value
/// that is not finite.
#[must_use]
pub fn lag1_autocorrelation(d: &[f64]) -> Option<Autocorrelation> {
    if d.len() < 3 || d.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let variance = autocovariance(d, 0);
    let lag1 = if variance > 0.0 { autocovariance(d, 1) / variance } else { 0.0 };
    Some(Autocorrelation { lag1, noise_bound: 2.0 / (d.len() as f64).sqrt() })
}

/// Mean block length for the stationary bootstrap of `d`, in rounds, at least 1.
///
/// Source: D. Politis and H. White, "Automatic block-length selection for the dependent bootstrap", Econometric
/// Reviews 23 (2004), with the corrected variance of A. Patton, D. Politis and H. White,
/// Econometric Reviews 28 (2009): D = 2 g(0)^2.
#[must_use]
pub fn block_length(d: &[f64]) -> f64 {
    let n = d.len() as f64;
    let variance = if d.len() < 3 { 0.0 } else { autocovariance(d, 0) };
    // Also refuses NaN.
    if !(variance > 0.0 && variance.is_finite()) {
        return 1.0;
    }
    // The bandwidth is twice the first lag after which a run of correlations is negligible.
    let run = 5.max(n.log10().sqrt().ceil() as usize);
    let most = (n.sqrt().ceil() as usize + run).min(d.len() - 1);
    let negligible = 2.0 * (n.log10() / n).sqrt();
    let correlation: Vec<f64> = (0..=most + run).map(|lag| autocovariance(d, lag) / variance).collect();
    let first = (0..most)
        .find(|&lag| (lag + 1..=lag + run).all(|k| correlation[k].abs() < negligible))
        .unwrap_or_else(|| (1..=most).rev().find(|&k| correlation[k].abs() >= negligible).unwrap_or(1));
    let bandwidth = (2 * first.max(1)).min(most);
    let (mut slope, mut spectrum) = (0.0, variance);
    for lag in 1..=bandwidth {
        // Flat-top: whole to half the bandwidth, then falling to nothing.
        let weight = (2.0 * (1.0 - lag as f64 / bandwidth as f64)).min(1.0);
        slope += 2.0 * weight * lag as f64 * autocovariance(d, lag);
        spectrum += 2.0 * weight * autocovariance(d, lag);
    }
    let length = (2.0 * slope * slope / (2.0 * spectrum * spectrum)).cbrt() * n.cbrt();
    let longest = (3.0 * n.sqrt()).min(n / 3.0).ceil();
    // A spectrum of zero asks for endless blocks.
    if length.is_nan() { longest } else { length.clamp(1.0, longest) }
}

/// Interval for the mean of dependent differences: blocks of rounds of random length
/// (geometric, mean [`block_length`]) are drawn, so that neighbours mostly stay neighbours.
///
/// Symmetric, mean ± the 1 - alpha quantile of |mean* - mean|, widened by
/// sqrt(n / (n - 1)) t / z because a resample knows n - 1 of n directions.
/// Source: D. Politis and J. Romano, "The stationary bootstrap", JASA 89 (1994).
///
/// # Errors
/// Fewer than 12 rounds; a value that is not finite.
pub fn stationary_bootstrap(d: &[f64], alpha: f64, seed: u64) -> Result<Interval, IntervalError> {
    interval::check_sample(d, MIN_BOOTSTRAP_ROUNDS, alpha)?;
    let centre = mean(d);
    let leave = 1.0 / block_length(d);
    let mut draws = SeededRng::new(seed, stream::BLOCKS);
    let mut distances: Vec<f64> =
        (0..RESAMPLES).map(|_| (resample_block_mean(d, leave, &mut draws) - centre).abs()).collect();
    distances.sort_unstable_by(f64::total_cmp);
    let n = d.len() as f64;
    let small_sample = (n / (n - 1.0)).sqrt() * student_t_quantile(1.0 - alpha / 2.0, d.len() as u32 - 1)
        / normal_quantile(1.0 - alpha / 2.0);
    let half = quantile_of_sorted(&distances, 1.0 - alpha) * small_sample;
    Ok(Interval { low: centre - half, high: centre + half })
}

/// One resample, on the circle of rounds; after each round a new block begins with probability `leave`.
fn resample_block_mean(d: &[f64], leave: f64, draws: &mut SeededRng) -> f64 {
    let mut at = draws.below(d.len() as u32) as usize;
    let mut sum = d[at];
    for _ in 1..d.len() {
        at = if draws.next_fraction() < leave {
            draws.below(d.len() as u32) as usize
        } else {
            (at + 1) % d.len()
        };
        sum += d[at];
    }
    sum / d.len() as f64
}

/// Divisor n, as the spectral estimate needs it; zero beyond the data.
fn autocovariance(d: &[f64], lag: usize) -> f64 {
    let centre = mean(d);
    let products = d.iter().zip(d.iter().skip(lag)).map(|(a, b)| (a - centre) * (b - centre));
    products.sum::<f64>() / d.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AR(1), innovations uniform on -1..1.
    fn chain(n: usize, phi: f64, seed: u64) -> Vec<f64> {
        let mut draws = SeededRng::new(seed, 0);
        let mut x = 0.0;
        let step = |_| {
            x = phi * x + 2.0 * draws.next_fraction() - 1.0;
            x
        };
        (0..n + 50).map(step).skip(50).collect()
    }

    #[test]
    fn a_trend_is_dependence_and_alternation_is_too() {
        let trend: Vec<f64> = (0..20).map(f64::from).collect();
        let alternating: Vec<f64> = (0..20).map(|i| f64::from(i % 2)).collect();
        assert!(
            lag1_autocorrelation(&trend).unwrap().is_significant()
                && lag1_autocorrelation(&trend).unwrap().lag1 > 0.8
        );
        assert!(
            lag1_autocorrelation(&alternating).unwrap().is_significant()
                && lag1_autocorrelation(&alternating).unwrap().lag1 < -0.9
        );
        assert_eq!(lag1_autocorrelation(&[1.0; 9]).unwrap().lag1, 0.0);
        assert!(
            lag1_autocorrelation(&[1.0, 2.0]).is_none()
                && lag1_autocorrelation(&[1.0, 2.0, f64::NAN]).is_none()
        );
    }

    #[test]
    fn independent_rounds_raise_it_about_one_time_in_twenty() {
        let found = (0..2_000)
            .filter(|&seed| lag1_autocorrelation(&chain(20, 0.0, seed)).unwrap().is_significant())
            .count();
        assert!((20..=120).contains(&found), "{found} of 2000");
    }

    #[test]
    fn block_length_grows_with_memory_and_approaches_its_theory() {
        // For AR(1), sum |k| R(k) over the spectrum at zero is 2 phi / (1 - phi^2).
        let typical = |phi: f64| {
            let lengths: Vec<f64> = (0..40).map(|seed| block_length(&chain(2_000, phi, seed))).collect();
            crate::median(&lengths)
        };
        let theory = |phi: f64| (2.0 * phi / (1.0 - phi * phi)).powi(2).cbrt() * 2_000_f64.cbrt();
        for phi in [0.4, 0.7] {
            assert!(
                (typical(phi) / theory(phi) - 1.0).abs() < 0.3,
                "{phi}: {} {}",
                typical(phi),
                theory(phi)
            );
        }
        assert!(typical(0.0) < 4.0, "{}", typical(0.0));
        assert_eq!(
            (block_length(&[1.0; 30]), block_length(&[]), block_length(&[f64::NAN; 9])),
            (1.0, 1.0, 1.0)
        );
    }

    #[test]
    fn block_length_of_a_worked_example() {
        // By the definition, written down once more in another language: 7 lags matter, bandwidth 12,
        // g(0) = .195270, G = -.353312.
        let d = [
            0.5, 1.27, 1.06, -0.12, -0.06, -1.57, -0.29, 0.53, 1.01, 0.85, 0.59, -0.32, -1.24, -0.02, -0.17,
            0.5, 1.09, 0.55, 0.33, -0.63, -0.82, 0.12, -0.13, 0.79, 1.3, 0.18, -0.29, -0.83, -0.25, -0.25,
            2.06, 0.56, -0.02, -1.3, -0.96, -0.29, 1.35, 1.32, 1.6, -1.75,
        ];
        assert!((block_length(&d) - 5.078_105_72).abs() < 1e-6, "{}", block_length(&d));
    }

    #[test]
    fn blocks_keep_neighbours_together_and_begin_anywhere() {
        let mut draws = SeededRng::new(1, stream::BLOCKS);
        let d = [10.0, 0.0, 0.0, 0.0, 0.0];
        // One block that never ends goes once round the circle.
        assert!((0..20).all(|_| resample_block_mean(&d, 0.0, &mut draws) == 2.0));
        let single: Vec<f64> = (0..5_000).map(|_| resample_block_mean(&d, 1.0, &mut draws)).collect();
        // sd of one resample 1.79; 4 standard errors of 5,000 are .1.
        assert!((mean(&single) - 2.0).abs() < 0.1, "{}", mean(&single));
    }

    #[test]
    fn dependent_rounds_widen_the_interval() {
        let d = chain(60, 0.7, 3);
        let Interval { low, high } = stationary_bootstrap(&d, 0.05, 1).unwrap();
        let naive = crate::bootstrap_t(&d, 0.05, 1).unwrap();
        assert!(high - low > 1.4 * (naive.high - naive.low), "{low} {high} {naive:?}");
        assert!(stationary_bootstrap(&d[..11], 0.05, 1).is_err());
    }
}
