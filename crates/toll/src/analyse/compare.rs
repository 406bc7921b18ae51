//! What does one arm cost against the baseline, in one outcome, and how sure is that?
//!
//! Pairs windows of the same round; all statistics are `toll_stats`'. Never looks at a second or a
//! query: the window is the unit.

use super::outcomes::{Measured, quantile_of};
use hdrhistogram::Histogram;
use toll_record::{Aggregate, Compare, Definition, Outcome, Plan, Verdict};
use toll_stats::{Interval, PairError, Pairs, WindowPair, Zeros};

/// Windows of one arm, by round: `None` where the round gave none.
#[derive(Debug, Clone, Default)]
pub struct ArmWindows<'a> {
    pub by_round: Vec<Option<Measured<'a>>>,
    /// Latencies of the same windows, where the driver gives them.
    pub histograms: Vec<Option<&'a Histogram<u64>>>,
}

impl<'a> ArmWindows<'a> {
    /// No windows yet, in any of `rounds` rounds.
    pub fn of(rounds: usize) -> Self {
        ArmWindows { by_round: vec![None; rounds], histograms: vec![None; rounds] }
    }

    pub fn present(&self) -> impl Iterator<Item = &Measured<'a>> {
        self.by_round.iter().flatten()
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

/// Name of the outcome that verdicts on the arm at this position are drawn from.
pub fn judged_by(plan: &Plan, arm: usize) -> &str {
    plan.arms[arm].judged_by.as_ref().unwrap_or(&plan.primary)
}

/// An outcome of one arm, with the differences behind it.
#[derive(Debug, Clone)]
pub struct Compared {
    pub outcome: Outcome,
    pub pairs: Pairs,
    /// What it is compared by, and the margin in the same measure; zero: none.
    measure: Compare,
    margin: f64,
    interval: Option<Interval>,
}

/// `arm` in outcome `definition`, against `baseline` (absent: `arm` is the baseline itself). `judged`: whether
/// verdicts on the arm are drawn from it. `None` where no window of the arm has the outcome.
pub fn compare(
    plan: &Plan,
    definition: &Definition,
    arm: &ArmWindows,
    baseline: Option<&ArmWindows>,
    judged: bool,
) -> Option<Compared> {
    let values = arm.values(&definition.name);
    let present: Vec<f64> = values.iter().flatten().copied().collect();
    if present.is_empty() {
        return None;
    }
    let mut compared = Compared {
        outcome: Outcome {
            unit: definition.unit.clone(),
            higher_is_better: definition.higher_is_better,
            mean: toll_stats::mean(&present),
            sd: if present.len() > 1 { toll_stats::sd(&present) } else { 0.0 },
            values: present,
            toll_pct: None,
            ci95_pct: None,
            effect: None,
            ci95: None,
            method: "baseline".to_owned(),
            p: None,
            p_holm: None,
            verdict: Verdict::Baseline,
        },
        pairs: Pairs::default(),
        measure: definition.compare,
        margin: match definition.compare {
            Compare::LogRatio => plan.margin_pct,
            Compare::Difference | Compare::Absolute => definition.margin.unwrap_or(0.0),
        },
        interval: None,
    };
    match (definition.compare, baseline) {
        (Compare::Absolute, _) => by_itself(plan, &mut compared),
        (Compare::LogRatio, Some(baseline)) => {
            paired(plan, definition, &values, arm, baseline, judged, &mut compared);
        }
        (Compare::Difference, Some(baseline)) => {
            let of_baseline = baseline.values(&definition.name);
            if of_baseline.iter().all(Option::is_none) {
                by_itself(plan, &mut compared);
                compared.outcome.method.push_str("; the baseline has no such value");
            } else {
                differing(plan, &values, &of_baseline, judged, &mut compared);
            }
        }
        (_, None) => {}
    }
    if arm.present().any(|m| m.from_seconds) && quantile_of(definition).is_some() {
        compared.outcome.method.push_str("; of means of one-second percentiles");
    }
    Some(compared)
}

/// The mean of the arm's own windows: there is nothing to hold it against.
fn by_itself(plan: &Plan, compared: &mut Compared) {
    let outcome = &mut compared.outcome;
    let test = toll_stats::sign_flip(&outcome.values, plan.alpha, plan.seed);
    compared.measure = Compare::Absolute;
    outcome.effect = Some(outcome.mean);
    outcome.ci95 = test.interval.ok().map(|interval| [interval.low, interval.high]);
    outcome.method = match test.interval {
        Ok(_) => "sign-flip over windows".to_owned(),
        Err(reason) => format!("none: {reason}"),
    };
    outcome.verdict = Verdict::NotCompared;
}

fn differing(
    plan: &Plan,
    values: &[Option<f64>],
    of_baseline: &[Option<f64>],
    judged: bool,
    compared: &mut Compared,
) {
    compared.outcome.verdict = Verdict::NoInterval;
    match toll_stats::differences(values, of_baseline) {
        Ok(pairs) => compared.pairs = pairs,
        Err(e) => {
            compared.outcome.method = format!("none: {e}");
            return;
        }
    }
    let d = &compared.pairs.d;
    compared.outcome.effect = (!d.is_empty()).then(|| toll_stats::mean(d));
    let interval = tested(plan, judged, compared);
    settle(plan, interval, compared);
}

fn paired(
    plan: &Plan,
    definition: &Definition,
    values: &[Option<f64>],
    arm: &ArmWindows,
    baseline: &ArmWindows,
    judged: bool,
    compared: &mut Compared,
) {
    // None of what is counted in a whole window: fewer than one. Any other zero has no ratio.
    let zeros = match (definition.zeros, definition.aggregate) {
        (toll_record::Zeros::Refuse, _) => Zeros::Refuse,
        (toll_record::Zeros::FewerThanOne, Aggregate::Rate) => {
            Zeros::AtMost(1.0 / shortest_s(plan, arm, baseline).max(0.1))
        }
        (toll_record::Zeros::FewerThanOne, _) => Zeros::AtMost(1.0),
    };
    let outcome = &mut compared.outcome;
    outcome.verdict = Verdict::NoInterval;
    let of_baseline = baseline.values(&definition.name);
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
    // A verdict on the primary outcome rests on a p value, and that must be of the same test.
    let merged = quantile_of(definition)
        .filter(|_| definition.name != plan.primary && !judged)
        .and_then(|quantile| merged_quantile(plan, definition, quantile, arm, baseline));
    let interval = match merged {
        Some((estimate, interval)) => {
            outcome.toll_pct = Some(estimate);
            outcome.method = "bootstrap-bca".to_owned();
            Ok(interval)
        }
        None => {
            outcome.toll_pct = compared.pairs.toll_pct();
            tested(plan, judged, compared)
        }
    };
    settle(plan, interval, compared);
}

/// The interval of the paired differences, whatever their measure.
fn tested(plan: &Plan, judged: bool, compared: &mut Compared) -> Result<Interval, toll_stats::NoInterval> {
    let (d, outcome) = (&compared.pairs.d, &mut compared.outcome);
    // Looked at after every round: a plain interval would be too narrow.
    if plan.early_stop && judged {
        outcome.method = "confidence-sequence".to_owned();
        return toll_stats::confidence_sequence(d, plan.alpha);
    }
    let test = toll_stats::sign_flip(d, plan.alpha, plan.seed);
    outcome.p = (!d.is_empty()).then_some(test.p);
    outcome.method = "sign-flip".to_owned();
    test.interval
}

/// Puts the interval where its measure says, and draws the verdict.
fn settle(plan: &Plan, interval: Result<Interval, toll_stats::NoInterval>, compared: &mut Compared) {
    match interval {
        Ok(interval) => {
            let told = told(compared.measure, interval);
            let ends = Some([told.low, told.high]);
            match compared.measure {
                Compare::LogRatio => compared.outcome.ci95_pct = ends,
                Compare::Difference | Compare::Absolute => compared.outcome.ci95 = ends,
            }
            compared.interval = Some(told);
        }
        Err(reason) => compared.outcome.method = format!("none: {reason}"),
    }
    judge(plan, compared, None);
}

/// An interval of differences in the measure that people read.
fn told(measure: Compare, interval: Interval) -> Interval {
    match measure {
        Compare::LogRatio => interval.toll_pct(),
        Compare::Difference | Compare::Absolute => interval,
    }
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
    definition: &Definition,
    quantile: f64,
    arm: &ArmWindows,
    baseline: &ArmWindows,
) -> Option<(f64, Interval)> {
    type Counts = Vec<(u64, u64)>;
    let counts = |h: &Histogram<u64>| -> Counts {
        h.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
    };
    let mut pairs: Vec<(Counts, Counts)> = Vec::new();
    for round in (0..arm.by_round.len()).filter(|round| plan.tells(definition, *round as u32)) {
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
    if compared.outcome.verdict == Verdict::NotCompared {
        return;
    }
    let shown = compared.interval;
    let alpha = plan.alpha / arms.max(1) as f64;
    let sequence = toll_stats::confidence_sequence(&compared.pairs.d, alpha).ok();
    compared.interval = sequence.map(|interval| told(compared.measure, interval));
    judge(plan, compared, None);
    compared.interval = shown;
}

/// Draws the verdict; `p_holm` for the primary outcome, whose arms share one error rate.
pub fn judge(plan: &Plan, compared: &mut Compared, p_holm: Option<f64>) {
    let outcome = &mut compared.outcome;
    outcome.p_holm = p_holm;
    outcome.verdict = match toll_stats::verdict(
        compared.interval,
        compared.margin,
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
