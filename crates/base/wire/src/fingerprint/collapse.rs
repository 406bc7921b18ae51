//! Collapsing of repeated UNIONs, LIMIT and ASC in a fingerprint. Works on finished text only.

use super::bytes::{is_boundary, is_space, skip_space};
use memchr::memmem;

/// Which of the words that matter here may occur.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeywordHints {
    pub union: bool,
    pub limit: bool,
    pub order: bool,
}

impl KeywordHints {
    pub(super) fn all() -> Self {
        Self { union: true, limit: true, order: true }
    }
}

/// A statement of thousands of different UNIONs would compare each with each; past this many
/// comparisons the rest stays as it is.
const UNION_COMPARISONS: usize = 1 << 18;

pub(super) fn collapse(text: &mut Vec<u8>, seen: KeywordHints) {
    if seen.union && memmem::find(text, b"union").is_some() {
        *text = fold_unions(text);
    }
    if seen.limit {
        fold_limit(text);
    }
    if seen.order {
        drop_asc(text);
    }
}

/// `select A union select A` becomes `select A /*repeat union*/`.
fn fold_unions(text: &[u8]) -> Vec<u8> {
    let unions: Vec<usize> = memmem::find_iter(text, b"union")
        .filter(|at| *at > 0 && is_space(text[at - 1]))
        .map(|at| at - 1)
        .collect();
    let mut out = Vec::with_capacity(text.len());
    let mut copied = 0;
    let mut comparisons = 0;
    for select in memmem::find_iter(text, b"select") {
        let is_start = select >= copied
            && is_boundary(text, select)
            && text.get(select + 6).is_some_and(|b| is_space(*b));
        if !is_start {
            continue;
        }
        let first = unions.partition_point(|at| *at < select + 7);
        for &end in &unions[first..] {
            comparisons += 1;
            if comparisons > UNION_COMPARISONS {
                break;
            }
            if let Some((after, join)) = repeats(text, &text[select..end], end) {
                out.extend_from_slice(&text[copied..end]);
                out.extend_from_slice(b" /*repeat");
                out.extend_from_slice(join);
                out.extend_from_slice(b"*/");
                copied = after;
                break;
            }
        }
    }
    out.extend_from_slice(&text[copied..]);
    out
}

/// Where the last of the unions with `group` ends that follow one another from `at`, and the
/// words that joined it.
fn repeats<'a>(text: &'a [u8], group: &[u8], at: usize) -> Option<(usize, &'a [u8])> {
    let (mut at, mut found) = (at, None);
    while let Some((after, join)) = repeated_once(text, group, at) {
        found = Some((after, join));
        at = after;
    }
    found
}

fn repeated_once<'a>(text: &'a [u8], group: &[u8], at: usize) -> Option<(usize, &'a [u8])> {
    let is_space_at = |n: usize| text.get(n).is_some_and(|b| is_space(*b));
    if !is_space_at(at) || !text[at + 1..].starts_with(b"union") {
        return None;
    }
    let union = at + 6;
    let all = union + 4;
    if is_space_at(union)
        && text[union + 1..].starts_with(b"all")
        && is_space_at(all)
        && text[all + 1..].starts_with(group)
    {
        return Some((all + 1 + group.len(), &text[at..all]));
    }
    (is_space_at(union) && text[union + 1..].starts_with(group))
        .then(|| (union + 1 + group.len(), &text[at..union]))
}

/// The first `limit ?, ?` or `limit ? offset ?` becomes `limit ?`.
fn fold_limit(text: &mut Vec<u8>) {
    let Some(at) = memmem::find_iter(text, b"limit ?").find(|at| is_boundary(text, *at)) else { return };
    let end = at + 7;
    let tail = &text[end..];
    let extra = [b", ?".as_slice(), b",?", b" offset ?"].into_iter().find(|form| tail.starts_with(form));
    if let Some(form) = extra {
        text.drain(end..end + form.len());
    }
}

/// ASC is the default order: after the first ORDER BY it goes.
fn drop_asc(text: &mut Vec<u8>) {
    let Some(order) = memmem::find_iter(text, b"order by ").find(|at| is_boundary(text, *at)) else { return };
    let mut read = order + 9;
    let mut write = read;
    // A match takes at least one character before the spaces that lead to ASC.
    let mut earliest = read + 1;
    while read < text.len() {
        if read >= earliest && is_space(text[read]) {
            let word = skip_space(text, read);
            if text[word..].starts_with(b"asc") {
                read = word + 3;
                earliest = read + 1;
                continue;
            }
            text.copy_within(read..word, write);
            write += word - read;
            read = word;
            continue;
        }
        text[write] = text[read];
        write += 1;
        read += 1;
    }
    text.truncate(write);
}
