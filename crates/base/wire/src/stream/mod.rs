//! TCP stream reassembly: the bytes of each direction in order. Never interprets bytes or endpoints.

mod connection;
mod table;

use crate::room::Room;
use crate::side::{Hole, Side};
pub(crate) use table::Streams;

/// Hears each byte of each connection once, cause before effect. A connection goes by a `K`; of
/// each, the listener keeps an `R`.
pub(crate) trait Listener<K, R> {
    /// A conversation begins: the first between these two, or the next.
    fn begin(&mut self, record: &mut R, key: &K);

    /// A SYN or SYN-ACK passed.
    fn connecting(&mut self, record: &mut R, from: Side, time_ns: u64);

    fn bytes(&mut self, record: &mut R, from: Side, bytes: &[u8], time_ns: u64);

    /// `count` bytes of a side are missing here.
    fn hole(&mut self, record: &mut R, from: Side, count: u64, why: Hole, time_ns: u64);

    /// The conversation is over, or the capture is.
    fn end(&mut self, record: &mut R);

    /// Memory budget that pending segments count against.
    fn room(&mut self) -> &mut Room;
}

/// Bounds of memory, see `decoder::Limits`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub connections: usize,
    pub held_segments: usize,
    pub held_bytes: usize,
    pub held_ns: u64,
    pub idle_ns: u64,
}

/// Outcome of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was new.
    Parsed,
    /// Nothing of it was.
    Duplicate,
    /// A snap length had cut a part of it.
    Truncated,
}
