//! What did each arm's windows give, round by round, and how does it compare?

use super::compare::{ArmWindows, Compared, compare, judge, judge_sequence, judged_by};
use super::outcomes::{self, Known, quantile_of};
use super::recorded::Recorded;
use super::recovery;
use super::stalls::{self, Stalls};
use super::windows::Window;
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use toll_record::{Artefact, Plan, Role, StallTotals, Verdict};

/// Every arm of the plan, in its order.
#[derive(Debug)]
pub struct Arms<'a> {
    pub windows: Vec<ArmWindows<'a>>,
    /// Position of the baseline.
    pub baseline: usize,
    pub stalls: Stalls,
    alpha: f64,
    /// Whether each arm's windows end with its command.
    closed: Vec<bool>,
}

impl<'a> Arms<'a> {
    pub fn assemble(recorded: &'a Recorded, windows: &[Window]) -> Self {
        let plan = &recorded.plan;
        let baseline = plan.arms.iter().position(|arm| arm.name == plan.baseline).unwrap_or(0);
        let histograms: BTreeMap<u32, &Histogram<u64>> =
            recorded.latencies.iter().map(|l| (l.trial, &l.histogram)).collect();
        let artefacts: BTreeMap<u32, &Artefact> = recorded.artefacts.iter().map(|a| (a.trial, a)).collect();

        let mut arms: Vec<ArmWindows> = plan.arms.iter().map(|_| ArmWindows::of(plan.order.len())).collect();
        for window in windows {
            arms[window.arm].histograms[window.round as usize] = histograms.get(&window.trial).copied();
        }
        let held_against: Vec<usize> =
            (0..arms.len()).map(|i| baseline_of(plan, i, baseline).unwrap_or(i)).collect();
        let stalls = stalls::find(recorded, windows, baseline, &held_against, |arm| arms[arm].merged());
        let counted_by_toll: BTreeSet<usize> = windows
            .iter()
            .filter(|w| artefacts.get(&w.trial).is_some_and(|a| a.queries.is_some()))
            .map(|w| w.arm)
            .collect();
        let mut usual: BTreeMap<usize, Option<f64>> = BTreeMap::new();
        for &other in &held_against {
            let of_other = || windows.iter().filter(|w| w.arm == other);
            usual.entry(other).or_insert_with(|| recovery::usual_us(recorded, of_other()));
        }
        for (window, found) in windows.iter().zip(&stalls.of_window) {
            let mut stalled_s = stalls::totals([found].into_iter()).total_s;
            // Of a window as long as the others, so that what a shorter one stalls compares with them.
            if plan.arms[window.arm].window.is_until_done() {
                stalled_s *= plan.window_of(window.round) / window.seconds();
            }
            let known = Known {
                histogram: histograms.get(&window.trial).copied(),
                artefact: artefacts.get(&window.trial).copied(),
                counted_by_other: !counted_by_toll.contains(&window.arm),
                stalled_s,
                recovered_s: usual[&held_against[window.arm]]
                    .and_then(|usual_us| recovery::recovered_s(recorded, window, usual_us)),
            };
            let measured = outcomes::measure(recorded, window, known);
            arms[window.arm].by_round[window.round as usize] = Some(measured);
        }
        let closed = plan.arms.iter().map(|arm| arm.window.is_until_done()).collect();
        Arms { windows: arms, baseline, stalls, alpha: plan.alpha, closed }
    }

