//! Paired differences of a variant and the baseline, round by round. Never drops a window silently.
//!
//! # Windows that are missing, and windows that are zero
//!
//! A *missing* window (`None`: the trial failed, or its outcome does not exist, such as the latency of a
//! window in which nothing completed) takes its round out of the pairs and is listed in [`Pairs::missing`].
//! That is harmless only if failures are independent of the variant.
//!
//! A *zero* (a window with no completions) is a measurement, and often the worst one of the run. The log of
//! it does not exist; leaving it out would favour the variant that stalled. So [`log_ratios`]
//!
//! - refuses, with [`ZeroHandling::Refuse`], naming the round;
//! - or, with [`ZeroHandling::AtMost`] the smallest value that the window could have shown (one completion a
//!   window: `1.0 / window_s`), puts that value in the zero's place and lists the round in
//!   [`Pairs::floored`]. The true ratio is at least as far from one, so the effect is
//!   understated, never invented.
//!
//! Outcomes for which zero is ordinary (stall seconds, drops) have no useful ratio: use [`differences`].

use crate::moments::mean;

/// Paired differences of one arm and the baseline, in the order of rounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pairs {
    /// ln arm - ln baseline ([`log_ratios`]) or arm - baseline ([`differences`]).
    pub d: Vec<f64>,
    /// The round, counted from 0, that each of `d` came from.
    pub rounds: Vec<usize>,
    pub missing: Vec<MissingPair>,
    /// Rounds in which a zero was replaced by its upper bound.
    pub floored: Vec<usize>,
}

impl Pairs {
    /// The differences, one place for each of `rounds` rounds.
    #[must_use]
    pub fn by_round(&self, rounds: usize) -> Vec<Option<f64>> {
        let mut by_round = vec![None; rounds];
        for (&round, &d) in self.rounds.iter().zip(&self.d).filter(|&(&round, _)| round < rounds) {
            by_round[round] = Some(d);
        }
        by_round
    }

    /// Subtracts from each difference its predicted drift ([`crate::estimate_drift`]), given by round for either
    /// side.
    pub fn subtract_drift(&mut self, of_arm: &[f64], of_baseline: &[f64]) {
        for (d, &round) in self.d.iter_mut().zip(&self.rounds) {
            let of = |side: &[f64]| side.get(round).copied().unwrap_or(0.0);
            *d -= of(of_arm) - of(of_baseline);
        }
    }

    /// The estimate: 100 (e^mean(d) - 1); absent without a single pair. For [`log_ratios`] only.
    #[must_use]
    pub fn overhead_pct(&self) -> Option<f64> {
        if self.d.is_empty() { None } else { Some(log_ratio_to_pct(mean(&self.d))) }
    }
}

/// A round that gave no pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingPair {
    pub round: usize,
    pub side: MissingSide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingSide {
    Arm,
    Baseline,
    Both,
}

/// What to do with a window whose outcome is zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ZeroHandling {
    Refuse,
    /// A zero stands for some value of at most this, in the outcome's own unit.
    AtMost(f64),
}

/// Why two series of windows cannot be compared as ratios.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum PairError {
    #[error("{arm} windows of the variant but {baseline} of the baseline: give one of each per round")]
    LengthMismatch { arm: usize, baseline: usize },
    #[error("round {round} has the value {value}: a ratio needs a finite value above zero")]
    NotPositive { round: usize, value: f64 },
    #[error("round {round} has the value {value}: a difference needs a finite value")]
    NotFinite { round: usize, value: f64 },
    #[error("{floor} cannot replace a zero: give a finite value above zero")]
    InvalidFloor { floor: f64 },
}

/// ln arm - ln baseline for each round in which both have a window.
///
/// # Errors
/// Slices of unequal length; a negative or non-finite value; a zero under [`ZeroHandling::Refuse`].
pub fn log_ratios(
    arm: &[Option<f64>],
    baseline: &[Option<f64>],
    zeros: ZeroHandling,
) -> Result<Pairs, PairError> {
    if let ZeroHandling::AtMost(floor) = zeros
        && !(floor.is_finite() && floor > 0.0)
    {
        return Err(PairError::InvalidFloor { floor });
    }
    pair_rounds(arm, baseline, |round, arm, baseline| {
        // A stand-in beyond the other side's value would turn the sign of the effect.
        let bound = if arm > 0.0 { arm } else { f64::INFINITY };
        let (below, below_floored) = replace_zero(round, baseline, zeros, bound)?;
        let bound = if baseline > 0.0 { baseline } else { f64::INFINITY };
        let (above, above_floored) = replace_zero(round, arm, zeros, bound)?;
        Ok((above.ln() - below.ln(), above_floored || below_floored))
    })
}

/// arm - baseline in the outcome's own unit, for outcomes that are often zero.
///
/// # Errors
/// Slices of unequal length, or a value that is not finite.
pub fn differences(arm: &[Option<f64>], baseline: &[Option<f64>]) -> Result<Pairs, PairError> {
    pair_rounds(arm, baseline, |round, arm, baseline| {
        for value in [arm, baseline] {
            if !value.is_finite() {
                return Err(PairError::NotFinite { round, value });
            }
        }
        Ok((arm - baseline, false))
    })
}

/// 100 (e^d - 1): a log ratio as a percentage.
#[must_use]
pub fn log_ratio_to_pct(log_ratio: f64) -> f64 {
    100.0 * log_ratio.exp_m1()
}

/// Log ratio of an overhead in percent; -infinity at -100%, NaN below.
#[must_use]
pub fn pct_to_log_ratio(pct: f64) -> f64 {
    (pct / 100.0).ln_1p()
}

