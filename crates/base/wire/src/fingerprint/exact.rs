//! Multi-pass fingerprint by the rules of pt-query-digest, for any text.
//!
//! Used for texts that the fast scan declines: comments beside words, stray backslashes, mixed quotes.
//!
//! pt-query-digest's rules look for quotes without knowing where a literal begins. Two cases differ on
//! purpose, both to keep literals out of reports and both counted as deviations by the conformance test:
//!
//! 1. Quotes that it pairs wrongly (`'a"b', "c"`, a literal cut short) leave literal text in its
//!    fingerprint. Then literals are replaced where MySQL sees them, and its other rules follow.
//! 2. Of `0xDEADBEEF` it takes `0x` alone; each value would be a class of its own.

use super::bytes::{is_boundary, is_space, is_word, starts_ignore_case};
use super::literal;
use memchr::memmem;

/// Text with a mark on each byte that belongs to a literal.
struct MarkedText {
    text: Vec<u8>,
    literal: Vec<bool>,
}

/// Everything up to the collapsing of repeats. False: the statement is finished as it stands.
pub(super) fn fingerprint(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut marked = MarkedText { text: text.to_vec(), literal: literal::literal_and_comment_mask(text) };
    strip_block_comments(&mut marked);
    strip_line_comments(&mut marked);
    if let Some(end) = use_database(&marked.text) {
        out.extend_from_slice(b"use ?");
        out.extend_from_slice(&marked.text[end..]);
        return false;
    }
    strip_escaped_quotes(&mut marked);
    replace_quoted(&mut marked, b'"');
    replace_quoted(&mut marked, b'\'');
    let text = if has_literal_text(&marked) { literal::replace_literals(text) } else { marked.text };
    let text = replace_booleans(&text);
    let text = replace_numbers(&text);
    let mut text = drop_prefixes(&text);
    normalise_text(&mut text);
    let text = replace_null(&text);
    collapse_lists(&text, out);
    true
}

/// The text without block and line comments.
pub(super) fn strip_comments(text: &[u8]) -> Vec<u8> {
    let mut marked = MarkedText { text: text.to_vec(), literal: vec![false; text.len()] };
    strip_block_comments(&mut marked);
    strip_line_comments(&mut marked);
    marked.text
}

/// The text with what stands in quotes as `?`.
pub(super) fn replace_all_quoted(text: Vec<u8>) -> Vec<u8> {
    let literal = literal::literal_mask(&text);
    let mut marked = MarkedText { text: text.clone(), literal };
    strip_escaped_quotes(&mut marked);
    replace_quoted(&mut marked, b'"');
    replace_quoted(&mut marked, b'\'');
    if has_literal_text(&marked) { literal::replace_literals(&text) } else { marked.text }
}

fn has_literal_text(marked: &MarkedText) -> bool {
    marked.text.iter().zip(&marked.literal).any(|(byte, literal)| *literal && is_word(*byte))
}

impl MarkedText {
    /// Keeps what is outside `cuts`; each cut is replaced by its second part.
    fn replace_ranges(&mut self, cuts: &[(std::ops::Range<usize>, &[u8])]) {
        if cuts.is_empty() {
            return;
        }
        let mut text = Vec::with_capacity(self.text.len());
        let mut literal = Vec::with_capacity(self.text.len());
        let mut from = 0;
        for (range, instead) in cuts {
            text.extend_from_slice(&self.text[from..range.start]);
            literal.extend_from_slice(&self.literal[from..range.start]);
            text.extend_from_slice(instead);
            literal.resize(text.len(), false);
            from = range.end;
        }
        text.extend_from_slice(&self.text[from..]);
        literal.extend_from_slice(&self.literal[from..]);
        (self.text, self.literal) = (text, literal);
    }
}

/// `/* ... */`, but not `/*! ... */`. What follows the opening must be a character.
fn strip_block_comments(marked: &mut MarkedText) {
    let text = &marked.text;
    let mut cuts: Vec<(_, &[u8])> = Vec::new();
    let mut from = 0;
    while let Some(open) = memmem::find(&text[from..], b"/*").map(|n| from + n) {
        if open + 3 > text.len() {
            break;
        }
        if text[open + 2] == b'!' {
            from = open + 1;
            continue;
        }
        let Some(close) = memmem::find(&text[open + 3..], b"*/").map(|n| open + 3 + n + 2) else { break };
        cuts.push((open..close, b""));
        from = close;
    }
    marked.replace_ranges(&cuts);
}

/// `--` or `#` up to the end of the line, where no quote stands between.
fn strip_line_comments(marked: &mut MarkedText) {
    let text = &marked.text;
    let mut cuts: Vec<(_, &[u8])> = Vec::new();
    let (mut at, mut stop) = (0, 0);
    while at < text.len() {
        let open = match text[at] {
            b'#' => 1,
            b'-' if text.get(at + 1) == Some(&b'-') => 2,
            _ => {
                at += 1;
                continue;
            }
        };
        if stop < at + open {
            stop = line_comment_stop(text, at + open);
        }
        if stop == text.len() || matches!(text[stop], b'\r' | b'\n') {
            cuts.push((at..stop, b""));
            at = stop;
        } else {
            at += 1;
        }
    }
    marked.replace_ranges(&cuts);
}

/// First quote or line end at or after `from`.
pub(super) fn line_comment_stop(text: &[u8], from: usize) -> usize {
    text[from..]
        .iter()
        .position(|b| matches!(b, b'\'' | b'"' | b'\r' | b'\n'))
        .map_or(text.len(), |n| from + n)
}

