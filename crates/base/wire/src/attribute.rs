//! Numeric attributes of an event, with units. Names are those of slow logs.

use crate::event::Event;

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds here, microseconds in JSON, seconds in reports.
    Time,
    Count,
    Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    QueryTime,
    FirstByteTime,
    LockTime,
    RowsSent,
    RowsExamined,
    RowsAffected,
    Warnings,
    BytesSent,
    BytesReceived,
    QuerySize,
}

impl Attribute {
    pub const ALL: [Self; 10] = [
        Self::QueryTime,
        Self::FirstByteTime,
        Self::LockTime,
        Self::RowsSent,
        Self::RowsExamined,
        Self::RowsAffected,
        Self::Warnings,
        Self::BytesSent,
        Self::BytesReceived,
        Self::QuerySize,
    ];

    /// Name in options, filters and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueryTime => "query_time",
            Self::FirstByteTime => "first_byte_time",
            Self::LockTime => "lock_time",
            Self::RowsSent => "rows_sent",
            Self::RowsExamined => "rows_examined",
            Self::RowsAffected => "rows_affected",
            Self::Warnings => "warnings",
            Self::BytesSent => "bytes_sent",
            Self::BytesReceived => "bytes_received",
            Self::QuerySize => "query_size",
        }
    }

    /// Whatever the case; pt-query-digest's names too.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "bytes" | "query_length" => Some(Self::QuerySize),
            _ => Self::ALL.into_iter().find(|attribute| attribute.name() == name),
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Self::QueryTime | Self::FirstByteTime | Self::LockTime => Unit::Time,
            Self::BytesSent | Self::BytesReceived | Self::QuerySize => Unit::Bytes,
            _ => Unit::Count,
        }
    }

    /// Its value in an event: ns, count or bytes. From the server's side: sent to the client.
    pub fn value_in(self, event: &Event<'_>) -> Option<u64> {
        match self {
            Self::QueryTime => event.query_ns,
            Self::FirstByteTime => event.first_byte_ns,
            Self::LockTime => event.lock_ns,
            Self::RowsSent => event.rows_sent,
            Self::RowsExamined => event.rows_examined,
            Self::RowsAffected => event.rows_affected,
            Self::Warnings => event.warnings.map(u64::from),
            Self::BytesSent => Some(event.bytes_from_server).filter(|bytes| *bytes > 0),
            Self::BytesReceived => Some(event.bytes_from_client).filter(|bytes| *bytes > 0),
            Self::QuerySize => Some(event.text.len() as u64 + event.text_cut),
        }
    }
}

/// Names of further attributes that are counted.
const MAX_EXTRA_ATTRIBUTES: usize = 48;

/// Numbers without a place of their own, as a log names them.
#[derive(Debug, Clone, Default)]
pub struct ExtraAttributes {
    names: Vec<(Box<str>, Unit)>,
}

/// Number of a name and a value.
pub type ExtraAttribute = (u8, u64);

impl ExtraAttributes {
    pub fn names(&self) -> &[(Box<str>, Unit)] {
        &self.names
    }

    pub fn collect_from(&mut self, event: &Event<'_>) -> Vec<ExtraAttribute> {
        // An empty Vec allocates nothing: packets and plain slow logs have none of these.
        let mut values = Vec::new();
        for (name, text) in event.attributes {
            if let Some(number) = parse_number(name, text)
                && let Some(id) = self.intern_name(name)
            {
                values.push((id, number));
            }
        }
        values
    }

    pub fn intern_name(&mut self, name: &str) -> Option<u8> {
        if let Some(at) = self.names.iter().position(|(known, _)| **known == *name) {
            return u8::try_from(at).ok();
        }
        if self.names.len() >= MAX_EXTRA_ATTRIBUTES {
            return None;
        }
        self.names.push((name.into(), unit_of_name(name)));
        u8::try_from(self.names.len() - 1).ok()
    }
}

fn unit_of_name(name: &str) -> Unit {
    if name.ends_with("_time") || name.ends_with("_wait") {
        Unit::Time
    } else if name.contains("bytes") || name.contains("Bytes") {
        Unit::Bytes
    } else {
        Unit::Count
    }
}

/// Names of things are no numbers, even where they are written in digits.
fn parse_number(name: &str, text: &[u8]) -> Option<u64> {
    const NAMES: [&str; 6] =
        ["InnoDB_trx_id", "Log_slow_rate_limit", "Killed", "Start", "End", "Statement_id"];
    if NAMES.contains(&name) || !text.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    match unit_of_name(name) {
        Unit::Time => crate::log::parse_seconds(text),
        Unit::Count | Unit::Bytes => {
            text.iter().all(u8::is_ascii_digit).then(|| crate::log::parse_integer(text)).flatten()
        }
    }
}
