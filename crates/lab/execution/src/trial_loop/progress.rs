//! Progress of a run: where it is, how long it takes yet, and the load. Never draws it: a display of the program's does.

use crate::testbed::data::LoadProgress;
use crate::workload::LiveLoad;
use toll_record::Plan;

/// Trials that lie ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TrialsAhead {
    pub trials: u64,
    pub rounds: u32,
    /// What they take, about, until the first has ended.
    pub expected_s: f64,
    /// All that they are given, where that ends them.
    pub limit_s: Option<f64>,
}

impl TrialsAhead {
    pub fn of_plan(plan: &Plan) -> Self {
        Self {
            trials: plan.order.iter().map(Vec::len).sum::<usize>() as u64,
            rounds: plan.rounds,
            expected_s: toll_model::plan::expected_s(plan),
            limit_s: plan.time_s,
        }
    }
}

/// Where the progress of a run is shown.
pub trait Progress: LoadProgress {
    /// From now on this lies ahead.
    fn set_ahead(&self, ahead: TrialsAhead);

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
