//! Slow log decoder: MySQL, Percona Server and MariaDB, from 5.0 to the present.
//!
//! Never guesses: an entry without a statement or a query time counts as malformed.

use super::framing::{Entry, EntryEnd, Format, Framed, LOOKAHEAD};
use super::slow_header::Header;
use super::time::{TimeCache, Zone};
use super::{LogAccounting, decimal};
use crate::event::{CommandKind, Event, Sink};
use memchr::memmem;

/// What pt-query-digest puts where an entry ends before its statement.
const NO_QUERY: &[u8] = b"/* No query */";

/// Stands for a schema that was named before the part of a log that was read. No name holds a NUL.
pub const INHERITED_DB: &[u8] = b"\0inherited";

/// Slow log of a server; `zone` is the one of times written without.
pub type SlowLog<Z> = Framed<SlowFormat<Z>>;

pub struct SlowFormat<Z> {
    zone: Z,
    last_time: TimeCache,
    /// Servers write the time once for all entries of a second, and `use` when it changes.
    time_ns: u64,
    db: Vec<u8>,
}

impl<Z: Zone> SlowLog<Z> {
    pub fn new(zone: Z) -> Self {
        Framed::with_format(SlowFormat { zone, last_time: TimeCache::default(), time_ns: 0, db: Vec::new() })
    }
}

impl<Z: Zone> SlowLog<Z> {
    /// For a part of a log that begins at an entry with a time of its own: until an entry names
    /// a schema, events say [`INHERITED_DB`].
    pub fn from_middle(zone: Z) -> Self {
        let mut log = Self::new(zone);
        log.format_mut().db.extend_from_slice(INHERITED_DB);
        log
    }

    /// The schema that the next entry would inherit.
    pub fn db(&self) -> &[u8] {
        &self.format().db
    }
}

impl<Z: Zone> Format for SlowFormat<Z> {
    fn is_header(&self, line: &[u8]) -> bool {
        line[0] != b'#' && is_server_header(line)
    }

    fn find_entry_end(&self, bytes: &[u8], from: usize, end: bool) -> EntryEnd {
        entry_end(bytes, from, end)
    }

    fn parse(&mut self, entry: &Entry<'_>, accounting: &mut LogAccounting, sink: &mut dyn Sink) {
        let &Entry { bytes: entry, skipped_bytes: passed, is_tail } = entry;
        // The last entry of a log may lack its line end, or have one too many.
        let body = if is_tail { entry.trim_ascii_end() } else { entry.strip_suffix(b"\n").unwrap_or(entry) };
        let body = body.strip_suffix(b";").unwrap_or(body);
        let mut header = Header::new();
        let mut text: Option<&[u8]> = None;
        let mut kind = CommandKind::Query;
        let mut at = 0;
        while at < body.len() {
            let line_end = memchr::memchr(b'\n', &body[at..]).map_or(body.len(), |n| at + n);
            let line = &body[at..line_end];
            if at > 0 && !is_comment_or_setting(line) {
                text = Some(&body[at..]);
                break;
            }
            if let Some(command) = header.parse_line(line) {
                text = Some(command.strip_suffix(b";").unwrap_or(command));
                kind = CommandKind::Admin;
            }
            at = line_end + 1;
        }
        if let Some(ns) = header.time.and_then(|time| self.last_time.read(time, &self.zone)) {
            self.time_ns = ns;
        }
        if let Some(db) = header.used.or(header.schema)
            && db != self.db
        {
            self.db.clear();
            self.db.extend_from_slice(db);
        }
        let bytes = entry.len() as u64 + passed;
        let text = text.or((!is_tail).then_some(NO_QUERY)).filter(|text| !text.is_empty());
        let (Some(text), Some(query_time)) = (text, header.query_time) else {
            accounting.entries_malformed += 1;
            accounting.malformed_bytes += bytes;
            return;
        };
        accounting.entries_parsed += 1;
        accounting.entries_cut += u64::from(passed > 0);
        accounting.entry_bytes += bytes;
        let query_ns = decimal::parse_seconds(query_time).filter(|ns| *ns <= MAX_PLAUSIBLE_NS);
        sink.on_event(&Event {
            start_ns: if self.time_ns > 0 { self.time_ns } else { header.timestamp_ns.unwrap_or(0) },
            query_ns,
            lock_ns: header.lock_time.and_then(decimal::parse_seconds).filter(|ns| *ns <= MAX_PLAUSIBLE_NS),
            kind,
            text,
            text_cut: passed,
            user: header.user.unwrap_or_default(),
            host: header.host,
            db: &self.db,
            connection_id: header.connection_id,
            bytes_from_server: header.bytes_sent.unwrap_or(0),
            rows_sent: header.rows_sent,
            rows_examined: header.rows_examined,
            rows_affected: header.rows_affected,
            error: header.error(),
            flags: header.flags,
            tainted: query_ns.is_none(),
            attributes: header.extra(),
            ..Event::default()
        });
    }
}

