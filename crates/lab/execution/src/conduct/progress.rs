//! Progress of a run: where it is, how long it takes yet, and the load. Never draws it: a display of the program's does.

use crate::stage::data::Loading;
use crate::workload::Live;
use toll_record::Plan;

/// Where the progress of a run is shown.
pub trait Progress: Loading {
    /// From now on this is what lies ahead.
    fn plan(&self, plan: &Plan);

    /// A trial begins.
    fn trial(&self, round: u32, trial: u32, arm: &str);

    /// The smallest effect that is found so far, percent.
    fn finds(&self, pct: f64);

    /// The load, as of now.
    fn feed(&self, live: Option<Live>);

    /// A line that stays.
    fn say(&self, text: &str);

    /// Leaves the terminal as it was.
    fn finish(&self);
}
