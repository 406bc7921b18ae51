//! What can the conductor do, and what does it ask?
//!
//! Everything that a trial does to the host and the server, and the clock, behind one trait: `real.rs` is the
//! real thing, the tests' is pretended. The order of it all is the conductor's alone.

use super::calm::Waited;
use super::trial::{Closed, Place};
use crate::treatment::Reading;
use crate::workload::{Live, WindowLoad};
use hdrhistogram::Histogram;
use std::time::Duration;
use toll_record::{Arm, Bin, Cpu, ProcessEnd, Stage, TrialLine};

/// The stage with all that plays on it. At any time at most one load and one treatment are on.
pub trait World {
    /// CLOCK_MONOTONIC, microseconds.
    fn now_us(&self) -> u64;
    /// Unix time, microseconds.
    fn wall_us(&self) -> u64;
    fn is_interrupted(&self) -> bool;
    /// False when interrupted before that moment.
    fn sleep_until(&self, moment_us: u64) -> bool;

    /// Has the arm's load running and its meter counting: what does so already goes on, anything else is
    /// taken down. `fresh`: with new connections.
    fn ready_meter(&mut self, arm: &Arm, fresh: bool) -> anyhow::Result<()>;
    /// What counts now; `None`: nothing does.
    fn meter(&mut self) -> Option<&mut dyn Meter>;
    fn stop_load(&mut self) -> anyhow::Result<()>;

    /// Switches the arm's treatment on; it is off again if that fails. `lasts_s`: for how long it must last
    /// at least.
    fn switch_on(&mut self, arm: &Arm, trial: u32, lasts_s: f64) -> anyhow::Result<()>;
    /// Looks after the treatment: starts what is due, runs again what is to be. Whether it has ended by
    /// itself, all of it and with success; a failure is an error, and so is any end where `may_end` is not.
    fn look(&mut self, arm: &Arm, may_end: bool) -> anyhow::Result<bool>;
    /// How often processes have ended by themselves since the last call of this, and microseconds that these
    /// runs of them took.
    fn take_runs(&mut self) -> (u32, u64);
    /// What each party has used of the CPU so far, and what the treatment has done.
    fn read(&mut self, arm: &Arm) -> (Cpu, Reading);
    /// Whatever it takes.
    fn switch_off(&mut self, arm: &Arm) -> Off;
    /// Packets on their way through the rig's link since the arm was switched on, now that it is off; none where it has no
    /// link.
    fn stages(&mut self, arm: &Arm, processes: &[ProcessEnd]) -> Vec<Stage>;
    /// Tries again to put back what an earlier [`World::switch_off`] could not.
    fn put_back(&mut self) -> anyhow::Result<()>;
    /// Counts what the artefact holds, keeps it or lets it go; `None`: no window came of the trial.
    fn account(&mut self, arm: &Arm, place: Place, window: Option<&Closed>);
    /// Whether another program could count what this arm writes.
    fn wants_second_opinion(&self, arm: &Arm) -> bool;
    /// While on, a trial is a rehearsal of which a stretch of the artefact is set aside, to be counted later.
    fn seek_second_opinion(&mut self, on: bool);

    /// Returns once the host is as calm as under the baseline, or will not be.
    fn wait_until_calm(&mut self) -> Waited;
    /// Bytes of pages that are not on the disk yet.
    fn unwritten_bytes(&self) -> u64;
    /// From now on calm is what these samples of the baseline say; waited for by windows of that length.
    fn calm_is(&mut self, unwritten: Vec<u64>, window: Duration);
    /// Whether a server is another process than it was; an error where it does not come back.
    fn server_restarted(&mut self) -> anyhow::Result<bool>;

    /// While a rehearsal goes on, nothing of it reaches the run.
    fn rehearse(&mut self, on: bool);
    fn write(&mut self, line: TrialLine);
    fn write_latency(&mut self, arm: &str, trial: u32, begin_us: u64, width_us: u64, of: Box<Histogram<u64>>);
    /// An error once the run directory cannot be written.
    fn check_record(&self) -> anyhow::Result<()>;
    /// A line for the user.
    fn say(&self, text: &str);
    /// The smallest effect on the primary outcome, percent, that the rounds so far find.
    fn show_precision(&self, finds_pct: f64);
    /// A trial begins.
    fn show(&self, place: Place, arm: &str);
}

/// What says how much work was done, in bins that follow each other without a gap.
pub trait Meter {
    /// An error once it, or the load behind it, is gone.
    fn check(&mut self) -> anyhow::Result<()>;
    fn live(&self) -> Option<Live>;
    fn bin_width_us(&self) -> u64;
    /// Bins that began at that moment or later, as far back as they are kept.
    fn bins_since(&self, moment_us: u64) -> Vec<Bin>;
    /// The first edge between bins that is not before that moment.
    fn edge_at_or_after(&self, moment_us: u64) -> u64;
    /// From now on bins that end in (begin, end] are summed.
    fn open_window(&mut self, begin_us: u64, end_us: u64);
    /// Statements (or packets) and events in the open window so far.
    fn counted(&self) -> (u64, u64);
    /// Ends the open window sooner, at an edge; the answer is the end that holds.
    fn close_at(&mut self, edge_us: u64) -> u64;
    /// Waits for the window's last bin; `None`: the meter has fallen silent.
    fn close_window(&mut self, within: Duration) -> Option<WindowLoad>;
}

/// What came of switching a treatment off.
#[derive(Debug, Default)]
pub struct Off {
    /// What was out of the ordinary.
    pub notes: Vec<String>,
    pub processes: Vec<ProcessEnd>,
    /// The server still has settings of the treatment: nothing can be measured on it.
    pub not_put_back: Option<anyhow::Error>,
}