/// Some servers wrote a time that ran backwards as unsigned microseconds: 584,942 years. Ten
/// years is longer than any query.
const MAX_PLAUSIBLE_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// An entry ends at a semicolon and line end that another entry, or a server's header, follows.
fn entry_end(bytes: &[u8], from: usize, end: bool) -> EntryEnd {
    let mut at = from;
    // A semicolon is rare; building a searcher for two bytes would cost more than it saves.
    while let Some(semicolon) = memchr::memchr(b';', &bytes[at..]).map(|n| at + n) {
        let next = semicolon + 2;
        if bytes.get(semicolon + 1) != Some(&b'\n') {
            at = semicolon + 1;
            continue;
        }
        // What is searched again begins that far before the last byte that was seen; with a longer sight,
        // the semicolon could lie before it.
        let sight = semicolon + LOOKAHEAD;
        let after = &bytes[next..bytes.len().min(sight)];
        if bytes.len() < sight && !end && memchr::memchr(b'\n', after).is_none() {
            return EntryEnd::Unknown;
        }
        if after.first() == Some(&b'#') {
            if is_entry_start(after) || is_command_of_next(bytes, next) {
                return EntryEnd::At(next);
            }
        } else if let Some(line) = memchr::memchr(b'\n', after)
            && is_server_header(&after[..=line])
        {
            return EntryEnd::At(next);
        }
        at = next;
    }
    if end { EntryEnd::At(bytes.len()) } else { EntryEnd::Unknown }
}

/// `# Time: `, `# User@Host: `, `# Query_time: `: a name that begins in upper case, and a colon.
fn is_entry_start(line: &[u8]) -> bool {
    let name = line[1..].trim_ascii_start();
    if name.len() + 1 == line.len() || !name.first().is_some_and(u8::is_ascii_uppercase) {
        return false;
    }
    let length = name.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'@')).count();
    name.get(length) == Some(&b':')
}

/// An administrator command is the statement of the entry whose `use` or `SET` is above it, else
/// it stands by itself.
fn is_command_of_next(bytes: &[u8], at: usize) -> bool {
    if !bytes[at..].starts_with(b"# administrator command:") {
        return false;
    }
    let line = memchr::memrchr(b'\n', &bytes[..at - 1]).map_or(0, |n| n + 1);
    !is_comment_or_setting(&bytes[line..at])
}

fn is_comment_or_setting(line: &[u8]) -> bool {
    match line.first() {
        Some(b'#') => true,
        Some(b'u') => line.starts_with(b"use "),
        Some(b'S') => [b"SET timestamp".as_slice(), b"SET insert_id", b"SET last_insert_id"]
            .iter()
            .any(|setting| line.starts_with(setting)),
        _ => false,
    }
}

/// What a server writes when it opens its log: its version, its ports, the heads of columns.
pub(crate) fn is_server_header(line: &[u8]) -> bool {
    let is_version = || {
        memchr::memchr_iter(b'V', line)
            .any(|n| line[n..].starts_with(b"Version") && line[..n].ends_with(b"d, "))
            && (memmem::find(line, b"started with:").is_some()
                || memmem::find(line, b"embedded library").is_some())
    };
    let is_columns = || {
        line.strip_prefix(b"Time").is_some_and(|rest| {
            rest.split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .take(2)
                .eq([b"Id".as_slice(), b"Command"])
        })
    };
    line.len() > 9 && line[..9].eq_ignore_ascii_case(b"tcp port:") || is_columns() || is_version()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::log::time::Utc;

    struct Nobody;

    impl Sink for Nobody {
        fn on_event(&mut self, _: &Event<'_>) {}
    }

    #[test]
    fn an_end_at_the_edge_of_sight_is_found_wherever_a_piece_ends() {
        let first = b"# Query_time: 0.5\nselect 1;\n";
        let second = [b"# Query_time: 0.5 ".as_slice(), &[b'x'; 2 * LOOKAHEAD], b"\nselect 2;\n"].concat();
        let bytes = [first.as_slice(), &second].concat();
        for piece in LOOKAHEAD..LOOKAHEAD + first.len() + 8 {
            let mut log = SlowLog::new(Utc);
            let taken = log.decode(&bytes[..piece], false, &mut Nobody);
            log.decode(&bytes[taken..], true, &mut Nobody);
            assert_eq!(log.accounting().entries_parsed, 2, "{piece}");
        }
    }
}
