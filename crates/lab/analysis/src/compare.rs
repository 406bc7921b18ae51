//! Comparison of one arm with its baseline in one outcome, with a confidence interval.
//!
//! Pairs windows of the same round. All statistics are `toll_stats`'. Never uses a second or a query as the
//! unit: the unit is the window.

use super::quantiles;
use super::window_outcomes::{WindowOutcomes, quantile_of};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use toll_record::{Aggregate, Compare, Definition, Outcome, Plan, Verdict};
use toll_stats::{CommonSpread, Interval, PairError, Pairs, QuantileRatio, SignFlip, ZeroHandling};

/// Method of a run that may stop after any round.
const CONFIDENCE_SEQUENCE: &str = "confidence-sequence";

/// Windows of one arm by round. `None` for a round without a window.
#[derive(Debug, Clone, Default)]
pub struct ArmWindows<'a> {
    pub by_round: Vec<Option<WindowOutcomes<'a>>>,
    /// Latencies of the same windows, if the driver has histograms.
    pub histograms: Vec<Option<&'a Histogram<u64>>>,
    /// Middle of the same windows, seconds.
    pub at_s: Vec<Option<f64>>,
    /// Value predicted by the neighbouring windows, ln: by outcome compared as a ratio, and by round.
    pub drifts: BTreeMap<&'a str, Vec<f64>>,
}

impl<'a> ArmWindows<'a> {
    /// No windows yet, in any of `rounds` rounds.
    pub fn with_rounds(rounds: usize) -> Self {
        ArmWindows {
            by_round: vec![None; rounds],
            histograms: vec![None; rounds],
            at_s: vec![None; rounds],
            drifts: BTreeMap::new(),
        }
    }

    pub fn measured_windows(&self) -> impl Iterator<Item = &WindowOutcomes<'a>> {
        self.by_round.iter().flatten()
    }

    pub fn values(&self, outcome: &str) -> Vec<Option<f64>> {
        self.by_round.iter().map(|m| m.as_ref().and_then(|m| m.get(outcome))).collect()
    }

    /// Logarithms of `outcome` by round, of the windows where it is above zero.
    pub fn log_values(&self, outcome: &str) -> Vec<Option<f64>> {
        self.values(outcome).into_iter().map(|value| value.filter(|v| *v > 0.0).map(f64::ln)).collect()
    }

    /// Windows with `outcome` above zero, as (round, middle in seconds, ln of it).
    pub fn timed_log_values(&self, outcome: &str) -> Vec<(usize, f64, f64)> {
        let values = self.log_values(outcome).into_iter().zip(&self.at_s).enumerate();
        let of = |(round, (y, at_s)): (usize, (Option<f64>, &Option<f64>))| Some((round, (*at_s)?, y?));
        values.filter_map(of).collect()
    }

    /// All latencies of the arm in one histogram.
    pub fn merge_histograms(&self) -> Histogram<u64> {
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

/// Name of the outcome of the verdict on the arm at this position.
pub fn verdict_outcome_name(plan: &Plan, arm: usize) -> &str {
    plan.arms[arm].judged_by.as_ref().unwrap_or(&plan.primary)
}

/// An outcome of one arm, with its paired differences.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub outcome: Outcome,
    pub pairs: Pairs,
    /// Measure of the comparison, and the margin in the same measure; zero means no margin.
    measure: Compare,
    margin: f64,
    interval: Option<Interval>,
    /// True if the drift of the host was subtracted from the pairs.
    is_detrended: bool,
    /// On a clock on which the windows of all arms spread alike.
    common: Option<CommonSpread>,
}

impl Comparison {
    pub fn measure(&self) -> Compare {
        self.measure
    }

    /// Equivalence margin in the measure of the interval; `None` without one.
    pub fn margin(&self) -> Option<f64> {
        Some(self.margin).filter(|margin| *margin > 0.0)
    }

    pub fn common_spread(&self) -> Option<CommonSpread> {
        self.common
    }
}

