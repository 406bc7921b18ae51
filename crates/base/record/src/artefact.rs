//! Artifact of a treatment: its size, and the packets and queries counted in it.

use crate::{ArtefactKind, Losses};
use serde::{Deserialize, Serialize};

/// A line of `artefacts.ndjson`: one trial's artefact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Artefact {
    pub trial: u32,
    pub round: u32,
    pub arm: String,
    pub kind: ArtefactKind,
    /// Relative to the run directory, where it was kept.
    pub file: Option<String>,
    /// Size of the whole artifact, from the start to the stop of the treatment, bytes.
    pub bytes: u64,
    /// Written between the window's begin and its end.
    pub window_bytes: u64,
    /// Counters reported by the tool, for the whole capture and for the window alone.
    pub packets: Option<PacketCounts>,
    pub window_packets: Option<PacketCounts>,
    /// Content of the file, for a capture without a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Where the packets of that capture bear the sender's stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// Queries in the artefact that completed within the window.
    pub queries: Option<QueryCount>,
    /// Queries that pt-query-digest finds in a stretch of another artefact of the arm, written after the last window.
    pub pt_query_digest: Option<QueryCount>,
    /// Statements that the driver completed within the window: the ground truth.
    pub executed: u64,
    /// A capture of a session under TLS: no query can be read from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    pub note: Option<String>,
}

/// Packets of a capture file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Held {
    pub packets: u64,
    /// Of whole frames, whatever was cut off.
    pub bytes: u64,
    /// Of these, the last packet's.
    pub last_bytes: u64,
    /// From the first packet's time to the last one's.
    pub span_us: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PacketCounts {
    pub captured: u64,
    /// "received by filter": on `any` and loopback this counts both copies.
    pub received: u64,
    /// "dropped by kernel".
    pub dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct QueryCount {
    pub queries: u64,
    /// Counting program: `toll`, `pt-query-digest`, `server`.
    pub by: String,
    /// Bytes of the artefact that were read for this count.
    pub bytes_read: u64,
    /// Statements executed over the very stretch that was counted, where it is not the window.
    pub executed: Option<u64>,
    /// Queries that toll finds in the same bytes, where it is not toll that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_toll: Option<u64>,
}
