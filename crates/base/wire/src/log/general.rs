//! General log decoder: MySQL 5.x to 9.x and MariaDB. A general log has no execution times, so its events
//! have none.

use super::framing::{Entry, EntryEnd, Format, Framed, LOOKAHEAD};
use super::time::{TimeCache, Zone, parse_time};
use super::{LogAccounting, decimal};
use crate::event::{CommandKind, Event, Sink};
use memchr::memmem;
use std::collections::HashMap;

/// Connections whose schema is remembered; beyond them it is unknown.
const CONNECTIONS_MAX: usize = 65_536;

/// Names of commands as servers write them (`command_name` in MySQL's sql_parse.cc).
const COMMANDS: [&[u8]; 32] = [
    b"Query",
    b"Execute",
    b"Prepare",
    b"Connect",
    b"Quit",
    b"Init DB",
    b"Close stmt",
    b"Reset stmt",
    b"Long Data",
    b"Fetch",
    b"Field List",
    b"Ping",
    b"Statistics",
    b"Change user",
    b"Reset Connection",
    b"Create DB",
    b"Drop DB",
    b"Refresh",
    b"Shutdown",
    b"Processlist",
    b"Connect Out",
    b"Kill",
    b"Debug",
    b"Time",
    b"Delayed insert",
    b"Binlog Dump",
    b"Binlog Dump GTID",
    b"Table Dump",
    b"Register Slave",
    b"Set option",
    b"Daemon",
    b"Sleep",
];

/// General log of a server; `zone` is the one of times written without.
pub type GeneralLog<Z> = Framed<GeneralFormat<Z>>;

pub struct GeneralFormat<Z> {
    zone: Z,
    last_time: TimeCache,
    /// Older servers write the time once for all entries of a second.
    time_ns: u64,
    sessions: HashMap<u64, Session>,
}

#[derive(Debug, Default, Clone)]
struct Session {
    user: Vec<u8>,
    host: Vec<u8>,
    db: Vec<u8>,
}

impl<Z: Zone> GeneralLog<Z> {
    pub fn new(zone: Z) -> Self {
        Framed::with_format(GeneralFormat {
            zone,
            last_time: TimeCache::default(),
            time_ns: 0,
            sessions: HashMap::new(),
        })
    }
}

impl<Z: Zone> Format for GeneralFormat<Z> {
    fn is_header(&self, line: &[u8]) -> bool {
        super::slow::is_server_header(line)
    }

    fn find_entry_end(&self, bytes: &[u8], from: usize, end: bool) -> EntryEnd {
        for line in memchr::memchr_iter(b'\n', &bytes[from..]).map(|n| from + n + 1) {
            let after = &bytes[line..];
            if after.len() < LOOKAHEAD && !end && memchr::memchr(b'\n', after).is_none() {
                return EntryEnd::Unknown;
            }
            if parse_entry_header(after).is_some() || (after.first() == Some(&b'/') && is_header_at(after)) {
                return EntryEnd::At(line);
            }
        }
        if end { EntryEnd::At(bytes.len()) } else { EntryEnd::Unknown }
    }

    fn parse(&mut self, entry: &Entry<'_>, accounting: &mut LogAccounting, sink: &mut dyn Sink) {
        let bytes = entry.bytes.len() as u64 + entry.skipped_bytes;
        let Some(start) = parse_entry_header(entry.bytes) else {
            accounting.entries_malformed += 1;
            accounting.malformed_bytes += bytes;
            return;
        };
        if let Some(ns) = start.time.and_then(|time| self.last_time.read(time, &self.zone)) {
            self.time_ns = ns;
        }
        let argument = &entry.bytes[start.argument..];
        let argument = argument.strip_suffix(b"\n").unwrap_or(argument);
        let words;
        let (kind, text) = match start.command {
            b"Query" => (CommandKind::Query, argument),
            b"Execute" => (CommandKind::Execute, argument),
            b"Prepare" => (CommandKind::Prepare, argument),
            command => {
                let refused = command == b"Connect" && argument.starts_with(b"Access denied");
                words = [b"administrator command: ".as_slice(), if refused { argument } else { command }]
                    .concat();
                (CommandKind::Admin, words.as_slice())
            }
        };
        if text.is_empty() {
            accounting.entries_malformed += 1;
            accounting.malformed_bytes += bytes;
            return;
        }
        self.track_session(&start, argument);
        accounting.entries_parsed += 1;
        accounting.entries_cut += u64::from(entry.skipped_bytes > 0);
        accounting.entry_bytes += bytes;
        let unknown = Session::default();
        let session = self.sessions.get(&start.connection_id).unwrap_or(&unknown);
        sink.on_event(&Event {
            start_ns: self.time_ns,
            kind,
            text,
            text_cut: entry.skipped_bytes,
            user: &session.user,
            host: &session.host,
            db: &session.db,
            connection_id: Some(start.connection_id),
            ..Event::default()
        });
        if start.command == b"Quit" {
            self.sessions.remove(&start.connection_id);
        }
    }
}

