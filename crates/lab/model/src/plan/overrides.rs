//! Overrides of a scenario by command-line options.

use serde::{Deserialize, Serialize};
use toll_record::{Clock, Design};
use toll_sys::units::Seconds;

/// Command-line overrides; `None` leaves the scenario's value.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunOverrides {
    pub clock: Clock,
    pub profile: Option<String>,
    pub driver: Option<String>,
    /// Arms by name. A missing baseline is added.
    pub arms: Option<Vec<String>>,
    /// Duration of the whole run, from its pilot to its last window.
    pub time: Option<Seconds>,
    /// Requested minimum detectable effect, percent.
    pub find_pct: Option<f64>,
    /// Duration over which the run's parts are spread.
    pub spread: Option<Seconds>,
    pub rounds: Option<u32>,
    pub window: Option<Seconds>,
    pub settle: Option<Seconds>,
    pub gap: Option<Seconds>,
    pub rows: Option<u64>,
    pub threads: Option<u32>,
    /// Rate of the load, events a second, in place of the scenario's; arms with a rate of their own keep it.
    pub rate: Option<f64>,
    pub tables: Option<u32>,
    pub table_rows: Option<u64>,
    /// Share of the recipe's full data size.
    pub scale: Option<f64>,
    /// The device that receives another host's packets.
    pub receive_on: Option<String>,
    pub seed: Option<u64>,
    pub early_stop: bool,
    pub design: Design,
    /// Percents of capacity at which every arm is repeated.
    pub sweep: Option<Vec<u32>>,
    /// Rates in events a second, in place of the scenario's shares of capacity.
    pub rates: Vec<f64>,
}
