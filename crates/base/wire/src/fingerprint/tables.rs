//! Table names of a statement. Uses the words before names, as pt-query-digest does; parses no grammar.

use super::bytes::{
    find_ignore_case, find_word, is_boundary, is_space, is_word, skip_space, starts_ignore_case,
};
use super::exact::replace_all_quoted;
use super::readings::{BackslashMode, hide_ambiguous_literals};

const DEFINITIONS: [&[u8]; 5] = [b"create", b"alter", b"truncate", b"drop", b"rename"];

/// Names as written (back quotes and all), in order, repeats included.
pub fn tables(text: &[u8]) -> Vec<Vec<u8>> {
    let text = &*hide_ambiguous_literals(text, BackslashMode::Unknown);
    if let Some(verb) = ddl_verb(text) {
        return ddl_tables(text, verb);
    }
    let mut text = strip_modifiers(text);
    let start = skip_space(&text, 0);
    if starts_ignore_case(&text[start..], b"lock tables") {
        text = lock_tables_as_from(&text[start + 11..]);
    }
    let mut text = replace_all_quoted(text);
    let start = skip_space(&text, 0);
    for verb in [b"insert".as_slice(), b"replace"] {
        if starts_ignore_case(&text[start..], verb) {
            let after = start + verb.len();
            let next = skip_space(&text, after);
            if next > after && !starts_ignore_case(&text[next..], b"into") {
                text.splice(0..next, [verb, b" into "].concat());
                break;
            }
        }
    }
    if starts_ignore_case(&text[skip_space(&text, 0)..], b"load data") {
        return load_data_table(&text).map(<[u8]>::to_vec).into_iter().collect();
    }
    dml_tables(&text)
}

/// CREATE, ALTER, TRUNCATE, DROP or RENAME, if the statement begins with one.
pub(super) fn ddl_verb(text: &[u8]) -> Option<&'static [u8]> {
    let text = &text[skip_space(text, 0)..];
    DEFINITIONS
        .into_iter()
        .find(|verb| starts_ignore_case(text, verb) && !text.get(verb.len()).is_some_and(|b| is_word(*b)))
}

fn ddl_tables(text: &[u8], verb: &[u8]) -> Vec<Vec<u8>> {
    let text = strip_if_exists(text);
    if find_word_pair(&text, verb, b" database") {
        return Vec::new();
    }
    if verb == b"create"
        && let Some(create) = find_ignore_case(&text, b"create", 0)
        && let Some(select) = find_word(&text, b"select", create + 7)
        && !text[create..select].contains(&b'\n')
        && select > create + 7
    {
        let first = find_word(&text, b"select", 0).unwrap_or(select);
        return tables(&text[first..]);
    }
    find_name_after(&text, &[b"table"]).into_iter().collect()
}

fn find_word_pair(text: &[u8], verb: &[u8], object: &[u8]) -> bool {
    let pair = [verb, object].concat();
    find_ignore_case(text, &pair, 0).is_some_and(|at| !text.get(at + pair.len()).is_some_and(|b| is_word(*b)))
}

/// The first name that follows one of `words` and spaces.
pub(super) fn find_name_after(text: &[u8], words: &[&[u8]]) -> Option<Vec<u8>> {
    (0..text.len()).find_map(|at| {
        let word = words.iter().find(|w| starts_ignore_case(&text[at..], w))?;
        let after = at + word.len();
        let name = skip_space(text, after);
        let end = (name > after).then(|| name_end(text, name)).flatten()?;
        Some(text[name..end].to_vec())
    })
}

/// Without the first `IF [NOT] EXISTS`.
fn strip_if_exists(text: &[u8]) -> Vec<u8> {
    let mut from = 0;
    while let Some(at) = find_ignore_case(text, b"if", from) {
        if let Some(end) = exists_end(text, at + 2) {
            return [&text[..at], &text[end..]].concat();
        }
        from = at + 1;
    }
    text.to_vec()
}

/// End of `[NOT] EXISTS` with the spaces before it.
pub(super) fn exists_end(text: &[u8], at: usize) -> Option<usize> {
    let mut next = skip_space(text, at);
    if next == at {
        return None;
    }
    if starts_ignore_case(&text[next..], b"not") {
        let after = skip_space(text, next + 3);
        if after == next + 3 {
            return None;
        }
        next = after;
    }
    starts_ignore_case(&text[next..], b"exists").then_some(next + 6)
}

