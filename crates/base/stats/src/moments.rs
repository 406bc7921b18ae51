//! Mean, standard deviation and median of a sample. Never ignores a value: one NaN makes the result NaN.

/// Arithmetic mean; NaN of nothing.
#[must_use]
pub fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// Sample standard deviation, divisor n - 1; NaN of fewer than two values.
#[must_use]
pub fn sd(x: &[f64]) -> f64 {
    if x.len() < 2 {
        return f64::NAN;
    }
    let centre = mean(x);
    let squares: f64 = x.iter().map(|v| (v - centre) * (v - centre)).sum();
    (squares / (x.len() - 1) as f64).sqrt()
}

/// Middle value, or the mean of the two middle ones; NaN of nothing.
#[must_use]
pub fn median(x: &[f64]) -> f64 {
    if x.is_empty() || x.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = x.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_known_samples() {
        let x = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&x), 5.0);
        assert!((sd(&x) - (32.0_f64 / 7.0).sqrt()).abs() < 1e-15);
        assert_eq!(median(&x), 4.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn nothing_and_nan_give_nan() {
        assert!(mean(&[]).is_nan() && median(&[]).is_nan() && sd(&[1.0]).is_nan());
        assert!(median(&[1.0, f64::NAN]).is_nan() && mean(&[1.0, f64::NAN]).is_nan());
    }
}
