//! Single-pass fingerprint of ordinary statements. Declines texts that need several passes.
//!
//! The rules are documented in `exact`. This file computes the same function for texts in which no rule acts
//! on the result of another one. The scan ends with `None` at anything that could make them differ.

use super::bytes::{is_space, is_word};
use super::collapse::KeywordHints;
use super::exact::{line_comment_stop, number_end};
use memchr::memmem;

/// What a byte outside quotes begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Copy,
    Word,
    Number,
    Space,
    Quote,
    Mark,
    Open,
    Close,
    Comma,
    Slash,
    Hash,
    Name,
    Decline,
}

const BYTE_CLASSES: [ByteClass; 256] = {
    let mut kind = [ByteClass::Copy; 256];
    let mut b = 0;
    while b < 256 {
        kind[b] = match b as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => ByteClass::Word,
            b'0'..=b'9' | b'+' | b'-' => ByteClass::Number,
            b' ' | b'\n' | b'\t' | b'\r' | 0x0c => ByteClass::Space,
            b'\'' | b'"' => ByteClass::Quote,
            b'?' => ByteClass::Mark,
            b'(' => ByteClass::Open,
            b')' => ByteClass::Close,
            b',' => ByteClass::Comma,
            b'/' => ByteClass::Slash,
            b'#' => ByteClass::Hash,
            b'`' => ByteClass::Name,
            b'\\' | 0x0b => ByteClass::Decline,
            _ => ByteClass::Copy,
        };
        b += 1;
    }
    kind
};

/// What in quotes ends nothing, and begins nothing that a rule knows.
const IS_PLAIN_IN_QUOTES: [bool; 256] = {
    let mut is_plain = [true; 256];
    let known = b"'\"\\#-\n\r/";
    let mut n = 0;
    while n < known.len() {
        is_plain[known[n] as usize] = false;
        n += 1;
    }
    is_plain
};

/// A word of at most eight letters as [`lower_word`] has it.
const fn as_number(word: &[u8]) -> u64 {
    let (mut number, mut n) = (0, word.len());
    while n > 0 {
        n -= 1;
        number = number << 8 | word[n] as u64;
    }
    number
}

const IN: u64 = as_number(b"in");
const VALUE: u64 = as_number(b"value");
const VALUES: u64 = as_number(b"values");
const NULL: u64 = as_number(b"null");
const TRUE: u64 = as_number(b"true");
const FALSE: u64 = as_number(b"false");
const UNION: u64 = as_number(b"union");
const LIMIT: u64 = as_number(b"limit");
const ORDER: u64 = as_number(b"order");

/// The letters and underscores that eight bytes begin with, in lower case and with zeros after them, and how many they are.
/// All bytes are looked at in one step: a word is mostly shorter.
fn lower_word(bytes: u64) -> (u64, usize) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * EACH;
    let low = bytes & !HIGH;
    let folded = low | (0x20 * EACH);
    // Sums that reach the highest bit of their byte, and never the next byte.
    let from_a = folded + (0x80 - 0x61) * EACH;
    let beyond_z = folded + (0x80 - 0x7b) * EACH;
    let letters = from_a & !beyond_z & !bytes & HIGH;
    let is_other_than_underscore = (low ^ (0x5f * EACH)) + 0x7f * EACH;
    let underscores = !is_other_than_underscore & !bytes & HIGH;
    let length = (!(letters | underscores) & HIGH).trailing_zeros() / 8;
    let kept = 1u64.checked_shl(8 * length).unwrap_or(0).wrapping_sub(1);
    ((bytes | letters >> 2) & kept, length as usize)
}

/// How far a list of `?` after IN or VALUES has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListState {
    None,
    /// After the word or a whole list: spaces, commas and another list may follow.
    Between,
    Inside,
}

struct Scan<'a> {
    text: &'a [u8],
    out: &'a mut Vec<u8>,
    at: usize,
    /// The byte before `at`, as it was in the text.
    last: u8,
    spaces: usize,
    list: ListState,
    /// Where in `out` the word, or the `(?+)` that stands for its lists, ends.
    list_end: usize,
    list_folded: bool,
    /// What `list` and the length of `out` were before the last word or sign, which may turn out
    /// to be the prefix of a literal.
    list_before: (ListState, usize),
    /// Where the back quote is that ends a name.
    name_end: usize,
    keywords: KeywordHints,
}

