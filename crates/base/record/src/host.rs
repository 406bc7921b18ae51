//! Description of the host that a run was measured on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `host.json`. Holds no host name, user name or address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Host {
    /// A short name for tables that compare hosts, `2-core x86_64 vm`.
    pub label: String,
    pub os: String,
    pub kernel: String,
    pub arch: String,
    pub cpu_model: String,
    pub cpus: u32,
    /// `kvm`, `firecracker`, `none`, ... if it can be detected.
    pub virtualisation: Option<String>,
    pub memory_bytes: u64,
    /// File system and device under the run and under the server's data.
    pub disk: String,
    pub cgroup: String,
    /// sysctls and sysfs settings that matter: dirty_ratio, swappiness, THP, governor.
    pub settings: BTreeMap<String, String>,
    pub tools: Vec<Tool>,
    /// Server variables that affect the result.
    pub server_variables: BTreeMap<String, String>,
    /// The virtual machine whose clock counted instructions; absent: measured on the real clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<CountedClock>,
}

/// A clock that counts instructions: each takes one nanosecond of the virtual machine's time. Idle time passes as it does
/// outside.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CountedClock {
    /// First line of the emulator's version output.
    pub emulator: String,
    /// CPU that the emulator ran on: no figure depends on it but `wall_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Virtual machines that shared the rounds.
    pub machines: u32,
    pub cpus_per_machine: u32,
    pub ns_per_instruction: u32,
    /// Real time of the whole run, seconds.
    pub wall_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Tool {
    pub name: String,
    /// First line of its version output; absent if the tool is missing.
    pub version: Option<String>,
}
