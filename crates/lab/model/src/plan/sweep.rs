//! Load-latency sweep: copies of an arm at each rate.
//!
//! An arm with a load of its own pace stays as it is, and is repeated at every rate.

use crate::scenario::{Arm, Rate, Sweep};
use toll_record::Role;

/// The arms, followed by copies of those that can be swept at each rate of the sweep.
///
/// A copy is compared with its counterpart at the same rate.
pub fn expand_sweep(arms: Vec<Arm>, sweep: &Sweep, baseline: &str) -> Vec<Arm> {
    let of = sweep.of.as_deref().unwrap_or(baseline);
    let curves: Vec<&Arm> = arms.iter().filter(|arm| can_be_swept(arm)).collect();
    let mut points = Vec::new();
    for percent in &sweep.percents {
        let at = |name: &str| format!("{name}-{percent}");
        for arm in &curves {
            let other = arm.against.as_deref().or((arm.name != baseline).then_some(baseline));
            let counterpart = other.filter(|name| curves.iter().any(|c| c.name == *name));
            let mut point = (*arm).clone();
            point.name = at(&arm.name);
            point.alias = arm.alias.iter().map(|alias| at(alias)).collect();
            point.title = format!("{}, at {percent}% of what {of} attains", arm.title);
            point.against = counterpart.map(at);
            point.curve = Some(arm.name.clone());
            point.workload.rate = Some(Rate::Share { share: f64::from(*percent) / 100.0, of: of.to_owned() });
            points.push(point);
        }
    }
    let mut all = arms;
    all.extend(points);
    all
}

/// False for controls, whose curve is of no interest, and for arms that already have a rate.
fn can_be_swept(arm: &Arm) -> bool {
    matches!(arm.role, Role::Baseline | Role::Treatment)
        && arm.workload.rate.is_none()
        && arm.workload.driver.as_deref() != Some("none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ResolvedScenario, RunOverrides};
    use crate::scenario::Preset;

    #[test]
    fn a_swept_arm_is_compared_with_its_counterpart_at_the_same_rate() {
        let scenario = Preset::named("load-curve").unwrap().scenario().unwrap();
        let resolved = ResolvedScenario::new(scenario, &RunOverrides::default()).unwrap();
        let arm = |name: &str| resolved.arms.iter().find(|a| a.name == name).unwrap();
        assert_eq!(resolved.arms.len(), 2 * 12);
        assert_eq!(arm("tcp-10").against.as_deref(), Some("unix-10"));
        assert_eq!(arm("tcp-10").curve.as_deref(), Some("tcp"));
        assert_eq!(arm("unix-110").against, None);
        assert_eq!(arm("unix-110").role, Role::Baseline);
        assert_eq!(resolved.arms_needing_capacity(), ["tcp"]);
    }

    #[test]
    fn any_scenario_can_be_swept_and_its_controls_are_left_alone() {
        let scenario = Preset::named("tcpdump-impact").unwrap().scenario().unwrap();
        let overrides = RunOverrides {
            arms: Some(["baseline-again", "cpu-control", "tcpdump-file"].map(str::to_owned).into()),
            sweep: Some(vec![50]),
            ..RunOverrides::default()
        };
        let names: Vec<_> =
            ResolvedScenario::new(scenario, &overrides).unwrap().arms.into_iter().map(|a| a.name).collect();
        let controls = ["baseline", "baseline-again", "cpu-control", "tcpdump-file"];
        assert_eq!(names, [&controls[..], &["baseline-50", "tcpdump-file-50"]].concat());
    }
}
