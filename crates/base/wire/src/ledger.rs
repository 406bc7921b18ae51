//! Where did every frame, session and command of a capture end? Counts only; never decides.

use std::ops::AddAssign;

/// The account of a decode. Each frame, session and command stands in exactly one line of its group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    pub frames: Frames,
    pub bytes: Bytes,
    pub sessions: Sessions,
    pub commands: Commands,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frames {
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
pub struct Bytes {
    /// Captured bytes of all frames.
    pub frames: u64,
    /// Payload handed to sessions, once each.
    pub from_client: u64,
    pub from_server: u64,
    /// Payload that its receiver had (or never asked for again) and the capture had not.
    pub lost_from_client: u64,
    pub lost_from_server: u64,
    /// Payload that a snap length cut.
    pub cut_from_client: u64,
    pub cut_from_server: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sessions {
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
pub struct Commands {
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

impl Ledger {
    /// Whether the lines of each group add up to its total. False is a fault of the decoder
    /// (or the decoder was not finished).
    pub fn adds_up(&self) -> bool {
        let Frames { read, parsed, duplicate, truncated, unsupported, malformed, not_ours } = self.frames;
        let sessions = &self.sessions;
        let commands = &self.commands;
        read == parsed + duplicate + truncated + unsupported + malformed + not_ours
            && sessions.seen
                == sessions.plain
                    + sessions.compressed
                    + sessions.encrypted
                    + sessions.joined_midway
                    + sessions.not_understood
                    + sessions.silent
            && commands.seen == commands.complete + commands.tainted + commands.unfinished
    }
}

impl AddAssign for Ledger {
    fn add_assign(&mut self, other: Ledger) {
        let Frames { read, parsed, duplicate, truncated, unsupported, malformed, not_ours } = other.frames;
        self.frames.read += read;
        self.frames.parsed += parsed;
        self.frames.duplicate += duplicate;
        self.frames.truncated += truncated;
        self.frames.unsupported += unsupported;
        self.frames.malformed += malformed;
        self.frames.not_ours += not_ours;
        let bytes = other.bytes;
        self.bytes.frames += bytes.frames;
        self.bytes.from_client += bytes.from_client;
        self.bytes.from_server += bytes.from_server;
        self.bytes.lost_from_client += bytes.lost_from_client;
        self.bytes.lost_from_server += bytes.lost_from_server;
        self.bytes.cut_from_client += bytes.cut_from_client;
        self.bytes.cut_from_server += bytes.cut_from_server;
        let sessions = other.sessions;
        self.sessions.seen += sessions.seen;
        self.sessions.plain += sessions.plain;
        self.sessions.compressed += sessions.compressed;
        self.sessions.encrypted += sessions.encrypted;
        self.sessions.joined_midway += sessions.joined_midway;
        self.sessions.not_understood += sessions.not_understood;
        self.sessions.silent += sessions.silent;
        let commands = other.commands;
        self.commands.seen += commands.seen;
        self.commands.complete += commands.complete;
        self.commands.tainted += commands.tainted;
        self.commands.unfinished += commands.unfinished;
        self.commands.orphaned_responses += commands.orphaned_responses;
        self.commands.desynchronised += commands.desynchronised;
    }
}
