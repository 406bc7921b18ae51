//! Parser of the comment lines above a slow query: lines of one entry to its attributes.

use super::decimal::{parse_integer, parse_seconds};
use crate::event::{ErrorInfo, Flags};
use memchr::memmem;

/// Attributes beyond those with a place of their own; MySQL 8 with `log_slow_extra` writes 22.
const MAX_EXTRA: usize = 48;

#[derive(Debug)]
pub(super) struct Header<'a> {
    /// The text after `# Time: `.
    pub time: Option<&'a [u8]>,
    pub user: Option<&'a [u8]>,
    pub host: &'a [u8],
    pub connection_id: Option<u64>,
    pub query_time: Option<&'a [u8]>,
    pub lock_time: Option<&'a [u8]>,
    pub rows_sent: Option<u64>,
    pub rows_examined: Option<u64>,
    pub rows_affected: Option<u64>,
    pub bytes_sent: Option<u64>,
    pub errno: Option<u64>,
    /// From `Schema:`; empty: the session had none.
    pub schema: Option<&'a [u8]>,
    /// From `use`.
    pub used: Option<&'a [u8]>,
    /// From `SET timestamp=`, in ns.
    pub timestamp_ns: Option<u64>,
    pub flags: Flags,
    /// Without memory of its own while there are none: most servers write none.
    extra: Vec<(&'a str, &'a [u8])>,
    has_settings: bool,
}

impl<'a> Header<'a> {
    pub(super) fn new() -> Self {
        Self {
            time: None,
            user: None,
            host: b"",
            connection_id: None,
            query_time: None,
            lock_time: None,
            rows_sent: None,
            rows_examined: None,
            rows_affected: None,
            bytes_sent: None,
            errno: None,
            schema: None,
            used: None,
            timestamp_ns: None,
            flags: Flags::default(),
            extra: Vec::new(),
            has_settings: false,
        }
    }

    pub(super) fn extra(&self) -> &[(&'a str, &'a [u8])] {
        &self.extra
    }

