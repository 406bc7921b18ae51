//! Confidence interval type, and the reasons why an interval may be missing. Never computes one.

use crate::pairs::log_ratio_to_pct;

/// Closed, `low <= high`; on the log scale unless it came from [`Interval::to_pct`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The same interval of log ratios, in percent.
    #[must_use]
    pub fn to_pct(self) -> Interval {
        Interval { low: log_ratio_to_pct(self.low), high: log_ratio_to_pct(self.high) }
    }

    #[must_use]
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Wholly within [-margin, margin].
    #[must_use]
    pub fn lies_within(self, margin: f64) -> bool {
        -margin <= self.low && self.high <= margin
    }
}

/// Why the data allows no interval.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum IntervalError {
    #[error("{have} rounds are too few for an interval: run at least {need}")]
    TooFewRounds { have: usize, need: usize },
    /// The quantile lies too far in the tail for the events of all windows together.
    #[error(
        "{have} events in all rounds are too few for this quantile: at least {need} are needed, run more rounds or lengthen the window"
    )]
    TooFewEvents { have: u64, need: u64 },
    /// Rounds put together until each block has the events that a quantile needs.
    #[error(
        "an interval of this quantile needs the events of {need} blocks of rounds and there are those of {have}: run more rounds or lengthen the window"
    )]
    TooFewBlocks { have: usize, need: usize },
    #[error("{have} runs have no spread: pool at least {need}")]
    TooFewRuns { have: usize, need: usize },
    /// A ratio whose denominator is not distinguishable from zero.
    #[error("the denominator is not distinguishable from zero: run more rounds")]
    Unbounded,
    /// A statistic came out as NaN or infinity.
    #[error("a value is not finite: check the windows that it comes from")]
    NotFinite,
    /// The level asked for is out of the range that the resampling can resolve.
    #[error("alpha {alpha} is not between 0.0001 and 1: 0.05 gives a 95% interval")]
    InvalidAlpha { alpha: f64 },
}

/// The checks that every interval begins with.
pub(crate) fn check_sample(d: &[f64], need: usize, alpha: f64) -> Result<(), IntervalError> {
    check_alpha(alpha)?;
    if d.len() < need {
        return Err(IntervalError::TooFewRounds { have: d.len(), need });
    }
    if d.iter().any(|v| !v.is_finite()) {
        return Err(IntervalError::NotFinite);
    }
    Ok(())
}

pub(crate) fn check_alpha(alpha: f64) -> Result<(), IntervalError> {
    if (1e-4..1.0).contains(&alpha) { Ok(()) } else { Err(IntervalError::InvalidAlpha { alpha }) }
}
