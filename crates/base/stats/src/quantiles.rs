//! Distribution functions and quantiles of the normal and Student's t distribution, by series and closed
//! forms.
//!
//! Implemented here because little is needed. t always has a whole number of degrees of freedom, so its
//! distribution function is a finite sum. A statistics crate would bring a hundred times as much.

use std::f64::consts::{FRAC_2_PI, SQRT_2};

/// Standard normal distribution function, to about 1e-15 absolute.
///
/// Within 5 by the series x + x^3/3 + x^5/(3 5) + ... (G. Marsaglia, "Evaluating the normal distribution",
/// J. Stat. Software 11 (2004)); beyond by Laplace's continued fraction for the tail.
#[must_use]
pub fn normal_cdf(x: f64) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    let size = x.abs();
    let density = (-0.5 * x * x).exp() / (SQRT_2 * std::f64::consts::PI.sqrt());
    if size < 5.0 {
        let (mut sum, mut term, mut odd) = (x, x, 1.0);
        while term.abs() > sum.abs() * 1e-17 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        return 0.5 + density * sum;
    }
    let fraction = (1..=60).rev().fold(size, |below, k| size + f64::from(k) / below);
    let tail = if density > 0.0 { density / fraction } else { 0.0 };
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// The x with `normal_cdf(x) = p`; infinite at 0 and 1, NaN outside.
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    quantile(p, normal_cdf)
}

/// Student's t distribution function with `df` degrees of freedom (a large `df` costs a sum of df / 2 terms);
/// NaN for `df` = 0. Abramowitz and Stegun 26.7.3 and 26.7.4.
#[must_use]
pub fn student_t_cdf(t: f64, df: u32) -> f64 {
    if df == 0 || t.is_nan() {
        return f64::NAN;
    }
    let theta = (t / f64::from(df).sqrt()).atan();
    let (sin, cos) = theta.sin_cos();
    // The share of |T| <= |t|, with the sign of t.
    let first = 2 + df % 2;
    let (mut term, mut sum) = if df % 2 == 1 { (cos, cos) } else { (1.0, 1.0) };
    let mut k = first;
    while k < df {
        term *= cos * cos * f64::from(k - 1) / f64::from(k);
        sum += term;
        k += 2;
    }
    let inside = match df {
        1 => FRAC_2_PI * theta,
        _ if df % 2 == 1 => FRAC_2_PI * (theta + sin * sum),
        _ => sin * sum,
    };
    0.5 + 0.5 * inside
}

/// The t with `student_t_cdf(t, df) = p`; infinite at 0 and 1, NaN outside.
#[must_use]
pub fn student_t_quantile(p: f64, df: u32) -> f64 {
    quantile(p, |t| student_t_cdf(t, df))
}

/// Bisection between doubled bounds: slow beside a rational approximation, and exact to the cdf's own accuracy.
/// Works in the lower half, where small probabilities keep their digits.
fn quantile(p: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    if !(0.0..=1.0).contains(&p) || cdf(0.0).is_nan() {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    let tail = p.min(1.0 - p);
    if tail == 0.0 {
        return if p < 0.5 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let mut low = -1.0;
    while cdf(low) > tail && low > -1e18 {
        low *= 2.0;
    }
    let mut high = 0.0;
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle == low || middle == high {
            break;
        }
        if cdf(middle) < tail { low = middle } else { high = middle }
    }
    if p < 0.5 { high } else { -high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_values_of_published_tables() {
        for (x, p) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-1.959_963_984_540_054, 0.025),
            (2.575_829_303_548_901, 0.995),
            (-4.9, 4.791_832_765_903_181e-7),
            (-5.0, 2.866_515_718_791_939e-7),
            (-8.0, 6.220_960_574_271_785e-16),
        ] {
            assert!((normal_cdf(x) - p).abs() < 1e-14, "cdf({x}) = {}", normal_cdf(x));
        }
        assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-12);
        assert!((normal_quantile(0.8) - 0.841_621_233_572_914_3).abs() < 1e-12);
    }

    #[test]
    fn t_quantiles_of_published_tables() {
        for (df, p, t) in [
            (1, 0.975, 12.706_204_736_174_7),
            (2, 0.975, 4.302_652_729_749_46),
            (5, 0.975, 2.570_581_835_636_31),
            (9, 0.8, 0.883_403_859_684_53),
            (15, 0.975, 2.131_449_545_559_32),
            (30, 0.995, 2.749_995_653_567_23),
            (1000, 0.975, 1.962_339_080_824_08),
        ] {
            let got = student_t_quantile(p, df);
            assert!((got - t).abs() < 1e-9, "df={df} p={p}: {got}");
            assert!((student_t_quantile(1.0 - p, df) + t).abs() < 1e-9);
        }
    }

    #[test]
    fn ends_and_nonsense() {
        assert_eq!(normal_quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(student_t_quantile(1.0, 4), f64::INFINITY);
        assert_eq!((normal_cdf(f64::NEG_INFINITY), normal_cdf(f64::INFINITY)), (0.0, 1.0));
        assert_eq!((student_t_cdf(f64::NEG_INFINITY, 3), student_t_cdf(f64::INFINITY, 4)), (0.0, 1.0));
        assert!(normal_quantile(1.1).is_nan() && student_t_quantile(0.9, 0).is_nan());
        assert!(normal_cdf(f64::NAN).is_nan());
    }
}
