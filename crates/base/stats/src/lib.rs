//! Statistics of paired windows: intervals, tests and verdicts. Never reads a clock, file or socket.
//!
//! Order of use: [`draw_orders`] draws the order of the variants, and [`log_ratios`] pairs their windows.
//! [`sign_flip`] gives the interval and p value of one variant. [`simultaneous_sign_flips`] gives those of
//! all variants that are judged together. [`judge_interval`] turns an interval into a verdict.
//! [`estimate_drift`] estimates the drift of the host. [`quantile_ratio()`] compares tails, and
//! [`pool_estimates`] combines runs. [`observed_changes`] compares periods that nobody randomised. The checks are [`lag1_autocorrelation`], [`carry_over()`] and stalls.
//!
//! Everything works on the log scale unless its name contains `pct`; [`log_ratio_to_pct`] converts. Too little
//! data gives an [`IntervalError`] with the reason, never a guess. Every random draw comes from a seed the caller
//! gives, and is the same on every platform.
//!
//! ```
//! use toll_stats::{Verdict, ZeroHandling, judge_interval, log_ratios, sign_flip};
//!
//! // Queries per second, one window a round; in the third round the treatment failed to start.
//! let with = [Some(912.), Some(899.), None, Some(921.), Some(880.), Some(905.), Some(933.), Some(901.)];
//! let without = [Some(990.), Some(972.), Some(985.), Some(1011.), Some(969.), Some(980.), Some(1004.), Some(988.)];
//! let pairs = log_ratios(&with, &without, ZeroHandling::Refuse)?;
//! assert_eq!(pairs.missing.len(), 1);
//!
//! let found = sign_flip(&pairs.d, 0.05, 1);
//! let overhead = found.interval?.to_pct();
//! let text = format!("{:.1}% [{:.1}, {:.1}]", pairs.overhead_pct().unwrap(), overhead.low, overhead.high);
//! assert_eq!(text, "-8.1% [-9.0, -7.4]");
//! assert_eq!(judge_interval(Some(overhead), 2.0, true), Verdict::Worse);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// What `clippy.toml` beside Cargo.toml names.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod autocorrelation;
mod bootstrap;
mod carry_over;
mod common_spread;
mod drift;
mod interval;
mod mde;
mod median;
mod moments;
mod observed_change;
mod pairs;
mod pooling;
mod quantile_ratio;
mod quantiles;
pub mod random;
mod randomisation;
mod ratio_of_means;
pub mod schedule;
mod seeded_rng;
mod sign_sequence;
mod signflip;
mod stalls;
mod strata;
mod verdict;

pub use autocorrelation::{Autocorrelation, block_length, lag1_autocorrelation, stationary_bootstrap};
pub use bootstrap::{MIN_BOOTSTRAP_ROUNDS, bca, bca_median, bootstrap_t};
pub use carry_over::{CarryOver, carry_over};
pub use common_spread::{CommonSpread, MIN_COMMON_ROUNDS, common_spreads};
pub use drift::{Drift, TimedWindow, estimate_drift};
pub use interval::{Interval, IntervalError};
pub use mde::{minimum_detectable_effect, rounds_needed};
pub use median::median_interval;
pub use moments::{mean, median, sd};
pub use observed_change::{
    CommonChange, MIN_COMMON_SERIES, MIN_SPREAD_SERIES, ObservedChange, ObservedChanges, ObservedSeries,
    observed_changes,
};
pub use pairs::{
    MissingPair, MissingSide, PairError, Pairs, ZeroHandling, differences, log_ratio_to_pct, log_ratios,
    pct_to_log_ratio,
};
pub use pooling::{PooledEstimate, RunEstimate, pool_estimates};
pub use quantile_ratio::{
    Blocks, QuantileRatio, WindowPair, block_quantiles, events_for_quantile, quantile_ratio,
};
pub use quantiles::{normal_cdf, normal_quantile, student_t_cdf, student_t_quantile};
pub use randomisation::{draw_jitters, draw_orders};
pub use ratio_of_means::ratio_of_means;
pub use seeded_rng::SeededRng;
pub use sign_sequence::{blocks_for_sequence, sequence_mde, sign_sequence, sign_sequence_p};
pub use signflip::{SignFlip, rounds_for_interval, sign_flip, simultaneous_sign_flips, smallest_p};
pub use stalls::{
    HARNESS_LATE_US, LoadBin, Stall, StallRuleError, StallTotals, ThroughputRule, harness_stalls,
    latency_stall_threshold_us, latency_stalls, stall_totals,
};
pub use strata::{ClassWindow, stratified_change, stratified_mean};
pub use verdict::{Verdict, judge_interval};
