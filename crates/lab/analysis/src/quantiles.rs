//! Percentiles of an arm with short windows.
//!
//! Histograms of consecutive rounds are merged until they hold enough events for a quantile.
//!
//! # Invariants
//! Never averages percentiles. Never computes one from a stretch with too few events.

use super::compare::ArmWindows;
use toll_record::{Definition, Plan};
use toll_stats::{IntervalError, QuantileRatio, WindowPair};

type Counts = Vec<(u64, u64)>;

/// Quantile of all the arm's windows, and of each block of rounds with enough events, microseconds.
///
/// Windows without a histogram (nothing completed, or the line is lost) add nothing. `None` if all have too
/// few events.
pub fn arm_quantile(
    plan: &Plan,
    definition: &Definition,
    quantile: f64,
    arm: &ArmWindows,
) -> Option<(f64, Vec<f64>)> {
    let told =
        |round: &usize| plan.measures_outcome(definition, *round as u32) && arm.by_round[*round].is_some();
    let windows: Vec<Counts> =
        (0..arm.by_round.len()).filter(told).filter_map(|round| latency_counts(arm, round)).collect();
    let windows: Vec<&[(u64, u64)]> = windows.iter().map(Vec::as_slice).collect();
    let (all, by_block) = toll_stats::block_quantiles(&windows, quantile).ok()?;
    Some((all as f64, by_block.into_iter().map(|value| value as f64).collect()))
}

/// The arm's quantile over the baseline's, by blocks of the rounds in which both have a histogram.
///
/// `None` if there are no such rounds.
pub fn quantile_ratio(
    plan: &Plan,
    definition: &Definition,
    quantile: f64,
    arm: &ArmWindows,
    baseline: &ArmWindows,
) -> Option<Result<QuantileRatio, IntervalError>> {
    let both = |round: &usize| {
        plan.measures_outcome(definition, *round as u32)
            && arm.by_round[*round].is_some()
            && baseline.by_round[*round].is_some()
    };
    let of_both = |round: usize| Some((latency_counts(arm, round)?, latency_counts(baseline, round)?));
    let windows: Vec<(Counts, Counts)> = (0..arm.by_round.len()).filter(both).filter_map(of_both).collect();
    let pairs: Vec<WindowPair> = windows.iter().map(|(arm, baseline)| WindowPair { arm, baseline }).collect();
    (!pairs.is_empty()).then(|| toll_stats::quantile_ratio(&pairs, quantile, plan.alpha, plan.seed))
}

/// Method of a ratio: `bootstrap-bca of 14 blocks of 4 to 5 rounds`.
pub fn format_method(found: &QuantileRatio) -> String {
    let name = if found.used_sign_flips { "sign-flip" } else { "bootstrap-bca" };
    match found.blocks.sizes() {
        (_, 1) => name.to_owned(),
        (least, most) if least == most => format!("{name} of {} blocks of {most} rounds", found.blocks.count),
        (least, most) => format!("{name} of {} blocks of {least} to {most} rounds", found.blocks.count),
    }
}

/// Latencies of the arm's window in a round.
fn latency_counts(arm: &ArmWindows, round: usize) -> Option<Counts> {
    let histogram = arm.histograms[round]?;
    Some(
        histogram
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
            .collect(),
    )
}
