//! Statement fingerprints: the same text for statements that differ only in literals. Stateless.
//!
//! The rules are those of pt-query-digest, byte for byte, so identifiers in existing notes and reviews still
//! match. Where its rules would leave a literal in a report, toll's do not; `exact` lists those cases.

mod bytes;
mod collapse;
mod distill;
mod exact;
mod fast;
mod id;
mod literal;
mod readings;
mod tables;

pub use distill::distill;
pub use id::QueryId;
pub use readings::BackslashMode;
pub use tables::tables;

use bytes::{find_ignore_case, is_digit, is_space, is_word, skip_space, starts_ignore_case};

/// Fingerprint of a statement: lower case, comments gone, literals `?`, lists `(?+)`.
///
/// `out` is cleared first and holds the result; reuse it. Time is linear in `text` but for
/// repeated UNIONs, whose comparisons are bounded.
pub fn fingerprint(text: &[u8], out: &mut Vec<u8>) {
    fingerprint_in_mode(text, BackslashMode::Unknown, out);
}

/// The same for a statement whose mode is known. Where it is not, and backslashes leave more than one reading of the
/// quotes, what may be a literal in any of them is hidden.
pub fn fingerprint_in_mode(text: &[u8], mode: BackslashMode, out: &mut Vec<u8>) {
    out.clear();
    let text = &*readings::hide_ambiguous_literals(text, mode);
    if fingerprint_special(text, out) {
        return;
    }
    let text = first_row_of_insert(text);
    match fast::fingerprint(text, out) {
        Some(seen) => collapse::collapse(out, seen),
        None => {
            out.clear();
            if exact::fingerprint(text, out) {
                collapse::collapse(out, collapse::KeywordHints::all());
            }
        }
    }
}

/// Statements with a fixed fingerprint: dumps, toolkit checks, admin commands, procedure calls.
fn fingerprint_special(text: &[u8], out: &mut Vec<u8>) -> bool {
    if text.starts_with(b"SELECT /*!40001 SQL_NO_CACHE */ * FROM `") {
        out.extend_from_slice(b"mysqldump");
        return true;
    }
    let is_marked = |at: usize| text.get(at + 1) == Some(&b'*') && is_toolkit_mark(&text[at + 2..]);
    if memchr::memchr_iter(b'/', text).any(is_marked) {
        out.extend_from_slice(b"percona-toolkit");
        return true;
    }
    if text.starts_with(b"administrator command: ") {
        out.extend_from_slice(text);
        return true;
    }
    fingerprint_call(text, out)
}

/// `db.table:chunk/chunks*/`, as pt-table-checksum marks its statements.
fn is_toolkit_mark(mark: &[u8]) -> bool {
    let word = |from: usize| mark[from..].iter().take_while(|b| is_word(**b)).count();
    let db = word(0);
    if db == 0 || mark.get(db) != Some(&b'.') {
        return false;
    }
    let table = word(db + 1);
    let rest = &mark[db + 1 + table..];
    table > 0
        && rest.len() >= 6
        && rest[0] == b':'
        && is_digit(rest[1])
        && rest[2] == b'/'
        && is_digit(rest[3])
        && &rest[4..6] == b"*/"
}

/// `call name(...)` is its name. The name ends at the last parenthesis of the first word, as in
/// pt-query-digest, unless that would take a literal along.
fn fingerprint_call(text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = skip_space(text, 0);
    if !starts_ignore_case(&text[start..], b"call") {
        return false;
    }
    let name = skip_space(text, start + 4);
    if name == start + 4 {
        return false;
    }
    let word_end = text[name..].iter().position(|b| is_space(*b)).map_or(text.len(), |n| name + n);
    let word = &text[name..word_end];
    let Some(end) = call_name_end(word) else { return false };
    out.extend(text[start..name + end].iter().map(u8::to_ascii_lowercase));
    true
}

/// Where the name ends in the first word after CALL.
fn call_name_end(word: &[u8]) -> Option<usize> {
    let last = memchr::memrchr(b'(', word).filter(|n| *n > 0)?;
    let first = memchr::memchr(b'(', word).filter(|n| *n > 0).unwrap_or(last);
    let has_literal = word[first..last].iter().any(|b| matches!(b, b'\'' | b'"' | b'0'..=b'9'));
    Some(if has_literal { first } else { last })
}

/// A multi-row INSERT or REPLACE is judged by its first row, which is where the scan ends.
fn first_row_of_insert(text: &[u8]) -> &[u8] {
    let Some(after_into) = insert_into(text) else { return text };
    let mut from = after_into + 1;
    let row = loop {
        let Some(at) = find_ignore_case(text, b"values", from) else { return text };
        let paren = skip_space(text, at + 6);
        if text.get(paren) == Some(&b'(') {
            break paren + 1;
        }
        from = at + 1;
    };
    for close in memchr::memchr_iter(b')', &text[row..]) {
        let comma = skip_space(text, row + close + 1);
        if text.get(comma) == Some(&b',') && text.get(skip_space(text, comma + 1)) == Some(&b'(') {
            return &text[..row + close + 1];
        }
    }
    text
}

/// Position after `INTO` of `INSERT [IGNORE] INTO` or `REPLACE [IGNORE] INTO` at the very start.
fn insert_into(text: &[u8]) -> Option<usize> {
    let mut at = if starts_ignore_case(text, b"insert") {
        6
    } else if starts_ignore_case(text, b"replace") {
        7
    } else {
        return None;
    };
    if starts_ignore_case(&text[at..], b" ignore") {
        at += 7;
    }
    let into = skip_space(text, at);
    (into > at && starts_ignore_case(&text[into..], b"into")).then_some(into + 4)
}

#[cfg(test)]
mod literal_tests;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