/// Compares `arm` with `baseline` in outcome `definition`. Without `baseline`, `arm` is the baseline itself.
///
/// `judged`: the arm's verdict is drawn from this outcome. `common`: where all arms' windows spread alike. `None` if no window of the arm has the outcome.
pub fn compare(
    plan: &Plan,
    definition: &Definition,
    arm: &ArmWindows,
    baseline: Option<&ArmWindows>,
    judged: bool,
    common: Option<CommonSpread>,
) -> Option<Comparison> {
    let values = arm.values(&definition.name);
    let mut present: Vec<f64> = values.iter().flatten().copied().collect();
    let mut mean = toll_stats::mean(&present);
    // What is judged has one value for each window, or none.
    let pooled = quantile_of(definition).filter(|_| !judged && definition.name != plan.primary);
    if let Some(quantile) = pooled
        && arm.measured_windows().any(|m| m.too_few_events.contains(&definition.name.as_str()))
    {
        (mean, present) = quantiles::arm_quantile(plan, definition, quantile, arm)?;
    }
    if present.is_empty() {
        return None;
    }
    let mut compared = Comparison {
        outcome: Outcome {
            unit: definition.unit.clone(),
            higher_is_better: definition.higher_is_better,
            mean,
            sd: if present.len() > 1 { toll_stats::sd(&present) } else { 0.0 },
            values: present,
            toll_pct: None,
            ci95_pct: None,
            effect: None,
            ci95: None,
            method: "baseline".to_owned(),
            p: None,
            standard_error: None,
            p_adjusted: None,
            planned_ci95_pct: None,
            verdict: Verdict::Baseline,
        },
        pairs: Pairs::default(),
        measure: definition.compare,
        margin: match definition.compare {
            Compare::LogRatio => plan.margin_pct,
            Compare::Difference | Compare::Absolute | Compare::Median => definition.margin.unwrap_or(0.0),
        },
        interval: None,
        is_detrended: false,
        common: common.filter(|_| definition.compare == Compare::LogRatio),
    };
    match (definition.compare, baseline) {
        (Compare::Absolute, _) => estimate_own_mean(plan, &mut compared),
        (Compare::Median, _) => estimate_own_median(plan, &mut compared),
        (Compare::LogRatio, Some(baseline)) => {
            match pooled
                .and_then(|quantile| quantiles::quantile_ratio(plan, definition, quantile, arm, baseline))
            {
                Some(tails) => compare_quantiles(tails, &mut compared),
                None => compare_paired(plan, definition, &values, arm, baseline, judged, &mut compared),
            }
        }
        (Compare::Difference, Some(baseline)) => {
            let of_baseline = baseline.values(&definition.name);
            if of_baseline.iter().all(Option::is_none) {
                estimate_own_mean(plan, &mut compared);
                compared.outcome.method.push_str("; the baseline has no such value");
            } else {
                compare_differences(plan, &values, &of_baseline, judged, &mut compared);
            }
        }
        (_, None) => {}
    }
    if arm.measured_windows().any(|m| m.from_seconds) && quantile_of(definition).is_some() {
        compared.outcome.method.push_str("; of means of one-second percentiles");
    }
    Some(compared)
}

