//! Byte classes (word, space, digit) of Perl's regular expressions on raw bytes.

pub(super) fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

pub(super) fn is_space(b: u8) -> bool {
    matches!(b, b'\t'..=b'\r' | b' ')
}

pub(super) fn is_digit(b: u8) -> bool {
    b.is_ascii_digit()
}

pub(super) fn skip_space(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let end = rest.iter().position(|b| !is_space(*b)).map_or(text.len(), |n| from + n);
    count_steps(end.saturating_sub(from));
    end
}

/// First occurrence of `needle` at or after `from`.
pub(super) fn find_bytes(text: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let found = memchr::memmem::find(&text[from..], needle).map(|n| from + n);
    count_steps(found.unwrap_or(text.len()) - from);
    found
}

/// `lower` must be lower case.
pub(super) fn starts_ignore_case(text: &[u8], lower: &[u8]) -> bool {
    text.len() >= lower.len() && text[..lower.len()].eq_ignore_ascii_case(lower)
}

/// First occurrence of `lower` (lower case) at or after `from`, whatever the case.
pub(super) fn find_ignore_case(text: &[u8], lower: &[u8], from: usize) -> Option<usize> {
    let (low, high) = (lower[0], lower[0].to_ascii_uppercase());
    let mut at = from;
    let found = loop {
        if at >= text.len() {
            break None;
        }
        match memchr::memchr2(low, high, &text[at..]) {
            Some(n) if starts_ignore_case(&text[at + n..], lower) => break Some(at + n),
            Some(n) => at += n + 1,
            None => break None,
        }
    };
    count_steps(found.unwrap_or(text.len()).saturating_sub(from));
    found
}

/// True if there is a word boundary between `at - 1` and `at`.
pub(super) fn is_boundary(text: &[u8], at: usize) -> bool {
    let before = at > 0 && is_word(text[at - 1]);
    let after = at < text.len() && is_word(text[at]);
    before != after
}

/// First occurrence of `lower` at or after `from` that is a word of its own.
pub(super) fn find_word(text: &[u8], lower: &[u8], from: usize) -> Option<usize> {
    let mut from = from;
    loop {
        let at = find_ignore_case(text, lower, from)?;
        if is_boundary(text, at) && is_boundary(text, at + lower.len()) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Counts the bytes that a search examines. Nothing outside of tests.
#[cfg(not(test))]
#[inline]
pub(super) fn count_steps(_: usize) {}

#[cfg(test)]
pub(super) use super::steps::count_steps;
