//! Confidence sequence for early stopping: an interval that stays valid when checked after every round.
//!
//! Repeated checks of a fixed-sample interval would miss the truth too often.

use crate::interval::{self, Interval, IntervalError};
use crate::moments::{mean, sd};

/// Below this the normal approximation that the sequence rests on is not to be trusted.
pub const MIN_SEQUENCE_ROUNDS: usize = 10;
/// The number of rounds at which the sequence is at its tightest.
const TIGHTEST_AT: f64 = 20.0;

/// The asymptotic confidence sequence for the mean of `d` at its present length: it may be looked at after every
/// round, and all its looks together miss the truth with probability alpha. The price of that
/// is a wider interval than [`crate::sign_flip`] gives.
///
/// mean ± s sqrt( 2 (n rho^2 + 1) / (n^2 rho^2) ln( sqrt(n rho^2 + 1) / alpha ) ),
/// rho = sqrt( (-2 ln alpha + ln(1 - 2 ln alpha)) / 20 ).
///
/// Source: I. Waudby-Smith et al., "Time-uniform central limit theory and asymptotic confidence sequences",
/// Annals of Statistics 52 (2024), arXiv 2103.06476. For several arms give each alpha / arms.
///
/// # Errors
/// Fewer than 10 rounds; a value that is not finite.
pub fn confidence_sequence(d: &[f64], alpha: f64) -> Result<Interval, IntervalError> {
    interval::check_sample(d, MIN_SEQUENCE_ROUNDS, alpha)?;
    let n = d.len() as f64;
    let rho2 = (-2.0 * alpha.ln() + (1.0 - 2.0 * alpha.ln()).ln()) / TIGHTEST_AT;
    let grown = n * rho2 + 1.0;
    let half = sd(d) * (2.0 * grown / (n * n * rho2) * (grown.sqrt() / alpha).ln()).sqrt();
    Ok(Interval { low: mean(d) - half, high: mean(d) + half })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_at_ten_and_twenty_rounds() {
        // s = 1 by construction: rho^2 = (5.991465 + 1.944890) / 20 = .396818; at n = 10 the
        // half-width is sqrt(2 x 4.968177 / 39.6818 x ln(2.228941 / .05)) = .975140.
        for (n, want) in [(10, 0.975_140), (20, 0.678_693)] {
            let half = (n / 2) as f64;
            let unit = ((2.0 * half - 1.0) / (2.0 * half)).sqrt();
            let d: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { unit } else { -unit }).collect();
            let Interval { low, high } = confidence_sequence(&d, 0.05).unwrap();
            assert!((high - want).abs() < 2e-4 && (low + want).abs() < 2e-4, "n={n}: {low} {high}");
        }
    }

    #[test]
    fn nine_rounds_are_too_few_to_look() {
        assert_eq!(
            confidence_sequence(&[1.0; 9], 0.05),
            Err(IntervalError::TooFewRounds { have: 9, need: 10 })
        );
    }
}
