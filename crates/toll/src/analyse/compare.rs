//! What does one arm cost against the baseline, in one outcome, and how sure is that?
//!
//! Pairs windows of the same round; all statistics are `toll_stats`'. Never looks at a second or a
//! query: the window is the unit.

use super::outcomes::{Definition, Measured, judged_by, quantile_of};
use hdrhistogram::Histogram;
use toll_record::{Outcome, Plan, Verdict};
use toll_stats::{Interval, PairError, Pairs, WindowPair, Zeros};

/// Windows of one arm, by round: `None` where the round gave none.
#[derive(Debug, Clone, Default)]
pub struct ArmWindows<'a> {
    pub by_round: Vec<Option<Measured>>,
    /// Latencies of the same windows, where the driver gives them.
    pub histograms: Vec<Option<&'a Histogram<u64>>>,
}

impl ArmWindows<'_> {
    /// No windows yet, in any of `rounds` rounds.
    pub fn of(rounds: usize) -> Self {
        ArmWindows { by_round: vec![None; rounds], histograms: vec![None; rounds] }
    }

    pub fn present(&self) -> impl Iterator<Item = &Measured> {
        self.by_round.iter().flatten()
    }

    /// Name of the outcome that the arm's verdict is drawn from.
    pub fn judged_by<'p>(&self, plan: &'p Plan) -> &'p str {
        judged_by(&plan.primary, |name| self.present().any(|m| m.get(name).is_some()))
    }

    pub fn values(&self, outcome: &str) -> Vec<Option<f64>> {
        self.by_round.iter().map(|m| m.as_ref().and_then(|m| m.get(outcome))).collect()
    }

    /// All the arm's latencies in one histogram.
    pub fn merged(&self) -> Histogram<u64> {
        let mut all = toll_record::latency_histogram();
        for histogram in self.histograms.iter().flatten() {
            if all.add(*histogram).is_err() {
                // Made wider than an hour by another writer: what lies beyond joins the last bucket.
                for bucket in histogram.iter_recorded() {
                    all.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
                }
            }
        }
        all
    }
}

/// An outcome of one arm, with the differences behind it.
#[derive(Debug, Clone)]
pub struct Compared {
    pub outcome: Outcome,
    pub pairs: Pairs,
    interval: Option<Interval>,
}

/// `arm` in outcome `definition`, against `baseline` (absent: `arm` is the baseline itself).
/// `None` where no window of the arm has the outcome.
pub fn compare(
    plan: &Plan,
    definition: &Definition,
    arm: &ArmWindows,
    baseline: Option<&ArmWindows>,
) -> Option<Compared> {
    let values = arm.values(definition.name);
    let present: Vec<f64> = values.iter().flatten().copied().collect();
    if present.is_empty() {
        return None;
    }
    let mut compared = Compared {
        outcome: Outcome {
            unit: definition.unit.to_owned(),
            higher_is_better: definition.higher_is_better,
            mean: toll_stats::mean(&present),
            sd: if present.len() > 1 { toll_stats::sd(&present) } else { 0.0 },
            values: present,
            toll_pct: None,
            ci95_pct: None,
            method: "baseline".to_owned(),
            p: None,
            p_holm: None,
            verdict: Verdict::Baseline,
        },
        pairs: Pairs::default(),
        interval: None,
    };
    if let Some(baseline) = baseline {
        paired(plan, definition, &values, arm, baseline, &mut compared);
    }
    if arm.present().any(|m| m.from_seconds) && quantile_of(definition.name).is_some() {
        compared.outcome.method.push_str("; of means of one-second percentiles");
    }
    Some(compared)
}

