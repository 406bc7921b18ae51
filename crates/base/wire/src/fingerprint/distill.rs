//! Short summary of a statement: `SELECT users`, `INSERT SELECT a b`. Contains no literal.

use super::bytes::{
    find_bytes, find_ignore_case, is_boundary, is_digit, is_space, is_word, skip_space, starts_ignore_case,
};
use super::exact::strip_comments;
use super::readings::{BackslashMode, hide_ambiguous_literals};
use super::tables::{ddl_verb, exists_end, find_name_after, load_data_table, tables};
use memchr::memmem;

/// The verbs and tables of a statement, as pt-query-digest names them.
pub fn distill(text: &[u8]) -> Vec<u8> {
    let text = &*hide_ambiguous_literals(text, BackslashMode::Unknown);
    let (verbs, table) = match verbs(text) {
        Verbs::Whole(words) => return words,
        Verbs::Tables(words, table) => (words, table),
    };
    let mut names: Vec<Vec<u8>> = tables(text).iter().map(|name| generic_name(name)).collect();
    names.extend(table);
    names.dedup();
    let mut out = verbs;
    for name in names {
        out.push(b' ');
        out.extend_from_slice(&name);
    }
    out
}

enum Verbs {
    /// Says it all.
    Whole(Vec<u8>),
    /// Tables follow, and last this one.
    Tables(Vec<u8>, Option<Vec<u8>>),
}

fn verbs(text: &[u8]) -> Verbs {
    let start = skip_space(text, 0);
    let head = &text[start..];
    let word_after = |word: &[u8]| {
        let at = skip_space(head, word.len());
        (starts_ignore_case(head, word) && at > word.len()).then(|| {
            let end = head[at..].iter().position(|b| is_space(*b)).map_or(head.len(), |n| at + n);
            &head[at..end]
        })
    };
    if let Some(name) = word_after(b"call")
        && let Some(paren) = super::call_name_end(name)
    {
        return Verbs::Tables([b"CALL ", &name[..paren]].concat(), None);
    }
    if head.starts_with(b"use") && head.get(3).is_some_and(|b| is_space(*b)) {
        return Verbs::Tables(b"USE".to_vec(), None);
    }
    if starts_ignore_case(head, b"unlock tables") {
        return Verbs::Tables(b"UNLOCK".to_vec(), None);
    }
    if let Some(what) = word_after(b"xa").filter(|what| !what.is_empty()) {
        return Verbs::Tables([b"XA_", what].concat(), None);
    }
    if starts_ignore_case(head, b"load") {
        let table: Vec<u8> =
            load_data_table(text).unwrap_or_default().iter().filter(|b| **b != b'`').copied().collect();
        return Verbs::Whole([b"LOAD DATA ".as_slice(), &table].concat());
    }
    if let Some(command) = text.strip_prefix(b"administrator command:") {
        return Verbs::Tables([b"ADMIN", command].concat().to_ascii_uppercase(), None);
    }
    let text = expand_version_comments(strip_comments(text));
    let start = skip_space(&text, 0);
    if starts_ignore_case(&text[start..], b"show") && text.get(start + 4).is_some_and(|b| is_space(*b)) {
        return Verbs::Whole(distill_show(&text));
    }
    match ddl_verb(&text) {
        Some(verb) => distill_ddl(&text, verb),
        None => Verbs::Tables(distill_dml(&text), None),
    }
}

/// In a SHOW, what `/*!50002 FULL*/` holds stands for each comment with a number.
fn expand_version_comments(text: Vec<u8>) -> Vec<u8> {
    let Some(qualifier) = version_qualifier(&text) else { return text };
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(open) = find_bytes(&text, b"/*", at) {
        let digit = text[open + 2..].iter().position(|b| is_digit(*b)).map(|n| open + 2 + n);
        let Some(close) = digit.and_then(|d| find_bytes(&text, b"*/", d)).map(|n| n + 2) else {
            break;
        };
        out.extend_from_slice(&text[at..open]);
        out.extend_from_slice(&qualifier);
        at = close;
    }
    out.extend_from_slice(&text[at..]);
    out
}

fn version_qualifier(text: &[u8]) -> Option<Vec<u8>> {
    let is_line_start = |at: usize| at == 0 || text[at - 1] == b'\n';
    let mut show = 0;
    while !(is_line_start(show) && starts_ignore_case(&text[show..], b"show")) {
        show = find_ignore_case(text, b"show", show + 1)?;
    }
    // The end is looked for once: without one after the first comment, none has one.
    let version = memmem::find_iter(&text[show..], b"/*!")
        .map(|n| show + n + 3)
        .find(|version| text.get(*version).is_some_and(|b| is_digit(*b)))?;
    let body = version + text[version..].iter().take_while(|b| is_digit(**b)).count();
    find_bytes(text, b"*/", body).map(|close| text[body..close].to_vec())
}

