//! Windows of each arm by round, and their comparison.

use super::compare::{ArmWindows, Comparison, compare, judge_together, verdict_outcome_name};
use super::recovery;
use super::run_data::RunData;
use super::stalls::{self, Stalls};
use super::window_outcomes::{self, WindowContext, quantile_of};
use super::windows::Window;
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use toll_record::{Artefact, Compare, Definition, Plan, Role, StallTotals, Verdict};
use toll_stats::{CommonSpread, TimedWindow};

/// All arms of the plan, in its order.
#[derive(Debug)]
pub struct Arms<'a> {
    pub windows: Vec<ArmWindows<'a>>,
    /// Position of the baseline.
    pub baseline: usize,
    pub stalls: Stalls,
    /// For each arm, true if its windows end with its command.
    ends_with_command: Vec<bool>,
}

impl<'a> Arms<'a> {
    pub fn assemble(recorded: &'a RunData, windows: &[Window]) -> Self {
        let plan = &recorded.plan;
        let baseline = plan.arms.iter().position(|arm| arm.name == plan.baseline).unwrap_or(0);
        let histograms: BTreeMap<u32, &Histogram<u64>> =
            recorded.latencies.iter().map(|l| (l.trial, &l.histogram)).collect();
        let artefacts: BTreeMap<u32, &Artefact> = recorded.artefacts.iter().map(|a| (a.trial, a)).collect();

        let mut arms: Vec<ArmWindows> =
            plan.arms.iter().map(|_| ArmWindows::with_rounds(plan.order.len())).collect();
        for window in windows {
            let arm = &mut arms[window.arm];
            arm.histograms[window.round as usize] = histograms.get(&window.trial).copied();
            arm.at_s[window.round as usize] = Some((window.begin_us + window.end_us) as f64 / 2e6);
        }
        let held_against: Vec<usize> =
            (0..arms.len()).map(|i| baseline_of(plan, i, baseline).unwrap_or(i)).collect();
        let stalls = stalls::find_stalls(recorded, windows, baseline, &held_against, |arm| {
            arms[arm].merge_histograms()
        });
        let counted_by_toll: BTreeSet<usize> = windows
            .iter()
            .filter(|w| artefacts.get(&w.trial).is_some_and(|a| a.queries.is_some()))
            .map(|w| w.arm)
            .collect();
        let mut usual: BTreeMap<usize, Option<f64>> = BTreeMap::new();
        for &other in &held_against {
            let of_other = || windows.iter().filter(|w| w.arm == other);
            usual.entry(other).or_insert_with(|| recovery::normal_latency_us(recorded, of_other()));
        }
        for (window, found) in windows.iter().zip(&stalls.by_window) {
            let mut stalled_s = stalls::sum_stalls([found].into_iter()).total_s;
            // Of a window as long as the others, so that what a shorter one stalls compares with them.
            if plan.arms[window.arm].window.is_until_done() {
                stalled_s *= plan.round_window_s(window.round) / window.seconds();
            }
            let reference: Vec<&Window> =
                windows.iter().filter(|other| other.arm == held_against[window.arm]).collect();
            let block: Vec<&Window> = windows.iter().filter(|other| other.round == window.round).collect();
            let known = WindowContext {
                block: &block,
                reference: &reference,
                histogram: histograms.get(&window.trial).copied(),
                artefact: artefacts.get(&window.trial).copied(),
                counted_by_other: !counted_by_toll.contains(&window.arm),
                stalled_s,
                recovered_s: usual[&held_against[window.arm]]
                    .and_then(|usual_us| recovery::recovered_s(recorded, window, usual_us)),
            };
            let measured = window_outcomes::measure_window(recorded, window, known);
            arms[window.arm].by_round[window.round as usize] = Some(measured);
        }
        let against: Vec<Option<usize>> = (0..arms.len()).map(|i| baseline_of(plan, i, baseline)).collect();
        estimate_drifts(plan, &mut arms, &against);
        let closed = plan.arms.iter().map(|arm| arm.window.is_until_done()).collect();
        Arms { windows: arms, baseline, stalls, ends_with_command: closed }
    }

