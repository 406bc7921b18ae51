//! Grouping keys of a digest: the attribute that the queries of a class share.

use super::class::{Class, bound_key};
use super::comment_tag::{TAG_NAME_MAX, TagName, tag_value};
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use toll_wire::event::{CommandKind, Event};
use toll_wire::fingerprint::{distill, fingerprint_in_mode, tables};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupBy {
    #[default]
    Fingerprint,
    /// Each table that a statement names.
    Tables,
    /// Verbs and tables in a few words.
    Distill,
    User,
    Db,
    Host,
    /// Number of the error that the server answered with.
    Error,
    /// Value of a tag in the statement's comment.
    Tag(TagName),
}

/// Groupings without a parameter, by name.
const NAMED: [(&str, GroupBy); 7] = [
    ("fingerprint", GroupBy::Fingerprint),
    ("tables", GroupBy::Tables),
    ("distill", GroupBy::Distill),
    ("user", GroupBy::User),
    ("db", GroupBy::Db),
    ("host", GroupBy::Host),
    ("error", GroupBy::Error),
];
const TAG_PREFIX: &str = "tag:";
/// Class of the statements without the tag.
const UNTAGGED: &[u8] = b"(untagged)";

impl GroupBy {
    /// What options take.
    pub const NAMES: [&str; 8] =
        ["fingerprint", "tables", "distill", "user", "db", "host", "error", "tag:NAME"];

    pub(super) fn depends_on_text_alone(self) -> bool {
        matches!(self, Self::Fingerprint | Self::Distill | Self::Tag(_))
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(name) => write!(f, "{TAG_PREFIX}{name}"),
            _ => f.write_str(NAMED.iter().find(|(_, named)| named == self).map_or("", |(name, _)| name)),
        }
    }
}

impl FromStr for GroupBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix(TAG_PREFIX) {
            let name = TagName::new(name).ok_or_else(|| {
                format!("`{text}` names no tag: write tag:NAME, with a name of 1 to {TAG_NAME_MAX} bytes")
            })?;
            return Ok(Self::Tag(name));
        }
        let named = NAMED.iter().find(|(name, _)| *name == text);
        named
            .map(|(_, group_by)| *group_by)
            .ok_or_else(|| format!("`{text}` is no grouping: use one of {}", Self::NAMES.join(", ")))
    }
}

/// Buffers for keys, so that finding one allocates nothing.
#[derive(Default)]
pub(super) struct GroupKeys {
    statement: Vec<u8>,
    key: Vec<u8>,
    list: Vec<Vec<u8>>,
}

impl GroupKeys {
    pub(super) fn of_text(&mut self, group_by: GroupBy, event: &Event<'_>) -> &[u8] {
        let text = statement_key(event, &mut self.statement);
        match group_by {
            GroupBy::Distill => self.key = distill(text),
            GroupBy::Tag(name) => {
                self.key = tag_value(event.text, name).map_or_else(|| UNTAGGED.to_vec(), String::into_bytes);
            }
            _ => fingerprint_in_mode(text, event.backslashes, &mut self.key),
        }
        bound_key(&mut self.key);
        &self.key
    }

    pub(super) fn of_event(&mut self, group_by: GroupBy, event: &Event<'_>) -> &[Vec<u8>] {
        self.list.clear();
        match group_by {
            GroupBy::Tables => self.list = qualified_tables(event.text, event.db),
            GroupBy::User => self.list.push(event.user.to_vec()),
            GroupBy::Db => self.list.push(event.db.to_vec()),
            GroupBy::Host => self.list.push(event.host.to_vec()),
            GroupBy::Error => {
                self.list.extend(event.error.map(|error| error.number.to_string().into_bytes()))
            }
            GroupBy::Fingerprint | GroupBy::Distill | GroupBy::Tag(_) => {}
        }
        self.list.iter_mut().for_each(bound_key);
        &self.list
    }
}

/// The text that is fingerprinted: for prepared statements with the word that pt-query-digest
/// puts before it, so that preparing, executing and plain text are three classes, as there.
fn statement_key<'a>(event: &Event<'a>, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    let word: &[u8] = match event.kind {
        CommandKind::Query | CommandKind::Close | CommandKind::Reset | CommandKind::Admin => {
            return event.text;
        }
        CommandKind::Prepare => b"PREPARE ",
        CommandKind::Execute => b"EXECUTE ",
    };
    buffer.clear();
    buffer.extend_from_slice(word);
    buffer.extend_from_slice(event.text);
    buffer
}

/// Tables of a statement that are kept apart, bytes of a name, and bytes of all names together.
pub(super) const TABLES_MAX: usize = 64;
pub(super) const TABLE_NAME_MAX: usize = 512;
pub(super) const TABLES_BYTES_MAX: usize = 4_096;
/// Bytes kept of the summary of a statement.
pub(super) const DISTILL_MAX: usize = 1_024;

/// What a statement is, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Verbs and tables, as pt-query-digest distills them.
    pub distill: Vec<u8>,
    /// With their schema: the one that is named, else the session's.
    pub tables: Vec<Vec<u8>>,
}

impl Description {
    /// `db`: the session's schema; empty: none.
    pub fn of(text: &[u8], db: &[u8]) -> Self {
        let mut distill = distill(text);
        distill.truncate(DISTILL_MAX);
        distill.shrink_to_fit();
        Self { distill, tables: qualified_tables(text, db) }
    }
}

/// The first ones alone of a statement that names very many, since statements are whatever clients send.
fn qualified_tables(text: &[u8], db: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    let mut bytes = 0;
    for name in tables(text) {
        let mut plain: Vec<u8> = name.into_iter().filter(|b| *b != b'`').collect();
        plain.truncate(TABLE_NAME_MAX);
        let name = if plain.contains(&b'.') || db.is_empty() { plain } else { [db, b".", &plain].concat() };
        if known.contains(&name) {
            continue;
        }
        bytes += name.len();
        if names.len() >= TABLES_MAX || bytes > TABLES_BYTES_MAX {
            break;
        }
        known.insert(name.clone());
        names.push(name);
    }
    names
}

/// What a class says of itself beyond its key, from its first event.
pub(super) fn describe_class(class: &mut Class, group_by: GroupBy, event: &Event<'_>) {
    class.kind = event.kind;
    if matches!(group_by, GroupBy::Fingerprint | GroupBy::Distill) {
        Description { distill: class.distill, tables: class.tables } = Description::of(event.text, event.db);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grouping_is_written_as_it_is_read() {
        for name in ["fingerprint", "tables", "distill", "user", "db", "host", "error", "tag:app", "tag:a b"]
        {
            assert_eq!(name.parse::<GroupBy>().unwrap().to_string(), name);
        }
        for (wrong, why) in [("tag:", "no tag"), ("table", "no grouping"), ("", "no grouping")] {
            let error = wrong.parse::<GroupBy>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(format!("tag:{}", "x".repeat(TAG_NAME_MAX + 1)).parse::<GroupBy>().is_err());
    }
}
