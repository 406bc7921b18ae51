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
    rest.iter().position(|b| !is_space(*b)).map_or(text.len(), |n| from + n)
}

/// `lower` must be lower case.
pub(super) fn starts_ignore_case(text: &[u8], lower: &[u8]) -> bool {
    text.len() >= lower.len() && text[..lower.len()].eq_ignore_ascii_case(lower)
}

/// First occurrence of `lower` (lower case) at or after `from`, whatever the case.
pub(super) fn find_ignore_case(text: &[u8], lower: &[u8], from: usize) -> Option<usize> {
    let (low, high) = (lower[0], lower[0].to_ascii_uppercase());
    let mut at = from;
    while at < text.len() {
        at += memchr::memchr2(low, high, &text[at..])?;
        if starts_ignore_case(&text[at..], lower) {
            return Some(at);
        }
        at += 1;
    }
    None
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
