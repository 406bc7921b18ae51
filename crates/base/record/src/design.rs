//! Layout of a plan's rounds, and what is compared under the traffic of others.

use crate::{Arm, Definition, Plan, Role};
use serde::{Deserialize, Serialize};

/// Layout of the rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Each arm once a round, in random order.
    #[default]
    Rounds,
    /// Each round is a block of two windows: the baseline's, and that of one treatment or (each fifth block) of the A/A arm.
    Blocks {
        /// Window lengths of the first blocks, seconds, which raise the exposure and are not judged.
        ramp_s: Vec<f64>,
    },
}

impl Design {
    pub fn is_rounds(&self) -> bool {
        *self == Self::Rounds
    }

    /// Window lengths of the first rounds, which are not judged.
    pub fn ramp_s(&self) -> &[f64] {
        match self {
            Self::Rounds => &[],
            Self::Blocks { ramp_s } => ramp_s,
        }
    }
}

impl Plan {
    /// True if this round only raises the exposure, and is not judged.
    pub fn is_ramp_round(&self, round: u32) -> bool {
        (round as usize) < self.design.ramp_s().len()
    }

    /// True if this arm has a window in this round.
    pub fn is_in_round(&self, arm: usize, round: u32) -> bool {
        let names = self.order.get(round as usize);
        names.is_some_and(|names| names.contains(&self.arms[arm].name))
    }

    /// The treatment that is on at the second server in this arm's window of the round: that of the first server in the other
    /// window. `None`: it is a sham, or treatments do not cross over.
    pub fn treatment_at_second(&self, arm: &Arm, round: u32) -> Option<&Arm> {
        if !self.setup.is_on_second(&arm.name) {
            return None;
        }
        let names = self.order.get(round as usize)?;
        self.arms.iter().find(|other| other.role == Role::Treatment && names.contains(&other.name))
    }

    /// True if the windows of this round are the longer ones.
    pub fn is_long_round(&self, round: u32) -> bool {
        self.long.as_ref().is_some_and(|long| long.rounds.contains(&round))
    }

    /// True if windows of this round count for an outcome. Outcomes that need long windows use only those, if
    /// there are any.
    pub fn measures_outcome(&self, outcome: &Definition, round: u32) -> bool {
        !outcome.long_windows || self.long.is_none() || self.is_long_round(round)
    }

    /// True if the queries in this round's artifacts are counted: only those of the longer windows, if there
    /// are any.
    pub fn counts_queries(&self, round: u32) -> bool {
        self.long.is_none() || self.is_long_round(round)
    }

    /// Length of windows that last for a time, in this round.
    pub fn round_window_s(&self, round: u32) -> f64 {
        if let Some(ramp_s) = self.design.ramp_s().get(round as usize) {
            return *ramp_s;
        }
        let long = self.long.as_ref().filter(|_| self.is_long_round(round));
        long.map_or(self.window_s, |long| long.window_s)
    }
}

/// A class of the users' queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct QueryClass {
    /// The digest's name of it, or an event name of performance_schema.
    pub name: String,
    /// What its queries do, in a few words.
    pub title: String,
    /// Share of the pilot's queries; those of all classes sum to 1.
    pub weight: f64,
}