/// End of `use <name>`, where that is the whole text (a final newline may follow).
fn use_database(text: &[u8]) -> Option<usize> {
    let end = text.len() - usize::from(text.last() == Some(&b'\n'));
    (end > 4 && starts_ignore_case(text, b"use ") && !text[4..end].iter().any(|b| is_space(*b)))
        .then_some(end)
}

fn strip_escaped_quotes(marked: &mut MarkedText) {
    let text = &marked.text;
    let mut cuts: Vec<(_, &[u8])> = Vec::new();
    let mut at = 0;
    while let Some(slash) = memchr::memchr(b'\\', &text[at..]).map(|n| at + n) {
        if matches!(text.get(slash + 1), Some(b'\'' | b'"')) {
            cuts.push((slash..slash + 2, b""));
            at = slash + 2;
        } else {
            at = slash + 1;
        }
    }
    marked.replace_ranges(&cuts);
}

fn replace_quoted(marked: &mut MarkedText, quote: u8) {
    let mut cuts: Vec<(_, &[u8])> = Vec::new();
    let mut open = None;
    for at in memchr::memchr_iter(quote, &marked.text) {
        match open.take() {
            None => open = Some(at),
            Some(start) => cuts.push((start..at + 1, b"?")),
        }
    }
    marked.replace_ranges(&cuts);
}

fn replace_booleans(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if matches!(text[at], b't' | b'T' | b'f' | b'F')
            && let Some(word) =
                [b"false".as_slice(), b"true"].into_iter().find(|w| starts_ignore_case(&text[at..], w))
            && is_boundary(text, at)
            && is_boundary(text, at + word.len())
        {
            out.push(b'?');
            at += word.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// Bytes that continue what began as a number.
pub(super) fn continues_number(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'.' | b'x' | b'+' | b'-')
}

/// End of the number at `at`. A hexadecimal literal of its own ends where its digits end, in
/// whatever case they are.
pub(super) fn number_end(text: &[u8], at: usize) -> usize {
    let is_hex = text[at] == b'0'
        && text.get(at + 1) == Some(&b'x')
        && text.get(at + 2).is_some_and(u8::is_ascii_hexdigit)
        && (at == 0 || !is_word(text[at - 1]));
    let end = |more: fn(u8) -> bool| {
        text[at + 1..].iter().position(|b| !more(*b)).map_or(text.len(), |n| at + 1 + n)
    };
    if is_hex { end(|b| continues_number(b) || b.is_ascii_hexdigit()) } else { end(continues_number) }
}

fn replace_numbers(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if matches!(text[at], b'0'..=b'9' | b'+' | b'-') {
            out.push(b'?');
            at = number_end(text, at);
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// `x'4D'`, `b'1'` and what else stands before a `?`.
fn drop_prefixes(text: &[u8]) -> Vec<u8> {
    let before_mark = |at: usize| text.get(at + 1) == Some(&b'?');
    (0..text.len())
        .filter(|&at| !(matches!(text[at], b'x' | b'b' | b'.' | b'+' | b'-') && before_mark(at)))
        .map(|at| text[at])
        .collect()
}

/// Spaces collapsed, ends trimmed, lower case.
fn normalise_text(text: &mut Vec<u8>) {
    let start = text.iter().position(|b| !is_space(*b)).unwrap_or(text.len());
    text.drain(..start);
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    let mut write = 0;
    for read in 0..text.len() {
        let byte = match text[read] {
            b' ' | b'\n' | b'\t' | b'\r' | 0x0c if write > 0 && text[write - 1] == b' ' => continue,
            b' ' | b'\n' | b'\t' | b'\r' | 0x0c => b' ',
            other => other.to_ascii_lowercase(),
        };
        text[write] = byte;
        write += 1;
    }
    text.truncate(write);
}

fn replace_null(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in memmem::find_iter(text, b"null") {
        if is_boundary(text, at) && is_boundary(text, at + 4) {
            out.extend_from_slice(&text[from..at]);
            out.push(b'?');
            from = at + 4;
        }
    }
    out.extend_from_slice(&text[from..]);
    out
}

/// `in (?, ?)` and `values (?, ?), (?, ?)` become `in(?+)` and `values(?+)`.
fn collapse_lists(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < text.len() {
        let word = if is_boundary(text, at) {
            [b"in".as_slice(), b"values", b"value"].into_iter().find(|w| text[at..].starts_with(w))
        } else {
            None
        };
        let Some(word) = word else {
            out.push(text[at]);
            at += 1;
            continue;
        };
        out.extend_from_slice(word);
        at += word.len();
        let end = lists_end(text, at);
        if end > at {
            out.extend_from_slice(b"(?+)");
            at = end;
        }
    }
}

/// End of the last of the lists of `?` that follow one another from `at`.
fn lists_end(text: &[u8], at: usize) -> usize {
    let skip = |from: usize, more: fn(u8) -> bool| {
        text[from..].iter().position(|b| !more(*b)).map_or(text.len(), |n| from + n)
    };
    let mut end = at;
    loop {
        let open = skip(end, |b| is_space(b) || b == b',');
        if text.get(open) != Some(&b'(') {
            return end;
        }
        let close = skip(open + 1, |b| is_space(b) || matches!(b, b',' | b'?'));
        if text.get(close) != Some(&b')') {
            return end;
        }
        end = close + 1;
    }
}
