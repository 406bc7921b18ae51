//! Which words do the numbers allow? Never says "no effect" for want of data.

use crate::interval::Interval;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Worse than the baseline, by an amount the interval does not hold to be negligible.
    Costly,
    /// Better than the baseline.
    Cheaper,
    /// The interval lies inside the margin, even if it does not hold zero.
    NoEffect,
    /// Neither can be said: more rounds are needed.
    Unclear,
    /// There is no interval to judge by.
    NoInterval,
}

/// The verdict on one outcome of one arm.
///
/// `interval` and `margin` share a unit (percent, or log ratios). "No effect" comes first: an interval inside
/// ±margin is a claim of equivalence, however small an effect it resolves. "Costly" and "cheaper"
/// need an interval that excludes zero and, where `p_holm` is given (the primary outcome,
/// adjusted over the arms), `p_holm <= alpha`. A margin of zero switches "no effect" off.
#[must_use]
pub fn verdict(
    interval: Option<Interval>,
    margin: f64,
    higher_is_better: bool,
    p_holm: Option<f64>,
    alpha: f64,
) -> Verdict {
    let Some(interval) = interval else { return Verdict::NoInterval };
    if margin > 0.0 && interval.lies_within(margin) {
        return Verdict::NoEffect;
    }
    if p_holm.is_some_and(|p| p.is_nan() || p > alpha) {
        return Verdict::Unclear;
    }
    match (interval.low > 0.0, interval.high < 0.0) {
        (true, _) if higher_is_better => Verdict::Cheaper,
        (true, _) => Verdict::Costly,
        (_, true) if higher_is_better => Verdict::Costly,
        (_, true) => Verdict::Cheaper,
        (false, false) => Verdict::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_interval_margin_direction_and_family() {
        use Verdict::{Cheaper, Costly, NoEffect, NoInterval, Unclear};
        type Case = (Option<(f64, f64)>, bool, Option<f64>, Verdict);
        let cases: &[Case] = &[
            (Some((-9.0, -3.0)), true, None, Costly),
            (Some((-9.0, -3.0)), false, None, Cheaper),
            (Some((3.0, 9.0)), true, None, Cheaper),
            (Some((3.0, 9.0)), false, None, Costly),
            (Some((-9.0, -3.0)), true, Some(0.05), Costly),
            (Some((-9.0, -3.0)), true, Some(0.06), Unclear),
            (Some((-9.0, -3.0)), true, Some(f64::NAN), Unclear),
            (Some((-1.0, 1.5)), true, None, NoEffect),
            (Some((-1.5, -0.5)), true, Some(0.001), NoEffect),
            (Some((-2.5, 1.0)), true, None, Unclear),
            // Touching zero is holding zero: the p of a sign-flip interval is then above alpha.
            (Some((-9.0, 0.0)), true, None, Unclear),
            (Some((f64::NAN, f64::NAN)), true, None, Unclear),
            (None, true, Some(0.001), NoInterval),
        ];
        for &(interval, higher_is_better, p_holm, want) in cases {
            let interval = interval.map(|(low, high)| Interval { low, high });
            let got = verdict(interval, 2.0, higher_is_better, p_holm, 0.05);
            assert_eq!(got, want, "{interval:?} higher={higher_is_better} p_holm={p_holm:?}");
        }
    }

    #[test]
    fn a_margin_of_zero_never_says_no_effect() {
        let nothing = Some(Interval { low: 0.0, high: 0.0 });
        assert_eq!(verdict(nothing, 0.0, true, None, 0.05), Verdict::Unclear);
    }
}
