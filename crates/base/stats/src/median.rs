//! Distribution-free confidence interval of a median, by order statistics.
//!
//! The number of n values below the median is distributed like the heads of a fair coin (W. Thompson, Annals
//! of Mathematical Statistics 7 (1936), 122-128). Ties, zeros and outliers need no special treatment.

use crate::interval::{self, Interval, IntervalError};

/// Fewest values whose range covers a median with 95%.
const MIN_VALUES: usize = 6;

/// The narrowest pair of order statistics that covers the median with 1 - alpha at least.
///
/// # Errors
/// Fewer than six values, or too few for this alpha; a value that is not finite.
pub fn median_interval(values: &[f64], alpha: f64) -> Result<Interval, IntervalError> {
    interval::check_sample(values, MIN_VALUES, alpha)?;
    let n = values.len();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Chance of k heads and fewer, both sides together, until it passes alpha.
    let (mut term, mut tail, mut k) = (0.5_f64.powi(n as i32), 0.0, 0);
    while k < n / 2 {
        if 2.0 * (tail + term) > alpha {
            break;
        }
        tail += term;
        term *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    if k == 0 {
        let need = (1.0 - alpha.log2()).ceil() as usize;
        return Err(IntervalError::TooFewRounds { have: n, need });
    }
    Ok(Interval { low: sorted[k - 1], high: sorted[n - k] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded_rng::SeededRng;

    #[test]
    fn the_order_statistics_are_those_of_the_tables() {
        // Lower ranks at 95%: 6 -> 1, 8 -> 1, 9 -> 2, 10 -> 2, 20 -> 6, 50 -> 18.
        for (n, rank) in [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (50, 18)] {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let got = median_interval(&values, 0.05).unwrap();
            assert_eq!((got.low, got.high), (f64::from(rank), f64::from(n + 1 - rank)), "{n}");
        }
    }

    #[test]
    fn too_few_values_have_no_interval() {
        assert_eq!(median_interval(&[1.0; 5], 0.05), Err(IntervalError::TooFewRounds { have: 5, need: 6 }));
        assert_eq!(median_interval(&[1.0; 6], 0.01), Err(IntervalError::TooFewRounds { have: 6, need: 8 }));
        assert!(median_interval(&[1.0; 8], 0.01).is_ok());
        assert!(median_interval(&[f64::NAN; 8], 0.05).is_err());
        let zeros = median_interval(&[0.0; 10], 0.05).unwrap();
        assert_eq!((zeros.low, zeros.high), (0.0, 0.0));
    }

    #[test]
    fn it_holds_the_median_of_a_skewed_distribution_as_often_as_it_says() {
        for n in [10, 25] {
            let held = (0..2_000).filter(|&seed| {
                let mut draws = SeededRng::new(seed, 61);
                // Exponential: its median is ln 2.
                let values: Vec<f64> = (0..n).map(|_| -(1.0 - draws.next_fraction()).ln()).collect();
                median_interval(&values, 0.05).unwrap().contains(std::f64::consts::LN_2)
            });
            let held = held.count();
            assert!((1_880..=1_980).contains(&held), "{n}: {held} of 2000");
        }
    }
}