fn replace_zero(round: usize, value: f64, zeros: ZeroHandling, bound: f64) -> Result<(f64, bool), PairError> {
    match zeros {
        _ if value.is_finite() && value > 0.0 => Ok((value, false)),
        ZeroHandling::AtMost(floor) if value == 0.0 => Ok((floor.min(bound), true)),
        ZeroHandling::Refuse | ZeroHandling::AtMost(_) => Err(PairError::NotPositive { round, value }),
    }
}

fn pair_rounds(
    arm: &[Option<f64>],
    baseline: &[Option<f64>],
    compare: impl Fn(usize, f64, f64) -> Result<(f64, bool), PairError>,
) -> Result<Pairs, PairError> {
    if arm.len() != baseline.len() {
        return Err(PairError::LengthMismatch { arm: arm.len(), baseline: baseline.len() });
    }
    let mut pairs = Pairs::default();
    for (round, both) in arm.iter().copied().zip(baseline.iter().copied()).enumerate() {
        let side = match both {
            (Some(a), Some(b)) => {
                let (d, floored) = compare(round, a, b)?;
                pairs.d.push(d);
                pairs.rounds.push(round);
                pairs.floored.extend(floored.then_some(round));
                continue;
            }
            (None, Some(_)) => MissingSide::Arm,
            (Some(_), None) => MissingSide::Baseline,
            (None, None) => MissingSide::Both,
        };
        pairs.missing.push(MissingPair { round, side });
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_ratio_is_its_own_toll() {
        let pairs = log_ratios(
            &[Some(90.0), Some(180.0), Some(45.0)],
            &[Some(100.0), Some(200.0), Some(50.0)],
            ZeroHandling::Refuse,
        )
        .unwrap();
        assert!((pairs.overhead_pct().unwrap() + 10.0).abs() < 1e-12);
        assert_eq!(pairs.rounds, [0, 1, 2]);
    }

    #[test]
    fn a_missing_window_takes_out_its_round_and_is_named() {
        let pairs = log_ratios(
            &[None, Some(2.0), Some(3.0), None],
            &[Some(1.0), Some(1.0), None, None],
            ZeroHandling::Refuse,
        )
        .unwrap();
        assert_eq!(pairs.rounds, [1]);
        assert_eq!(pairs.by_round(3), [None, Some(2.0_f64.ln()), None]);
        let sides: Vec<_> = pairs.missing.iter().map(|m| (m.round, m.side)).collect();
        assert_eq!(sides, [(0, MissingSide::Arm), (2, MissingSide::Baseline), (3, MissingSide::Both)]);
    }

    #[test]
    fn drift_is_taken_from_the_round_that_it_was_seen_in() {
        let mut pairs =
            differences(&[Some(3.0), None, Some(5.0)], &[Some(1.0), Some(1.0), Some(1.0)]).unwrap();
        pairs.subtract_drift(&[0.5, 9.0, 0.25], &[0.25, 9.0]);
        assert_eq!(pairs.d, [1.75, 3.75]);
    }

    #[test]
    fn a_zero_is_refused_or_bounded_but_never_left_out() {
        let (arm, baseline) = ([Some(100.0), Some(0.0)], [Some(100.0), Some(100.0)]);
        assert_eq!(
            log_ratios(&arm, &baseline, ZeroHandling::Refuse),
            Err(PairError::NotPositive { round: 1, value: 0.0 })
        );
        let pairs = log_ratios(&arm, &baseline, ZeroHandling::AtMost(0.1)).unwrap();
        assert_eq!(pairs.floored, [1]);
        assert!((pairs.d[1] - (0.1_f64 / 100.0).ln()).abs() < 1e-12);
    }

    #[test]
    fn a_bounded_zero_never_turns_the_sign_of_an_effect() {
        let cases = [(0.0, 0.05, 0.0), (0.05, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.4, -4.0), (0.4, 0.0, 4.0)];
        for (arm, baseline, want) in cases {
            let pairs = log_ratios(&[Some(arm)], &[Some(baseline)], ZeroHandling::AtMost(0.1)).unwrap();
            let want: f64 = if want == 0.0 { 0.0 } else { 4.0_f64.ln().copysign(want) };
            assert!((pairs.d[0] - want).abs() < 1e-12, "{arm} {baseline}: {pairs:?}");
        }
    }

    #[test]
    fn values_without_a_logarithm_are_refused_by_name() {
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            for zeros in [ZeroHandling::Refuse, ZeroHandling::AtMost(1.0)] {
                let error = log_ratios(&[Some(1.0)], &[Some(value)], zeros).unwrap_err();
                assert!(matches!(error, PairError::NotPositive { round: 0, .. }), "{error}");
            }
        }
        assert!(log_ratios(&[], &[], ZeroHandling::AtMost(0.0)).is_err());
        assert!(log_ratios(&[None], &[], ZeroHandling::Refuse).is_err());
    }

    #[test]
    fn differences_keep_zeros_as_they_are() {
        let pairs = differences(&[Some(0.0), Some(3.0)], &[Some(0.0), Some(1.0)]).unwrap();
        assert_eq!(pairs.d, [0.0, 2.0]);
        let error = differences(&[Some(1.0)], &[Some(f64::INFINITY)]).unwrap_err();
        assert_eq!(error, PairError::NotFinite { round: 0, value: f64::INFINITY });
    }

    #[test]
    fn percent_and_log_ratio_are_inverse() {
        for pct in [-99.0, -1e-9, 0.0, 3.0, 400.0] {
            assert!((log_ratio_to_pct(pct_to_log_ratio(pct)) - pct).abs() < 1e-9);
        }
    }
}
