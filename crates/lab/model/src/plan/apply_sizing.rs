//! Application of the pilot's result: windows and rounds of a plan.

use super::sizing::{Sizing, SizingInput, TrialTiming, place_long_rounds, round_s};
use super::times::TimeSettings;
use toll_record::{Arm, Compare, Definition, Long, Meter, Plan, Role, Source, Switching, Window, catalogue};

/// Seconds to switch an arm that nobody has tried: load, start, stop, wait for a boundary between bins.
///
/// As measured with tcpdump and the slow log.
const DEFAULT_SWITCH_S: f64 = 0.35;
/// Events that a mean of one window needs.
const FEWEST_EVENTS: f64 = 100.0;
/// Longest window that is chosen to hold enough events, seconds.
const LONGEST_FOR_EVENTS_S: f64 = 30.0;
/// Share of spare rounds beyond the predicted ones. They fill the time if trials are faster than predicted.
const SPARE_ROUNDS_SHARE: f64 = 0.15;

/// Time that each arm of a round needs in addition to its window, as far as known.
fn trial_timings(plan: &Plan) -> Vec<TrialTiming> {
    let Some(names) = plan.order.first() else { return Vec::new() };
    let arms = names.iter().filter_map(|name| plan.arms.iter().find(|arm| arm.name == *name));
    let known = |arm: &Arm| plan.pilot.as_ref().and_then(|pilot| pilot.arms.get(&arm.name));
    arms.map(|arm| trial_timing(arm, known(arm), plan.window_s)).collect()
}

/// Time that an arm needs, with what the pilot found of it.
fn trial_timing(arm: &Arm, known: Option<&Switching>, window_s: f64) -> TrialTiming {
    let done_s = known.and_then(|known| known.done_s);
    TrialTiming {
        name: arm.name.clone(),
        settle_s: arm.settle_s,
        switch_s: known.map_or(DEFAULT_SWITCH_S, |known| known.around_s),
        count_s_per_s: known.map_or(0.0, |known| known.count_s_per_s),
        fixed_window_s: match arm.window {
            Window::Time { .. } => None,
            // Its bound says nothing where it was not tried: it is taken to be done within a usual window.
            Window::Done { at_most_s } => Some(done_s.unwrap_or(at_most_s.min(window_s))),
            Window::Count { at_most_s, .. } => Some(at_most_s.min(window_s)),
        },
    }
}

/// Expected seconds of so many rounds of these arms, none of which was tried.
pub(super) fn untried_s(arms: &[Arm], rounds: u32, window_s: f64, gap_s: f64) -> f64 {
    let timings: Vec<TrialTiming> = arms.iter().map(|arm| trial_timing(arm, None, window_s)).collect();
    f64::from(rounds) * round_s(&timings, gap_s, super::JITTER, window_s, false)
}

/// Expected seconds of this round of a plan.
pub fn expected_round_s(plan: &Plan, round: u32) -> f64 {
    round_s(
        &trial_timings(plan),
        plan.gap_s,
        plan.jitter,
        plan.round_window_s(round),
        plan.counts_queries(round),
    )
}

/// Expected seconds of all trials of a plan, at most the time given.
pub fn expected_s(plan: &Plan) -> f64 {
    let all: f64 = (0..plan.order.len() as u32).map(|round| expected_round_s(plan, round)).sum();
    plan.time_s.map_or(all, |given| all.min(given))
}

/// The bin outcome whose noise equals the primary outcome's noise. `None` if there is none.
pub fn noise_outcome(plan: &Plan) -> Option<super::noise::BinOutcome> {
    let primary = catalogue::find_definition(&plan.outcomes, &plan.primary)?;
    match (primary.compare, &primary.source) {
        (Compare::LogRatio, Source::Latency) => Some(super::noise::BinOutcome::Latency),
        (Compare::LogRatio, Source::Load { .. }) => Some(super::noise::BinOutcome::Count),
        _ => None,
    }
}

/// The optimiser's input for a plan, after its pilot or (with usual values) before it.
pub fn sizing_input(plan: &Plan, times: &TimeSettings) -> SizingInput {
    let in_rounds = |arm: &&Arm| arm.unavailable.is_none();
    let pilot = plan.pilot.as_ref();
    let events_per_s = pilot.and_then(|pilot| pilot.events_per_s).filter(|per_s| *per_s > 0.0);
    let treatments = plan.arms.iter().filter(in_rounds).filter(|arm| arm.role == Role::Treatment).count();
    // A command that is run again until the window is over: several times at least.
    let again_s = plan.arms.iter().filter(in_rounds).filter(|arm| arm.treatment.again).filter_map(|arm| {
        const RUNS: f64 = 3.0;
        Some(RUNS * pilot?.arms.get(&arm.name)?.done_s?)
    });
    let for_events_s = events_per_s.map_or(0.0, |per_s| (FEWEST_EVENTS / per_s).min(LONGEST_FOR_EVENTS_S));
    SizingInput {
        timings: trial_timings(plan),
        gap_s: plan.gap_s,
        jitter: plan.jitter,
        noise: pilot.and_then(|pilot| pilot.noise.clone()),
        bin_s: bin_s(plan),
        min_window_s: again_s.fold(for_events_s, f64::max),
        alpha: plan.alpha,
        treatments: treatments as u32,
        window_s: times.window_s,
        rounds: times.rounds,
        needs_long_windows: shown_outcomes(plan).any(|outcome| outcome.long_windows),
    }
}

