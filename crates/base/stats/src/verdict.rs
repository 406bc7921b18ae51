//! Verdict on one outcome of one variant, from interval and margin.
//!
//! Never returns "no effect" for lack of data.

use crate::interval::Interval;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Worse than the baseline, by an amount the interval does not hold to be negligible.
    Worse,
    /// Better than the baseline.
    Better,
    /// The interval lies inside the margin, even if it does not hold zero.
    Equivalent,
    /// Neither can be said: more rounds are needed.
    Inconclusive,
    /// There is no interval to judge by.
    NoInterval,
}

/// The verdict on one outcome of one arm.
///
/// `interval` and `margin` share a unit (percent, or log ratios). "No effect" comes first: an interval inside
/// ±margin is a claim of equivalence, however small an effect it resolves. "Costly" and "cheaper"
/// need an interval that excludes zero; where several arms are judged together it must be a simultaneous one
/// ([`crate::simultaneous_sign_flips`]). A margin of zero switches "no effect" off, except for an interval of zero width
/// at zero: then every pair is equal.
#[must_use]
pub fn judge_interval(interval: Option<Interval>, margin: f64, higher_is_better: bool) -> Verdict {
    let Some(interval) = interval else { return Verdict::NoInterval };
    let is_equal = interval.low == 0.0 && interval.high == 0.0;
    if is_equal || margin > 0.0 && interval.lies_within(margin) {
        return Verdict::Equivalent;
    }
    match (interval.low > 0.0, interval.high < 0.0) {
        (true, _) if higher_is_better => Verdict::Better,
        (true, _) => Verdict::Worse,
        (_, true) if higher_is_better => Verdict::Worse,
        (_, true) => Verdict::Better,
        (false, false) => Verdict::Inconclusive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_interval_margin_and_direction() {
        use Verdict::{Better, Equivalent, Inconclusive, NoInterval, Worse};
        type Case = (Option<(f64, f64)>, bool, Verdict);
        let cases: &[Case] = &[
            (Some((-9.0, -3.0)), true, Worse),
            (Some((-9.0, -3.0)), false, Better),
            (Some((3.0, 9.0)), true, Better),
            (Some((3.0, 9.0)), false, Worse),
            (Some((-1.0, 1.5)), true, Equivalent),
            (Some((-1.5, -0.5)), true, Equivalent),
            (Some((-2.5, 1.0)), true, Inconclusive),
            // Touching zero is holding zero: the p of a sign-flip interval is then above alpha.
            (Some((-9.0, 0.0)), true, Inconclusive),
            (Some((f64::NAN, f64::NAN)), true, Inconclusive),
            (None, true, NoInterval),
        ];
        for &(interval, higher_is_better, want) in cases {
            let interval = interval.map(|(low, high)| Interval { low, high });
            let got = judge_interval(interval, 2.0, higher_is_better);
            assert_eq!(got, want, "{interval:?} higher={higher_is_better}");
        }
    }

    #[test]
    fn without_a_margin_only_equal_pairs_are_equivalent() {
        let judged = |low, high| judge_interval(Some(Interval { low, high }), 0.0, true);
        assert_eq!(judged(0.0, 0.0), Verdict::Equivalent);
        assert_eq!(judged(-1e-9, 1e-9), Verdict::Inconclusive);
    }
}
