//! Attributes of classes and of the capture, by the semantic conventions for database clients where these have a name.
//!
//! Never holds a statement as it was written: fingerprints alone.

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use toll_digest::classes::{Class, GroupBy};

/// Of the conventions that names and units follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.36.0";
/// Characters of a summary, by the conventions.
const SUMMARY_MAX: usize = 255;
/// What is of no class of its own.
const OTHERS: &str = "(others)";

/// What tells a class from others. `class`: absent for all that have no attributes of their own.
pub fn class_attributes(class: Option<&Class>, group_by: GroupBy) -> Vec<KeyValue> {
    // As the client's protocol says: it is MariaDB's too.
    let mut attributes = vec![text("db.system.name", "mysql")];
    let key = class.map_or(OTHERS.into(), |class| String::from_utf8_lossy(&class.text));
    if group_by == GroupBy::Fingerprint {
        let summary = class.map_or(OTHERS.into(), |class| String::from_utf8_lossy(&class.distill));
        attributes.push(text("db.query.summary", summary.chars().take(SUMMARY_MAX).collect::<String>()));
        if class.is_some() {
            attributes.push(text("db.query.text", key));
        }
    } else {
        attributes.push(text("toll.group_by", group_by.to_string()));
        attributes.push(text("toll.group", key));
    }
    if let Some(class) = class {
        attributes.push(text("toll.class.id", class.id.to_string()));
    }
    attributes
}

pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "toll".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    }
}

pub fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

/// A count; what is more than there is room for counts as much.
pub fn count(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

pub fn number(key: &str, value: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(value))
}

pub fn string_value(value: impl Into<String>) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(value.into())) }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
