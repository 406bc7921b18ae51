//! In which windows did the hypervisor withhold so much CPU time that they tell of the neighbours alone?
//!
//! Such a window is left out whatever was measured in it: the reason to leave it out is read from the host's clocks,
//! never from its outcome. What a guest lost to others is no arm's doing, unless the host as a whole is short of CPU and the
//! arm asks for more of it; the doubt names the arm that lost most windows, so that this can be seen.

use super::coverage::is_loaded;
use super::doubt::Doubt;
use super::recorded::Recorded;
use super::windows::{Trials, Window};
use std::collections::BTreeMap;

/// Of all CPU time in a window. Load alone on an undisturbed guest loses a few tenths of a percent.
const TOO_MUCH: f64 = 0.1;
/// A host that takes from more of the baseline's windows than this is like that: leaving windows out would not show
/// another one.
const AT_MOST: f64 = 0.34;

/// Leaves them out. Not windows that last until a command has ended: those are few, long, and cannot be had again.
pub fn leave_out(recorded: &Recorded, trials: &mut Trials) -> Option<Doubt> {
    let plan = &recorded.plan;
    let cpus = recorded.host.as_ref().map(|host| f64::from(host.cpus)).filter(|cpus| *cpus > 0.0)?;
    let is_withheld = |window: &Window| {
        let stolen = window.cpu.as_ref().map_or(0.0, |cpu| cpu.host_steal_us as f64 / 1e6);
        is_loaded(plan, window.arm)
            && !plan.arms[window.arm].window.is_until_done()
            && stolen > TOO_MUCH * cpus * window.seconds()
    };
    let of = trials.windows.len();
    let baseline = plan.arms.iter().position(|arm| arm.name == plan.baseline);
    let share = {
        let of_baseline = || trials.windows.iter().filter(|window| Some(window.arm) == baseline);
        of_baseline().filter(|window| is_withheld(window)).count() as f64
            / of_baseline().count().max(1) as f64
    };
    if share > AT_MOST {
        return None;
    }
    let mut tried: BTreeMap<usize, usize> = BTreeMap::new();
    trials.windows.iter().for_each(|window| *tried.entry(window.arm).or_default() += 1);
    let out = trials.leave_out(is_withheld);
    let mut lost: BTreeMap<usize, usize> = BTreeMap::new();
    out.iter().for_each(|window| *lost.entry(window.arm).or_default() += 1);
    trials.withheld.extend(out.iter().map(|window| (window.arm, window.round)));
    let (arm, most) = lost.into_iter().max_by_key(|(_, count)| *count)?;
    Some(Doubt::CpuWithheld {
        windows: out.len(),
        of,
        above_pct: 100.0 * TOO_MUCH,
        arm: plan.arms[arm].name.clone(),
        most,
        of_arm: tried.get(&arm).copied().unwrap_or(most),
    })
}
