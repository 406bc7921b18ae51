//! String literals of a statement as MySQL delimits them. Handles quotes, escapes and comments; no grammar.

/// For each byte whether it is inside the quotes of a string literal (ANSI_QUOTES off).
/// A literal without its end goes on to the end of the text.
pub(super) fn literal_mask(text: &[u8]) -> Vec<bool> {
    let mut mask = vec![false; text.len()];
    for (start, end) in find_literals(text) {
        let inside = (start + 1).min(end)..end;
        let closed = end > start + 1 && text[end - 1] == text[start];
        let inside = inside.start..inside.end - usize::from(closed);
        mask[inside].fill(true);
    }
    mask
}

/// The text with each string literal as `?` and without comments.
pub(super) fn replace_literals(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    scan(text, |piece, is_literal| if is_literal { out.push(b'?') } else { out.extend_from_slice(piece) });
    out
}

fn find_literals(text: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let base = text.as_ptr() as usize;
    scan(text, |piece, is_literal| {
        if is_literal {
            let start = piece.as_ptr() as usize - base;
            found.push((start, start + piece.len()));
        }
    });
    found
}

/// Calls `piece` with runs of text and with whole literals; comments are passed over, but for
/// `/*! ... */`, which MySQL runs.
fn scan<'a>(text: &'a [u8], mut piece: impl FnMut(&'a [u8], bool)) {
    let (mut at, mut run) = (0, 0);
    while at < text.len() {
        let (end, is_literal) = match text[at] {
            b'\'' | b'"' => (quoted_end(text, at), true),
            b'`' => {
                at = quoted_end(text, at);
                continue;
            }
            b'#' => (line_end(text, at), false),
            b'-' if text[at..].starts_with(b"--")
                && text.get(at + 2).is_none_or(|b| b.is_ascii_whitespace()) =>
            {
                (line_end(text, at), false)
            }
            b'/' if text[at..].starts_with(b"/*") && text.get(at + 2) != Some(&b'!') => {
                let end = memchr::memmem::find(&text[at + 2..], b"*/").map_or(text.len(), |n| at + n + 4);
                (end, false)
            }
            _ => {
                at += 1;
                continue;
            }
        };
        piece(&text[run..at], false);
        if is_literal {
            piece(&text[at..end], true);
        }
        (at, run) = (end, end);
    }
    piece(&text[run..], false);
}

fn line_end(text: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |n| at + n)
}

/// End of the quoted text at `at`: a doubled quote or (but for names) a backslash goes on.
fn quoted_end(text: &[u8], at: usize) -> usize {
    let quote = text[at];
    let mut next = at + 1;
    while next < text.len() {
        if text[next] == b'\\' && quote != b'`' {
            next += 2;
        } else if text[next] != quote {
            next += 1;
        } else if text.get(next + 1) == Some(&quote) {
            next += 2;
        } else {
            return next + 1;
        }
    }
    text.len()
}
