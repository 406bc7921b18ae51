//! How small an effect will this plan find, judging by a pilot of the baseline?

use crate::catalogue;
use crate::conduct::Progress;
use crate::counted::counted;
use toll_record::{Compare, Definition, Plan};

/// The power that the minimal detectable effect is stated for.
const POWER: f64 = 0.8;

/// Percent on the plan's primary outcome; `None` where no interval can be given at all, no pilot was, or that
/// outcome is not compared as a ratio.
///
/// A pair's two windows lie apart by any part of a round, so their difference varies by the square
/// root of two times what single windows do.
pub fn mde_pct(pilot: &[f64], plan: &Plan) -> Option<f64> {
    let is_ratio = |outcome: &Definition| outcome.compare == Compare::LogRatio;
    catalogue::definition(&plan.outcomes, &plan.primary).filter(|outcome| is_ratio(outcome))?;
    let logs: Vec<f64> = pilot.iter().map(|mean| mean.ln()).collect();
    let sd = toll_stats::sd(&logs) * std::f64::consts::SQRT_2;
    toll_stats::minimal_detectable_effect(sd, plan.rounds, plan.alpha, POWER).map(toll_stats::toll_pct)
}

/// Says what the run will be able to find, before it begins; `pilot`: windows that the pilot gave.
pub fn tell(plan: &Plan, pilot: usize, progress: &Progress) {
    let need = toll_stats::rounds_for_interval(plan.alpha);
    let text = if (plan.rounds as usize) < need {
        let rounds = counted(plan.rounds.into(), "round");
        let are = if plan.rounds == 1 { "is" } else { "are" };
        format!(
            "{rounds} {are} too few for an interval, {need} are the fewest: tolls will be given without one"
        )
    } else {
        foretold(plan.planned_mde_pct, &plan.primary, pilot)
    };
    progress.say(&text);
}

fn foretold(mde_pct: Option<f64>, primary: &str, pilot: usize) -> String {
    match mde_pct {
        Some(mde) => {
            format!("this plan finds a toll of {mde:.1}% or more on {primary} in 8 runs of 10")
        }
        None if pilot < 2 => "how small a toll this plan finds is not foretold: there was no pilot long \
             enough; `pilot` in the scenario's profile asks for one"
            .to_owned(),
        None => "how small a toll this plan finds cannot be foretold from its pilot".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::foretold;

    #[test]
    fn without_a_pilot_nothing_is_foretold_and_nothing_is_said_of_rounds() {
        let said = foretold(None, "qps", 0);
        assert!(said.contains("no pilot long enough") && !said.contains("too few"), "{said}");
        assert!(foretold(None, "qps", 6).contains("cannot be foretold from its pilot"));
        assert_eq!(
            foretold(Some(3.0), "qps", 6),
            "this plan finds a toll of 3.0% or more on qps in 8 runs of 10"
        );
    }
}