/// Usual size of a paired difference's noise on the primary outcome, ln, as the pilot found it: two windows of the plan's
/// length, as far apart as neighbouring trials are. `None`: the pilot says nothing of that outcome.
pub fn difference_sd(plan: &Plan) -> Option<f64> {
    let noise = plan.pilot.as_ref()?.noise.as_ref()?;
    let slots = plan.order.first().map_or(1, Vec::len).max(1);
    let apart_s = expected_round_s(plan, plan.design.ramp_s().len() as u32) / slots as f64;
    let variance = super::noise::difference_variance(noise, plan.window_s, apart_s);
    Some(variance.sqrt()).filter(|sd| *sd > 0.0)
}

/// Bin width of the slowest meter among the arms, seconds.
fn bin_s(plan: &Plan) -> f64 {
    let slow = |arm: &Arm| arm.meter == Meter::Driver && arm.workload.driver == "sysbench";
    if plan.arms.iter().any(slow) { 1.0 } else { 0.1 }
}

/// Outcomes of table and page that at least one arm can have.
fn shown_outcomes(plan: &Plan) -> impl Iterator<Item = &Definition> {
    let names = plan.columns.iter().chain(&plan.panels);
    names.filter_map(|name| catalogue::find_definition(&plan.outcomes, name))
}

/// Titles of the shown outcomes that need long windows.
pub fn long_window_titles(plan: &Plan) -> Vec<&str> {
    let mut titles: Vec<&str> = shown_outcomes(plan)
        .filter(|outcome| outcome.long_windows)
        .map(|outcome| outcome.title.as_str())
        .collect();
    titles.sort_unstable();
    titles.dedup();
    titles
}

/// Sets the settling time to the pilot's finding, never below the requested one.
pub fn set_settle_times(plan: &mut Plan, times: &TimeSettings) {
    let Some(pilot) = plan.pilot.as_ref().filter(|_| !times.settle_is_explicit) else { return };
    for arm in &mut plan.arms {
        let found = pilot.arms.get(&arm.name).and_then(|found| found.settle_s);
        arm.settle_s = found.map_or(arm.settle_s, |found| arm.settle_s.max(found));
    }
}

fn add_spare_rounds(rounds: u32) -> u32 {
    rounds + (f64::from(rounds) * SPARE_ROUNDS_SHARE).ceil() as u32
}

fn remove_spare_rounds(rounds: u32) -> u32 {
    (0..=rounds).rev().find(|few| add_spare_rounds(*few) <= rounds).unwrap_or(rounds)
}

/// Rounds that a plan is likely to complete. Spare rounds of a plan with a time limit are left out.
pub fn likely_rounds(plan: &Plan) -> u32 {
    let all = plan.order.len() as u32;
    if plan.time_s.is_some() { remove_spare_rounds(all) } else { all }
}

/// Writes the choice into the plan. `time_s`: seconds for all trials; `None` if the user sets the rounds.
pub fn apply_sizing(plan: &mut Plan, choice: &Sizing, time_s: Option<f64>) {
    let all = choice.total_rounds();
    let rounds = if time_s.is_some() { add_spare_rounds(all) } else { all };
    plan.rounds = rounds.min(crate::scenario::MAX_ROUNDS);
    plan.time_s = time_s;
    plan.window_s = choice.window_s;
    for arm in &mut plan.arms {
        if let Window::Time { s } = &mut arm.window {
            *s = choice.window_s;
        }
    }
    plan.long = choice
        .long_windows
        .map(|long| Long { window_s: long.window_s, rounds: place_long_rounds(plan.seed, long.rounds, all) });
    plan.order = super::draw_order(plan, plan.rounds);
    plan.planned_mde_pct = choice.mde_ln.map(toll_stats::log_ratio_to_pct);
}

/// Seconds of the pilot within the given time: first the baseline alone, then all arms.
pub fn pilot_durations_s(plan: &Plan, times: &TimeSettings) -> (f64, f64) {
    const SHARE: f64 = 0.1;
    const LEAST_S: f64 = 5.0;
    const OF_BASELINE: f64 = 0.3;
    const MOST_OF_BASELINE_S: f64 = 60.0;
    /// Pilot length without a given time, seconds.
    const USUAL_S: f64 = 60.0;
    // Bins of a second are few.
    let least = if bin_s(plan) >= 1.0 { 2.5 * LEAST_S } else { LEAST_S };
    let all = times.time_s.map_or(USUAL_S, |time_s| time_s * SHARE).max(least);
    let baseline = (all * OF_BASELINE).clamp(least, MOST_OF_BASELINE_S.max(least));
    (baseline, all - baseline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_rounds_are_not_counted_on() {
        for rounds in 1..=500 {
            assert!(add_spare_rounds(rounds) > rounds);
            assert_eq!(remove_spare_rounds(add_spare_rounds(rounds)), rounds);
        }
    }
}
