//! Coverage check: the load's bins must cover each window.
//!
//! A window with missing samples is left out. Never uses the rest of it.

use super::run_data::{RunData, samples_within};
use super::warnings::{AffectedTrials, RunWarning};
use super::windows::{Trials, Window, describe_trials};
use toll_record::{Meter, Plan};

/// Bins that may be missing at a window's edges: bins are placed by their ends, and reports have jitter.
const EDGE_BINS: f64 = 1.5;
/// Share of a window that may be missing beyond that.
const MAX_GAP_SHARE: f64 = 0.05;

/// True if a load runs beside the arm at this position.
pub fn is_loaded(plan: &Plan, arm: usize) -> bool {
    plan.arms[arm].meter != Meter::None
}

/// True if the arm's driver reports the histogram of each window.
pub fn has_histograms(plan: &Plan, arm: usize) -> bool {
    plan.arms[arm].workload.driver == "toll"
}

/// Leaves out the windows that the load's bins do not cover.
pub fn exclude_uncovered(recorded: &RunData, trials: &mut Trials) -> Option<RunWarning> {
    let plan = &recorded.plan;
    let uncovered = |window: &Window| is_loaded(plan, window.arm) && !is_covered(recorded, window);
    let lost: Vec<(usize, u32)> =
        trials.exclude_windows(uncovered).iter().map(|w| (w.arm, w.round)).collect();
    let of_a_round = plan.order.first().map_or(0, Vec::len);
    (!lost.is_empty()).then(|| RunWarning::SamplesMissing {
        windows: AffectedTrials { count: lost.len(), names: describe_trials(plan, &lost, of_a_round) },
    })
}

fn is_covered(recorded: &RunData, window: &Window) -> bool {
    let widths: Vec<f64> = samples_within(&recorded.bins, window.begin_us, window.end_us)
        .iter()
        .map(|bin| bin.width_us as f64 / 1e6)
        .collect();
    if widths.is_empty() {
        return false;
    }
    let lacking = window.seconds() - widths.iter().sum::<f64>();
    lacking <= EDGE_BINS * toll_stats::median(&widths) + MAX_GAP_SHARE * window.seconds()
}

/// Warns of windows whose histogram is missing although the driver writes them.
///
/// A window in which nothing completed has none.
pub fn warn_missing_histograms(recorded: &RunData, windows: &[Window]) -> Option<RunWarning> {
    let due: Vec<&Window> = windows
        .iter()
        .filter(|w| has_histograms(&recorded.plan, w.arm))
        .filter(|w| samples_within(&recorded.bins, w.begin_us, w.end_us).iter().any(|bin| bin.events > 0))
        .collect();
    let known: std::collections::BTreeSet<u32> = recorded.latencies.iter().map(|l| l.trial).collect();
    let lost = due.iter().filter(|w| !known.contains(&w.trial)).count();
    (lost > 0).then_some(RunWarning::LatencyMissing { windows: lost, of: due.len() })
}
