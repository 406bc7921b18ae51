//! Detection of server restarts within a run, and exclusion of the affected windows.
//!
//! The evidence is the server's `Uptime`, or the trial loop's note on a failed trial. Runs without uptime are checked
//! for CPU clocks that went backwards. Never looks for the cause.

use super::run_data::RunData;
use super::warnings::{AffectedTrials, RunWarning};
use super::windows::{Trials, Window, describe_trials};
use toll_record::{Step, TrialLine};

/// Text of the trial loop's note on a trial that failed because of a restart.
const RESTART_NOTE: &str = "the server restarted";
/// Tolerance, seconds: `Uptime` counts whole seconds, and the answer has a delay.
const SLACK_S: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Restart {
    /// Last moment at which the old server is known to have run, and the first of the new one.
    after_us: u64,
    before_us: u64,
    /// Start of the new server, as far as known.
    at_us: u64,
}

impl Restart {
    fn overlaps(&self, begin_us: u64, end_us: u64) -> bool {
        begin_us <= self.before_us && self.after_us <= end_us
    }
}

/// Leaves out every window with a restart in it. Failures in it do not count against its arm.
pub fn exclude_restarts(recorded: &RunData, trials: &mut Trials) -> Vec<RunWarning> {
    let plan = &recorded.plan;
    let mut restarts = find_restarts_by_uptime(recorded);
    if restarts.is_empty() && read_uptimes(recorded).next().is_none() {
        restarts = find_restarts_by_cpu(&recorded.trials);
    }
    for failed in trials.failed.iter().filter(|f| f.text.contains(RESTART_NOTE)) {
        if !restarts.iter().any(|r| r.overlaps(failed.begun_us, failed.at_us)) {
            restarts.push(Restart {
                after_us: failed.begun_us,
                before_us: failed.at_us,
                at_us: failed.at_us,
            });
        }
    }
    restarts.sort_by_key(|r| r.at_us);
    let of_a_round = plan.order.first().map_or(0, Vec::len);
    let several = |spoilt: Vec<(usize, u32)>| AffectedTrials {
        count: spoilt.len(),
        names: describe_trials(plan, &spoilt, of_a_round),
    };
    let mut warnings = Vec::with_capacity(restarts.len());
    for restart in restarts {
        let windows = trials.exclude_windows(|w: &Window| restart.overlaps(w.begin_us, w.end_us));
        let (failed, others) = std::mem::take(&mut trials.failed)
            .into_iter()
            .partition::<Vec<_>, _>(|f| restart.overlaps(f.begun_us, f.at_us));
        trials.failed = others;
        trials.restarted.extend(windows.iter().map(|w| w.trial).chain(failed.iter().map(|f| f.trial)));
        let wall_us = to_wall_us(&recorded.trials, restart.at_us);
        warnings.push(RunWarning::ServerRestarted {
            at: format_utc_time(wall_us),
            into_s: wall_us.saturating_sub(plan.started_wall_us) / 1_000_000,
            windows: several(windows.iter().map(|w| (w.arm, w.round)).collect()),
            failed: several(failed.iter().map(|f| (f.arm, f.round)).collect()),
        });
    }
    warnings
}

/// Time of each uptime sample, and the uptime in seconds.
fn read_uptimes(recorded: &RunData) -> impl Iterator<Item = (u64, f64)> {
    // Those beside the first are toll's own, and nobody starts them again.
    let first = recorded.servers.iter().filter(|s| s.server == 0);
    first.filter_map(|s| Some((s.mono_us, *s.values.get("Uptime")?)))
}

fn find_restarts_by_uptime(recorded: &RunData) -> Vec<Restart> {
    let known: Vec<(u64, f64)> = read_uptimes(recorded).collect();
    let lines = &recorded.trials;
    let between = |pair: &[(u64, f64)]| {
        let [(after_us, old_s), (before_us, new_s)] = [pair[0], pair[1]];
        // Uptime follows the wall clock: what somebody set that by is no restart.
        let elapsed_s = (before_us - after_us) as f64 / 1e6 + min_clock_step_s(lines, after_us, before_us);
        let grown_s = new_s - old_s;
        let began_later = elapsed_s - grown_s > SLACK_S;
        // A server that answers late seems to have begun later, too, but is as old as it was.
        let is_new = grown_s < 0.0 || new_s < elapsed_s + SLACK_S;
        let at_us = before_us.saturating_sub((new_s.max(0.0) * 1e6) as u64).max(after_us);
        (began_later && is_new).then_some(Restart { after_us, before_us, at_us })
    };
    known.windows(2).filter_map(between).collect()
}

/// A process with less CPU time than before is another one, or (zero, in older runs) absent.
fn find_restarts_by_cpu(lines: &[TrialLine]) -> Vec<Restart> {
    let edges = lines.iter().filter(|l| matches!(l.step, Step::WindowBegin | Step::WindowEnd));
    let known: Vec<(u64, u64)> = edges.filter_map(|l| Some((l.mono_us, l.cpu?.server_us?))).collect();
    let gone = |pair: &[(u64, u64)]| {
        let [(after_us, old_us), (before_us, new_us)] = [pair[0], pair[1]];
        let restart = Restart { after_us, before_us, at_us: before_us };
        (new_us < old_us && after_us <= before_us).then_some(restart)
    };
    known.windows(2).filter_map(gone).collect()
}

/// Change of the wall clock between two moments, seconds.
///
/// Steps record it only now and then. Of the possible values, the smallest is returned.
fn min_clock_step_s(lines: &[TrialLine], from_us: u64, to_us: u64) -> f64 {
    let offsets_s = |mono_us| {
        let next = lines.partition_point(|l| l.mono_us <= mono_us);
        let beside = [next.checked_sub(1).and_then(|last| lines.get(last)), lines.get(next)];
        beside.into_iter().flatten().map(|l| (l.wall_us as f64 - l.mono_us as f64) / 1e6)
    };
    let latest = offsets_s(from_us).reduce(f64::max).unwrap_or(0.0);
    let earliest = offsets_s(to_us).reduce(f64::min).unwrap_or(0.0);
    earliest - latest
}

/// Unix time of a monotonic moment, by the last step before it.
fn to_wall_us(lines: &[TrialLine], mono_us: u64) -> u64 {
    let next = lines.partition_point(|l| l.mono_us <= mono_us);
    let Some(line) = lines.get(next.saturating_sub(1)) else { return 0 };
    line.wall_us.saturating_add(mono_us).saturating_sub(line.mono_us)
}

/// `14:03:07 UTC`, so that a report is the same in every time zone.
fn format_utc_time(wall_us: u64) -> String {
    let of_day = wall_us / 1_000_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}
