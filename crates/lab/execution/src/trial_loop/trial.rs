//! One trial, from the wait for writeback to the count of its artefact.
//!
//! One for all arms, whatever their windows end by and whether or not a load runs beside them. A treatment
//! whose end closes the window is started with the window; any other has settled before it.

use super::environment::Environment;
use super::writeback::WritebackWait;
use super::{TrialLoop, trial_line};
use crate::guard::Tripped;
use crate::treatment::Reading;
use crate::workload::{WindowLoad, rests_at_edges};
use anyhow::Context;
use std::time::Duration;
use toll_record::{Arm, Bin, Counted, Step, TrialLine, Window};

/// One trial's place in the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrialParams {
    pub trial: u32,
    pub round: u32,
    /// From switching on to the earliest begin of the window.
    pub settle_s: f64,
    /// Whether the queries in what it leaves are counted.
    pub counted: bool,
}

/// A window that was measured, as it came to be.
#[derive(Debug)]
pub struct ClosedWindow {
    pub begin_mono_us: u64,
    pub end_mono_us: u64,
    pub begin_wall_us: u64,
    pub end_wall_us: u64,
    pub at_begin: Reading,
    pub at_end: Reading,
    /// Absent where no meter counts.
    pub load: Option<WindowLoad>,
    /// The treatment ended by itself, and the window with it.
    pub ended_by_treatment: bool,
    /// How often its processes ended by themselves, and microseconds that these runs of them took.
    pub runs: (u32, u64),
    pub switched: SwitchTimes,
}

/// When a trial's treatment was switched, and what came after it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SwitchTimes {
    pub start_us: u64,
    /// When it was on; absent where its window began with it.
    pub ready_us: Option<u64>,
    pub off_us: u64,
    pub stopped_us: u64,
    /// Microseconds that counting its artefact took.
    pub counted_us: u64,
}

/// Time past the window for which a treatment is set to last, so that it never ends by itself.
///
/// A busy host may take its time to start a tool; nothing hangs on the length itself.
const SLACK_S: f64 = 60.0;
/// A window is opened this long before it begins, or half a bin.
const MOST_AHEAD_US: u64 = 100_000;
/// How often a treatment is looked after while its window is open.
const POLL_US: u64 = 200_000;
/// The same where its end closes the window or has it run again. Each look costs about 10 us a process: of what takes long
/// the end is seen less closely, to a thousandth of the time it has taken.
const FAST_POLL_US: u64 = 2_000;
const MAX_FAST_POLL_US: u64 = 50_000;
const FAST_POLL_SHARE: u64 = 1_000;
/// How often it is looked whether a meter has counted enough: it reports less often than this.
const COUNT_POLL_US: u64 = 20_000;
/// Nothing takes longer to come on: what says that it is on is waited for ten seconds.
const START_TIMEOUT_US: u64 = 60_000_000;
/// A meter's last bin may be this late before it is held to be silent.
const BIN_TIMEOUT: Duration = Duration::from_secs(5);