/// `None`: needs the exact rules; `out` is then to be thrown away.
pub(super) fn fingerprint(text: &[u8], out: &mut Vec<u8>) -> Option<KeywordHints> {
    if text.len() >= 4 && text[..4].eq_ignore_ascii_case(b"use ") {
        return None;
    }
    let mut scan = Scan {
        text,
        out,
        at: 0,
        last: b' ',
        spaces: 0,
        list: ListState::None,
        list_end: 0,
        list_folded: false,
        list_before: (ListState::None, 0),
        name_end: 0,
        keywords: KeywordHints::default(),
    };
    while let Some(&byte) = scan.text.get(scan.at) {
        match BYTE_CLASSES[usize::from(byte)] {
            ByteClass::Word => scan.word()?,
            ByteClass::Space => scan.space(byte),
            ByteClass::Number => scan.number(byte)?,
            ByteClass::Quote => scan.quoted(byte)?,
            ByteClass::Mark => scan.push_placeholder(scan.at + 1)?,
            ByteClass::Open => scan.open(),
            ByteClass::Close => scan.close(),
            ByteClass::Comma => scan.comma(),
            ByteClass::Slash => scan.slash()?,
            ByteClass::Hash => scan.line_comment(1)?,
            ByteClass::Name => scan.name()?,
            ByteClass::Copy => scan.copy(byte),
            ByteClass::Decline => return None,
        }
    }
    if scan.last == b'\n' && scan.spaces == 1 && scan.out.last() == Some(&b' ') {
        scan.out.pop();
    }
    Some(scan.keywords)
}

