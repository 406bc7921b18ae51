//! Accounting of a capture: the outcome of every frame, session and command. Counts only; never decides.

use std::ops::AddAssign;

/// Accounting of a decode. Each frame, session and command counts in exactly one field of its group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeAccounting {
    pub frames: FrameCounts,
    pub bytes: ByteCounts,
    pub sessions: SessionCounts,
    pub commands: CommandCounts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FrameCounts {
    pub read: u64,
    /// Segments of ours that were whole, and new.
    pub parsed: u64,
    /// A second copy, or a retransmission: nothing of it was new.
    pub duplicate: u64,
    /// Segments of ours of which a snap length cut a part, or frames whose very headers were cut.
    pub truncated: u64,
    /// Fragments, tunnels, link types that are not decoded.
    pub unsupported: u64,
    /// Headers that contradict themselves.
    pub malformed: u64,
    /// Other protocols, ports or servers.
    pub not_ours: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ByteCounts {
    /// Payload that reached its receiver and is missing in the capture.
    #[cfg_attr(feature = "serde", serde(rename = "bytes_from_client"))]
    pub lost_from_client: u64,
    #[cfg_attr(feature = "serde", serde(rename = "bytes_from_server"))]
    pub lost_from_server: u64,
    /// Payload that a snap length cut.
    #[cfg_attr(feature = "serde", serde(rename = "cut_bytes_from_client"))]
    pub cut_from_client: u64,
    #[cfg_attr(feature = "serde", serde(rename = "cut_bytes_from_server"))]
    pub cut_from_server: u64,
    /// Captured bytes of all frames.
    #[cfg_attr(feature = "serde", serde(rename = "captured_bytes"))]
    pub frames: u64,
    /// Payload handed to sessions, once each.
    #[cfg_attr(feature = "serde", serde(rename = "captured_bytes_from_client"))]
    pub from_client: u64,
    #[cfg_attr(feature = "serde", serde(rename = "captured_bytes_from_server"))]
    pub from_server: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionCounts {
    pub seen: u64,
    /// From the greeting on, uncompressed.
    pub plain: u64,
    /// From the greeting on, zlib or zstd.
    pub compressed: u64,
    /// TLS: counted, not read.
    pub encrypted: u64,
    /// Open before the capture began, or their greeting was lost; commands were found.
    pub joined_midway: u64,
    /// Not a byte of MySQL was understood.
    pub not_understood: u64,
    /// Connections without payload.
    pub silent: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CommandCounts {
    pub seen: u64,
    /// Command and response whole.
    pub complete: u64,
    /// Something was lost; the time is not to be trusted.
    pub tainted: u64,
    /// The capture or the connection ended first.
    pub unfinished: u64,
    /// Responses whose command was not captured (not part of `seen`).
    pub orphaned_responses: u64,
    /// Packets that fitted no state of the protocol (not part of `seen`).
    pub desynchronised: u64,
}

impl DecodeAccounting {
    /// True if the lines of each group add up to its total. False is a bug of the decoder (or the decoder was
    /// not finished).
    pub fn is_consistent(&self) -> bool {
        let FrameCounts { read, parsed, duplicate, truncated, unsupported, malformed, not_ours } =
            self.frames;
        let sessions = &self.sessions;
        let commands = &self.commands;
        sums_to(read, &[parsed, duplicate, truncated, unsupported, malformed, not_ours])
            && sums_to(
                sessions.seen,
                &[
                    sessions.plain,
                    sessions.compressed,
                    sessions.encrypted,
                    sessions.joined_midway,
                    sessions.not_understood,
                    sessions.silent,
                ],
            )
            && sums_to(commands.seen, &[commands.complete, commands.tainted, commands.unfinished])
    }
}

/// Stops at the greatest number: a file may hold any.
pub fn saturating_add_to(to: &mut u64, more: u64) {
    *to = to.saturating_add(more);
}

/// Whatever a file holds: no sum of counts overflows.
pub fn sums_to(total: u64, of: &[u64]) -> bool {
    u128::from(total) == of.iter().copied().map(u128::from).sum()
}

impl AddAssign for DecodeAccounting {
    fn add_assign(&mut self, other: DecodeAccounting) {
        let FrameCounts { read, parsed, duplicate, truncated, unsupported, malformed, not_ours } =
            other.frames;
        saturating_add_to(&mut self.frames.read, read);
        saturating_add_to(&mut self.frames.parsed, parsed);
        saturating_add_to(&mut self.frames.duplicate, duplicate);
        saturating_add_to(&mut self.frames.truncated, truncated);
        saturating_add_to(&mut self.frames.unsupported, unsupported);
        saturating_add_to(&mut self.frames.malformed, malformed);
        saturating_add_to(&mut self.frames.not_ours, not_ours);
        let bytes = other.bytes;
        saturating_add_to(&mut self.bytes.frames, bytes.frames);
        saturating_add_to(&mut self.bytes.from_client, bytes.from_client);
        saturating_add_to(&mut self.bytes.from_server, bytes.from_server);
        saturating_add_to(&mut self.bytes.lost_from_client, bytes.lost_from_client);
        saturating_add_to(&mut self.bytes.lost_from_server, bytes.lost_from_server);
        saturating_add_to(&mut self.bytes.cut_from_client, bytes.cut_from_client);
        saturating_add_to(&mut self.bytes.cut_from_server, bytes.cut_from_server);
        let sessions = other.sessions;
        saturating_add_to(&mut self.sessions.seen, sessions.seen);
        saturating_add_to(&mut self.sessions.plain, sessions.plain);
        saturating_add_to(&mut self.sessions.compressed, sessions.compressed);
        saturating_add_to(&mut self.sessions.encrypted, sessions.encrypted);
        saturating_add_to(&mut self.sessions.joined_midway, sessions.joined_midway);
        saturating_add_to(&mut self.sessions.not_understood, sessions.not_understood);
        saturating_add_to(&mut self.sessions.silent, sessions.silent);
        let commands = other.commands;
        saturating_add_to(&mut self.commands.seen, commands.seen);
        saturating_add_to(&mut self.commands.complete, commands.complete);
        saturating_add_to(&mut self.commands.tainted, commands.tainted);
        saturating_add_to(&mut self.commands.unfinished, commands.unfinished);
        saturating_add_to(&mut self.commands.orphaned_responses, commands.orphaned_responses);
        saturating_add_to(&mut self.commands.desynchronised, commands.desynchronised);
    }
}