/// The mean of the arm's own windows, without a comparison.
fn estimate_own_mean(plan: &Plan, compared: &mut Comparison) {
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

fn estimate_own_median(plan: &Plan, compared: &mut Comparison) {
    let outcome = &mut compared.outcome;
    let interval = toll_stats::median_interval(&outcome.values, plan.alpha);
    compared.measure = Compare::Median;
    outcome.effect = Some(toll_stats::median(&outcome.values));
    outcome.ci95 = interval.ok().map(|interval| [interval.low, interval.high]);
    outcome.method = match interval {
        Ok(_) => "median, order statistics of windows".to_owned(),
        Err(reason) => format!("none: {reason}"),
    };
    outcome.verdict = Verdict::NotCompared;
}

fn compare_differences(
    plan: &Plan,
    values: &[Option<f64>],
    of_baseline: &[Option<f64>],
    judged: bool,
    compared: &mut Comparison,
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
    let interval = estimate_interval(plan, judged, compared);
    store_interval(interval, compared);
}

fn compare_paired(
    plan: &Plan,
    definition: &Definition,
    values: &[Option<f64>],
    arm: &ArmWindows,
    baseline: &ArmWindows,
    judged: bool,
    compared: &mut Comparison,
) {
    // None of what is counted in a whole window: fewer than one. Any other zero has no ratio.
    let zeros = match (definition.zeros, definition.aggregate) {
        (toll_record::Zeros::Refuse, _) => ZeroHandling::Refuse,
        (toll_record::Zeros::FewerThanOne, Aggregate::Rate) => {
            ZeroHandling::AtMost(1.0 / shortest_window_s(plan, arm, baseline).max(0.1))
        }
        (toll_record::Zeros::FewerThanOne, _) => ZeroHandling::AtMost(1.0),
    };
    let outcome = &mut compared.outcome;
    outcome.verdict = Verdict::NoInterval;
    let of_baseline = baseline.values(&definition.name);
    if of_baseline.iter().all(Option::is_none) {
        outcome.method = "none: the baseline has no such value".to_owned();
        return;
    }
    match toll_stats::log_ratios(values, &of_baseline, zeros) {
        Ok(mut pairs) => {
            if let Some((of_arm, of_baseline)) =
                arm.drifts.get(definition.name.as_str()).zip(baseline.drifts.get(definition.name.as_str()))
            {
                pairs.subtract_drift(of_arm, of_baseline);
                compared.is_detrended = true;
            }
            compared.pairs = pairs;
        }
        Err(PairError::NotPositive { value: 0.0, .. }) => {
            outcome.method = "none: a value of zero has no ratio".to_owned();
            return;
        }
        Err(e) => {
            outcome.method = format!("none: {e}");
            return;
        }
    }
    compared.outcome.toll_pct = compared.pairs.overhead_pct();
    let interval = estimate_interval(plan, judged, compared);
    store_interval(interval, compared);
}

/// Comparison of quantiles by blocks of rounds, with merged histograms.
fn compare_quantiles(found: Result<QuantileRatio, toll_stats::IntervalError>, compared: &mut Comparison) {
    if let Ok(found) = &found {
        compared.outcome.toll_pct = Some(toll_stats::log_ratio_to_pct(found.ln_ratio));
        compared.outcome.method = quantiles::format_method(found);
    }
    store_interval(found.and_then(|found| found.interval), compared);
}

/// The interval of the paired differences, whatever their measure.
fn estimate_interval(
    plan: &Plan,
    judged: bool,
    compared: &mut Comparison,
) -> Result<Interval, toll_stats::IntervalError> {
    let (d, outcome) = (&compared.pairs.d, &mut compared.outcome);
    // Looked at after every round: a plain interval would be too narrow.
    if plan.early_stop && judged {
        outcome.method = CONFIDENCE_SEQUENCE.to_owned();
        return toll_stats::sign_sequence(d, sequence_scale(plan), plan.alpha);
    }
    outcome.standard_error = (d.len() > 1).then(|| toll_stats::sd(d) / (d.len() as f64).sqrt());
    let test = match compared.common {
        Some(common) => common.test(d, plan.alpha, 1),
        None => toll_stats::sign_flip(d, plan.alpha, plan.seed),
    };
    outcome.p = (!d.is_empty()).then_some(test.p);
    outcome.method = method(1, compared.common, compared.is_detrended);
    test.interval
}

/// Scale of the confidence sequence: known before the first round, as it must be. Without a pilot it is the margin: any
/// scale keeps the promise, and this one finds effects of the margin's size soonest.
fn sequence_scale(plan: &Plan) -> f64 {
    let margin = toll_stats::pct_to_log_ratio(plan.margin_pct.max(0.1));
    toll_model::plan::difference_sd(plan).unwrap_or(margin)
}

/// Stores the interval according to its measure, in place of another, and draws the verdict.
fn store_interval(interval: Result<Interval, toll_stats::IntervalError>, compared: &mut Comparison) {
    compared.interval = interval.ok().map(|interval| {
        let interval = to_reported_scale(compared.measure, interval);
        // Two shares differ by 100 points at most, whatever the spread of the differences.
        let most = if compared.outcome.unit == "%" && compared.measure == Compare::Difference {
            100.0
        } else {
            f64::INFINITY
        };
        Interval { low: interval.low.max(-most), high: interval.high.min(most) }
    });
    let ends = compared.interval.map(|told| [told.low, told.high]);
    match compared.measure {
        Compare::LogRatio => compared.outcome.ci95_pct = ends,
        Compare::Difference | Compare::Absolute | Compare::Median => compared.outcome.ci95 = ends,
    }
    if let Err(reason) = interval {
        compared.outcome.method = format!("none: {reason}");
    }
    draw_verdict(compared);
}

/// The interval in the measure that readers see.
fn to_reported_scale(measure: Compare, interval: Interval) -> Interval {
    match measure {
        Compare::LogRatio => interval.to_pct(),
        Compare::Difference | Compare::Absolute | Compare::Median => interval,
    }
}

/// Length of the shortest window of either arm, seconds: a command's own end may have closed it.
fn shortest_window_s(plan: &Plan, arm: &ArmWindows, baseline: &ArmWindows) -> f64 {
    let covered =
        arm.measured_windows().chain(baseline.measured_windows()).map(|m| m.covered_s).filter(|s| *s > 0.0);
    covered.fold(plan.window_s, f64::min)
}

/// Joint verdicts: the chance of any false one among the arms is the plan's alpha.
///
/// Each arm shows the interval of its verdict. `together`: compared outcomes of the treatments' verdicts.
/// Those without pairs or without a baseline stay unchanged. `is_at_end`: the last round of the plan is there.
pub fn judge_together(plan: &Plan, mut together: Vec<&mut Comparison>, is_at_end: bool) {
    if plan.early_stop {
        // A sequence may be looked at after every round, but only by itself: each arm gets its share of alpha.
        let alpha = plan.alpha / together.len().max(1) as f64;
        for compared in together.iter_mut().filter(|c| c.outcome.method == CONFIDENCE_SEQUENCE) {
            let interval = toll_stats::sign_sequence(&compared.pairs.d, sequence_scale(plan), alpha);
            store_interval(interval, compared);
        }
        if is_at_end {
            add_planned_intervals(plan, &mut together);
        }
        return;
    }
    together.retain(|compared| compared.outcome.p.is_some());
    let arms = together.len();
    let (alike, flipped): (Vec<_>, Vec<_>) = together.into_iter().partition(|c| c.common.is_some());
    let store = |compared: &mut Comparison, found: SignFlip| {
        compared.outcome.p_adjusted = Some(found.p);
        compared.outcome.method = method(arms, compared.common, compared.is_detrended);
        store_interval(found.interval, compared);
    };
    for compared in alike {
        if let Some(common) = compared.common {
            let found = common.test(&compared.pairs.d, plan.alpha, arms);
            store(compared, found);
        }
    }
    let found = flip_together(plan, &flipped);
    flipped.into_iter().zip(found).for_each(|(compared, found)| store(compared, found));
}

/// Beside a sequence, which holds at every look: what the plan alone says, at its end.
fn add_planned_intervals(plan: &Plan, together: &mut [&mut Comparison]) {
    let found = flip_together(plan, together);
    for (compared, found) in together.iter_mut().zip(found) {
        let is_sequence = compared.outcome.method == CONFIDENCE_SEQUENCE;
        let ratio = found.interval.ok().filter(|_| is_sequence && compared.measure == Compare::LogRatio);
        compared.outcome.planned_ci95_pct = ratio.map(|interval| {
            let told = interval.to_pct();
            [told.low, told.high]
        });
    }
}

fn flip_together(plan: &Plan, arms: &[&mut Comparison]) -> Vec<SignFlip> {
    let by_round: Vec<Vec<Option<f64>>> = arms.iter().map(|c| c.pairs.by_round(plan.order.len())).collect();
    let by_round: Vec<&[Option<f64>]> = by_round.iter().map(Vec::as_slice).collect();
    toll_stats::simultaneous_sign_flips(&by_round, plan.alpha, plan.seed)
}

/// Name of the method for that many arms judged together.
fn method(arms: usize, common: Option<CommonSpread>, undrifted: bool) -> String {
    let together = if arms > 1 { format!(", {arms} variants together") } else { String::new() };
    let name = if common.is_some() { "t, spread of all windows" } else { "sign-flip" };
    format!("{name}{together}{}", if undrifted { ", drift taken out" } else { "" })
}

/// Draws the verdict from the shown interval.
fn draw_verdict(compared: &mut Comparison) {
    let outcome = &mut compared.outcome;
    outcome.verdict =
        match toll_stats::judge_interval(compared.interval, compared.margin, outcome.higher_is_better) {
            toll_stats::Verdict::Worse => Verdict::Costly,
            toll_stats::Verdict::Better => Verdict::Cheaper,
            toll_stats::Verdict::Equivalent => Verdict::NoEffect,
            toll_stats::Verdict::Inconclusive => Verdict::Unclear,
            toll_stats::Verdict::NoInterval => Verdict::NoInterval,
        };
}
