//! Fields of an event that a filter can test: names and values.

use crate::attribute::{Attribute, Unit};
use crate::event::{CommandKind, Event};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    Measured(Attribute),
    /// Of a log entry, by the name that the log writes.
    Logged(String),
    ConnectionId,
    Port,
    Error,
    Db,
    User,
    Host,
    Query,
    Kind,
    Tainted,
    Flag(Flag),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    NoIndexUsed,
    NoGoodIndexUsed,
    FullScan,
    FullJoin,
    TmpTable,
    TmpTableOnDisk,
    Filesort,
    FilesortOnDisk,
    QcHit,
}

/// Type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueType {
    Number,
    Text,
    Flag,
    /// Only the log knows.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Number(f64),
    Text(&'a [u8]),
    Flag(bool),
}

const FLAGS: [(&str, Flag); 9] = [
    ("no_index_used", Flag::NoIndexUsed),
    ("no_good_index_used", Flag::NoGoodIndexUsed),
    ("full_scan", Flag::FullScan),
    ("full_join", Flag::FullJoin),
    ("tmp_table", Flag::TmpTable),
    ("tmp_table_on_disk", Flag::TmpTableOnDisk),
    ("filesort", Flag::Filesort),
    ("filesort_on_disk", Flag::FilesortOnDisk),
    ("qc_hit", Flag::QcHit),
];

const FIXED_FIELDS: [(&str, Field); 9] = [
    ("connection_id", Field::ConnectionId),
    ("port", Field::Port),
    ("error", Field::Error),
    ("db", Field::Db),
    ("user", Field::User),
    ("host", Field::Host),
    ("query", Field::Query),
    ("kind", Field::Kind),
    ("tainted", Field::Tainted),
];

impl Field {
    /// A name with a capital is one of a log's own.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        if name.bytes().any(|b| b.is_ascii_uppercase()) {
            return Some(Self::Logged(name.to_owned()));
        }
        let plain = FIXED_FIELDS.into_iter().find(|(known, _)| *known == name).map(|(_, field)| field);
        plain
            .or_else(|| Attribute::from_name(name).map(Self::Measured))
            .or_else(|| FLAGS.into_iter().find(|(known, _)| *known == name).map(|(_, flag)| Self::Flag(flag)))
    }

    pub(super) fn names() -> String {
        let measured = Attribute::ALL.iter().map(|attribute| attribute.name());
        let plain = FIXED_FIELDS.iter().map(|(name, _)| *name);
        let flags = FLAGS.iter().map(|(name, _)| *name);
        measured.chain(plain).chain(flags).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn value_type(&self) -> ValueType {
        match self {
            Self::Measured(_) | Self::ConnectionId | Self::Port | Self::Error => ValueType::Number,
            Self::Db | Self::User | Self::Host | Self::Query | Self::Kind => ValueType::Text,
            Self::Tainted | Self::Flag(_) => ValueType::Flag,
            Self::Logged(_) => ValueType::Any,
        }
    }

    pub(super) fn value_in<'a>(&self, event: &Event<'a>) -> Option<Value<'a>> {
        let number = |n: u64| Value::Number(n as f64);
        match self {
            Self::Measured(attribute) => attribute.value_in(event).map(|value| match attribute.unit() {
                Unit::Time => Value::Number(value as f64 / 1e9),
                Unit::Count | Unit::Bytes => number(value),
            }),
            Self::Logged(name) => {
                let (_, text) =
                    event.attributes.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
                let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                Some(parsed.map_or(Value::Text(text), Value::Number))
            }
            Self::ConnectionId => event.connection_id.map(number),
            Self::Port => Some(number(u64::from(event.port))).filter(|_| event.port > 0),
            Self::Error => Some(number(event.error.map_or(0, |error| u64::from(error.number)))),
            Self::Db => Some(Value::Text(event.db)),
            Self::User => Some(Value::Text(event.user)),
            Self::Host => Some(Value::Text(event.host)),
            Self::Query => Some(Value::Text(event.text)),
            Self::Kind => Some(Value::Text(match event.kind {
                CommandKind::Query => b"query",
                CommandKind::Prepare => b"prepare",
                CommandKind::Execute => b"execute",
                CommandKind::Close => b"close",
                CommandKind::Reset => b"reset",
                CommandKind::Admin => b"admin",
            })),
            Self::Tainted => Some(Value::Flag(event.tainted)),
            Self::Flag(flag) => flag.value_in(event).map(Value::Flag),
        }
    }
}

impl Flag {
    fn value_in(self, event: &Event<'_>) -> Option<bool> {
        let flags = &event.flags;
        match self {
            Self::NoIndexUsed => flags.no_index_used,
            Self::NoGoodIndexUsed => flags.no_good_index_used,
            Self::FullScan => flags.full_scan,
            Self::FullJoin => flags.full_join,
            Self::TmpTable => flags.tmp_table,
            Self::TmpTableOnDisk => flags.tmp_table_on_disk,
            Self::Filesort => flags.filesort,
            Self::FilesortOnDisk => flags.filesort_on_disk,
            Self::QcHit => flags.qc_hit,
        }
    }
}
