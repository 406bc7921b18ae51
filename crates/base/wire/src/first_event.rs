//! Where the first entry, packet or block of a file ends. What stands before that stays as it is while the file grows, and has a time:
//! it tells the file from every other one.

use crate::detect::{FileKind, detect_kind, is_entry_line};
use crate::log::is_server_header;
use crate::pcap::{ParseStep, RecordParser};
use crate::queries::BlockHeader;

/// What of the first entry, packet or block is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstEvent {
    /// It ends after so many bytes. Of an entry of a slow log that is the line behind its header.
    EndsAt(usize),
    /// A part of it.
    Partial,
    /// Nothing but what a server or a tool writes when it opens the file.
    Absent,
    /// The file is of no known type, or damaged: no reader finds events in it.
    Unknown,
}

/// `head`: how a file begins, after decompression.
pub fn find_first_event(head: &[u8]) -> FirstEvent {
    match detect_kind(head) {
        Some(FileKind::Capture(format)) => match RecordParser::new(format) {
            Some(records) => find_frame(head, records),
            None => find_line(head, |_| true),
        },
        Some(FileKind::Queries) => match BlockHeader::read(head) {
            Some(block) if block.compressed_len.saturating_add(BlockHeader::LEN) <= head.len() => {
                FirstEvent::EndsAt(BlockHeader::LEN + block.compressed_len)
            }
            _ => FirstEvent::Partial,
        },
        Some(FileKind::SlowLog) => find_slow_entry(head),
        Some(FileKind::GeneralLog | FileKind::AuditLog) => find_line(head, is_entry_line),
        None if head.is_empty() => FirstEvent::Absent,
        Some(FileKind::Gzip | FileKind::Zstd) | None => FirstEvent::Unknown,
    }
}

fn find_frame(head: &[u8], mut records: RecordParser) -> FirstEvent {
    let mut at = 0_usize;
    while let Some(rest) = head.get(at..).filter(|rest| !rest.is_empty()) {
        let used = match records.next_record(rest) {
            Ok(ParseStep::Frame { used, .. }) => return FirstEvent::EndsAt(at + used),
            Ok(ParseStep::Skip { used }) => used,
            Ok(ParseStep::SkipAhead { used }) => usize::try_from(used).unwrap_or(usize::MAX),
            Ok(ParseStep::Incomplete(_)) => return FirstEvent::Partial,
            Err(_) => return FirstEvent::Unknown,
        };
        if used == 0 {
            return FirstEvent::Unknown;
        }
        at = at.saturating_add(used);
    }
    if at == head.len() { FirstEvent::Absent } else { FirstEvent::Partial }
}

/// Lines that have ended, with the place where each has.
fn whole_lines(head: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let lines = head.split_inclusive(|byte| *byte == b'\n').scan(0, |at, line| {
        *at += line.len();
        Some((line, *at))
    });
    lines.filter(|(line, _)| line.ends_with(b"\n"))
}

fn find_line(head: &[u8], is_first: impl Fn(&[u8]) -> bool) -> FirstEvent {
    whole_lines(head)
        .find(|(line, _)| is_first(line))
        .map_or(FirstEvent::Partial, |(_, end)| FirstEvent::EndsAt(end))
}

/// Logs of seconds have many entries of one time: the query's time, its connection and what follows belong to the first, too.
fn find_slow_entry(head: &[u8]) -> FirstEvent {
    let mut is_timed = false;
    for (line, end) in whole_lines(head) {
        is_timed |= line.starts_with(b"# Query_time: ");
        if is_timed && !line.starts_with(b"#") && !line.starts_with(b"use ") {
            return FirstEvent::EndsAt(end);
        }
    }
    let is_opening = |line: &[u8]| is_server_header(line) || line.trim_ascii().is_empty();
    if head.split_inclusive(|byte| *byte == b'\n').all(is_opening) {
        return FirstEvent::Absent;
    }
    FirstEvent::Partial
}
