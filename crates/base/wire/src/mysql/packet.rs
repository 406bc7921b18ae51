//! Splitter of a stream into MySQL packets, for input in pieces. Never interprets a packet.

use super::kept::Kept;
use crate::protocol::MAX_PAYLOAD;
use crate::room::Room;

/// A packet of this length goes on in the next one.
pub(super) const FULL: u32 = MAX_PAYLOAD as u32;
pub(super) const HEADER: usize = 4;

/// Length and sequence number of a packet header.
#[inline]
pub(super) fn header(head: [u8; 4]) -> (u32, u8) {
    (u32::from_le_bytes([head[0], head[1], head[2], 0]), head[3])
}

/// Puts together a packet (with its continuations) that straddles segments.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    head: [u8; 4],
    /// Bytes of `head` that have arrived; 0 and not `continued`: between packets.
    have: u8,
    /// Payload bytes of this packet that are still to come.
    left: u32,
    continued: bool,
    /// Sequence number of the first of the packets.
    pub first_seq: u8,
    /// Sequence number of the last.
    pub last_seq: u8,
    pub payload: Kept,
    /// Payload that was not kept: beyond the limit, cut by a snap length, or passed over.
    pub cut: u64,
    /// All payload so far.
    pub length: u64,
    /// When its first byte passed.
    pub begun_ns: u64,
    /// Bytes of it were lost.
    pub holed: bool,
    passing: Passing,
}

/// Treatment of the current packet's payload.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Passing {
    #[default]
    Undecided,
    Keep,
    PassOver,
}

/// Selection of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Whole packets, up to this many bytes of each.
    Packets(usize),
    /// Rows and column definitions are passed over: only what begins with `fe` or `ff` and is not
    /// a row of 16 MiB is kept, up to this many bytes.
    NotRows(usize),
}

/// Event of the splitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Kept,
    PassedOver,
}

impl Assembly {
    /// True if the next byte starts a packet that is not a continuation.
    #[inline]
    pub fn is_between(&self) -> bool {
        self.have == 0 && !self.continued
    }

    pub fn reset(&mut self, room: &mut Room) {
        let Assembly { payload, .. } = std::mem::take(self);
        self.payload = payload;
        self.payload.clear(room);
    }

    /// Begins a packet to be passed over, `arrived` bytes of whose payload are consumed already.
    #[inline]
    pub fn pass_over(&mut self, length: u32, seq: u8, arrived: u32, time_ns: u64) {
        self.have = HEADER as u8;
        let [low, middle, high, _] = length.to_le_bytes();
        self.head = [low, middle, high, seq];
        self.left = length - arrived;
        self.begun_ns = time_ns;
        self.passing = Passing::PassOver;
    }

    /// Takes bytes up to the end of a packet. `Some` of what ended, and the bytes after it.
    pub fn take<'a>(
        &mut self,
        mut bytes: &'a [u8],
        want: Want,
        time_ns: u64,
        room: &mut Room,
    ) -> (Option<Ended>, &'a [u8]) {
        loop {
            if usize::from(self.have) < HEADER {
                if self.is_between() {
                    self.begun_ns = time_ns;
                }
                let taken = (HEADER - usize::from(self.have)).min(bytes.len());
                let have = usize::from(self.have);
                self.head[have..have + taken].copy_from_slice(&bytes[..taken]);
                self.have += taken as u8;
                bytes = &bytes[taken..];
                if usize::from(self.have) < HEADER {
                    return (None, bytes);
                }
                self.begin();
            }
            if self.passing == Passing::Undecided && (self.left == 0 || !bytes.is_empty()) {
                self.decide(want, bytes.first().copied());
            }
            let taken = (self.left as usize).min(bytes.len());
            self.keep(&bytes[..taken], want, room);
            self.left -= taken as u32;
            bytes = &bytes[taken..];
            if self.left > 0 || self.passing == Passing::Undecided {
                return (None, bytes);
            }
            if let Some(ended) = self.end() {
                return (Some(ended), bytes);
            }
        }
    }

    fn begin(&mut self) {
        let (length, seq) = header(self.head);
        self.left = length;
        self.last_seq = seq;
        if !self.continued {
            self.first_seq = seq;
            self.length = 0;
            self.cut = 0;
            self.passing = Passing::Undecided;
        }
        self.length += u64::from(length);
    }

    fn decide(&mut self, want: Want, first: Option<u8>) {
        let row = self.left == FULL || first.is_none_or(|first| first < 0xfe);
        self.passing = match want {
            Want::NotRows(_) if row => Passing::PassOver,
            _ => Passing::Keep,
        };
    }

    fn keep(&mut self, bytes: &[u8], want: Want, room: &mut Room) {
        let (Want::Packets(limit) | Want::NotRows(limit)) = want;
        if self.passing == Passing::Keep {
            self.cut += self.payload.append(bytes, limit, room);
        } else {
            self.cut += bytes.len() as u64;
        }
    }

    /// The current packet is through; `None` if another continues it.
    fn end(&mut self) -> Option<Ended> {
        self.have = 0;
        self.continued = header(self.head).0 == FULL;
        if self.continued {
            return None;
        }
        Some(if self.passing == Passing::PassOver { Ended::PassedOver } else { Ended::Kept })
    }

    /// Passes `count` bytes that were not captured. `None`: they reach beyond the packet, and
    /// where the next begins cannot be known; else whether the packet ended with them.
    pub fn hole(&mut self, count: u64) -> Option<Option<Ended>> {
        if usize::from(self.have) < HEADER || count > u64::from(self.left) {
            return None;
        }
        if self.passing == Passing::Undecided {
            return None;
        }
        self.left -= count as u32;
        self.cut += count;
        if self.left > 0 {
            return Some(None);
        }
        match self.end() {
            Some(ended) => Some(Some(ended)),
            None => Some(None),
        }
    }

    /// Payload bytes that this packet has yet to come.
    pub fn left(&self) -> u64 {
        u64::from(self.left)
    }
}
