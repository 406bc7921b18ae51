//! String literals of a statement as a server delimits them. Handles quotes, escapes and comments; no grammar.

use super::bytes::is_word;
use super::readings::Reading;
use std::ops::Range;

/// A stretch of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Code,
    Literal,
    Comment,
}

/// Literals of a text, with their quotes.
pub(super) struct FoundLiterals {
    pub spans: Vec<Range<usize>>,
    pub comments: Vec<Range<usize>>,
    /// Quotes, comments and parentheses have an end, and no word follows a literal without a space.
    pub is_valid: bool,
}

/// For each byte whether it is inside the quotes of a string literal, in the default sql_mode.
/// A literal without its end goes on to the end of the text.
pub(super) fn literal_mask(text: &[u8]) -> Vec<bool> {
    let mut mask = vec![false; text.len()];
    mark_literals(text, &find_literals(text, Reading::DEFAULT).spans, &mut mask);
    mask
}

/// The same, with comments.
pub(super) fn literal_and_comment_mask(text: &[u8]) -> Vec<bool> {
    let mut mask = vec![false; text.len()];
    let found = find_literals(text, Reading::DEFAULT);
    mark_literals(text, &found.spans, &mut mask);
    found.comments.into_iter().for_each(|range| mask[range].fill(true));
    mask
}

fn mark_literals(text: &[u8], spans: &[Range<usize>], mask: &mut [bool]) {
    for &Range { start, end } in spans {
        let inside = (start + 1).min(end)..end;
        let closed = end > start + 1 && text[end - 1] == text[start];
        let inside = inside.start..inside.end - usize::from(closed);
        mask[inside].fill(true);
    }
}

/// The text with each string literal as `?` and without comments.
pub(super) fn replace_literals(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    scan(text, Reading::DEFAULT, |range, piece| match piece {
        Piece::Code => out.extend_from_slice(&text[range]),
        Piece::Literal => out.push(b'?'),
        Piece::Comment => {}
    });
    out
}

pub(super) fn find_literals(text: &[u8], reading: Reading) -> FoundLiterals {
    let (mut spans, mut comments) = (Vec::new(), Vec::new());
    let is_valid = scan(text, reading, |range, piece| match piece {
        Piece::Code => {}
        Piece::Literal => spans.push(range),
        Piece::Comment => comments.push(range),
    });
    FoundLiterals { spans, comments, is_valid }
}

/// Calls `each` with runs of code, with whole literals and with comments; `/*! ... */` is code, which MySQL runs. True if the text is valid, as [`FoundLiterals`] says.
fn scan(text: &[u8], reading: Reading, mut each: impl FnMut(Range<usize>, Piece)) -> bool {
    let (mut at, mut run) = (0, 0);
    let (mut is_valid, mut depth) = (true, 0_usize);
    while at < text.len() {
        let (end, piece) = match text[at] {
            quote @ (b'\'' | b'"') => {
                let escapes = if quote == b'"' { reading.double } else { reading.single };
                let (end, closed) = quoted_end(text, at, escapes);
                let is_apart = text.get(end).is_none_or(|b| !is_word(*b) && b.is_ascii());
                is_valid &= closed && is_apart;
                (end, Piece::Literal)
            }
            b'`' => {
                let (end, closed) = quoted_end(text, at, false);
                is_valid &= closed;
                at = end;
                continue;
            }
            b'#' => (line_end(text, at), Piece::Comment),
            b'-' if text[at..].starts_with(b"--")
                && text.get(at + 2).is_none_or(|b| b.is_ascii_whitespace()) =>
            {
                (line_end(text, at), Piece::Comment)
            }
            b'/' if text[at..].starts_with(b"/*") && text.get(at + 2) != Some(&b'!') => {
                let end = memchr::memmem::find(&text[at + 2..], b"*/").map(|n| at + n + 4);
                is_valid &= end.is_some();
                (end.unwrap_or(text.len()), Piece::Comment)
            }
            byte => {
                match byte {
                    b'(' => depth += 1,
                    b')' if depth == 0 => is_valid = false,
                    b')' => depth -= 1,
                    _ => {}
                }
                at += 1;
                continue;
            }
        };
        each(run..at, Piece::Code);
        each(at..end, piece);
        (at, run) = (end, end);
    }
    each(run..text.len(), Piece::Code);
    is_valid && depth == 0
}

fn line_end(text: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |n| at + n)
}

/// End of the quoted text at `at`, and whether it has one: a doubled quote or (where it `escapes`) a backslash goes on.
fn quoted_end(text: &[u8], at: usize, escapes: bool) -> (usize, bool) {
    let quote = text[at];
    let mut next = at + 1;
    while next < text.len() {
        if text[next] == b'\\' && escapes {
            next += 2;
        } else if text[next] != quote {
            next += 1;
        } else if text.get(next + 1) == Some(&quote) {
            next += 2;
        } else {
            return (next + 1, true);
        }
    }
    (text.len(), false)
}