impl Scan<'_> {
    fn copy(&mut self, byte: u8) {
        self.list_before = (self.list, self.out.len());
        self.out.push(byte);
        self.last = byte;
        self.at += 1;
        self.list = ListState::None;
    }

    fn space(&mut self, byte: u8) {
        self.spaces = if is_space(self.last) { self.spaces + 1 } else { 1 };
        if self.out.last().is_some_and(|b| *b != b' ') {
            self.out.push(b' ');
        }
        self.last = byte;
        self.at += 1;
    }

    fn comma(&mut self) {
        self.out.push(b',');
        self.last = b',';
        self.at += 1;
    }

    fn open(&mut self) {
        self.out.push(b'(');
        self.last = b'(';
        self.at += 1;
        self.list = if self.list == ListState::Between { ListState::Inside } else { ListState::None };
    }

    fn close(&mut self) {
        self.last = b')';
        self.at += 1;
        if self.list != ListState::Inside {
            self.out.push(b')');
            self.list = ListState::None;
            return;
        }
        self.out.truncate(self.list_end);
        if !self.list_folded {
            self.out.extend_from_slice(b"(?+)");
            self.list_end = self.out.len();
            self.list_folded = true;
        }
        self.list = ListState::Between;
    }

    /// A `?` for the text up to `end`, with the prefix that belongs to it dropped.
    fn push_placeholder(&mut self, end: usize) -> Option<()> {
        if matches!(self.last, b'x' | b'b' | b'.') {
            self.out.pop();
            if self.out.len() == self.list_before.1 {
                self.list = self.list_before.0;
            }
            // What is left of the word may be one that other rules know.
            if self.last != b'.' && self.out.ends_with(b"null") {
                return None;
            }
        }
        self.value(end);
        Some(())
    }

    fn value(&mut self, end: usize) {
        self.out.push(b'?');
        self.last = b'?';
        self.at = end;
        if self.list == ListState::Between {
            self.list = ListState::None;
        }
    }

    /// A quoted name is read like any text, unless something in it could be taken for more.
    fn name(&mut self) -> Option<()> {
        if self.at != self.name_end || self.at == 0 {
            let start = self.at + 1;
            let length = memchr::memchr(b'`', &self.text[start..])?;
            let is_plain = |b: &u8| is_word(*b) || matches!(b, b' ' | b'.' | b'$' | 0x80..);
            if !self.text[start..start + length].iter().all(is_plain) {
                return None;
            }
            self.name_end = start + length;
        }
        self.copy(b'`');
        Some(())
    }

    /// Eight bytes of the text, the first one lowest; zeros beyond its end.
    fn eight_bytes(&self, at: usize) -> u64 {
        let rest = &self.text[at..];
        match rest.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => rest.iter().rev().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte)),
        }
    }

    fn word(&mut self) -> Option<()> {
        let start = self.at;
        let begin = self.out.len();
        let (first, mut length) = lower_word(self.eight_bytes(start));
        self.out.extend_from_slice(&first.to_le_bytes());
        let mut end = start + length;
        while length == 8 {
            let more;
            (more, length) = lower_word(self.eight_bytes(end));
            self.out.extend_from_slice(&more.to_le_bytes());
            end += length;
        }
        self.out.truncate(begin + end - start);
        // None of those that are known here is longer.
        let word = if end - start <= 8 { first } else { 0 };
        let list = match word {
            IN | VALUE | VALUES => ListState::Between,
            NULL => {
                self.out.truncate(begin);
                self.value(end);
                return Some(());
            }
            TRUE | FALSE
                if (start == 0 || !is_word(self.text[start - 1]))
                    && self.text.get(end).is_none_or(|b| !is_word(*b)) =>
            {
                self.out.truncate(begin);
                return self.push_placeholder(end);
            }
            UNION => {
                self.keywords.union = true;
                ListState::None
            }
            LIMIT => {
                self.keywords.limit = true;
                ListState::None
            }
            ORDER => {
                self.keywords.order = true;
                ListState::None
            }
            _ => ListState::None,
        };
        self.list_before = (self.list, begin);
        self.list = list;
        if list == ListState::Between {
            self.list_end = self.out.len();
            self.list_folded = false;
        }
        self.last = self.text[end - 1];
        self.at = end;
        // As the main loop would, a step earlier: this is what mostly follows.
        if self.text.get(end) == Some(&b' ') {
            self.space(b' ');
        }
        Some(())
    }

    fn number(&mut self, byte: u8) -> Option<()> {
        if byte == b'-' && self.text.get(self.at + 1) == Some(&b'-') {
            return self.line_comment(2);
        }
        let end = number_end(self.text, self.at);
        let taken = &self.text[self.at..end];
        // A comment or the word FALSE among what looks like a number is seen first by its rule.
        let is_plain = taken[1..].iter().all(u8::is_ascii_digit);
        if !is_plain
            && (taken.windows(2).any(|pair| pair == b"--")
                || memchr::memchr2_iter(b'f', b'F', &taken[1..]).any(|n| self.is_false(self.at + 1 + n)))
        {
            return None;
        }
        self.push_placeholder(end)
    }

    fn is_false(&self, at: usize) -> bool {
        self.text[at..].len() >= 5 && self.text[at..at + 5].eq_ignore_ascii_case(b"false")
    }

    /// Passes over a comment. With a quote before the end of the line it is one to MySQL and none
    /// to the rules; a block comment within might hold that quote. `--` that no space follows is one to the rules
    /// and none to MySQL: a back quote in it begins a name, which may hold the quotes of the lines below.
    fn line_comment(&mut self, open: usize) -> Option<()> {
        let stop = line_comment_stop(self.text, self.at + open);
        let is_quoted = matches!(self.text.get(stop), Some(b'\'' | b'"'));
        let comment = &self.text[self.at..stop];
        if is_quoted || memmem::find(comment, b"/*").is_some() || memchr::memchr(b'`', comment).is_some() {
            return None;
        }
        self.at = stop;
        Some(())
    }

    fn slash(&mut self) -> Option<()> {
        if self.text.get(self.at + 1) != Some(&b'*') || self.text.get(self.at + 2) == Some(&b'!') {
            self.copy(b'/');
            return Some(());
        }
        let body = self.at + 3;
        let end = memmem::find(self.text.get(body..)?, b"*/")? + body + 2;
        // Without the comment its neighbours touch, and might be read as one.
        let is_space_or_end = |at: usize| self.text.get(at).is_none_or(|b| is_space(*b));
        let starts_with_use = self.at == 0 && matches!(self.text.get(end), Some(b'u' | b'U'));
        let is_apart =
            is_space_or_end(end) || (self.at == 0 || is_space(self.text[self.at - 1])) && !starts_with_use;
        // The rules look for the end of `/**/` further on.
        if self.text[self.at + 2..].starts_with(b"*/") {
            return None;
        }
        self.at = end;
        is_apart.then_some(())
    }

    fn quoted(&mut self, quote: u8) -> Option<()> {
        let mut at = self.at + 1;
        // A `#` or `--` that a line end follows, with no quote between, is a comment to the rules.
        let mut comment = false;
        loop {
            let byte = *self.text.get(at)?;
            match byte {
                _ if IS_PLAIN_IN_QUOTES[usize::from(byte)] => {}
                _ if byte == quote => return self.push_placeholder(at + 1),
                b'"' => return None,
                b'\'' => comment = false,
                b'\\' => match self.text.get(at + 1) {
                    Some(b'\'' | b'"') => {
                        comment = false;
                        at += 1;
                    }
                    Some(b'\\') | None => return None,
                    Some(_) => {}
                },
                b'#' => comment = true,
                b'-' => comment |= self.text.get(at + 1) == Some(&b'-'),
                b'\n' | b'\r' if comment => return None,
                b'/' if self.text.get(at + 1) == Some(&b'*') => return None,
                _ => {}
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_are_read_as_one_after_the_other() {
        let by_bytes = |bytes: [u8; 8]| {
            let is_of_word = |b: &u8| BYTE_CLASSES[usize::from(*b)] == ByteClass::Word;
            let length = bytes.iter().take_while(|b| is_of_word(b)).count();
            (as_number(&bytes[..length].to_ascii_lowercase()), length)
        };
        for byte in 0..=u8::MAX {
            for neighbour in [b'a', b'Z', b'_', 0x7f, 0x80, 0xff, 0] {
                for at in 0..8 {
                    let mut bytes = [neighbour; 8];
                    bytes[at] = byte;
                    assert_eq!(lower_word(u64::from_le_bytes(bytes)), by_bytes(bytes), "{bytes:?}");
                }
            }
        }
    }
}