/// `SHOW A B`: at most two words after SHOW, without scopes and clauses.
fn distill_show(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_ascii_uppercase();
    text = replace_words(&text, &[b"SESSION", b"FULL", b"STORAGE", b"ENGINE"], b" ");
    text = strip_count(&text);
    if let Some((at, _)) =
        find_spaced_word(&text, 0, &[b"FOR", b"FROM", b"LIKE", b"WHERE", b"LIMIT", b"IN"], 1)
    {
        text.truncate(at);
    }
    if text.starts_with(b"SHOW") {
        let mut end = 4;
        for _ in 0..2 {
            let word = skip_space(&text, end);
            let after = text[word..].iter().position(|b| is_space(*b)).map_or(text.len(), |n| word + n);
            if word > end && after > word {
                end = after;
            }
        }
        if end > 4 {
            text.truncate(end);
        }
    }
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    for byte in text {
        if !is_space(byte) {
            out.push(byte);
        } else if out.last() != Some(&b' ') {
            out.push(b' ');
        }
    }
    for (name, is) in
        [(b"SCHEMA".as_slice(), b"DATABASE".as_slice()), (b"KEYS", b"INDEX"), (b"INDEXES", b"INDEX")]
    {
        if let Some(at) = memmem::find(&out, name) {
            out.splice(at..at + name.len(), is.iter().copied());
        }
    }
    out
}

/// The first of `words` (upper case) after spaces, followed by at least `more` bytes: where the
/// spaces begin and where the word ends.
fn find_spaced_word(text: &[u8], from: usize, words: &[&[u8]], more: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while at < text.len() {
        let next = skip_space(text, at);
        if next > at {
            let word =
                words.iter().find(|w| text[next..].starts_with(w) && is_boundary(text, next + w.len()));
            if let Some(word) = word.filter(|w| next + w.len() + more <= text.len()) {
                return Some((at, next + word.len()));
            }
        }
        at = next.max(at + 1);
    }
    None
}

fn replace_words(text: &[u8], words: &[&[u8]], instead: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    while let Some((at, end)) = find_spaced_word(text, from, words, 0) {
        out.extend_from_slice(&text[from..at]);
        out.extend_from_slice(instead);
        from = end;
    }
    out.extend_from_slice(&text[from..]);
    out
}

/// `SHOW COUNT(*) WARNINGS` is `SHOW WARNINGS`.
fn strip_count(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let last_close = memchr::memrchr(b')', text).unwrap_or(0);
    let mut at = 0;
    while at < text.len() {
        let word = skip_space(text, at);
        if word > at && text[word..].starts_with(b"COUNT") {
            let body = word + 5;
            if last_close > body
                && let Some(close) = find_bytes(text, b")", body).filter(|n| *n > body)
            {
                at = close + 1;
                continue;
            }
        }
        let next = word.max(at + 1);
        out.extend_from_slice(&text[at..next]);
        at = next;
    }
    out
}

fn distill_ddl(text: &[u8], verb: &[u8]) -> Verbs {
    let text = match (0..text.len()).find_map(|at| if_exists_range(text, at)) {
        Some((at, end)) => [&text[..at], b" ", &text[end..]].concat(),
        None => text.to_vec(),
    };
    let at = find_ignore_case(&text, verb, 0).unwrap_or(0) + verb.len();
    let line_end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |n| at + n);
    let object = (at + 1..line_end).rev().find_map(|n| {
        let object =
            [b"database".as_slice(), b"table"].into_iter().find(|o| starts_ignore_case(&text[n..], o))?;
        is_boundary(&text, n + object.len()).then_some(object)
    });
    let mut words = verb.to_ascii_uppercase();
    if let Some(object) = object {
        words.push(b' ');
        words.extend(object.to_ascii_uppercase());
    }
    Verbs::Tables(words, find_name_after(&text, &[b"table", b"database"]))
}

/// Spaces, IF [NOT] EXISTS at `at`: where they end. Only the first of several spaces is a beginning.
fn if_exists_range(text: &[u8], at: usize) -> Option<(usize, usize)> {
    if at > 0 && is_space(text[at - 1]) {
        return None;
    }
    let word = skip_space(text, at);
    (word > at && starts_ignore_case(&text[word..], b"if"))
        .then(|| exists_end(text, word + 2))
        .flatten()
        .map(|end| (at, end))
}

/// SELECT, INSERT SELECT, ...: verbs in order, repeats next to each other once.
fn distill_dml(text: &[u8]) -> Vec<u8> {
    const FIRST: [&[u8]; 8] =
        [b"show", b"flush", b"commit", b"rollback", b"begin", b"set", b"start", b"lock"];
    const ANYWHERE: [&[u8]; 6] = [b"select", b"insert", b"update", b"delete", b"replace", b"union"];
    let mut verbs: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = text[at..].iter().position(|b| !is_word(*b)).map_or(text.len(), |n| at + n);
        let word = &text[at..end];
        let known =
            |list: &'static [&'static [u8]]| list.iter().copied().find(|v| word.eq_ignore_ascii_case(v));
        let verb = known(&ANYWHERE).or_else(|| if at == 0 { known(&FIRST) } else { None });
        if let Some(verb) = verb
            && verbs.last() != Some(&verb)
        {
            verbs.push(verb);
        }
        at = end.max(at + 1);
    }
    if verbs.len() > 1 && verbs[0] == b"select" {
        let has_union = verbs.contains(&b"union".as_slice());
        verbs = if has_union { vec![b"select", b"union"] } else { vec![b"select"] };
    }
    verbs.join(&b' ').to_ascii_uppercase()
}

/// Without back quotes, and digits as `?`.
fn generic_name(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name.iter().filter(|b| **b != b'`') {
        if !is_digit(byte) {
            out.push(byte);
        } else if out.last() != Some(&b'?') {
            out.push(b'?');
        }
    }
    out
}
