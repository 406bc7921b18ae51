//! Splitter of a stream into MySQL packets, for input in pieces. Never interprets a packet.

use super::bounded_buffer::BoundedBuffer;
use crate::memory_budget::MemoryBudget;
use crate::protocol::MAX_PAYLOAD;

/// A packet of this length goes on in the next one.
pub(super) const FULL: u32 = MAX_PAYLOAD as u32;
pub(super) const HEADER: usize = 4;

/// Length and sequence number of a packet header.
#[inline]
pub(super) fn parse_header(head: [u8; 4]) -> (u32, u8) {
    (u32::from_le_bytes([head[0], head[1], head[2], 0]), head[3])
}

/// Puts together a packet (with its continuations) that straddles segments.
#[derive(Debug, Default)]
pub(super) struct PacketAssembler {
    head: [u8; 4],
    /// Bytes of `head` that have arrived; 0 and not `continued`: between packets.
    head_len: u8,
    /// Payload bytes of this packet that are still to come.
    remaining: u32,
    continued: bool,
    /// Sequence number of the first of the packets.
    pub first_seq: u8,
    /// Sequence number of the last.
    pub last_seq: u8,
    pub payload: BoundedBuffer,
    /// Payload that was not kept: beyond the limit, cut by a snap length, or passed over.
    pub missing_bytes: u64,
    /// All payload so far.
    pub length: u64,
    /// When its first byte passed.
    pub begun_ns: u64,
    /// Bytes of it were lost.
    pub has_gap: bool,
    payload_mode: PayloadMode,
}

/// Treatment of the current packet's payload.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PayloadMode {
    #[default]
    Undecided,
    Keep,
    Skip,
}

/// Selection of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketSelection {
    /// Whole packets, up to this many bytes of each.
    All(usize),
    /// Rows and column definitions are passed over: only what begins with `fe` or `ff` and is not
    /// a row of 16 MiB is kept, up to this many bytes.
    ExceptRows(usize),
}

/// Event of the splitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketEnd {
    Kept,
    Skipped,
}

impl PacketAssembler {
    /// True if the next byte starts a packet that is not a continuation.
    #[inline]
    pub fn is_at_boundary(&self) -> bool {
        self.head_len == 0 && !self.continued
    }

    pub fn reset(&mut self, budget: &mut MemoryBudget) {
        let PacketAssembler { payload, .. } = std::mem::take(self);
        self.payload = payload;
        self.payload.clear(budget);
    }

    /// Begins a packet to be passed over, `arrived` bytes of whose payload are consumed already.
    #[inline]
    pub fn begin_skip(&mut self, length: u32, seq: u8, arrived: u32, time_ns: u64) {
        self.head_len = HEADER as u8;
        let [low, middle, high, _] = length.to_le_bytes();
        self.head = [low, middle, high, seq];
        self.remaining = length - arrived;
        self.begun_ns = time_ns;
        self.payload_mode = PayloadMode::Skip;
    }

    /// Takes bytes up to the end of a packet. `Some` of what ended, and the bytes after it.
    pub fn consume<'a>(
        &mut self,
        mut bytes: &'a [u8],
        want: PacketSelection,
        time_ns: u64,
        budget: &mut MemoryBudget,
    ) -> (Option<PacketEnd>, &'a [u8]) {
        loop {
            if usize::from(self.head_len) < HEADER {
                if self.is_at_boundary() {
                    self.begun_ns = time_ns;
                }
                let taken = (HEADER - usize::from(self.head_len)).min(bytes.len());
                let have = usize::from(self.head_len);
                self.head[have..have + taken].copy_from_slice(&bytes[..taken]);
                self.head_len += taken as u8;
                bytes = &bytes[taken..];
                if usize::from(self.head_len) < HEADER {
                    return (None, bytes);
                }
                self.begin_packet();
            }
            if self.payload_mode == PayloadMode::Undecided && (self.remaining == 0 || !bytes.is_empty()) {
                self.choose_mode(want, bytes.first().copied());
            }
            let taken = (self.remaining as usize).min(bytes.len());
            self.append_payload(&bytes[..taken], want, budget);
            self.remaining -= taken as u32;
            bytes = &bytes[taken..];
            if self.remaining > 0 || self.payload_mode == PayloadMode::Undecided {
                return (None, bytes);
            }
            if let Some(ended) = self.end_packet() {
                return (Some(ended), bytes);
            }
        }
    }

    fn begin_packet(&mut self) {
        let (length, seq) = parse_header(self.head);
        self.remaining = length;
        self.last_seq = seq;
        if !self.continued {
            self.first_seq = seq;
            self.length = 0;
            self.missing_bytes = 0;
            self.payload_mode = PayloadMode::Undecided;
        }
        self.length += u64::from(length);
    }

    fn choose_mode(&mut self, want: PacketSelection, first: Option<u8>) {
        let row = self.remaining == FULL || first.is_none_or(|first| first < 0xfe);
        self.payload_mode = match want {
            PacketSelection::ExceptRows(_) if row => PayloadMode::Skip,
            _ => PayloadMode::Keep,
        };
    }

    fn append_payload(&mut self, bytes: &[u8], want: PacketSelection, budget: &mut MemoryBudget) {
        let (PacketSelection::All(limit) | PacketSelection::ExceptRows(limit)) = want;
        if self.payload_mode == PayloadMode::Keep {
            self.missing_bytes += self.payload.append(bytes, limit, budget);
        } else {
            self.missing_bytes += bytes.len() as u64;
        }
    }

    /// The current packet is through; `None` if another continues it.
    fn end_packet(&mut self) -> Option<PacketEnd> {
        self.head_len = 0;
        self.continued = parse_header(self.head).0 == FULL;
        if self.continued {
            return None;
        }
        Some(if self.payload_mode == PayloadMode::Skip { PacketEnd::Skipped } else { PacketEnd::Kept })
    }

    /// Passes `count` bytes that were not captured. `None`: they reach beyond the packet, and
    /// where the next begins cannot be known; else whether the packet ended with them.
    pub fn skip_gap(&mut self, count: u64) -> Option<Option<PacketEnd>> {
        if usize::from(self.head_len) < HEADER || count > u64::from(self.remaining) {
            return None;
        }
        if self.payload_mode == PayloadMode::Undecided {
            return None;
        }
        self.remaining -= count as u32;
        self.missing_bytes += count;
        if self.remaining > 0 {
            return Some(None);
        }
        match self.end_packet() {
            Some(ended) => Some(Some(ended)),
            None => Some(None),
        }
    }

    /// Payload bytes that this packet has yet to come.
    pub fn remaining_bytes(&self) -> u64 {
        u64::from(self.remaining)
    }
}