impl<E: Environment> TrialLoop<'_, E> {
    /// `None` when interrupted; the treatment is off in every case.
    pub(super) fn run_trial(
        &mut self,
        arm: &Arm,
        place: TrialParams,
    ) -> anyhow::Result<Option<ClosedWindow>> {
        self.ensure_load(arm, false)?;
        let waited = self.wait_for_writeback()?;
        if waited == WritebackWait::Interrupted {
            return Ok(None);
        }
        let mut start = trial_line(self.env, place, arm, Step::Start);
        start.note = waited.note();
        let mut switched = SwitchTimes { start_us: start.mono_us, ..SwitchTimes::default() };
        self.env.write_trial(start);
        let until_done = arm.window.is_until_done();
        if !until_done {
            self.switch_on(arm, place)?;
            let ready = trial_line(self.env, place, arm, Step::Ready);
            switched.ready_us = Some(ready.mono_us);
            self.env.write_trial(ready);
        }
        let window = self.measure_window(arm, place);
        switched.off_us = self.env.now_us();
        let off = self.switch_off(arm, place);
        switched.stopped_us = self.env.now_us();
        let window = match (off, window) {
            // Each of them ends the run, and both are reported.
            (Err(stays_on), Err(error)) => Err(match error.downcast::<Tripped>() {
                Ok(tripped) => stays_on.context(tripped),
                Err(_) => stays_on,
            }),
            (off, window) => off.and(window),
        };
        self.env.count_artefact(arm, place, window.as_ref().ok().and_then(Option::as_ref));
        if arm.treatment.fresh_sessions {
            // Its sessions keep what they took over from it: with long_query_time 0 each statement of the next arm goes
            // half the way to the slow log, 0.5% of its instructions.
            self.stop_load()?;
        }
        switched.counted_us = self.env.now_us() - switched.stopped_us;
        Ok(window?.map(|closed| ClosedWindow { switched, ..closed }))
    }

    /// Not once the guard has tripped, which may be between two windows: it switches off once, and then only looks.
    fn switch_on(&mut self, arm: &Arm, place: TrialParams) -> anyhow::Result<()> {
        self.check_guard()?;
        let lasts_s = place.settle_s + arm.window.at_most_s() + SLACK_S;
        self.env.switch_on(arm, place.trial, lasts_s.ceil())
    }

    /// Switches the arm off and writes down what that took.
    fn switch_off(&mut self, arm: &Arm, place: TrialParams) -> anyhow::Result<()> {
        let off = self.env.switch_off(arm);
        let mut stopped = trial_line(self.env, place, arm, Step::Stopped);
        stopped.note = (!off.notes.is_empty()).then(|| off.notes.join("; "));
        stopped.stages = self.env.packet_stages(arm, &off.processes);
        stopped.processes = off.processes;
        self.env.write_trial(stopped);
        off.restore_error.map_or(Ok(()), Err)
    }

    /// Settles, opens the window, closes it. `None`: interrupted.
    fn measure_window(&mut self, arm: &Arm, place: TrialParams) -> anyhow::Result<Option<ClosedWindow>> {
        if arm.treatment.fresh_sessions {
            self.ensure_load(arm, true)?;
        }
        let until_done = arm.window.is_until_done();
        let since = self.env.now_us();
        let settled = since + micros(place.settle_s);
        if until_done {
            // Nothing is on yet.
            if !self.wait_until(settled)? {
                return Ok(None);
            }
        } else if self.poll_until(arm, since, settled)?.is_none() {
            return Ok(None);
        }
        if !self.plan.clock.is_real() && !self.settle_counted(arm, since)? {
            return Ok(None);
        }
        let length_us = micros(arm.window.at_most_s());
        let open_us = length_us + if until_done { START_TIMEOUT_US } else { 0 };
        let now = self.env.now_us();
        let (begin, mut end) = match self.env.meter() {
            Some(meter) => {
                meter.check()?;
                let width = meter.bin_width_us();
                let begin = meter.edge_at_or_after(now + (width / 2).min(MOST_AHEAD_US));
                let end = begin + open_us.div_ceil(width).max(1) * width;
                meter.open_window(begin, end);
                (begin, end)
            }
            None => (now, now + open_us),
        };
        if !self.wait_until(begin)? {
            return Ok(None);
        }
        let (at_begin, begin_line) = self.read_edge(arm, place, Step::WindowBegin, begin);
        let begin_wall_us = begin_line.wall_us;
        self.env.write_trial(begin_line);
        self.env.drain_runs();
        let mut bound = end;
        if until_done {
            self.switch_on(arm, place)?;
            // What it is given is its own time: a busy host may take long to start it.
            bound = end.min(self.env.now_us() + length_us);
        }
        let (mut is_done, mut closes) = (false, until_done);
        let mut next = begin;
        while next < bound {
            let step_us = if matches!(arm.window, Window::Count { .. }) { COUNT_POLL_US } else { POLL_US };
            next = (next.max(self.env.now_us()) + step_us).min(bound);
            let Some(over) = self.poll_until(arm, begin, next)? else { return Ok(None) };
            if let Some(meter) = self.env.meter() {
                meter.check()?;
            }
            if over || self.has_counted(&arm.window) {
                (is_done, closes) = (over, true);
                break;
            }
        }
        if closes {
            let now = self.env.now_us();
            end = match self.env.meter() {
                Some(meter) => {
                    let edge = meter.edge_at_or_after(now).max(begin + meter.bin_width_us());
                    meter.close_early(edge)
                }
                None => now.max(begin + 1),
            };
            if !self.wait_until(end)? {
                return Ok(None);
            }
        }
        let (at_end, mut end_line) = self.read_edge(arm, place, Step::WindowEnd, end);
        let runs = self.env.drain_runs();
        if until_done || arm.treatment.again {
            (end_line.runs, end_line.runs_us) = (Some(runs.0), Some(runs.1));
        }
        let load = match self.env.meter() {
            Some(meter) => {
                let load = meter.close_window(BIN_TIMEOUT);
                Some(load.context("the load's meter fell silent inside a window")?)
            }
            None => None,
        };
        let closed = ClosedWindow {
            begin_mono_us: begin,
            end_mono_us: end,
            begin_wall_us,
            end_wall_us: end_line.wall_us,
            at_begin,
            at_end,
            load,
            ended_by_treatment: is_done,
            runs,
            switched: SwitchTimes::default(),
        };
        self.env.write_trial(end_line);
        if let Some(histogram) = closed.load.as_ref().and_then(|load| load.histogram.clone()) {
            self.env.write_latency(&arm.name, place.trial, begin, end - begin, histogram);
        }
        Ok(Some(closed))
    }

    /// Waits until the load is steady. A tool first does what it does once its first records have come, which is not what it
    /// costs from then on: a capture that compresses gets its memory with its first chunk. It takes time, and few
    /// instructions while the load is paused. False: interrupted.
    fn settle_counted(&mut self, arm: &Arm, since_us: u64) -> anyhow::Result<bool> {
        const PAUSE_US: u64 = 700_000;
        if arm.treatment.processes.is_empty() || arm.window.is_until_done() {
            return self.await_steady_load(arm, since_us);
        }
        if !self.await_bins(arm, since_us, |bins| !bins.is_empty())? {
            return Ok(false);
        }
        let pause = self.env.load().and_then(|load| load.pause_load());
        let paused_until = self.env.now_us() + PAUSE_US;
        // From an edge on, the first bin is whole.
        let paused_until =
            self.env.meter().map_or(paused_until, |meter| meter.edge_at_or_after(paused_until));
        if self.poll_until(arm, since_us, paused_until)?.is_none() {
            return Ok(false);
        }
        drop(pause);
        self.await_steady_load(arm, paused_until)
    }

    /// Waits until two bins in a row since that moment hold the same number of statements, but for a twentieth, and leave no event under way,
    /// or all of them where the load does not rest at edges: on the counted clock they differ by what has just been switched
    /// on, and by the few transactions that a bin begins or ends within. New connections rest once they know how many
    /// events fit into a bin, and those whose events are longer never do. False: interrupted.
    fn await_steady_load(&mut self, arm: &Arm, since_us: u64) -> anyhow::Result<bool> {
        const AGREE: f64 = 0.05;
        let rests = rests_at_edges(&arm.workload, self.plan.clock);
        let threads = u64::from(arm.workload.threads);
        let is_even = |bin: &Bin| match bin.in_flight {
            0 => true,
            under_way => !rests && under_way >= threads,
        };
        self.await_bins(arm, since_us, |bins| {
            let [.., before, last] = bins else { return false };
            let [begun, ended] = [before, last].map(|bin| bin.statements as f64);
            (ended - begun).abs() <= AGREE * begun && is_even(before) && is_even(last)
        })
    }

    /// Looks at the load's bins since that moment until they are as asked, or have been many. False: interrupted.
    fn await_bins(
        &mut self,
        arm: &Arm,
        since_us: u64,
        are_enough: impl Fn(&[Bin]) -> bool,
    ) -> anyhow::Result<bool> {
        const MOST_BINS: u64 = 10;
        const LOOKS_A_BIN: u64 = 5;
        for _ in 0..MOST_BINS * LOOKS_A_BIN {
            let Some(meter) = self.env.meter() else { return Ok(true) };
            let width_us = meter.bin_width_us();
            if are_enough(&meter.bins_since(since_us)) {
                return Ok(true);
            }
            let until_us = self.env.now_us() + width_us / LOOKS_A_BIN;
            let waited = match arm.window.is_until_done() {
                true => self.wait_until(until_us)?.then_some(false),
                false => self.poll_until(arm, since_us, until_us)?,
            };
            if waited.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counters at an edge of the window, and the line that records them.
    fn read_edge(
        &mut self,
        arm: &Arm,
        place: TrialParams,
        step: Step,
        moment_us: u64,
    ) -> (Reading, TrialLine) {
        let mut line = trial_line(self.env, place, arm, step);
        let (cpu, reading) = self.env.read_counters(arm);
        line.cpu = Some(cpu);
        // Of the edge itself, however late toll was for it: captures are counted between such moments.
        line.wall_us = line.wall_us.saturating_sub(line.mono_us.saturating_sub(moment_us));
        line.mono_us = moment_us;
        line.artefact_bytes = reading.artefact_bytes;
        (reading, line)
    }

    fn has_counted(&mut self, window: &Window) -> bool {
        let Window::Count { of, count, .. } = window else { return false };
        let (statements, events) = self.env.meter().map_or((0, 0), |meter| meter.window_counts());
        match of {
            Counted::Statements | Counted::Packets => statements >= *count,
            Counted::Events => events >= *count,
        }
    }

    /// Looks after the treatment, which is watched since `since_us`, until that moment, or until its end closes the window:
    /// then true. `None`: interrupted.
    fn poll_until(&mut self, arm: &Arm, since_us: u64, until_us: u64) -> anyhow::Result<Option<bool>> {
        let until_done = arm.window.is_until_done();
        let may_end = until_done || arm.treatment.again;
        loop {
            let over = self.env.poll_treatment(arm, may_end)?;
            if over && until_done {
                return Ok(Some(true));
            }
            let now = self.env.now_us();
            if now >= until_us {
                return Ok(Some(false));
            }
            let lasts_us = now.saturating_sub(since_us);
            let step_us = match (until_done, may_end) {
                (true, _) => (lasts_us / FAST_POLL_SHARE).clamp(FAST_POLL_US, MAX_FAST_POLL_US),
                (false, true) => FAST_POLL_US,
                (false, false) => POLL_US,
            };
            if !self.wait_until((now + step_us).min(until_us))? {
                return Ok(None);
            }
        }
    }
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
