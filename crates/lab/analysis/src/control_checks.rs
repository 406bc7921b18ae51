//! Control checks: known effects are found, and none where there is none.
//!
//! A/A, placebo and power; doses of known size are in `dose_response.rs`. Never changes a verdict: it only qualifies
//! it.

use super::compare::Comparison;
use super::warnings::RunWarning;
use crate::estimate_format;
use toll_record::{AaCheck, Arm, Compare, ControlCheck, Mde, Outcome, Plan, Role, Verdict, catalogue};
use toll_stats::{CommonSpread, Interval};

/// Power at which the minimum detectable effect is stated.
const POWER: f64 = 0.8;

/// A/A check: the baseline under another name, on its judged outcome.
pub fn check_aa(arm: &Arm, judged: &Comparison) -> AaCheck {
    let outcome = &judged.outcome;
    AaCheck {
        arm: arm.name.clone(),
        toll_pct: outcome.toll_pct,
        ci95_pct: outcome.ci95_pct,
        effect: outcome.effect,
        ci95: outcome.ci95,
        ok: judge_no_effect(judged),
    }
}

pub fn warn_aa(outcome: &str, check: &AaCheck, judged: &Comparison) -> Option<RunWarning> {
    let found = estimate_format::format_interval(&judged.outcome)?;
    (check.ok == Some(false)).then(|| RunWarning::AaFailed {
        arm: check.arm.clone(),
        outcome: outcome.to_owned(),
        found,
    })
}

/// Placebo check: a process that does nothing must have no overhead.
pub fn check_placebo(outcome: &str, arm: &Arm, judged: &Comparison) -> ControlCheck {
    describe_control(outcome, arm, &judged.outcome, 0.0, "does nothing", judge_no_effect(judged), None)
}

/// Check of an arm with a known effect. `excuse`: another reason for an unexpected outcome.
pub fn check_control(
    outcome: &str,
    arm: &Arm,
    found: &Outcome,
    expected_pct: f64,
    deed: &str,
    excuse: Option<String>,
) -> ControlCheck {
    let ok = interval(found).and_then(|ci| {
        match (interval_contains(ci, expected_pct), interval_contains(ci, 0.0)) {
            (true, false) => Some(true),
            // A control that cannot be told from nothing confirms nothing.
            (true, true) => None,
            (false, _) => Some(excuse.is_some()),
        }
    });
    let excuse = excuse.filter(|_| interval(found).is_some_and(|ci| !interval_contains(ci, expected_pct)));
    describe_control(outcome, arm, found, expected_pct, deed, ok, excuse)
}

/// Judgement on an arm that must have no effect: `None` if the interval is wider than ±margin, or missing.
fn judge_no_effect(judged: &Comparison) -> Option<bool> {
    // What the table calls equivalent is no effect here, too: even a process that sleeps is looked after.
    if judged.outcome.verdict == Verdict::NoEffect {
        return Some(true);
    }
    let [low, high] = interval(&judged.outcome)?;
    if !interval_contains([low, high], 0.0) {
        return Some(false);
    }
    judged.margin().is_none_or(|margin| (high - low) / 2.0 <= margin).then_some(true)
}

fn describe_control(
    outcome: &str,
    arm: &Arm,
    found: &Outcome,
    expected_pct: f64,
    deed: &str,
    ok: Option<bool>,
    excuse: Option<String>,
) -> ControlCheck {
    let name = &arm.name;
    let expected = if expected_pct == 0.0 { "no change".to_owned() } else { format!("{expected_pct:+.1}%") };
    let measured = match estimate_format::format_estimate(found) {
        Some(_) => format!("measured {}", estimate_format::describe_estimate(found)),
        None => "not measured".to_owned(),
    };
    let excuse = excuse.map_or_else(String::new, |excuse| format!("; {excuse}"));
    ControlCheck {
        arm: name.clone(),
        outcome: outcome.to_owned(),
        expected_pct,
        toll_pct: found.toll_pct,
        ci95_pct: found.ci95_pct,
        effect: found.effect,
        ci95: found.ci95,
        ok,
        text: format!("{name} {deed}: {outcome} expected {expected}, {measured}{excuse}"),
    }
}

