//! Control of the treatments: on and off, their readings, and the artifacts that they leave.

use super::trial::{ClosedWindow, TrialParams};
use crate::treatment::Reading;
use toll_record::{Arm, Cpu, ProcessEnd, Stage};

pub trait TreatmentControl {
    /// Switches the arm's treatment on; it is off again if that fails. `lasts_s`: for how long it must last
    /// at least.
    fn switch_on(&mut self, arm: &Arm, trial: u32, lasts_s: f64) -> anyhow::Result<()>;
    /// Starts the processes that are due, and runs those again that are to be. True once all of them have ended by
    /// themselves with success; a failure is an error, and so is any end where `may_end` is not.
    fn poll_treatment(&mut self, arm: &Arm, may_end: bool) -> anyhow::Result<bool>;
    /// How often processes have ended by themselves since the last call of this, and microseconds that these
    /// runs of them took.
    fn drain_runs(&mut self) -> (u32, u64);
    /// CPU that each party has used so far, and the treatment's own counters.
    fn read_counters(&mut self, arm: &Arm) -> (Cpu, Reading);
    /// Whatever it takes.
    fn switch_off(&mut self, arm: &Arm) -> SwitchOffReport;
    /// Packets on their way through the rig's link since the arm was switched on, now that it is off; none where it
    /// has no link.
    fn packet_stages(&mut self, arm: &Arm, processes: &[ProcessEnd]) -> Vec<Stage>;
    /// Tries again to put back what an earlier [`TreatmentControl::switch_off`] could not.
    fn restore_settings(&mut self) -> anyhow::Result<()>;
    /// Counts the queries in the artifact, keeps it or lets it go; `None`: no window came of the trial.
    fn count_artefact(&mut self, arm: &Arm, place: TrialParams, window: Option<&ClosedWindow>);
    /// Whether another program could count what this arm writes.
    fn wants_cross_check(&self, arm: &Arm) -> bool;
    /// While on, a trial is a dry run of which a stretch of the artifact is set aside, to be counted later.
    fn set_cross_check(&mut self, on: bool);
}

/// What came of switching a treatment off.
#[derive(Debug, Default)]
pub struct SwitchOffReport {
    /// What was out of the ordinary.
    pub notes: Vec<String>,
    pub processes: Vec<ProcessEnd>,
    /// The server still has settings of the treatment: nothing can be measured on it.
    pub restore_error: Option<anyhow::Error>,
}
