//! CPU steal filter: excludes windows in which the hypervisor withheld too much CPU time.
//!
//! Such a window is excluded by the host's clocks. Time lost to other guests is not the arm's fault. The exception
//! is a host that is short of CPU as a whole, and an arm that needs more of it. An arm that would lose many windows
//! therefore keeps them, and both are named.
//!
//! # Invariants
//! A window is never excluded because of its outcome.

use super::coverage::is_loaded;
use super::run_data::RunData;
use super::warnings::{ArmSteal, RunWarning};
use super::windows::{Trials, Window};
use std::collections::BTreeMap;

/// Largest share of a window's CPU time that may be withheld. An undisturbed guest under load loses a few
/// tenths of a percent.
const MAX_STEAL_SHARE: f64 = 0.1;
/// Largest share of an arm's windows that may be excluded.
///
/// Beyond it in the baseline, the host is always like that, and exclusion would not help. Beyond it in
/// another arm, the arm's own work may be the cause, and its windows stay.
const MAX_EXCLUDED_SHARE: f64 = 0.34;

/// Withheld share of one arm.
#[derive(Default)]
struct ArmShare {
    windows: usize,
    stolen_windows: usize,
}

impl ArmShare {
    fn is_too_much(&self) -> bool {
        self.stolen_windows as f64 > MAX_EXCLUDED_SHARE * self.windows as f64
    }
}

/// Excludes such windows. Windows that last until a command ends stay: they are few, long and cannot be
/// repeated.
pub fn exclude_stolen_windows(recorded: &RunData, trials: &mut Trials) -> Option<RunWarning> {
    let plan = &recorded.plan;
    let cpus = recorded.host.as_ref().map(|host| f64::from(host.cpus)).filter(|cpus| *cpus > 0.0)?;
    let is_withheld = |window: &Window| {
        let stolen = window.cpu.as_ref().map_or(0.0, |cpu| cpu.host_steal_us as f64 / 1e6);
        is_loaded(plan, window.arm)
            && !plan.arms[window.arm].window.is_until_done()
            && stolen > MAX_STEAL_SHARE * cpus * window.seconds()
    };
    let of = trials.windows.len();
    let mut shares: BTreeMap<usize, ArmShare> = BTreeMap::new();
    for window in &trials.windows {
        let share = shares.entry(window.arm).or_default();
        share.windows += 1;
        share.stolen_windows += usize::from(is_withheld(window));
    }
    let (stay, go): (Vec<_>, Vec<_>) = shares
        .iter()
        .filter(|(_, share)| share.stolen_windows > 0)
        .partition(|(_, share)| share.is_too_much());
    if stay.iter().any(|(arm, _)| plan.arms[**arm].name == plan.baseline) {
        return None;
    }
    let out = trials.exclude_windows(|window| is_withheld(window) && !shares[&window.arm].is_too_much());
    trials.set_aside.extend(out.iter().map(|window| (window.arm, window.round)));
    let arm = |(arm, share): &(&usize, &ArmShare)| ArmSteal {
        arm: plan.arms[**arm].name.clone(),
        stolen_windows: share.stolen_windows,
        windows: share.windows,
    };
    let most = go.iter().max_by_key(|(_, share)| share.stolen_windows).map(arm);
    (!stay.is_empty() || most.is_some()).then(|| RunWarning::StealExcluded {
        windows: out.len(),
        of,
        above_pct: 100.0 * MAX_STEAL_SHARE,
        most,
        stay: stay.iter().map(arm).collect(),
    })
}
