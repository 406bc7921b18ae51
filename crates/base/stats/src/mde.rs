//! Minimum detectable effect and the number of rounds it needs (power analysis).
//!
//! Never promises more than the pilot's spread allows.

use crate::quantiles::student_t_quantile;
use crate::signflip::rounds_for_interval;

/// An experiment larger than this is not a plan.
const MAX_ROUNDS: u32 = 100_000;

/// The smallest true effect that `rounds` pairs find with the given `power` at level `alpha`:
/// (t_{1-alpha/2, n-1} + t_{power, n-1}) sd / sqrt(n).
///
/// `arms` that are judged together have each its share of alpha, by Bonferroni, which asks for a little more than
/// [`crate::simultaneous_sign_flips`] does; 1: judged by itself.
///
/// `sd` is that of the paired differences of a baseline against itself (log ratios; [`crate::log_ratio_to_pct`]
/// turns the answer into percent). Absent with too few rounds for an interval, or an `sd` that is not a
/// finite number of at least zero.
#[must_use]
pub fn minimum_detectable_effect(sd: f64, rounds: u32, alpha: f64, arms: u32, power: f64) -> Option<f64> {
    if (rounds as usize) < rounds_for_interval(alpha) || !(sd.is_finite() && sd >= 0.0) {
        return None;
    }
    let share = alpha / f64::from(arms.max(1));
    let effect = multiplier(rounds, share, power) * sd / f64::from(rounds).sqrt();
    effect.is_finite().then_some(effect)
}

/// The fewest rounds whose minimal detectable effect is at most `effect` (same scale as `sd`; its sign
/// is ignored). Absent for an effect of zero, and where 100,000 rounds would not do.
#[must_use]
pub fn rounds_needed(sd: f64, effect: f64, alpha: f64, arms: u32, power: f64) -> Option<u32> {
    let finds = |n: u32| {
        minimum_detectable_effect(sd, n, alpha, arms, power).is_some_and(|smallest| smallest <= effect.abs())
    };
    if effect == 0.0 || effect.is_nan() {
        return None;
    }
    // The detectable effect falls with every round, so bisection finds the first that will do. Its upper bound is doubled: a quantile
    // takes as long as there are rounds.
    let (mut too_few, mut enough) = (0, 1);
    while !finds(enough) {
        if enough == MAX_ROUNDS {
            return None;
        }
        (too_few, enough) = (enough, (2 * enough).min(MAX_ROUNDS));
    }
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if finds(middle) { enough = middle } else { too_few = middle }
    }
    Some(enough)
}

fn multiplier(rounds: u32, alpha: f64, power: f64) -> f64 {
    let df = rounds - 1;
    student_t_quantile(1.0 - alpha / 2.0, df) + student_t_quantile(power, df)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_rounds_with_an_sd_of_three_percent() {
        // (2.262157 + 0.883404) x .03 / sqrt(10)
        let got = minimum_detectable_effect(0.03, 10, 0.05, 1, 0.8).unwrap();
        assert!((got - 0.029_841_3).abs() < 1e-6, "{got}");
    }

    #[test]
    fn rounds_needed_is_the_first_count_that_will_do() {
        for effect in [0.005, 0.02, -0.05] {
            let n = rounds_needed(0.03, effect, 0.05, 1, 0.8).unwrap();
            assert!(minimum_detectable_effect(0.03, n, 0.05, 1, 0.8).unwrap() <= effect.abs());
            let fewer = minimum_detectable_effect(0.03, n - 1, 0.05, 1, 0.8);
            assert!(fewer.is_none_or(|smallest| smallest > effect.abs()), "{effect} {n} {fewer:?}");
        }
        // However steady the pilot, an interval takes six rounds.
        assert_eq!(rounds_needed(0.0, 0.01, 0.05, 1, 0.8), Some(6));
    }

    #[test]
    fn arms_that_are_judged_together_need_a_larger_effect_but_no_more_rounds_for_any() {
        let of = |rounds, arms| minimum_detectable_effect(0.03, rounds, 0.05, arms, 0.8);
        // (3.690662 + 0.883404) x .03 / sqrt(10): t at 1 - .05 / 20.
        assert!((of(10, 10).unwrap() - 0.043_393).abs() < 1e-5, "{:?}", of(10, 10));
        assert!(of(6, 20) > of(6, 1) && of(6, 1).is_some() && of(5, 1).is_none());
    }

    #[test]
    fn what_cannot_be_planned_has_no_answer() {
        assert_eq!(minimum_detectable_effect(0.03, 5, 0.05, 1, 0.8), None);
        assert_eq!(minimum_detectable_effect(f64::NAN, 10, 0.05, 1, 0.8), None);
        assert_eq!(rounds_needed(0.03, 0.0, 0.05, 1, 0.8), None);
        assert_eq!(rounds_needed(0.03, 1e-9, 0.05, 1, 0.8), None);
    }
}
