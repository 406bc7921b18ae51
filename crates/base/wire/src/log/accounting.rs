//! Accounting of a log: the outcome of every byte and entry.

use crate::accounting::{saturating_add_to, sums_to};

/// Every byte is in one of three sums, every entry parsed or malformed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LogAccounting {
    pub bytes: u64,
    pub lines: u64,
    pub entry_bytes: u64,
    /// What a server writes when it opens its log.
    pub header_bytes: u64,
    pub malformed_bytes: u64,
    pub entries_parsed: u64,
    /// No statement, no time, or no beginning.
    pub entries_malformed: u64,
    /// Of those parsed: statements kept up to [`super::ENTRY_MAX`] only.
    pub entries_cut: u64,
}

impl LogAccounting {
    pub fn is_consistent(&self) -> bool {
        sums_to(self.bytes, &[self.entry_bytes, self.header_bytes, self.malformed_bytes])
            && self.entries_cut <= self.entries_parsed
    }

    pub fn merge(&mut self, other: &Self) {
        saturating_add_to(&mut self.bytes, other.bytes);
        saturating_add_to(&mut self.lines, other.lines);
        saturating_add_to(&mut self.entry_bytes, other.entry_bytes);
        saturating_add_to(&mut self.header_bytes, other.header_bytes);
        saturating_add_to(&mut self.malformed_bytes, other.malformed_bytes);
        saturating_add_to(&mut self.entries_parsed, other.entries_parsed);
        saturating_add_to(&mut self.entries_malformed, other.entries_malformed);
        saturating_add_to(&mut self.entries_cut, other.entries_cut);
    }

    pub(super) fn count_read(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
    }
}