fn paired(
    plan: &Plan,
    definition: &Definition,
    values: &[Option<f64>],
    arm: &ArmWindows,
    baseline: &ArmWindows,
    compared: &mut Compared,
) {
    // No completion in a whole window: fewer than one. Any other zero has no ratio.
    let zeros = match definition.name {
        "qps" | "tps" => Zeros::AtMost(1.0 / shortest_s(plan, arm, baseline).max(0.1)),
        _ => Zeros::Refuse,
    };
    let outcome = &mut compared.outcome;
    outcome.verdict = Verdict::NoInterval;
    let of_baseline = baseline.values(definition.name);
    if of_baseline.iter().all(Option::is_none) {
        outcome.method = "none: the baseline has no such value".to_owned();
        return;
    }
    match toll_stats::log_ratios(values, &of_baseline, zeros) {
        Ok(pairs) => compared.pairs = pairs,
        Err(PairError::NoLog { value: 0.0, .. }) => {
            outcome.method = "none: a value of zero has no ratio".to_owned();
            return;
        }
        Err(e) => {
            outcome.method = format!("none: {e}");
            return;
        }
    }
    let d = &compared.pairs.d;
    let test = toll_stats::sign_flip(d, plan.alpha, plan.seed);
    // A verdict on the primary outcome rests on a p value, and that must be of the same test.
    let merged = quantile_of(definition.name)
        .filter(|_| definition.name != plan.primary)
        .and_then(|quantile| merged_quantile(plan, quantile, arm, baseline));
    let interval = match merged {
        Some((estimate, interval)) => {
            outcome.toll_pct = Some(estimate);
            outcome.method = "bootstrap-bca".to_owned();
            Ok(interval)
        }
        // Looked at after every round: a plain interval would be too narrow.
        None if plan.early_stop && definition.name == arm.judged_by(plan) => {
            outcome.toll_pct = compared.pairs.toll_pct();
            outcome.method = "confidence-sequence".to_owned();
            toll_stats::confidence_sequence(d, plan.alpha)
        }
        None => {
            outcome.toll_pct = compared.pairs.toll_pct();
            outcome.p = (!d.is_empty()).then_some(test.p);
            outcome.method = "sign-flip".to_owned();
            test.interval
        }
    };
    match interval {
        Ok(interval) => {
            let pct = interval.toll_pct();
            outcome.ci95_pct = Some([pct.low, pct.high]);
            compared.interval = Some(pct);
        }
        Err(reason) => outcome.method = format!("none: {reason}"),
    }
    judge(plan, compared, None);
}

/// Length of the shortest window of either arm: a command's own end may have closed it.
fn shortest_s(plan: &Plan, arm: &ArmWindows, baseline: &ArmWindows) -> f64 {
    let covered = arm.present().chain(baseline.present()).map(|m| m.covered_s).filter(|s| *s > 0.0);
    covered.fold(plan.window_s, f64::min)
}

/// The quantile of all windows together: what 12 rounds and more allow, and steadier than a mean of
/// quantiles. Absent where rounds or events are too few, or a window has no distribution.
fn merged_quantile(
    plan: &Plan,
    quantile: f64,
    arm: &ArmWindows,
    baseline: &ArmWindows,
) -> Option<(f64, Interval)> {
    type Counts = Vec<(u64, u64)>;
    let counts = |h: &Histogram<u64>| -> Counts {
        h.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
    };
    let mut pairs: Vec<(Counts, Counts)> = Vec::new();
    for round in 0..arm.by_round.len() {
        if let (Some(_), Some(_)) = (&arm.by_round[round], &baseline.by_round[round]) {
            pairs.push((counts(arm.histograms[round]?), counts(baseline.histograms[round]?)));
        }
    }
    let pairs: Vec<WindowPair> = pairs.iter().map(|(arm, baseline)| WindowPair { arm, baseline }).collect();
    let found = toll_stats::quantile_ratio(&pairs, quantile, plan.alpha, plan.seed).ok()?;
    let ratio = (found.arm as f64 / found.baseline as f64).ln();
    Some((toll_stats::toll_pct(ratio), found.interval.ok()?))
}

/// Draws the verdict on the primary outcome of a run that might have stopped after any round. A sequence
/// has no p value for Holm: each of `arms` arms gets its share of alpha instead.
pub fn judge_sequence(plan: &Plan, compared: &mut Compared, arms: usize) {
    let shown = compared.interval;
    let alpha = plan.alpha / arms.max(1) as f64;
    compared.interval =
        toll_stats::confidence_sequence(&compared.pairs.d, alpha).ok().map(Interval::toll_pct);
    judge(plan, compared, None);
    compared.interval = shown;
}

/// Draws the verdict; `p_holm` for the primary outcome, whose arms share one error rate.
pub fn judge(plan: &Plan, compared: &mut Compared, p_holm: Option<f64>) {
    let outcome = &mut compared.outcome;
    outcome.p_holm = p_holm;
    outcome.verdict = match toll_stats::verdict(
        compared.interval,
        plan.margin_pct,
        outcome.higher_is_better,
        p_holm,
        plan.alpha,
    ) {
        toll_stats::Verdict::Costly => Verdict::Costly,
        toll_stats::Verdict::Cheaper => Verdict::Cheaper,
        toll_stats::Verdict::NoEffect => Verdict::NoEffect,
        toll_stats::Verdict::Unclear => Verdict::Unclear,
        toll_stats::Verdict::NoInterval => Verdict::NoInterval,
    };
}
