//! When a counted run may end: nearly every interval is as narrow as was asked for.

use toll_record::{Compare, Role, RunResult, catalogue};

/// Of the arms, the share whose intervals are asked. A reader whose share of the one CPU varies (text decoded of a busy
/// host) spreads ten times as wide as the rest, and would have all others repeated for hours.
const OF_ARMS: f64 = 0.85;

/// The half of an interval that this share of the arms keeps within, percent, each on the outcome that it is judged by:
/// treatments, A/A and placebo. `None`: an arm has no interval yet, or nothing is compared as a ratio.
pub fn usual_half_pct(result: &RunResult) -> Option<f64> {
    let compared = result.arms.iter().filter(|arm| {
        matches!(arm.role, Role::Treatment | Role::Aa | Role::Placebo)
            && arm.unavailable.is_none()
            && arm.windows > 0
    });
    let mut halves = Vec::new();
    for arm in compared {
        let name = arm.judged_by.as_ref().unwrap_or(&result.primary);
        let definition = catalogue::find_definition(&result.definitions, name)?;
        if definition.compare != Compare::LogRatio {
            continue;
        }
        let [low, high] = arm.outcomes.get(name)?.ci95_pct?;
        halves.push((high - low) / 2.0);
    }
    halves.sort_unstable_by(f64::total_cmp);
    let place = (halves.len() as f64 * OF_ARMS).ceil() as usize;
    halves.get(place.checked_sub(1)?).copied()
}
