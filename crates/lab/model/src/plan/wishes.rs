//! What does the command line ask of a scenario?

use toll_sys::units::Seconds;

/// What the command line asks for; `None`: as the scenario says.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub profile: Option<String>,
    pub driver: Option<String>,
    /// Arms by name; the baseline is added when it is missing.
    pub arms: Option<Vec<String>>,
    /// All of the run, from its pilot to its last window.
    pub time: Option<Seconds>,
    /// An effect that is to be found, percent.
    pub find_pct: Option<f64>,
    /// Parts over so long a time.
    pub spread: Option<Seconds>,
    pub rounds: Option<u32>,
    pub window: Option<Seconds>,
    pub settle: Option<Seconds>,
    pub gap: Option<Seconds>,
    pub rows: Option<u64>,
    pub threads: Option<u32>,
    pub tables: Option<u32>,
    pub table_rows: Option<u64>,
    /// Of the size of the recipe's data.
    pub scale: Option<f64>,
    /// The device on which another host's packets come in.
    pub receive_on: Option<String>,
    pub seed: Option<u64>,
    pub early_stop: bool,
    /// Every arm again at these percents of capacity.
    pub sweep: Option<Vec<u32>>,
    /// In the place of the scenario's shares of capacity, events a second.
    pub rates: Vec<f64>,
}
