//! Random-effects meta-analysis of several similar runs.
//!
//! The interval of a run covers that run only. Runs on different days differ by more than their intervals,
//! and that spread is an error of its own. The effects are modelled as draws from a distribution about the
//! true effect, with standard deviation tau. Tau is estimated after R. Paule and J. Mandel ("Consensus values
//! and weighting factors", Journal of Research of the National Bureau of Standards 87 (1982)).
//!
//! The interval is that of J. Hartung and G. Knapp (Statistics in Medicine 20 (2001), 1771-1782; J. IntHout,
//! J. Ioannidis and G. Borm, BMC Medical Research Methodology 14 (2014)). It uses the spread about the
//! weighted mean, and Student's t with one degree of freedom less than there are runs. Where runs agree by
//! chance better than their own errors allow, the spread counts as those errors (C. Roever, G. Knapp and T.
//! Friede, BMC Medical Research Methodology 15 (2015)).
//!
//! # Invariants
//! Never treats the spread between runs as noise alone.

use crate::interval::{self, Interval, IntervalError};
use crate::quantiles::{normal_quantile, student_t_quantile};

/// One run's answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunEstimate {
    /// On the log scale for ratios.
    pub value: f64,
    pub standard_error: f64,
}

impl RunEstimate {
    /// From an interval that covers 1 - alpha; its half width is taken for a normal one.
    #[must_use]
    pub fn from_interval(value: f64, interval: Interval, alpha: f64) -> Self {
        let widths = 2.0 * normal_quantile(1.0 - alpha / 2.0);
        RunEstimate { value, standard_error: (interval.high - interval.low) / widths }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PooledEstimate {
    pub estimate: f64,
    /// Of the mean over all such runs, not of any single one of them.
    pub interval: Interval,
    /// Standard deviation of the effect between runs, in the unit of the values.
    pub tau: f64,
    /// Share of the runs' variance that is not their own error, 0..1 (J. Higgins and S. Thompson, 2002).
    pub i2: f64,
}

/// Pools the results of runs of the same question.
///
/// # Errors
/// Fewer than two runs; a value that is not finite; a standard error that is not above zero.
pub fn pool_estimates(runs: &[RunEstimate], alpha: f64) -> Result<PooledEstimate, IntervalError> {
    let values: Vec<f64> = runs.iter().flat_map(|run| [run.value, run.standard_error]).collect();
    interval::check_sample(&values, 0, alpha)?;
    if runs.len() < 2 {
        return Err(IntervalError::TooFewRuns { have: runs.len(), need: 2 });
    }
    if runs.iter().any(|run| run.standard_error <= 0.0) {
        return Err(IntervalError::NotFinite);
    }
    let freedom = (runs.len() - 1) as f64;
    let tau2 = tau2(runs, freedom);
    let (estimate, weight, q) = weighted_moments(runs, tau2);
    let half = student_t_quantile(1.0 - alpha / 2.0, runs.len() as u32 - 1)
        * ((q / freedom).max(1.0) / weight).sqrt();
    let (_, _, own) = weighted_moments(runs, 0.0);
    let i2 = if own > freedom { (own - freedom) / own } else { 0.0 };
    let interval = Interval { low: estimate - half, high: estimate + half };
    Ok(PooledEstimate { estimate, interval, tau: tau2.sqrt(), i2 })
}

/// The variance between runs at which their weighted spread is what chance gives; 0 where it never reaches that.
fn tau2(runs: &[RunEstimate], freedom: f64) -> f64 {
    let spread = |tau2: f64| weighted_moments(runs, tau2).2;
    if spread(0.0) <= freedom {
        return 0.0;
    }
    // The spread falls as the variance grows.
    let (mut low, mut high) = (0.0, runs.iter().map(|run| run.standard_error.powi(2)).fold(0.0, f64::max));
    while spread(high) > freedom {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if spread(middle) > freedom { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Weighted mean, sum of weights, and weighted squares about the mean.
fn weighted_moments(runs: &[RunEstimate], tau2: f64) -> (f64, f64, f64) {
    let weight = |run: &RunEstimate| 1.0 / (run.standard_error.powi(2) + tau2);
    let weights: f64 = runs.iter().map(weight).sum();
    let mean = runs.iter().map(|run| weight(run) * run.value).sum::<f64>() / weights;
    (mean, weights, runs.iter().map(|run| weight(run) * (run.value - mean).powi(2)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded_rng::SeededRng;

    /// Tuberculosis with and without vaccination, 13 trials (G. Colditz et al., JAMA 271 (1994)): ill and not ill of the
    /// vaccinated, ill and not ill of the others. A standard worked example of such methods.
    const VACCINE: [[f64; 4]; 13] = [
        [4.0, 119.0, 11.0, 128.0],
        [6.0, 300.0, 29.0, 274.0],
        [3.0, 228.0, 11.0, 209.0],
        [62.0, 13_536.0, 248.0, 12_619.0],
        [33.0, 5_036.0, 47.0, 5_761.0],
        [180.0, 1_361.0, 372.0, 1_079.0],
        [8.0, 2_537.0, 10.0, 619.0],
        [505.0, 87_886.0, 499.0, 87_892.0],
        [29.0, 7_470.0, 45.0, 7_232.0],
        [17.0, 1_699.0, 65.0, 1_600.0],
        [186.0, 50_448.0, 141.0, 27_197.0],
        [5.0, 2_493.0, 3.0, 2_338.0],
        [27.0, 16_886.0, 29.0, 17_825.0],
    ];

    #[test]
    fn the_vaccine_trials_pool_as_published() {
        let runs = VACCINE.map(|[ill, well, ill_without, well_without]| RunEstimate {
            value: (ill / (ill + well) / (ill_without / (ill_without + well_without))).ln(),
            standard_error: (1.0 / ill - 1.0 / (ill + well) + 1.0 / ill_without
                - 1.0 / (ill_without + well_without))
                .sqrt(),
        });
        let got = pool_estimates(&runs, 0.05).unwrap();
        // Paule and Mandel's tau^2 is .31807; Cochran's Q is 152.23, so that I^2 is 1 - 12 / 152.23.
        assert_eq!(format!("{:.4}", got.tau.powi(2)), "0.3181");
        assert!((got.i2 - (1.0 - 12.0 / 152.233)).abs() < 1e-4, "{got:?}");
        // By restricted likelihood (tau^2 .3132), with the interval of Hartung and Knapp: -.7145 [-1.1084, -.3206].
        assert!((got.estimate + 0.7145).abs() < 2e-3, "{got:?}");
        assert!(
            (got.interval.low + 1.1084).abs() < 4e-3 && (got.interval.high + 0.3206).abs() < 4e-3,
            "{got:?}"
        );
    }

    #[test]
    fn runs_that_agree_too_well_are_no_surer_than_their_own_errors() {
        let runs = [0.10, 0.10, 0.10].map(|value| RunEstimate { value, standard_error: 0.02 });
        let got = pool_estimates(&runs, 0.05).unwrap();
        assert_eq!((got.tau, got.i2), (0.0, 0.0));
        let half = student_t_quantile(0.975, 2) * 0.02 / 3.0_f64.sqrt();
        assert!((got.interval.high - 0.10 - half).abs() < 1e-12, "{got:?}");
    }

    #[test]
    fn one_run_or_one_without_an_error_is_not_pooled() {
        let run = RunEstimate { value: 0.1, standard_error: 0.02 };
        assert_eq!(pool_estimates(&[run], 0.05), Err(IntervalError::TooFewRuns { have: 1, need: 2 }));
        assert!(pool_estimates(&[run, RunEstimate { standard_error: 0.0, ..run }], 0.05).is_err());
        assert!(pool_estimates(&[run, RunEstimate { value: f64::NAN, ..run }], 0.05).is_err());
        let of = RunEstimate::from_interval(0.1, Interval { low: 0.06, high: 0.14 }, 0.05);
        assert!((of.standard_error - 0.04 / 1.959_964).abs() < 1e-6);
    }

    #[test]
    fn the_interval_holds_the_mean_of_all_runs_whether_they_differ_or_not() {
        for (tau, runs) in [(0.0, 3), (0.03, 3), (0.03, 5), (0.1, 8)] {
            let held = (0..1_000).filter(|&seed| {
                let mut draws = SeededRng::new(seed, 60);
                let mut normal = |sd: f64| sd * normal_quantile(draws.next_fraction().max(1e-12));
                let one = |i: usize| {
                    let standard_error = 0.01 + 0.01 * i as f64;
                    RunEstimate { value: 0.1 + normal(tau) + normal(standard_error), standard_error }
                };
                let runs: Vec<RunEstimate> = (0..runs).map(one).collect();
                pool_estimates(&runs, 0.05).unwrap().interval.contains(0.1)
            });
            let held = held.count();
            assert!(held >= 926, "tau {tau}, {runs} runs: {held} of 1000");
        }
    }
}
