//! Where did every byte and entry of a log go?

/// Every byte is in one of three sums, every entry parsed or malformed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogLedger {
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

impl LogLedger {
    pub fn adds_up(&self) -> bool {
        self.bytes == self.entry_bytes + self.header_bytes + self.malformed_bytes
            && self.entries_cut <= self.entries_parsed
    }

    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.lines += other.lines;
        self.entry_bytes += other.entry_bytes;
        self.header_bytes += other.header_bytes;
        self.malformed_bytes += other.malformed_bytes;
        self.entries_parsed += other.entries_parsed;
        self.entries_malformed += other.entries_malformed;
        self.entries_cut += other.entries_cut;
    }

    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
    }
}
