//! Splitter of log bytes into entries, for input in pieces.
//!
//! Bounded: an entry longer than [`super::ENTRY_MAX`] is truncated and the remaining bytes are counted.

use super::{ENTRY_MAX, Log, LogAccounting};
use crate::event::Sink;

/// Room for the line that tells whether an entry has ended.
pub(super) const LOOKAHEAD: usize = 1024;

pub enum EntryEnd {
    /// After so many bytes.
    At(usize),
    /// Not within these bytes.
    Unknown,
}

/// One entry as it stands in the log.
pub struct Entry<'a> {
    pub(super) bytes: &'a [u8],
    /// Bytes of the entry beyond those.
    pub(super) skipped_bytes: u64,
    /// The log ended here, perhaps not the entry.
    pub(super) is_tail: bool,
}

/// Format-specific rules of a log.
pub trait Format {
    /// True if a server writes this line when it opens a log. The line includes its end and is never empty.
    fn is_header(&self, line: &[u8]) -> bool;

    /// Where the entry at the start of `bytes` ends; no end lies before `from`. `end`: nothing
    /// will follow, so the last entry ends with the bytes.
    fn find_entry_end(&self, bytes: &[u8], from: usize, end: bool) -> EntryEnd;

    /// Turns an entry into an event and counts its bytes.
    fn parse(&mut self, entry: &Entry<'_>, accounting: &mut LogAccounting, sink: &mut dyn Sink);
}

/// A log of format `F`, read as it comes.
pub struct Framed<F> {
    format: F,
    /// Bytes of the entry at hand that were searched for its end.
    searched_bytes: usize,
    /// An entry over the limit: its first part, and the bytes of it passed over since.
    oversized: Option<(Vec<u8>, u64)>,
    accounting: LogAccounting,
}

impl<F> Framed<F> {
    pub(super) fn with_format(format: F) -> Self {
        Self { format, searched_bytes: 0, oversized: None, accounting: LogAccounting::default() }
    }

    pub(super) fn format(&self) -> &F {
        &self.format
    }

    pub(super) fn format_mut(&mut self) -> &mut F {
        &mut self.format
    }
}

impl<F: Format> Log for Framed<F> {
    fn decode(&mut self, bytes: &[u8], end: bool, sink: &mut dyn Sink) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let length = if self.oversized.is_some() {
                self.skip_oversized(rest, end, sink)
            } else {
                self.decode_entry(rest, end, sink)
            };
            if length == 0 {
                break;
            }
            taken += length;
        }
        self.accounting.count_read(&bytes[..taken]);
        if end {
            self.finish_oversized(true, sink);
        }
        taken
    }

    fn accounting(&self) -> &LogAccounting {
        &self.accounting
    }
}

impl<F: Format> Framed<F> {
    /// Takes one entry or one header line. 0: more is needed.
    fn decode_entry(&mut self, bytes: &[u8], end: bool, sink: &mut dyn Sink) -> usize {
        if self.searched_bytes == 0 {
            match memchr::memchr(b'\n', &bytes[..bytes.len().min(LOOKAHEAD)]) {
                Some(line) if self.format.is_header(&bytes[..=line]) => {
                    self.accounting.header_bytes += line as u64 + 1;
                    return line + 1;
                }
                None if !end && bytes.len() < LOOKAHEAD => return 0,
                _ => {}
            }
        }
        let (kept, is_tail) = match self.format.find_entry_end(bytes, self.searched_bytes, end) {
            EntryEnd::At(length) => (length, end && length == bytes.len()),
            EntryEnd::Unknown if end => (bytes.len(), true),
            EntryEnd::Unknown if bytes.len() >= ENTRY_MAX => {
                // The last bytes may be half of what ends the entry.
                let keep = ENTRY_MAX - LOOKAHEAD;
                self.oversized = Some((bytes[..keep].to_vec(), 0));
                self.searched_bytes = 0;
                return keep;
            }
            EntryEnd::Unknown => {
                self.searched_bytes = bytes.len().saturating_sub(LOOKAHEAD);
                return 0;
            }
        };
        self.searched_bytes = 0;
        self.format.parse(
            &Entry { bytes: &bytes[..kept], skipped_bytes: 0, is_tail },
            &mut self.accounting,
            sink,
        );
        kept
    }

    /// Looks for the end of an entry that is too long to keep.
    fn skip_oversized(&mut self, bytes: &[u8], end: bool, sink: &mut dyn Sink) -> usize {
        let (length, has_ended) = match self.format.find_entry_end(bytes, 0, end) {
            EntryEnd::At(length) => (length, true),
            EntryEnd::Unknown if end => (bytes.len(), true),
            EntryEnd::Unknown => (bytes.len().saturating_sub(LOOKAHEAD), false),
        };
        if let Some((_, passed)) = &mut self.oversized {
            *passed += length as u64;
        }
        if has_ended {
            self.finish_oversized(end && length == bytes.len(), sink);
        }
        length
    }

    fn finish_oversized(&mut self, is_tail: bool, sink: &mut dyn Sink) {
        if let Some((kept, passed)) = self.oversized.take() {
            self.format.parse(
                &Entry { bytes: &kept, skipped_bytes: passed, is_tail },
                &mut self.accounting,
                sink,
            );
        }
    }
}