    pub(super) fn error(&self) -> Option<ErrorInfo<'a>> {
        let number = self.errno.filter(|n| *n > 0).and_then(|n| u16::try_from(n).ok())?;
        Some(ErrorInfo { number, state: b"", message: b"" })
    }

    /// Reads one line that is not the statement. Returns the statement of a line such as
    /// `# administrator command: Quit`.
    pub(super) fn parse_line(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        if line.first() == Some(&b'#') {
            match line.get(2) {
                Some(b'T') if self.time.is_none() && line.starts_with(b"# Time: ") => {
                    let time = &line[8..];
                    self.time = Some(time);
                    // Servers before 5.1 continue the line.
                    if let Some(at) = memchr::memchr(b'#', time)
                        && let Some(user) = time[at..].strip_prefix(b"# User@Host: ")
                    {
                        self.parse_user_host(user);
                    }
                }
                Some(b'U') if self.user.is_none() && line.starts_with(b"# User@Host: ") => {
                    self.parse_user_host(&line[13..]);
                }
                Some(b'a') if line.starts_with(b"# administrator command:") => return Some(&line[2..]),
                _ => self.parse_properties(&line[1..]),
            }
        } else if let Some(db) = line.strip_prefix(b"use ").filter(|_| self.used.is_none()) {
            let end = memchr::memchr(b';', db).unwrap_or(db.len());
            self.used = Some(unquote(&db[..end])).filter(|db| !db.is_empty());
        } else if let Some(settings) = line.strip_prefix(b"SET ").filter(|_| !self.has_settings) {
            self.has_settings = true;
            let value = memmem::find(settings, b"timestamp=").map(|at| &settings[at + 10..]);
            self.timestamp_ns = value.and_then(parse_seconds);
        }
        None
    }

    /// `root[root] @ localhost [127.0.0.1]  Id:     3`, `[SQL_SLAVE] @  []`.
    fn parse_user_host(&mut self, text: &'a [u8]) {
        let user_end = match text.first() {
            Some(b'[') => memchr::memchr(b']', text).filter(|n| *n > 1).map(|n| n + 1),
            Some(_) => Some(memchr::memchr(b'[', text).unwrap_or(text.len())),
            None => None,
        };
        let Some(user_end) = user_end else { return };
        let Some(at) = find_pair(text, user_end, *b"@ ").map(|n| n + 2) else { return };
        let Some(open) = find_pair(text, at - 1, *b" [").map(|n| n + 2) else { return };
        let Some(close) = memchr::memrchr(b']', text).filter(|close| *close >= open) else { return };
        let host = text.get(at..open - 2).unwrap_or_default();
        self.user = Some(&text[..user_end]);
        // With skip_name_resolve there is an address alone.
        self.host = if host.is_empty() { &text[open..close] } else { host };
        let rest = Some(&text[close..]).filter(|rest| rest.len() > 3);
        let id = rest.and_then(|rest| Some(rest[memmem::find(rest, b"Id:")? + 3..].trim_ascii_start()));
        self.connection_id = id.and_then(parse_integer).or(self.connection_id);
    }

    /// ` Query_time: 2.000000  Lock_time: 0.000000 Rows_sent: 1`.
    fn parse_properties(&mut self, line: &'a [u8]) {
        let name = line.trim_ascii_start();
        if name.len() == line.len() || !name.first().is_some_and(u8::is_ascii_uppercase) {
            return;
        }
        let mut at = 0;
        while at < name.len() {
            // As a rule a name stands here, and a colon right behind it.
            let begin = at + count_while(&name[at..], &IS_SPACE);
            let word_end = begin + count_while(&name[begin..], &IS_WORD);
            let (begin, colon) = if name.get(word_end) == Some(&b':') {
                (begin, word_end)
            } else {
                let Some(colon) = memchr::memchr(b':', &name[word_end..]).map(|n| word_end + n) else {
                    return;
                };
                (
                    colon
                        - name[at..colon]
                            .iter()
                            .rev()
                            .take_while(|byte| IS_WORD[usize::from(**byte)])
                            .count(),
                    colon,
                )
            };
            let key = &name[begin..colon];
            let value = name[colon + 1..].trim_ascii_start();
            let value_at = name.len() - value.len();
            if key.is_empty() || (value_at == colon + 1 && value_at < name.len()) {
                at = colon + 1;
                continue;
            }
            let end = count_while(value, &IS_NO_SPACE);
            // `Schema:   Last_errno: 0`: there was none.
            if key == b"Schema" && end > 1 && value[end - 1] == b':' {
                self.schema = Some(b"");
                at = value_at;
                continue;
            }
            self.set_property(key, &value[..end]);
            at = value_at + end;
        }
    }

    fn set_property(&mut self, key: &'a [u8], value: &'a [u8]) {
        let flag = || Some(value == b"Yes");
        match key {
            b"Query_time" => self.query_time = Some(value),
            b"Lock_time" => self.lock_time = Some(value),
            b"Rows_sent" => self.rows_sent = parse_integer(value),
            b"Rows_examined" => self.rows_examined = parse_integer(value),
            b"Rows_affected" => self.rows_affected = parse_integer(value),
            b"Bytes_sent" => self.bytes_sent = parse_integer(value),
            b"Thread_id" => self.connection_id = parse_integer(value),
            b"Last_errno" | b"Errno" => self.errno = parse_integer(value),
            b"Schema" => self.schema = Some(unquote(value)),
            b"QC_hit" | b"QC_Hit" => self.flags.qc_hit = flag(),
            b"Full_scan" => self.flags.full_scan = flag(),
            b"Full_join" => self.flags.full_join = flag(),
            b"Tmp_table" => self.flags.tmp_table = flag(),
            b"Tmp_table_on_disk" => self.flags.tmp_table_on_disk = flag(),
            b"Filesort" => self.flags.filesort = flag(),
            b"Filesort_on_disk" => self.flags.filesort_on_disk = flag(),
            b"No_index_used" => self.flags.no_index_used = flag(),
            b"No_good_index_used" => self.flags.no_good_index_used = flag(),
            _ => {
                if let (Ok(key), true) = (std::str::from_utf8(key), self.extra.len() < MAX_EXTRA) {
                    self.extra.reserve_exact(MAX_EXTRA - self.extra.len());
                    self.extra.push((key, value));
                }
            }
        }
    }
}

/// By byte, since most bytes of a log are asked for.
type ByteSet = [bool; 256];
static IS_WORD: ByteSet = byte_set(true, false, true);
static IS_SPACE: ByteSet = byte_set(false, true, true);
static IS_NO_SPACE: ByteSet = byte_set(false, true, false);

/// Bytes of words, or spaces, or all others.
const fn byte_set(words: bool, spaces: bool, is_in: bool) -> ByteSet {
    let mut set = [!is_in; 256];
    let mut byte = 0;
    while byte < 256 {
        let of = byte as u8;
        if words && (of.is_ascii_alphanumeric() || of == b'_') || spaces && of.is_ascii_whitespace() {
            set[byte] = is_in;
        }
        byte += 1;
    }
    set
}

/// Leading bytes that are in the set.
#[inline]
fn count_while(bytes: &[u8], set: &ByteSet) -> usize {
    bytes.iter().position(|byte| !set[usize::from(*byte)]).unwrap_or(bytes.len())
}

/// Where two bytes follow each other, from `from` on. A few bytes further as a rule: a searcher would take longer to build.
#[inline]
fn find_pair(text: &[u8], from: usize, [first, second]: [u8; 2]) -> Option<usize> {
    text.get(from..)?.windows(2).position(|pair| pair == [first, second]).map(|at| from + at)
}

fn unquote(name: &[u8]) -> &[u8] {
    let name = name.strip_prefix(b"`").unwrap_or(name);
    name.strip_suffix(b"`").unwrap_or(name)
}
