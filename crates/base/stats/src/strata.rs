//! Change of a mean over classes of unlike queries, at a fixed mix.
//!
//! On a server that serves users the mix of queries changes from one minute to the next, and with it the mean response
//! time. Within a class it does not. So each class is compared with itself, and the weights of the classes are fixed
//! beforehand: a shift between classes changes nothing.

/// Queries of a class in a window: how many, and the sum of the logarithms of their response times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClassWindow {
    pub count: u64,
    pub ln_sum: f64,
}

/// Weighted mean of a window's mean logarithms over the classes that have `least` queries in every window of its block. Two
/// windows of one block differ by how much their queries of each class differ, whatever the mix of either.
///
/// `None`: these classes have less than half of the weight.
#[must_use]
pub fn stratified_mean(
    own: &[ClassWindow],
    block: &[&[ClassWindow]],
    weights: &[f64],
    least: u64,
) -> Option<f64> {
    let (mut sum, mut weight_sum) = (0.0, 0.0);
    for (class, (own, weight)) in own.iter().zip(weights).enumerate() {
        let is_in_all =
            block.iter().all(|window| window.get(class).is_some_and(|of| of.count >= least.max(1)));
        if is_in_all && own.count > 0 {
            sum += weight * own.ln_sum / own.count as f64;
            weight_sum += weight;
        }
    }
    let all: f64 = weights.iter().sum();
    (weight_sum > 0.5 * all).then(|| sum / weight_sum)
}

/// Change of that mean from `off` to `on`, two windows of one block.
#[must_use]
pub fn stratified_change(
    on: &[ClassWindow],
    off: &[ClassWindow],
    weights: &[f64],
    least: u64,
) -> Option<f64> {
    let block = [on, off];
    Some(stratified_mean(on, &block, weights, least)? - stratified_mean(off, &block, weights, least)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(count: u64, mean_us: f64) -> ClassWindow {
        ClassWindow { count, ln_sum: count as f64 * mean_us.ln() }
    }

    #[test]
    fn a_shift_between_classes_is_no_change() {
        let weights = [0.9, 0.1];
        let off = [class(900, 100.0), class(100, 10_000.0)];
        let on = [class(100, 100.0), class(900, 10_000.0)];
        assert!(stratified_change(&on, &off, &weights, 1).unwrap().abs() < 1e-12);
        let slower = [class(100, 103.0), class(900, 10_300.0)];
        assert!((stratified_change(&slower, &off, &weights, 1).unwrap() - 1.03f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn a_class_that_lacks_on_one_side_leaves_the_block() {
        let weights = [0.6, 0.4];
        let off = [class(10, 100.0), class(10, 100.0)];
        let on = [class(10, 110.0), class(0, 1.0)];
        assert!((stratified_change(&on, &off, &weights, 1).unwrap() - 1.1f64.ln()).abs() < 1e-12);
        assert_eq!(stratified_change(&on, &off, &weights, 11), None);
        assert_eq!(stratified_change(&[], &[], &[], 1), None);
        // Half of the mix is not the mix.
        assert_eq!(stratified_change(&on, &off, &[0.5, 0.5], 1), None);
    }
}
