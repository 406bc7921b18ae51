//! TCP stream reassembly: the bytes of each direction in order. Never interprets bytes or endpoints.

mod connection;
mod table;

use crate::direction::{Direction, GapCause};
use crate::memory_budget::MemoryBudget;
pub(crate) use table::ConnectionTable;

/// Receives each byte of each connection once, in causal order. A connection goes by a `K`; of
/// each, the listener keeps an `R`.
pub(crate) trait StreamListener<K, R> {
    /// A conversation begins: the first between these two, or the next.
    fn on_begin(&mut self, record: &mut R, key: &K);

    /// A SYN or SYN-ACK passed.
    fn on_syn(&mut self, record: &mut R, from: Direction, time_ns: u64);

    fn on_bytes(&mut self, record: &mut R, from: Direction, bytes: &[u8], time_ns: u64);

    /// `count` bytes of a side are missing here.
    fn on_gap(&mut self, record: &mut R, from: Direction, count: u64, why: GapCause, time_ns: u64);

    /// The conversation is over, or the capture is.
    fn on_end(&mut self, record: &mut R);

    /// Memory budget that pending segments count against.
    fn budget(&mut self) -> &mut MemoryBudget;
}

/// Bounds of memory, see `decoder::Limits`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub connections: usize,
    pub reorder_segments: usize,
    pub reorder_bytes: usize,
    pub reorder_ns: u64,
    pub idle_ns: u64,
}

/// Outcome of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentOutcome {
    /// It was new.
    Parsed,
    /// Nothing of it was.
    Duplicate,
    /// A snap length had cut a part of it.
    Truncated,
}
