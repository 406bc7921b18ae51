//! When a counted run may end: every interval is as narrow as was asked for.

use toll_record::{Compare, Role, RunResult, catalogue};

/// The widest half of an interval on the outcome that an arm is judged by, percent; treatments, A/A and placebo. `None`:
/// an arm has none yet, or nothing is compared as a ratio.
pub fn widest_half_pct(result: &RunResult) -> Option<f64> {
    let compared = result.arms.iter().filter(|arm| {
        matches!(arm.role, Role::Treatment | Role::Aa | Role::Placebo)
            && arm.unavailable.is_none()
            && arm.windows > 0
    });
    let mut widest: Option<f64> = None;
    for arm in compared {
        let name = arm.judged_by.as_ref().unwrap_or(&result.primary);
        let definition = catalogue::find_definition(&result.definitions, name)?;
        if definition.compare != Compare::LogRatio {
            continue;
        }
        let [low, high] = arm.outcomes.get(name)?.ci95_pct?;
        widest = Some(widest.unwrap_or(0.0).max((high - low) / 2.0));
    }
    widest
}