    /// Outcomes of each arm, by name.
    ///
    /// Verdicts on the treatments' judged outcome share one error rate. Controls and other outcomes are
    /// independent.
    pub fn compare<'p>(&self, plan: &'p Plan) -> Vec<BTreeMap<&'p str, Comparison>> {
        let spreads = self.common_spreads(plan);
        let mut all: Vec<BTreeMap<&'p str, Comparison>> = Vec::with_capacity(self.windows.len());
        for (i, arm) in self.windows.iter().enumerate() {
            let baseline = baseline_of(plan, i, self.baseline).map(|b| &self.windows[b]);
            let of_arm = plan.outcomes.iter().filter_map(|outcome| {
                let judged = outcome.name == verdict_outcome_name(plan, i);
                let common = spreads.get(outcome.name.as_str()).and_then(|of_arms| of_arms[i]);
                Some((outcome.name.as_str(), compare(plan, outcome, arm, baseline, judged, common)?))
            });
            all.push(of_arm.collect());
        }
        let asked = all
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| plan.arms[*i].role == Role::Treatment && plan.arms[*i].unavailable.is_none());
        judge_together(
            plan,
            asked.filter_map(|(i, of_arm)| of_arm.get_mut(verdict_outcome_name(plan, i))).collect(),
            self.windows.iter().any(|arm| arm.by_round.last().is_some_and(Option::is_some)),
        );
        all
    }

    /// How each arm's windows spread on the counted clock, by outcome: there most do alike. Empty on the real one.
    fn common_spreads<'p>(&self, plan: &'p Plan) -> BTreeMap<&'p str, Vec<Option<CommonSpread>>> {
        let counted = plan.outcomes.iter().filter(|_| !plan.clock.is_real());
        let of = |outcome: &'p Definition| {
            let values: Vec<_> = self.windows.iter().map(|arm| arm.log_values(&outcome.name)).collect();
            (outcome.name.as_str(), toll_stats::common_spreads(&values))
        };
        counted.map(of).collect()
    }

    /// Name of the arm that an arm is compared with. `None` if it is a baseline itself.
    pub fn reference_name(&self, plan: &Plan, arm: usize) -> Option<String> {
        baseline_of(plan, arm, self.baseline).map(|b| plan.arms[b].name.clone())
    }

    pub fn stall_totals(&self, arm: usize, windows: &[Window]) -> StallTotals {
        let of_arm = windows.iter().zip(&self.stalls.by_window).filter(|(w, _)| w.arm == arm);
        stalls::sum_stalls(of_arm.map(|(_, stalls)| stalls))
    }

    /// Fewest events in a window of any arm, or in all windows of an arm (`in_all`), and the remedy.
    ///
    /// The figure is over all arms, so that all print the same.
    fn fewest_events(&self, in_all: bool) -> (u64, &'static str) {
        let of_arm = |(arm, closed): (&ArmWindows, &bool)| {
            let events = arm.measured_windows().filter(|m| m.covered_s > 0.0).map(|m| m.events);
            let fewest = if in_all { Some(events.sum()).filter(|n| *n > 0) } else { events.min() };
            Some((fewest?, *closed))
        };
        let all = self.windows.iter().zip(&self.ends_with_command).filter_map(of_arm);
        let (least, closed) = all.min_by_key(|(events, _)| *events).unwrap_or((0, false));
        let advice = match (closed, in_all) {
            (true, _) => "its command ends too soon, run it again until the window ends (--repeat)",
            (false, true) => "run more --rounds, or lengthen --window",
            (false, false) => "lengthen --window",
        };
        (least, advice)
    }

    /// Notes for readers of the arm's figures.
    pub fn collect_notes(
        &self,
        arm: usize,
        plan: &Plan,
        compared: &BTreeMap<&str, Comparison>,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let windows = &self.windows[arm];
        let is_thin = |name: &str| windows.measured_windows().any(|m| m.too_few_events.contains(&name));
        for outcome in plan.outcomes.iter().filter(|o| is_thin(&o.name)) {
            let Some(quantile) = quantile_of(outcome) else { continue };
            let need = toll_stats::events_for_quantile(quantile);
            let judged = outcome.name == verdict_outcome_name(plan, arm) || outcome.name == plan.primary;
            let why = match compared.get(outcome.name.as_str()) {
                _ if judged => {
                    let (least, advice) = self.fewest_events(false);
                    format!("needs {need} events in a window and the thinnest has {least}: {advice}")
                }
                None => {
                    let (least, advice) = self.fewest_events(true);
                    format!(
                        "needs {need} events and the windows of a variant have as few as {least}: {advice}"
                    )
                }
                Some(c) if c.outcome.verdict == Verdict::NoInterval => {
                    let reason = c.outcome.method.trim_start_matches("none: ");
                    format!("has no interval: {reason}")
                }
                Some(_) => continue,
            };
            notes.push(format!("{} {why}", outcome.name));
        }
        for (name, compared) in compared {
            if let Some([low, high]) = compared.outcome.planned_ci95_pct {
                notes.push(format!(
                    "{name}: at the end of its plan, for one look: 95% CI [{low:+.1}%, {high:+.1}%] (sign-flip)"
                ));
            }
            if !compared.pairs.floored.is_empty() {
                notes.push(format!(
                    "{name}: none in {} windows, each counted as one: the overhead is at least this",
                    compared.pairs.floored.len()
                ));
            }
        }
        notes
    }
}

