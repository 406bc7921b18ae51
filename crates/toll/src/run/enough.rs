//! Is enough known to end the run before its last round?
//!
//! Asked after every round, so only a confidence sequence may answer: a plain interval looked at
//! again and again finds effects that are not there.

use crate::analyse;
use toll_record::{Role, RunDir};

/// True once every treatment's toll on the primary outcome is told apart from zero, or known to
/// lie inside the margin.
pub fn enough(run: &RunDir) -> anyhow::Result<bool> {
    let plan = run.plan()?;
    let result = analyse::run(run)?;
    let values = |name: &str| {
        let arm = result.arms.iter().find(|a| a.name == name)?;
        arm.outcomes.get(&plan.primary).map(|o| o.values.clone())
    };
    let Some(baseline) = values(&plan.baseline) else { return Ok(false) };
    let treatments: Vec<_> =
        plan.arms.iter().filter(|a| a.role == Role::Treatment && a.unavailable.is_none()).collect();
    let alpha = plan.alpha / treatments.len().max(1) as f64;
    let margin = toll_stats::log_of_toll(plan.margin_pct);
    Ok(treatments.iter().all(|arm| {
        let Some(values) = values(&arm.name).filter(|v| v.len() == baseline.len()) else { return false };
        let d: Vec<f64> = values.iter().zip(&baseline).map(|(a, b)| (a / b).ln()).collect();
        toll_stats::confidence_sequence(&d, alpha).is_ok_and(|i| toll_stats::settled(i, margin))
    }))
}
