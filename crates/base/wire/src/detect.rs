//! File type detection by the first bytes, never by the name.

use crate::log::{is_entry_start, is_server_header, parse_time};
use crate::pcap::Format;
use crate::queries;

/// File format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Capture(Format),
    /// Query events, as [`queries`] writes them.
    Queries,
    SlowLog,
    GeneralLog,
    AuditLog,
    Gzip,
    Zstd,
}

/// `head`: the first bytes, at least a few lines where there are as many. `None`: none of these.
pub fn detect_kind(head: &[u8]) -> Option<FileKind> {
    match head {
        [0x1f, 0x8b, ..] => return Some(FileKind::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Some(FileKind::Zstd),
        _ if head.starts_with(&queries::MAGIC) => return Some(FileKind::Queries),
        _ => {}
    }
    if let Some(format) = Format::detect(head) {
        return Some(FileKind::Capture(format));
    }
    let mut fallback = None;
    for line in head.split_inclusive(|b| *b == b'\n').take(1_000) {
        if let Some(kind) = detect_line(line) {
            return Some(kind);
        }
        // Both logs begin alike; so does one without entries.
        if is_server_header(line) {
            fallback = Some(FileKind::SlowLog);
        }
    }
    fallback
}

fn detect_line(line: &[u8]) -> Option<FileKind> {
    let is_slow =
        [b"# Time: ".as_slice(), b"# User@Host: ", b"# Query_time: ", b"# Thread_id: ", b"# Client: "]
            .iter()
            .any(|start| line.starts_with(start));
    if is_slow {
        return Some(FileKind::SlowLog);
    }
    if is_entry_start(line) {
        return Some(FileKind::GeneralLog);
    }
    is_audit(line).then_some(FileKind::AuditLog)
}

/// True for the first line of an entry of a general or audit log.
pub(crate) fn is_entry_line(line: &[u8]) -> bool {
    is_entry_start(line) || is_audit(line)
}

fn is_audit(line: &[u8]) -> bool {
    let mut fields = line.splitn(8, |b| *b == b',');
    let is_time = fields.next().is_some_and(|time| {
        time.len() == 17 && time[..8].iter().all(u8::is_ascii_digit) && parse_time(&time[2..]).is_some()
    });
    let operation = fields.nth(5);
    is_time
        && operation.is_some_and(|o| o.len() > 2 && o.iter().all(|b| b.is_ascii_uppercase() || *b == b'_'))
}
