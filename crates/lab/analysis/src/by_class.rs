//! Response time of a window at a fixed mix of classes: what a server's own users saw, or toll's probe queries.
//!
//! On a server that serves users the mix changes by itself. The weights are the plan's, and a class counts only where both
//! windows of the block have it.
//!
//! Where treatments cross over between two servers, each is on at one of them in either window: a window's value is the ratio of
//! both, and what slows both at the same time cancels.

use super::run_data::{RunData, samples_within};
use super::windows::Window;
use std::collections::BTreeMap;
use toll_record::{Asker, ClassSample};
use toll_stats::{ClassWindow, stratified_mean};

/// Queries of a class that a window needs: the mean of fewer says little of the class.
const LEAST_QUERIES: u64 = 5;
/// Stretches end with the wall clock, and windows with the monotonic one: what begins at the same moment differs by less.
const CLOCKS_APART_US: u64 = 1_000;

/// Geometric mean, microseconds. `None`: the window, or another of its block, has too few of the classes.
///
/// Of two servers it is the block's mean, times the root of the first server's over the second's: from a window with the treatment
/// on at the first to one with it on at the second, that changes by the geometric mean of both effects.
pub fn mean_us(recorded: &RunData, window: &Window, block: &[&Window], of: Asker) -> Option<f64> {
    if !recorded.plan.setup.crosses_over() {
        return mean_ln_us(recorded, window, block, of, 0).map(f64::exp);
    }
    let of_both = |window: &Window| -> Option<[f64; 2]> {
        Some([mean_ln_us(recorded, window, block, of, 0)?, mean_ln_us(recorded, window, block, of, 1)?])
    };
    let [first, second] = of_both(window)?;
    let all = block.iter().map(|window| of_both(window)).collect::<Option<Vec<_>>>()?;
    let level = toll_stats::mean(all.as_flattened());
    Some(f64::exp(level + (first - second) / 2.0))
}

/// Of one server.
fn mean_ln_us(recorded: &RunData, window: &Window, block: &[&Window], of: Asker, server: u32) -> Option<f64> {
    let (names, weights): (Vec<&str>, Vec<f64>) = match of {
        Asker::Users => recorded.plan.classes.iter().map(|class| (class.name.as_str(), class.weight)).unzip(),
        Asker::Probe => (vec![ClassSample::PROBE], vec![1.0]),
    };
    let own = class_windows(recorded, window, &names, server);
    let others: Vec<Vec<ClassWindow>> =
        block.iter().map(|window| class_windows(recorded, window, &names, server)).collect();
    let block: Vec<&[ClassWindow]> = others.iter().map(Vec::as_slice).collect();
    stratified_mean(&own, &block, &weights, LEAST_QUERIES)
}

/// Sums over the stretches that lie wholly inside the window: one that reaches over its edge has queries of both sides.
fn class_windows(recorded: &RunData, window: &Window, names: &[&str], server: u32) -> Vec<ClassWindow> {
    let mut sums: BTreeMap<&str, ClassWindow> = BTreeMap::new();
    let inside = samples_within(&recorded.classes, window.begin_us, window.end_us + CLOCKS_APART_US);
    let is_whole =
        |sample: &&ClassSample| sample.mono_us + CLOCKS_APART_US >= window.begin_us + sample.width_us;
    for sample in inside.iter().filter(|sample| sample.server == server).filter(is_whole) {
        for (name, times) in &sample.classes {
            let sum = sums.entry(name).or_default();
            sum.count += times.count;
            sum.ln_sum += times.ln_us_sum;
        }
    }
    names.iter().map(|name| sums.get(name).copied().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_record::{ClassTimes, QueryClass};

    fn recorded(second: &[&str]) -> RunData {
        let plan = serde_json::json!({
            "format": toll_record::FORMAT, "toll_version": "0", "command": [], "scenario": "x", "question": "?",
            "profile": "live", "seed": 1, "baseline": "off", "primary": "", "outcomes": [], "columns": [],
            "panels": [], "margin_pct": 5.0, "alpha": 0.05, "setup": { "second": second }, "rounds": 1,
            "window_s": 1.0, "settle_s": 0.5, "gap_s": 0.0, "pilot_s": 0.0, "early_stop": true, "arms": [],
            "order": [], "jitter": 0.2, "started_wall_us": 0,
        });
        let mut recorded = RunData::without_samples(serde_json::from_value(plan).unwrap());
        recorded.plan.classes = vec![QueryClass { name: "a".to_owned(), title: "a".to_owned(), weight: 1.0 }];
        recorded
    }

    fn window(begin_us: u64) -> Window {
        Window {
            trial: 0,
            round: 0,
            arm: 0,
            on_us: None,
            begin_us,
            end_us: begin_us + 1_000_000,
            cpu: None,
            runs: None,
            artefact_bytes: None,
            processes: Vec::new(),
            stages: Vec::new(),
        }
    }

    /// Queries of one server in the second that begins then.
    fn sample(server: u32, begin_us: u64, mean_us: f64) -> ClassSample {
        let times = ClassTimes { count: 10, ln_us_sum: 10.0 * mean_us.ln() };
        ClassSample {
            mono_us: begin_us + 1_000_000,
            width_us: 1_000_000,
            server,
            classes: [("a".to_owned(), times)].into(),
        }
    }

    #[test]
    fn stretches_in_step_with_a_window_are_all_in_it_and_others_only_where_they_are_whole() {
        let mut recorded = recorded(&[]);
        recorded.plan.setup.second.clear();
        let mean =
            |recorded: &RunData| mean_us(recorded, &window(5_000_000), &[&window(5_000_000)], Asker::Users);
        for (begin_us, is_in) in
            [(4_999_400, true), (5_000_600, true), (4_990_000, false), (5_010_000, false)]
        {
            recorded.classes = vec![sample(0, begin_us, 120.0)];
            assert_eq!(mean(&recorded).is_some(), is_in, "{begin_us}");
        }
    }

    #[test]
    fn what_slows_both_servers_cancels_and_the_treatment_of_either_counts() {
        let mut recorded = recorded(&["off"]);
        // On at the first server, which gets slower by a fifth; then at the second, while all is slower by a half.
        let (first, second) = (window(0), window(5_000_000));
        recorded.classes = vec![
            sample(0, 0, 120.0),
            sample(1, 0, 300.0),
            sample(0, 5_000_000, 150.0),
            sample(1, 5_000_000, 300.0 * 1.5 * 1.2),
        ];
        let block = [&first, &second];
        let value = |window| mean_us(&recorded, window, &block, Asker::Users).unwrap();
        assert!((value(&first) / value(&second) - 1.2).abs() < 1e-9);
        // As long as queries take, not a bare ratio.
        assert!((100.0..600.0).contains(&value(&first)), "{}", value(&first));
        // A server whose queries are not seen leaves nothing to compare with.
        recorded.classes.retain(|sample| sample.server == 0);
        assert!(mean_us(&recorded, &first, &block, Asker::Users).is_none());
        recorded.plan.setup.second.clear();
        let alone = mean_us(&recorded, &first, &block, Asker::Users).unwrap();
        assert!((alone - 120.0).abs() < 1e-9);
    }
}
