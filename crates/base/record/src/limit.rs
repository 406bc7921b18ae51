//! Highest step of a ladder of variants at which an outcome stays within a bound.

use serde::{Deserialize, Serialize};

/// A ladder: arms that differ in one number, its rungs. The limit of a round is the highest rung that holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub name: String,
    /// In words, for a sentence.
    pub title: String,
    /// What must stay within `at_most`.
    pub outcome: String,
    /// The key of `each` whose values are the rungs; those of all other keys tell ladders apart.
    pub over: String,
    /// Of the rungs, for a sentence.
    pub unit: String,
    #[serde(default)]
    pub at_most: f64,
    /// An outcome in the unit of the rungs: a rung of which it falls more than 1% short was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<String>,
}

/// What one ladder came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LimitResult {
    pub name: String,
    pub title: String,
    pub outcome: String,
    pub over: String,
    pub unit: String,
    pub at_most: f64,
    /// What the ladder's arms have in common, key and value.
    pub of: Vec<(String, String)>,
    /// In rising order.
    pub rungs: Vec<f64>,
    /// Of each round that tells it, all rungs below its limit having been measured: the highest rung up to which it and all
    /// below it stay within the bound; 0: not even the lowest.
    pub values: Vec<f64>,
    /// The highest that holds in every round; 0: none does.
    pub in_all: f64,
    pub median: f64,
    /// Of the median, by order statistics; absent with too few rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Rounds that ended their ladder at its top, or at a rung that the sender did not reach: their limit lies higher.
    pub open: u32,
}

impl LimitResult {
    /// No round found the limit: it lies at these values or above.
    pub fn is_open(&self) -> bool {
        self.open as usize >= self.values.len()
    }
}
