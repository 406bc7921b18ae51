//! Which of a scenario's variants a run has: those chosen, with the baselines that they need.

use super::RunOverrides;
use crate::scenario::{Arm, Profile, Scenario};
use anyhow::bail;

/// Arms by the command line, else by the profile, else all.
///
/// # Errors
/// There is no arm of that name.
pub(super) fn select_arms(
    scenario: &Scenario,
    profile: &Profile,
    overrides: &RunOverrides,
) -> anyhow::Result<Vec<Arm>> {
    let Some(names) = overrides.arms.as_ref().or(profile.arms.as_ref()) else {
        return Ok(scenario.arms.clone());
    };
    for name in names {
        if !scenario.arms.iter().any(|a| a.name == *name) {
            bail!("{} has no arm `{name}`: it has {}", scenario.name, format_arm_names(&scenario.arms));
        }
    }
    let chosen = |arm: &Arm| names.contains(&arm.name);
    let needed = |arm: &Arm| {
        let by = |other: &Arm| chosen(other) && other.against.as_ref() == Some(&arm.name);
        arm.name == scenario.baseline || scenario.arms.iter().any(by)
    };
    Ok(scenario.arms.iter().filter(|arm| chosen(arm) || needed(arm)).cloned().collect())
}

/// Their names, so far as one reads on.
fn format_arm_names(arms: &[Arm]) -> String {
    const MOST: usize = 30;
    let names: Vec<_> = arms.iter().take(MOST).map(|arm| arm.name.as_str()).collect();
    match arms.len().saturating_sub(MOST) {
        0 => names.join(", "),
        more => format!("{} and {more} more (`toll list SCENARIO` has them all)", names.join(", ")),
    }
}