/// Computes, for each outcome compared as a ratio, the value that the neighbouring windows predict.
///
/// Left out if a run may stop after any round: later rounds would then change earlier results. A counted clock does not drift.
fn estimate_drifts<'a>(plan: &'a Plan, arms: &mut [ArmWindows<'a>], against: &[Option<usize>]) {
    if !plan.clock.is_real() {
        return;
    }
    let ratios = plan.outcomes.iter().filter(|o| o.compare == Compare::LogRatio && !plan.early_stop);
    for outcome in ratios {
        let mut placed = Vec::new();
        for (arm, windows) in arms.iter().enumerate() {
            for (round, at_s, y) in windows.timed_log_values(&outcome.name) {
                placed.push(TimedWindow { arm, round, midpoint_s: at_s, y });
            }
        }
        let Some(drift) = toll_stats::estimate_drift(&placed, against) else { continue };
        for windows in arms.iter_mut() {
            windows.drifts.insert(&outcome.name, vec![0.0; windows.by_round.len()]);
        }
        for (window, drift) in placed.iter().zip(drift.by_window) {
            if let Some(of_arm) = arms[window.arm].drifts.get_mut(outcome.name.as_str()) {
                of_arm[window.round] = drift;
            }
        }
    }
}

/// (quantile, latency_us) as far as the events reach, and the maximum at 1.
pub fn latency_curve(all: &Histogram<u64>) -> Vec<(f64, f64)> {
    const QUANTILES: [f64; 13] =
        [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999];
    if all.is_empty() {
        return Vec::new();
    }
    QUANTILES
        .iter()
        .filter(|&&q| toll_stats::events_for_quantile(q) <= all.len())
        .map(|&q| (q, all.value_at_quantile(q) as f64))
        .chain([(1.0, all.max() as f64)])
        .collect()
}

/// Position of the arm that an arm is compared with. `None` if it is a baseline itself.
pub(super) fn baseline_of(plan: &Plan, arm: usize, main: usize) -> Option<usize> {
    if plan.arms[arm].role == Role::Baseline {
        return None;
    }
    let named = plan.arms[arm].against.as_ref();
    Some(named.and_then(|name| plan.arms.iter().position(|a| a.name == *name)).unwrap_or(main))
}
