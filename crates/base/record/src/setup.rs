//! Resolved setup of the server, data and test rig around the trials, complete enough to build it again.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Server, data and rig of a run, as they were made ready before its first trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Setup {
    /// Servers that toll started; absent where the server was there before, or none is in sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSetup>,
    /// Absent where no load and no command needs data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataSetup>,
    /// Parts of the test rig, in the order in which they are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rig: Vec<RigStep>,
    /// What servers and treatments have of the host, all together; absent: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Arms that are measured on the second of two existing servers, on which a treatment is on while it is off on the first;
    /// empty: there is no second one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub second: Vec<String>,
}

/// A host made smaller by a control group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Limits {
    /// Time of so many CPUs; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Page cache and all; absent: as much as there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Common and individual settings of a run's servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SandboxSetup {
    /// Path of the server program.
    pub program: String,
    pub max_connections: u32,
    /// Of each server, bytes.
    pub buffer_pool_bytes: u64,
    /// They listen on ::1 too.
    pub ipv6: bool,
    /// They offer TLS.
    pub tls: bool,
    /// They can be reached from the rig's far end, through its link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_far_end: bool,
    /// The first is the baseline's.
    pub servers: Vec<SandboxServer>,
}

/// One server, and the arms that are measured on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SandboxServer {
    pub arms: Vec<String>,
    pub performance_schema: bool,
    /// Further options, name and value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// Data that loads and commands find.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DataSetup {
    /// `sbtest`, `website`, ...
    pub recipe: String,
    pub seed: u64,
    /// Of what the recipe makes at its full size; absent where it has but one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Those of the loads, whatever the recipe; 0: no load needs any.
    pub tables: u32,
    /// In each of them.
    pub rows: u64,
    /// Drivers whose loads change rows; empty: it is only read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written_by: Vec<String>,
}

/// One part of the test rig.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RigStep {
    /// `far-end`, `ssh`, `link`, ...
    pub kind: String,
    /// Whatever its kind lets be chosen, every default spelled out.
    #[serde(flatten)]
    pub keys: BTreeMap<String, String>,
}

impl Setup {
    /// Which of the run's servers an arm is measured on, counted from 0.
    pub fn server_index(&self, arm: &str) -> usize {
        if self.is_on_second(arm) {
            return 1;
        }
        let servers = self.sandbox.iter().flat_map(|sandbox| &sandbox.servers);
        servers.enumerate().find(|(_, server)| server.arms.iter().any(|a| a == arm)).map_or(0, |(i, _)| i)
    }

    /// True if treatments cross over between two servers.
    pub fn crosses_over(&self) -> bool {
        !self.second.is_empty()
    }

    /// True if an arm is measured on the second of two servers between which treatments cross over.
    pub fn is_on_second(&self, arm: &str) -> bool {
        self.second.iter().any(|name| name == arm)
    }
}
