//! Does this bench find what is known, and nothing where there is nothing?
//!
//! A/A, placebo, positive control and power. Never changes a verdict: it only says how far to trust it.

use super::compare::{ArmWindows, Compared};
use super::doubt::Doubt;
use toll_record::{AaCheck, Arm, ControlCheck, Mde, Outcome, Plan, Role};
use toll_stats::Interval;

/// Chance of finding an effect of the size called detectable.
const POWER: f64 = 0.8;

/// The baseline under another name, on the primary outcome.
pub fn aa(arm: &Arm, primary: &Outcome) -> AaCheck {
    AaCheck {
        arm: arm.name.clone(),
        toll_pct: primary.toll_pct,
        ci95_pct: primary.ci95_pct,
        ok: primary.ci95_pct.is_some_and(|ci| holds(ci, 0.0)),
    }
}

pub fn aa_doubt(plan: &Plan, check: &AaCheck) -> Option<Doubt> {
    let [low, high] = check.ci95_pct?;
    (!check.ok).then(|| Doubt::AaFailed { arm: check.arm.clone(), outcome: plan.primary.clone(), low, high })
}

/// A process that does nothing: its toll must be none.
pub fn placebo(plan: &Plan, arm: &Arm, primary: &Outcome) -> ControlCheck {
    control(&plan.primary, arm, primary, 0.0, "does nothing")
}

/// A process that burns a known share `s` of one CPU: where `b` CPUs are busy with it, every query
/// costs s / (b - s) more of the host's CPU, whatever becomes of throughput.
pub fn burn(arm: &Arm, share: f64, windows: &ArmWindows, cpu: &Outcome) -> Option<ControlCheck> {
    let logs: Vec<f64> = windows
        .present()
        .filter_map(|m| m.busy_cpus)
        .filter(|&busy| busy > share)
        .map(|busy| (share / (busy - share)).ln_1p())
        .collect();
    if logs.is_empty() {
        return None;
    }
    let expected = toll_stats::toll_pct(toll_stats::mean(&logs));
    Some(control("cpu_us_per_query", arm, cpu, expected, &format!("burns {share:.2} of a CPU")))
}

fn control(outcome: &str, arm: &Arm, found: &Outcome, expected_pct: f64, deed: &str) -> ControlCheck {
    let name = &arm.name;
    let expected = if expected_pct == 0.0 {
        format!("{name} {deed}: {outcome} should stay as it is")
    } else {
        format!("{name} {deed}: {outcome} should change by {expected_pct:+.1}%")
    };
    let ok = found.ci95_pct.is_some_and(|ci| holds(ci, expected_pct));
    let text = match (found.toll_pct, found.ci95_pct) {
        (Some(toll), Some([low, high])) => {
            let word = if ok { "and does" } else { "but does not" };
            format!("{expected}, {word}: {toll:+.1}% [{low:+.1}, {high:+.1}]")
        }
        (Some(toll), None) => format!("{expected}; {toll:+.1}% found, too few rounds to decide"),
        _ => format!("{expected}; it was not measured"),
    };
    ControlCheck {
        arm: name.clone(),
        outcome: outcome.to_owned(),
        expected_pct,
        toll_pct: found.toll_pct,
        ci95_pct: found.ci95_pct,
        ok,
        text,
    }
}

pub fn control_doubt(check: &ControlCheck) -> Option<Doubt> {
    let decided = check.ci95_pct.is_some();
    (decided && !check.ok).then(|| Doubt::ControlMissed { arm: check.arm.clone(), text: check.text.clone() })
}

fn holds([low, high]: [f64; 2], value: f64) -> bool {
    Interval { low, high }.contains(value)
}

/// What this run could find: from the spread of the A/A differences, else from the median spread over
/// the treatments.
pub fn mde(plan: &Plan, arms: &[(Role, &Compared)]) -> Option<Mde> {
    let spread = |role: Role| -> Vec<(f64, usize)> {
        let enough = arms.iter().filter(|(r, c)| *r == role && c.pairs.d.len() > 1);
        enough.map(|(_, c)| (toll_stats::sd(&c.pairs.d), c.pairs.d.len())).collect()
    };
    let mut known = spread(Role::Aa);
    if known.is_empty() {
        known = spread(Role::Treatment);
    }
    let rounds = known.iter().map(|k| k.1).max();
    let spreads: Vec<f64> = known.iter().map(|k| k.0).collect();
    let sd = (!spreads.is_empty()).then(|| toll_stats::median(&spreads));
    let achieved = sd.zip(rounds).and_then(|(sd, n)| {
        toll_stats::minimal_detectable_effect(sd, u32::try_from(n).ok()?, plan.alpha, POWER)
    });
    let margin = toll_stats::log_of_toll(plan.margin_pct);
    let mde = Mde {
        planned_pct: plan.planned_mde_pct,
        achieved_pct: achieved.map(toll_stats::toll_pct),
        rounds_for_margin: sd.and_then(|sd| toll_stats::rounds_needed(sd, margin, plan.alpha, POWER)),
    };
    (mde.planned_pct.is_some() || mde.achieved_pct.is_some() || mde.rounds_for_margin.is_some())
        .then_some(mde)
}
