//! Split of a run's rounds into parts that lie apart in time.

use crate::Plan;
use serde::{Deserialize, Serialize};

/// Rounds in parts that are apart in time, so that what a host is like at one hour is not taken for what it is like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Spread {
    /// From the first part's begin; each part begins as far behind the one before.
    pub over_s: f64,
    /// The first round of each part but the first.
    pub begins: Vec<u32>,
}

impl Spread {
    /// When a round may begin, seconds from the first one's begin; `None`: right after the one before.
    pub fn round_due_s(&self, round: u32) -> Option<f64> {
        let part = self.begins.iter().position(|begin| *begin == round)? + 1;
        Some(self.over_s * part as f64 / (self.begins.len() + 1) as f64)
    }
}

impl Plan {
    /// The part of the run that a round belongs to, from 0: all are of one where they follow each other at once.
    pub fn part_index(&self, round: u32) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.begins.partition_point(|begin| *begin <= round))
    }

    /// Parts that are apart in time.
    pub fn part_count(&self) -> usize {
        self.spread.as_ref().map_or(1, |spread| spread.begins.len() + 1)
    }

    pub fn is_in_last_part(&self, round: u32) -> bool {
        self.part_index(round) + 1 == self.part_count()
    }
}