pub fn warn_control(check: &ControlCheck) -> Option<RunWarning> {
    (check.ok == Some(false))
        .then(|| RunWarning::ControlMissed { arm: check.arm.clone(), text: check.text.clone() })
}

/// The interval in percent or in the outcome's unit. Zero is zero in both.
fn interval(outcome: &Outcome) -> Option<[f64; 2]> {
    outcome.ci95_pct.or(outcome.ci95)
}

fn interval_contains([low, high]: [f64; 2], value: f64) -> bool {
    Interval { low, high }.contains(value)
}

/// Minimum detectable effect of this run.
///
/// It uses the spread of the A/A differences, else the median spread of the treatments; in blocks, of which few are A/A, that of
/// the treatments alone. Each treatment has its share of alpha, as in the forecast.
pub fn estimate_mde(plan: &Plan, arms: &[(Role, &Comparison)]) -> Option<Mde> {
    let treatments = arms.iter().filter(|(role, _)| *role == Role::Treatment).count() as u32;
    let spread = |role: Role| -> Vec<(f64, usize)> {
        let enough = arms.iter().filter(|(r, c)| *r == role && c.pairs.d.len() > 1);
        enough.map(|(_, c)| (toll_stats::sd(&c.pairs.d), c.pairs.d.len())).collect()
    };
    let mut known = if plan.design.is_rounds() { spread(Role::Aa) } else { Vec::new() };
    if known.is_empty() {
        known = spread(Role::Treatment);
    }
    let pairs = known.iter().map(|k| k.1);
    let rounds = if plan.design.is_rounds() { pairs.max() } else { pairs.min() };
    let spreads: Vec<f64> = known.iter().map(|k| k.0).collect();
    let sd = (!spreads.is_empty()).then(|| toll_stats::median(&spreads));
    let ordinary = |a: &CommonSpread, b: &CommonSpread| a.sd.total_cmp(&b.sd);
    let common = arms.iter().filter_map(|(_, c)| c.common_spread()).min_by(ordinary);
    let achieved = sd.zip(rounds).and_then(|(sd, n)| match common {
        Some(common) => Some(common.detectable_effect(n, plan.alpha, treatments, POWER)),
        None if !plan.design.is_rounds() => {
            Some(sd * toll_stats::sequence_mde(n, plan.alpha / f64::from(treatments))?)
        }
        None => {
            toll_stats::minimum_detectable_effect(sd, u32::try_from(n).ok()?, plan.alpha, treatments, POWER)
        }
    });
    // On the scale of the differences: logarithms, or the outcome's unit.
    let (is_ratio, margin) = match catalogue::find_definition(&plan.outcomes, &plan.primary) {
        Some(outcome) if outcome.compare == Compare::LogRatio => {
            (true, Some(toll_stats::pct_to_log_ratio(plan.margin_pct)))
        }
        outcome => (false, outcome.and_then(|outcome| outcome.margin)),
    };
    let rounds_for = |(sd, margin): (f64, f64)| match common {
        // More windows are needed by the square of what an effect is smaller than what was found.
        Some(common) => {
            let alone = common.detectable_effect(1, plan.alpha, treatments, POWER);
            Some(((alone / margin).powi(2).ceil() as u32).max(toll_stats::MIN_COMMON_ROUNDS as u32))
        }
        None => toll_stats::rounds_needed(sd, margin, plan.alpha, treatments, POWER),
    };
    let mde = Mde {
        planned_pct: plan.planned_mde_pct.filter(|_| is_ratio),
        achieved_pct: achieved.filter(|_| is_ratio).map(toll_stats::log_ratio_to_pct),
        achieved: achieved.filter(|_| !is_ratio),
        // A live run is given a time.
        rounds_for_margin: sd.zip(margin).filter(|_| plan.design.is_rounds()).and_then(rounds_for),
    };
    let known = [mde.planned_pct, mde.achieved_pct, mde.achieved];
    (known.iter().any(Option::is_some) || mde.rounds_for_margin.is_some()).then_some(mde)
}
