//! Audit log decoder: MariaDB's `server_audit` file format, one line for each statement.

use super::framing::{Entry, EntryEnd, Format, Framed};
use super::time::{TimeCache, Zone};
use super::{LogAccounting, decimal};
use crate::event::{CommandKind, ErrorInfo, Event, Sink};

/// Audit log; `zone` is the one the server runs in.
pub type AuditLog<Z> = Framed<AuditFormat<Z>>;

pub struct AuditFormat<Z> {
    zone: Z,
    last_time: TimeCache,
}

impl<Z: Zone> AuditLog<Z> {
    pub fn new(zone: Z) -> Self {
        Framed::with_format(AuditFormat { zone, last_time: TimeCache::default() })
    }
}

impl<Z: Zone> Format for AuditFormat<Z> {
    fn is_header(&self, _line: &[u8]) -> bool {
        false
    }

    fn find_entry_end(&self, bytes: &[u8], from: usize, end: bool) -> EntryEnd {
        match memchr::memchr(b'\n', &bytes[from..]) {
            Some(line) => EntryEnd::At(from + line + 1),
            None if end => EntryEnd::At(bytes.len()),
            None => EntryEnd::Unknown,
        }
    }

    /// `20231121 10:00:00,server,user,host,connection,query,QUERY,db,'statement',error`.
    fn parse(&mut self, entry: &Entry<'_>, accounting: &mut LogAccounting, sink: &mut dyn Sink) {
        let bytes = entry.bytes.len() as u64 + entry.skipped_bytes;
        let line = entry.bytes.strip_suffix(b"\n").unwrap_or(entry.bytes);
        let mut fields = line.splitn(9, |b| *b == b',');
        let mut next = || fields.next();
        let head = (next(), next(), next(), next(), next(), next(), next(), next(), next());
        let (
            Some(time),
            _,
            Some(user),
            Some(host),
            Some(connection),
            _,
            Some(operation),
            Some(db),
            Some(object),
        ) = head
        else {
            accounting.entries_malformed += 1;
            accounting.malformed_bytes += bytes;
            return;
        };
        accounting.entries_parsed += 1;
        accounting.entries_cut += u64::from(entry.skipped_bytes > 0);
        accounting.entry_bytes += bytes;
        if operation != b"QUERY" {
            return;
        }
        let (text, code) = match memchr::memrchr(b',', object) {
            Some(comma) if entry.skipped_bytes == 0 => (&object[..comma], &object[comma + 1..]),
            _ => (object, b"".as_slice()),
        };
        let text = text.strip_prefix(b"'").unwrap_or(text);
        let number = decimal::parse_integer(code).and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
        sink.on_event(&Event {
            start_ns: self.last_time.read(time, &self.zone).unwrap_or(0),
            kind: CommandKind::Query,
            text: text.strip_suffix(b"'").unwrap_or(text),
            text_cut: entry.skipped_bytes,
            user,
            host,
            db,
            connection_id: decimal::parse_integer(connection),
            error: number.map(|number| ErrorInfo { number, state: b"", message: b"" }),
            ..Event::default()
        });
    }
}
