//! Readings of quotes and backslashes under the sql_mode of a server. Hides literals where readings differ.
//!
//! A backslash escapes in `'...'` and `"..."`; under NO_BACKSLASH_ESCAPES in neither. Under ANSI_QUOTES `"..."` is a
//! name, in which it does not. In a statement that the server could run, quotes and parentheses have an end;
//! `'a'b` (an alias without a space) is valid, but nobody writes it. Mostly one reading is left. Where several are,
//! everything that is a literal in any of them is hidden.

use super::literal;
use std::borrow::Cow;
use std::ops::Range;

/// How the server takes a backslash in a literal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum BackslashMode {
    #[default]
    Unknown,
    Escapes,
    /// NO_BACKSLASH_ESCAPES.
    Plain,
}

/// Quotes in which a backslash escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub single: bool,
    pub double: bool,
}

impl Reading {
    pub(super) const DEFAULT: Self = Self { single: true, double: true };
    const ANSI_QUOTES: Self = Self { single: true, double: false };
    const NO_ESCAPES: Self = Self { single: false, double: false };
}

/// The text itself, if its literals are where the default sql_mode has them; else with each literal as `?`.
pub(super) fn hide_ambiguous_literals(text: &[u8], mode: BackslashMode) -> Cow<'_, [u8]> {
    let matters = |at: usize| matches!(text.get(at + 1), Some(b'\'' | b'"' | b'\\'));
    if !memchr::memchr_iter(b'\\', text).any(matters) {
        return Cow::Borrowed(text);
    }
    let candidates: &[Reading] = match mode {
        BackslashMode::Escapes => &[Reading::DEFAULT, Reading::ANSI_QUOTES],
        BackslashMode::Plain => &[Reading::NO_ESCAPES],
        BackslashMode::Unknown => &[Reading::DEFAULT, Reading::ANSI_QUOTES, Reading::NO_ESCAPES],
    };
    let readings: Vec<_> = candidates.iter().map(|reading| literal::find_literals(text, *reading)).collect();
    let is_one_possible = readings.iter().any(|found| found.is_valid);
    let possible = readings.into_iter().filter(|found| found.is_valid || !is_one_possible);
    let default = literal::find_literals(text, Reading::DEFAULT);
    let mut spans: Vec<(Range<usize>, &[u8])> = Vec::new();
    let mut is_default = true;
    for found in possible {
        is_default &= found.spans == default.spans;
        spans.extend(found.spans.into_iter().map(|span| (span, b"?".as_slice())));
        spans.extend(found.comments.into_iter().map(|span| (span, b" ".as_slice())));
    }
    if is_default { Cow::Borrowed(text) } else { Cow::Owned(replace_spans(text, spans)) }
}

/// What overlaps with one that comes before is gone with it.
fn replace_spans(text: &[u8], mut spans: Vec<(Range<usize>, &[u8])>) -> Vec<u8> {
    spans.sort_by_key(|(span, _)| span.start);
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    for (span, instead) in spans {
        if span.start >= from {
            out.extend_from_slice(&text[from..span.start]);
            out.extend_from_slice(instead);
        }
        from = from.max(span.end);
    }
    out.extend_from_slice(&text[from..]);
    out
}
