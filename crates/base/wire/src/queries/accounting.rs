//! Accounting of query-event files: the outcome of every byte, and a completeness check of a capture's
//! events.

use crate::accounting::{DecodeAccounting, saturating_add_to, sums_to};
use std::ops::Range;

/// Maximum number of captures distinguished in one reading. Events and drops of further ones are unknown.
const MAX_CAPTURES: usize = 1024;

/// Accounting of a reading. The sums of the parts, in any order, are those of the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QueriesAccounting {
    /// Bytes handed in: in blocks, skipped, and of a block whose end never came.
    pub bytes: u64,
    pub blocks: u64,
    /// Of those: a checksum was wrong, or they contradict themselves.
    pub blocks_damaged: u64,
    /// Of those: written by a newer toll, and not read.
    pub blocks_newer: u64,
    pub events: u64,
    /// As the stretches tell.
    events_missing: u64,
    /// No block's: what is left of damaged ones, or something else.
    pub skipped_bytes: u64,
    /// The file ends within a block.
    #[cfg_attr(feature = "serde", serde(rename = "unread_tail_bytes"))]
    pub unread_tail_bytes: u64,
    /// Captures that ended normally, and their accounting.
    #[cfg_attr(feature = "serde", serde(rename = "captures_ended"))]
    pub captures_ended: u64,
    // A digest says it with that of all captures.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub captured: DecodeAccounting,
    pub block_bytes: u64,
    pub tainted: u64,
    stretches: Vec<EventRange>,
}

/// Which events of a capture were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct EventRange {
    capture: u64,
    first: u64,
    end: u64,
    events: u64,
}

impl QueriesAccounting {
    /// Events that captures had between the first and the last block that were read, and that no block
    /// brought: not written in time, or damaged.
    pub fn missing_events(&self) -> u64 {
        self.events_missing
    }

    /// Captures, and the numbers of their events from the first block that was read to the last.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, Range<u64>)> {
        self.stretches.iter().map(|range| (range.capture, range.first..range.end))
    }

    /// True if every byte counts in exactly one line.
    pub fn is_consistent(&self) -> bool {
        sums_to(self.bytes, &[self.block_bytes, self.skipped_bytes, self.unread_tail_bytes])
            && self.blocks_damaged.saturating_add(self.blocks_newer) <= self.blocks
            && self.captured.is_consistent()
    }

    pub fn merge(&mut self, other: &Self) {
        saturating_add_to(&mut self.bytes, other.bytes);
        saturating_add_to(&mut self.block_bytes, other.block_bytes);
        saturating_add_to(&mut self.skipped_bytes, other.skipped_bytes);
        saturating_add_to(&mut self.unread_tail_bytes, other.unread_tail_bytes);
        saturating_add_to(&mut self.blocks, other.blocks);
        saturating_add_to(&mut self.blocks_damaged, other.blocks_damaged);
        saturating_add_to(&mut self.blocks_newer, other.blocks_newer);
        saturating_add_to(&mut self.events, other.events);
        saturating_add_to(&mut self.tainted, other.tainted);
        self.count_capture_ends(other.captures_ended, other.captured);
        for stretch in &other.stretches {
            self.add_range(*stretch);
        }
    }

    /// Counts a readable block.
    pub(super) fn count_block(&mut self, block: &super::decode::DecodedBlock) {
        self.events += block.events;
        self.tainted += block.tainted;
        self.blocks_damaged += u64::from(block.is_damaged);
        if let Some(ledger) = block.accounting {
            self.count_capture_ends(1, ledger);
        }
        // A block that lies is no reason to count beyond all bounds.
        let end = block.first_event.saturating_add(block.events);
        self.add_range(EventRange {
            capture: block.capture,
            first: block.first_event,
            end,
            events: block.events,
        });
    }

    fn count_capture_ends(&mut self, captures: u64, captured: DecodeAccounting) {
        self.captures_ended = self.captures_ended.saturating_add(captures);
        if self.captures_ended <= MAX_CAPTURES as u64 {
            self.captured += captured;
        }
    }

    fn add_range(&mut self, stretch: EventRange) {
        if let Some(known) = self.stretches.iter_mut().rfind(|known| known.capture == stretch.capture) {
            known.first = known.first.min(stretch.first);
            known.end = known.end.max(stretch.end);
            known.events = known.events.saturating_add(stretch.events);
        } else if self.stretches.len() < MAX_CAPTURES {
            self.stretches.push(stretch);
        }
        let missing = |one: &EventRange| one.end.saturating_sub(one.first).saturating_sub(one.events);
        self.events_missing = self.stretches.iter().map(missing).fold(0, u64::saturating_add);
    }
}
