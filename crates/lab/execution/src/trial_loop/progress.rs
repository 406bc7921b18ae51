//! Progress of a run: where it is, how long it takes yet, and the load. Never draws it: a display of the program's does.

use crate::testbed::data::LoadProgress;
use crate::workload::LiveLoad;
use toll_record::Plan;

/// Where the progress of a run is shown.
pub trait Progress: LoadProgress {
    /// From now on this is what lies ahead, and about how many seconds it takes.
    fn set_plan(&self, plan: &Plan, expected_s: f64);

    /// A trial begins.
    fn begin_trial(&self, round: u32, trial: u32, arm: &str);

    /// A round has ended, and all of it is in the run's files. False: no further round is needed.
    fn end_round(&self, _round: u32) -> anyhow::Result<bool> {
        Ok(true)
    }

    /// Minimum detectable effect so far, percent.
    fn show_mde(&self, pct: f64);

    /// The load, as of now.
    fn show_load(&self, live: Option<LiveLoad>);

    /// A line that stays.
    fn print_line(&self, text: &str);

    /// Leaves the terminal as it was.
    fn finish(&self);
}
