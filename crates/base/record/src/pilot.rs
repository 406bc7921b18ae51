//! Pilot result: noise of the host and switching times, measured before the first trial.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Result of the pilot: noise of the host, and switching time of each arm. None of its windows is in the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Pilot {
    /// From its begin to the first trial.
    pub took_s: f64,
    /// Of the baseline's load by itself; absent where nothing is metered, or for too short a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Events (without a driver: statements or packets) that the baseline's load completes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_s: Option<f64>,
    /// By name, those that were tried.
    pub arms: BTreeMap<String, Switching>,
}

/// How far two windows of unchanged load differ: the variance of the difference of ln(outcome) between windows of
/// length `w` that begin `l` apart is `2 white_s / w + 2 pink F(l / w)`,
/// `F(m) = ((m+1)^2 ln(m+1) + (m-1)^2 ln(m-1) - 2 m^2 ln m) / 2`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Noise {
    /// Of noise that averages out: variance times seconds.
    pub white_s: f64,
    /// Of noise of the 1/f kind, which no length of a window averages out.
    pub pink: f64,
    /// What was seen, and what the two numbers were fitted to.
    pub seen: Vec<Apart>,
}

/// Windows of one length at one distance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Apart {
    pub width_s: f64,
    /// From the begin of one to the begin of the other.
    pub lag_s: f64,
    /// Standard deviation of the difference of ln(outcome), percent.
    pub sd_pct: f64,
}

/// Switching time of one arm, from its trials in the pilot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Switching {
    /// Number of trials measured.
    pub tried: u32,
    /// From being switched on to saying that it is on; absent where its window begins with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_s: Option<f64>,
    /// From then until its load goes as steadily as it will; absent where it was not on for long enough to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_s: Option<f64>,
    /// From being switched off until the load goes as before; absent where that was not watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave_s: Option<f64>,
    /// What its trials take beyond settling and window: load, start, stop, and what waits for them.
    pub around_s: f64,
    /// Counting what it left, for each second that it was on.
    pub count_s_per_s: f64,
    /// How long it takes where it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_s: Option<f64>,
}

/// Rounds of longer windows among the others, for outcomes that need length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Long {
    pub window_s: f64,
    /// Their positions in the order of rounds, from 0, rising.
    pub rounds: Vec<u32>,
}
