//! How does a p value change when several arms are asked? Never decides what is significant.

/// Holm's step-down adjustment, in the order given: an arm may be called different at level alpha when
/// its adjusted p is at most alpha, and the chance of any false call among all arms stays below alpha,
/// whatever the dependence between them.
///
/// Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Stat. 6 (1979).
/// Give one p for every arm that was asked, also the hopeless ones (NaN counts as 1).
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let known = |i: usize| if p[i].is_nan() { 1.0 } else { p[i] };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| known(a).total_cmp(&known(b)));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest = 0.0_f64;
    for (rank, &i) in order.iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * known(i)).min(1.0);
        adjusted[i] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_values_of_a_worked_example() {
        // 4 x .01, 3 x .02, 2 x .03 = .06 (kept at the running maximum), 1 x .04 -> .06.
        let adjusted = holm(&[0.04, 0.01, 0.03, 0.02]);
        for (got, want) in adjusted.iter().zip([0.06, 0.04, 0.06, 0.06]) {
            assert!((got - want).abs() < 1e-15, "{adjusted:?}");
        }
    }

    #[test]
    fn one_arm_is_not_adjusted_and_nothing_exceeds_one() {
        assert_eq!(holm(&[0.03]), [0.03]);
        assert_eq!(holm(&[0.6, 0.9, f64::NAN]), [1.0, 1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
