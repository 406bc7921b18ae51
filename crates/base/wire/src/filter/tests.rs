//! Tests of the filter language.

use super::*;
use crate::event::{ErrorInfo, Flags};

fn event() -> Event<'static> {
    Event {
        query_ns: Some(150_000_000),
        text: b"SELECT a FROM orders",
        user: b"app_rw",
        db: b"shop",
        rows_sent: Some(7),
        error: Some(ErrorInfo { number: 1062, state: b"23000", message: b"" }),
        flags: Flags { full_scan: Some(true), filesort: Some(false), ..Flags::default() },
        attributes: &[("Rows_read", b"12"), ("Log_slow_rate_type", b"query")],
        ..Event::default()
    }
}

#[test]
fn events_are_accepted_by_what_they_are() {
    for (filter, expected) in [
        ("query_time > 0.1", true),
        ("query_time > 0.1 && db == \"shop\"", true),
        ("query_time >= 0.2 || rows_sent != 8", true),
        ("db == 'other'", false),
        ("!(db == 'other') && user =~ \"APP\"", true),
        ("query =~ 'from orders'", true),
        ("error == 1062", true),
        ("full_scan && !filesort", true),
        ("Rows_read > 11", true),
        ("Log_slow_rate_type == 'query'", true),
        ("rows_examined >= 0", false),
        ("rows_examined != 3", false),
        ("kind == 'query' && !tainted", true),
        ("rows_sent < 3 && rows_sent > 1 || user == 'app_rw'", true),
    ] {
        assert_eq!(Filter::parse(filter).unwrap().matches(&event()), expected, "{filter}");
    }
}

#[test]
fn errors_say_where_and_what_was_expected() {
    for (filter, at, what) in [
        ("", 0, "expected an attribute"),
        ("query_tiem > 1", 0, "no attribute"),
        ("query_time > 'a'", 13, "a number"),
        ("query_time 1", 11, "a comparison"),
        ("(db == 'a'", 10, "closing parenthesis"),
        ("db == 'a", 6, "no closing"),
        ("rows_sent == 1 rows_sent == 2", 15, "&& or ||"),
        ("rows_sent == 1; system('x')", 14, "means nothing"),
        ("rows_sent =~ 1", 13, "in quotes"),
        ("rows_sent == 1.2.3", 13, "no number"),
    ] {
        let error = Filter::parse(filter).unwrap_err();
        assert_eq!(error.at, at, "{filter}: {error}");
        assert!(error.what.contains(what), "{filter}: {error}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |n| format!("{}tainted{}", "(".repeat(n), ")".repeat(n));
    assert!(Filter::parse(&deep(60)).is_ok());
    assert!(Filter::parse(&deep(100_000)).is_err());
    assert!(Filter::parse(&"!".repeat(100_000)).is_err());
}
