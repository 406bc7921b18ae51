//! Verdict on one outcome of one variant, from interval and margin.
//!
//! Never returns "no effect" for lack of data.

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
/// need an interval that excludes zero; where several arms are judged together it must be a simultaneous one
/// ([`crate::simultaneous_sign_flips`]). A margin of zero switches "no effect" off.
#[must_use]
pub fn verdict(interval: Option<Interval>, margin: f64, higher_is_better: bool) -> Verdict {
    let Some(interval) = interval else { return Verdict::NoInterval };
    if margin > 0.0 && interval.lies_within(margin) {
        return Verdict::NoEffect;
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
    fn verdicts_follow_interval_margin_and_direction() {
        use Verdict::{Cheaper, Costly, NoEffect, NoInterval, Unclear};
        type Case = (Option<(f64, f64)>, bool, Verdict);
        let cases: &[Case] = &[
            (Some((-9.0, -3.0)), true, Costly),
            (Some((-9.0, -3.0)), false, Cheaper),
            (Some((3.0, 9.0)), true, Cheaper),
            (Some((3.0, 9.0)), false, Costly),
            (Some((-1.0, 1.5)), true, NoEffect),
            (Some((-1.5, -0.5)), true, NoEffect),
            (Some((-2.5, 1.0)), true, Unclear),
            // Touching zero is holding zero: the p of a sign-flip interval is then above alpha.
            (Some((-9.0, 0.0)), true, Unclear),
            (Some((f64::NAN, f64::NAN)), true, Unclear),
            (None, true, NoInterval),
        ];
        for &(interval, higher_is_better, want) in cases {
            let interval = interval.map(|(low, high)| Interval { low, high });
            let got = verdict(interval, 2.0, higher_is_better);
            assert_eq!(got, want, "{interval:?} higher={higher_is_better}");
        }
    }

    #[test]
    fn a_margin_of_zero_never_says_no_effect() {
        let nothing = Some(Interval { low: 0.0, high: 0.0 });
        assert_eq!(verdict(nothing, 0.0, true), Verdict::Unclear);
    }
}