impl<Z> GeneralFormat<Z> {
    /// Keeps track of who a connection is and what its schema is.
    fn track_session(&mut self, start: &EntryHeader<'_>, argument: &[u8]) {
        let db = match start.command {
            b"Connect" | b"Change user" if !argument.starts_with(b"Access denied") => {
                memmem::find(argument, b" on ").map(|at| first_word(&argument[at + 4..]))
            }
            b"Init DB" => Some(first_word(argument)),
            b"Query" => argument.strip_prefix(b"use ").map(|db| first_word(db).trim_ascii_end()),
            _ => return,
        };
        if start.command != b"Connect" && db.is_none() {
            return;
        }
        if self.sessions.len() >= CONNECTIONS_MAX && !self.sessions.contains_key(&start.connection_id) {
            return;
        }
        let session = self.sessions.entry(start.connection_id).or_default();
        if matches!(start.command, b"Connect" | b"Change user") {
            let mut who = first_word(argument).splitn(2, |b| *b == b'@');
            session.user = who.next().unwrap_or_default().to_vec();
            session.host = who.next().unwrap_or_default().to_vec();
            session.db.clear();
        }
        if let Some(db) = db {
            let db = db.strip_suffix(b";").unwrap_or(db);
            session.db = db.iter().copied().filter(|b| *b != b'`').collect();
        }
    }
}

fn first_word(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len())]
}

fn is_header_at(bytes: &[u8]) -> bool {
    memchr::memchr(b'\n', &bytes[..bytes.len().min(LOOKAHEAD)])
        .is_some_and(|line| super::slow::is_server_header(&bytes[..=line]))
}

/// The first line of an entry, taken apart.
struct EntryHeader<'a> {
    time: Option<&'a [u8]>,
    connection_id: u64,
    command: &'a [u8],
    /// Where its argument begins.
    argument: usize,
}

pub(crate) fn is_entry_start(line: &[u8]) -> bool {
    parse_entry_header(line).is_some()
}

/// `071015 21:43:52\t  7 Query\t...`, `\t\t  7 Query\t...`, `2016-07-20T18:13:25.698433Z\t  7 Query\t...`.
fn parse_entry_header(line: &[u8]) -> Option<EntryHeader<'_>> {
    let time = match line.first()? {
        b'0'..=b'9' => Some(&line[..parse_time(&line[..line.len().min(40)])?.length]),
        b'\t' | b' ' => None,
        _ => return None,
    };
    let mut at = time.map_or(0, <[u8]>::len);
    let blanks = line[at..].iter().take_while(|b| matches!(b, b'\t' | b' ')).count();
    at += blanks;
    let digits = line[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    if blanks == 0 || digits == 0 || line.get(at + digits) != Some(&b' ') {
        return None;
    }
    let connection_id = decimal::parse_integer(&line[at..at + digits])?;
    at += digits + 1;
    let length = line[at..].iter().take(20).position(|b| *b == b'\t')?;
    let command = &line[at..at + length];
    COMMANDS.contains(&command).then_some(EntryHeader {
        time,
        connection_id,
        command,
        argument: at + length + 1,
    })
}