fn strip_modifiers(text: &[u8]) -> Vec<u8> {
    const MODIFIERS: [&[u8]; 4] = [b"low_priority", b"ignore", b"straight_join", b"delayed"];
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let end = MODIFIERS.iter().find(|word| starts_ignore_case(&text[at..], word)).and_then(|word| {
            let end = skip_space(text, at + word.len());
            (end > at + word.len()).then_some(end)
        });
        match end {
            Some(end) => {
                out.push(b' ');
                at = end;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// `a READ, b AS c WRITE` as the list of tables of a FROM.
fn lock_tables_as_from(text: &[u8]) -> Vec<u8> {
    let mut out = b"FROM ".to_vec();
    let mut at = skip_space(text, 0);
    while at < text.len() {
        let word = skip_space(text, at);
        let mode = [b"read".as_slice(), b"write"].into_iter().find(|w| starts_ignore_case(&text[word..], w));
        match mode {
            Some(mode) if word > at => {
                at = skip_space(text, word + mode.len());
                if mode == b"read" && at > word + 4 && starts_ignore_case(&text[at..], b"local") {
                    at = skip_space(text, at + 5);
                }
            }
            _ => {
                let next = word.max(at + 1);
                out.extend_from_slice(&text[at..next]);
                at = next;
            }
        }
    }
    out
}

/// The word after INTO TABLE.
pub(super) fn load_data_table(text: &[u8]) -> Option<&[u8]> {
    let mut from = 0;
    loop {
        let at = find_ignore_case(text, b"into table", from)? + 10;
        let name = skip_space(text, at);
        let end = text[name..].iter().position(|b| is_space(*b)).map_or(text.len(), |n| name + n);
        if name > at && end > name {
            return Some(&text[name..end]);
        }
        from = at;
    }
}

/// Names that follow FROM, JOIN, UPDATE and INTO.
fn dml_tables(text: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let Some((start, end)) = find_name_list(text, at) else {
            at += 1;
            continue;
        };
        at = end;
        let list = &text[start..end];
        if starts_ignore_case(list, b"select") && !list.get(6).is_some_and(|b| is_word(*b)) {
            continue;
        }
        for item in list.split(|b| *b == b',') {
            let name = skip_space(item, 0);
            let name = &item[name..name_end(item, name).unwrap_or(item.len())];
            if name.iter().any(u8::is_ascii_alphabetic) {
                found.push(name.to_vec());
            }
        }
    }
    found
}

/// The list of names after the word at `at`, if it is one that names follow.
fn find_name_list(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let word = [b"from".as_slice(), b"join", b"update", b"into"]
        .into_iter()
        .find(|w| starts_ignore_case(&text[at..], w))?;
    if !is_boundary(text, at) || !is_boundary(text, at + word.len()) {
        return None;
    }
    // ON DUPLICATE KEY UPDATE names columns.
    if word == b"update"
        && at >= 4
        && text[at - 4..at - 1].eq_ignore_ascii_case(b"key")
        && is_space(text[at - 1])
    {
        return None;
    }
    let mut start = skip_space(text, at + word.len());
    if text.get(start) == Some(&b'(') {
        start += 1;
    }
    let mut end = name_end(text, start)?;
    while let Some(next) = next_name_end(text, end) {
        end = next;
    }
    Some((start, end))
}

/// End of `[AS] alias, name` after a name.
fn next_name_end(text: &[u8], at: usize) -> Option<usize> {
    let alias_end = |from: usize| {
        let word = skip_space(text, from);
        let end = text[word..].iter().position(|b| !is_word(*b)).map_or(text.len(), |n| word + n);
        (word > from && end > word).then_some((word, end))
    };
    let after_comma =
        |at: usize| (text.get(at) == Some(&b',')).then(|| name_end(text, skip_space(text, at + 1))).flatten();
    if let Some((word, end)) = alias_end(at) {
        let is_as = text[word..end].eq_ignore_ascii_case(b"as");
        let named = is_as.then(|| alias_end(end)).flatten().and_then(|(_, end)| after_comma(end));
        if let Some(end) = named.or_else(|| after_comma(end)) {
            return Some(end);
        }
    }
    after_comma(at)
}

/// End of `name` or `name.name`, each a word or in back quotes.
fn name_end(text: &[u8], at: usize) -> Option<usize> {
    let part = |at: usize| {
        if text.get(at) == Some(&b'`') {
            let close = memchr::memchr(b'`', &text[at + 1..])?;
            return (close > 0).then_some(at + close + 2);
        }
        let length = text.get(at..)?.iter().take_while(|b| is_word(**b)).count();
        (length > 0).then_some(at + length)
    };
    let end = part(at)?;
    if text.get(end) == Some(&b'.') { Some(part(end + 1).unwrap_or(end)) } else { Some(end) }
}
