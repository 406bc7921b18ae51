//! Response time of a window at a fixed mix of classes: what a server's own users saw, or toll's probe queries.
//!
//! On a server that serves users the mix changes by itself. The weights are the plan's, and a class counts only where both
//! windows of the block have it.

use super::run_data::{RunData, samples_within};
use super::windows::Window;
use std::collections::BTreeMap;
use toll_record::{Asker, ClassSample};
use toll_stats::{ClassWindow, stratified_mean};

/// Queries of a class that a window needs: the mean of fewer says little of the class.
const LEAST_QUERIES: u64 = 5;

/// Geometric mean, microseconds. `None`: the window, or another of its block, has too few of the classes.
pub fn mean_us(recorded: &RunData, window: &Window, block: &[&Window], of: Asker) -> Option<f64> {
    let (names, weights): (Vec<&str>, Vec<f64>) = match of {
        Asker::Users => recorded.plan.classes.iter().map(|class| (class.name.as_str(), class.weight)).unzip(),
        Asker::Probe => (vec![ClassSample::PROBE], vec![1.0]),
    };
    let own = class_windows(recorded, window, &names);
    let others: Vec<Vec<ClassWindow>> =
        block.iter().map(|window| class_windows(recorded, window, &names)).collect();
    let block: Vec<&[ClassWindow]> = others.iter().map(Vec::as_slice).collect();
    stratified_mean(&own, &block, &weights, LEAST_QUERIES).map(f64::exp)
}

/// Sums over the stretches that lie wholly inside the window: one that reaches over its edge has queries of both sides.
fn class_windows(recorded: &RunData, window: &Window, names: &[&str]) -> Vec<ClassWindow> {
    let mut sums: BTreeMap<&str, ClassWindow> = BTreeMap::new();
    let inside = samples_within(&recorded.classes, window.begin_us, window.end_us);
    for sample in inside.iter().filter(|sample| sample.mono_us - sample.width_us >= window.begin_us) {
        for (name, times) in &sample.classes {
            let sum = sums.entry(name).or_default();
            sum.count += times.count;
            sum.ln_sum += times.ln_us_sum;
        }
    }
    names.iter().map(|name| sums.get(name).copied().unwrap_or_default()).collect()
}
