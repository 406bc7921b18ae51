//! In which windows did the hypervisor withhold so much CPU time that they tell of the neighbours alone?
//!
//! Such a window is left out whatever was measured in it: the reason to leave it out is read from the host's clocks,
//! never from its outcome. What a guest lost to others is no arm's doing, unless the host as a whole is short of CPU and the
//! arm asks for more of it: an arm that would lose many of its windows keeps them, and both are named.

use super::coverage::is_loaded;
use super::doubt::{Doubt, OfArm};
use super::recorded::Recorded;
use super::windows::{Trials, Window};
use std::collections::BTreeMap;

/// Of all CPU time in a window. Load alone on an undisturbed guest loses a few tenths of a percent.
const TOO_MUCH: f64 = 0.1;
/// A host that takes from more of the baseline's windows than this is like that: leaving windows out would not show
/// another one. Where it takes from more of another arm's, the arm's own work may be the reason, and its windows stay.
const AT_MOST: f64 = 0.34;

/// Of one arm.
#[derive(Default)]
struct Share {
    windows: usize,
    withheld: usize,
}

impl Share {
    fn is_too_much(&self) -> bool {
        self.withheld as f64 > AT_MOST * self.windows as f64
    }
}

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
    let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
    for window in &trials.windows {
        let share = shares.entry(window.arm).or_default();
        share.windows += 1;
        share.withheld += usize::from(is_withheld(window));
    }
    let (stay, go): (Vec<_>, Vec<_>) =
        shares.iter().filter(|(_, share)| share.withheld > 0).partition(|(_, share)| share.is_too_much());
    if stay.iter().any(|(arm, _)| plan.arms[**arm].name == plan.baseline) {
        return None;
    }
    let out = trials.leave_out(|window| is_withheld(window) && !shares[&window.arm].is_too_much());
    trials.withheld.extend(out.iter().map(|window| (window.arm, window.round)));
    let arm = |(arm, share): &(&usize, &Share)| OfArm {
        arm: plan.arms[**arm].name.clone(),
        withheld: share.withheld,
        windows: share.windows,
    };
    let most = go.iter().max_by_key(|(_, share)| share.withheld).map(arm);
    (!stay.is_empty() || most.is_some()).then(|| Doubt::CpuWithheld {
        windows: out.len(),
        of,
        above_pct: 100.0 * TOO_MUCH,
        most,
        stay: stay.iter().map(arm).collect(),
    })
}