    /// For each arm, its outcomes by name. Verdicts on the primary outcome of the treatments share one
    /// error rate (Holm); controls and other outcomes stand for themselves.
    pub fn compare<'p>(&self, plan: &'p Plan) -> Vec<BTreeMap<&'p str, Compared>> {
        let mut all: Vec<BTreeMap<&'p str, Compared>> = Vec::with_capacity(self.windows.len());
        for (i, arm) in self.windows.iter().enumerate() {
            let baseline = baseline_of(plan, i, self.baseline).map(|b| &self.windows[b]);
            let of_arm = plan.outcomes.iter().filter_map(|outcome| {
                let judged = outcome.name == judged_by(plan, i);
                Some((outcome.name.as_str(), compare(plan, outcome, arm, baseline, judged)?))
            });
            all.push(of_arm.collect());
        }
        let asked: Vec<usize> = (0..all.len())
            .filter(|&i| plan.arms[i].role == Role::Treatment && plan.arms[i].unavailable.is_none())
            .collect();
        let judged: Vec<&str> = asked.iter().map(|&i| judged_by(plan, i)).collect();
        let p: Vec<f64> = asked
            .iter()
            .zip(&judged)
            .map(|(&i, &name)| all[i].get(name).and_then(|c| c.outcome.p).unwrap_or(f64::NAN))
            .collect();
        if plan.early_stop {
            for (&i, name) in asked.iter().zip(judged) {
                if let Some(compared) = all[i].get_mut(name) {
                    judge_sequence(plan, compared, asked.len());
                }
            }
            return all;
        }
        for ((&i, name), adjusted) in asked.iter().zip(judged).zip(toll_stats::holm(&p)) {
            if let Some(compared) = all[i].get_mut(name)
                && compared.outcome.p.is_some()
            {
                judge(plan, compared, Some(adjusted));
            }
        }
        all
    }

    /// Name of the arm that an arm is compared with; `None`: it is a baseline itself.
    pub fn against(&self, plan: &Plan, arm: usize) -> Option<String> {
        baseline_of(plan, arm, self.baseline).map(|b| plan.arms[b].name.clone())
    }

    pub fn stall_totals(&self, arm: usize, windows: &[Window]) -> StallTotals {
        let of_arm = windows.iter().zip(&self.stalls.of_window).filter(|(w, _)| w.arm == arm);
        stalls::totals(of_arm.map(|(_, stalls)| stalls))
    }

    /// What a reader of the arm's figures should know beside them.
    pub fn notes(&self, arm: usize, plan: &Plan, compared: &BTreeMap<&str, Compared>) -> Vec<String> {
        let mut notes = Vec::new();
        let windows = &self.windows[arm];
        let is_thin = |name: &str| windows.present().any(|m| m.thin.contains(&name));
        for outcome in plan.outcomes.iter().filter(|o| is_thin(&o.name)) {
            let Some(quantile) = quantile_of(outcome) else { continue };
            // Of all arms, so that all say the same.
            let of_arm = |(arm, closed): (&ArmWindows, &bool)| {
                let loaded = arm.present().filter(|m| m.covered_s > 0.0);
                loaded.map(|m| (m.events, *closed)).min_by_key(|(events, _)| *events)
            };
            let all = self.windows.iter().zip(&self.closed).filter_map(of_arm);
            let (least, closed) = all.min_by_key(|(events, _)| *events).unwrap_or((0, false));
            let advice = if closed {
                "its command ends too soon, run it again until the window ends (--repeat)"
            } else {
                "lengthen --window"
            };
            let need = toll_stats::events_for_quantile(quantile);
            notes.push(format!(
                "{} needs {need} events in a window and the thinnest has {least}: {advice}",
                outcome.name
            ));
        }
        for (name, compared) in compared {
            let outcome = &compared.outcome;
            if !compared.pairs.floored.is_empty() {
                notes.push(format!(
                    "{name}: none in {} windows, each counted as one: the toll is at least this",
                    compared.pairs.floored.len()
                ));
            }
            if let (Verdict::Unclear, Some([low, high]), Some(p)) =
                (outcome.verdict, outcome.ci95_pct.or(outcome.ci95), outcome.p_holm)
                && (low > 0.0 || high < 0.0)
                && p > self.alpha
            {
                notes.push(format!(
                    "{name}: the interval by itself excludes zero, but among so many arms chance alone could do that (Holm p = {p:.3})"
                ));
            }
        }
        notes
    }
}

/// (quantile, latency_us) as far as the events reach, and the longest at 1.
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

/// Position of the arm that an arm is compared with; `None`: it is a baseline itself.
fn baseline_of(plan: &Plan, arm: usize, main: usize) -> Option<usize> {
    if plan.arms[arm].role == Role::Baseline {
        return None;
    }
    let named = plan.arms[arm].against.as_ref();
    Some(named.and_then(|name| plan.arms.iter().position(|a| a.name == *name)).unwrap_or(main))
}
