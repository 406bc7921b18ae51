//! Packet counts at each stage between a sender and the capture file, and the losses between stages.

use serde::{Deserialize, Serialize};

/// One place at which the packets of a trial were counted; stages are in the order of the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Stage {
    /// `sent`, `transmitted`, `received`, `seen`, `captured`, `written`.
    pub name: String,
    /// Counted here.
    pub packets: u64,
    /// Of those counted at the stage before, so many were lost on the way here, by a counter of its own. Absent: the two
    /// did not count the same packets, and nothing can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// Packets sent, as the sender reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Sent {
    /// Packets that the kernel accepted.
    pub packets: u64,
    /// Of whole frames.
    pub bytes: u64,
    /// Times that a packet was refused and offered again.
    pub again: u64,
    /// Megabits a second of frames, by the sender's own clock.
    pub mbps: f64,
}

/// Send times of lost packets, in intervals of one length from the first packet that arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Losses {
    pub bin_us: u64,
    /// In each stretch, and how many of them are lost; those after the last that came are in neither.
    pub sent: Vec<u64>,
    pub lost: Vec<u64>,
}

/// The stages of all trials of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Ledger {
    pub trials: u32,
    /// Of these, so many were counted from the sender to the file without a gap.
    pub whole: u32,
    /// Number of trials in which a drop counter of the stage reports every packet that is missing at it.
    pub adds_up: u32,
    pub stages: Vec<LedgerStage>,
}

/// One stage over all trials of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LedgerStage {
    pub name: String,
    /// All trials together.
    pub packets: u64,
    /// Those of the stage before less those of this one; absent for the first, and where the two did not count the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Number of them that a drop counter of the stage reports. If it is lower, packets were lost without a counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_counted: Option<u64>,
    /// Mean over trials of `lost` as a share of what was counted where the count of these packets began: at the first stage, or
    /// at that of a capture that ended before its sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_pct: Option<f64>,
}
