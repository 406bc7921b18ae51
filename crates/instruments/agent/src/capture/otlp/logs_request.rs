//! Requests with a log record for each class of a digest: the figures that no histogram has.

use super::attributes::{SCHEMA_URL, class_attributes, count, number, scope, string_value, text};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use toll_digest::DigestResult;
use toll_digest::classes::{Class, Digest, Limit};
use toll_sys::count_format::format_count;
use toll_sys::number_format;
use toll_wire::attribute::{Attribute, Unit};

/// Name of the event that a record is.
pub const EVENT: &str = "toll.digest.class";

/// The request, and the number of its records. `limit`: the classes with a record of their own; the others have one together.
pub fn build_request(
    done: &DigestResult,
    limit: Limit,
    resource: &Resource,
    since_ns: u64,
    now_ns: u64,
) -> (ExportLogsServiceRequest, u64) {
    let digest = &done.digest;
    let (listed, beyond) = digest.ranked(limit);
    let rest = digest.merge_rest(&beyond);
    let mut log_records: Vec<LogRecord> =
        listed.into_iter().map(|class| record(digest, class, true, since_ns, now_ns)).collect();
    if rest.class.count > 0 {
        log_records.push(record(digest, &rest.class, false, since_ns, now_ns));
    }
    let records = log_records.len() as u64;
    let scope_logs = ScopeLogs { scope: Some(scope()), log_records, schema_url: SCHEMA_URL.into() };
    let resource_logs = ResourceLogs {
        resource: Some(resource.clone()),
        scope_logs: vec![scope_logs],
        schema_url: SCHEMA_URL.into(),
    };
    (ExportLogsServiceRequest { resource_logs: vec![resource_logs] }, records)
}

fn record(digest: &Digest, class: &Class, is_one: bool, since_ns: u64, now_ns: u64) -> LogRecord {
    let mut attributes = class_attributes(is_one.then_some(class), digest.settings().group_by);
    attributes.extend([
        number("toll.interval_s", now_ns.saturating_sub(since_ns) as f64 / 1e9),
        count("toll.class.commands", class.count),
        count("toll.class.errors", class.errors),
        count("toll.class.tainted", class.tainted),
    ]);
    // A name that not all of its queries share would be wrong for some.
    if let [(name, queries)] = class.dbs.by_count()[..]
        && queries == class.count
        && !digest.name(name).is_empty()
    {
        attributes.push(text("db.namespace", String::from_utf8_lossy(digest.name(name))));
    }
    for attribute in Attribute::ALL {
        if let Some(measure) = class.measure(attribute) {
            let (scale, unit) = if attribute.unit() == Unit::Time { (1e9, "_s") } else { (1.0, "") };
            let name = attribute.name();
            let mut push = |what: &str, value: f64| {
                attributes.push(number(&format!("toll.class.{name}{unit}.{what}"), value / scale));
            };
            push("sum", measure.sum as f64);
            push("p50", measure.quantile(0.5) as f64);
            push("p95", measure.quantile(0.95) as f64);
            push("p99", measure.quantile(0.99) as f64);
            push("max", measure.max as f64);
        }
    }
    LogRecord {
        time_unix_nano: now_ns,
        observed_time_unix_nano: now_ns,
        severity_number: SeverityNumber::Info.into(),
        severity_text: "INFO".into(),
        event_name: EVENT.into(),
        body: Some(string_value(describe(class, is_one))),
        attributes,
        ..LogRecord::default()
    }
}

/// A line for people.
fn describe(class: &Class, is_one: bool) -> String {
    let name = match (is_one, class.distill.is_empty()) {
        (false, _) => "others".into(),
        (true, true) => String::from_utf8_lossy(&class.text),
        (true, false) => String::from_utf8_lossy(&class.distill),
    };
    let time = class.measure(Attribute::QueryTime).map(|time| {
        let p95 = number_format::format_duration_us(time.quantile(0.95) as f64 / 1e3);
        format!(", {:.3} s in all, p95 {p95}", time.sum as f64 / 1e9)
    });
    format!("{name}: {}{}", format_count(class.count, "command"), time.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attribute, digest_of};
    use super::*;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;

    #[test]
    fn each_class_has_a_record_and_all_beyond_the_limit_one() {
        let done = digest_of(&[("update t set a = 1", 20_000_000_000), ("select 1", 5), ("fail", 4)]);
        let limit = Limit { share: None, count: Some(1) };
        let (request, records) =
            build_request(&done, limit, &Resource::default(), 1_000_000_000, 3_000_000_000);
        let found = &request.resource_logs[0].scope_logs[0].log_records;
        assert_eq!((records, found.len()), (2, 2));
        let text = |record: &LogRecord, key: &str| match attribute(&record.attributes, key) {
            Some(Value::StringValue(text)) => Some(text),
            _ => None,
        };
        let count = |record: &LogRecord, key: &str| match attribute(&record.attributes, key) {
            Some(Value::IntValue(count)) => Some(count),
            _ => None,
        };
        let number = |record: &LogRecord, key: &str| match attribute(&record.attributes, key) {
            Some(Value::DoubleValue(number)) => Some(number),
            _ => None,
        };
        let [update, others] = &found[..] else { panic!("{found:?}") };
        assert_eq!(text(update, "db.query.summary").as_deref(), Some("UPDATE t"));
        assert_eq!(text(update, "db.query.text").as_deref(), Some("update t set a = ?"));
        assert_eq!(text(update, "db.namespace").as_deref(), Some("shop"));
        assert_eq!(number(update, "toll.interval_s"), Some(2.0));
        assert_eq!(number(update, "toll.class.query_time_s.sum"), Some(20.0));
        assert_eq!(number(update, "toll.class.query_time_s.max"), Some(20.0));
        let body = update.body.clone().unwrap().value.unwrap();
        let expected = "UPDATE t: 1 command, 20.000 s in all, p95 20.0 s";
        assert_eq!(body, Value::StringValue(expected.into()));
        assert_eq!(
            (count(others, "toll.class.commands"), count(others, "toll.class.errors")),
            (Some(2), Some(1))
        );
        assert_eq!(text(others, "db.query.summary").as_deref(), Some("(others)"));
        assert!(
            found.iter().all(|record| record.event_name == EVENT && record.time_unix_nano == 3_000_000_000)
        );
    }
}
