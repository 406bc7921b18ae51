//! Tests that stored digests merge to the digest of all their input.

use super::input::Input;
use super::{DigestResult, Format, Request, json, print_line, stored};
use crate::classes::{GroupBy, Limit, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use std::io::Cursor;
use std::sync::atomic::AtomicBool;
use toll_wire::decoder::Config;
use toll_wire::event::{CommandKind, ErrorInfo, Event, Flags, SampleShare, Sink};

/// All classes are listed, unless asked otherwise.
fn request(group_by: GroupBy, count: usize) -> Request {
    Request {
        files: Vec::new(),
        kind: None,
        capture: Config::default(),
        settings: Settings { group_by, keep_samples: true, ..Settings::default() },
        limit: Limit { share: None, count: Some(count) },
        since: None,
        until: None,
        filter: None,
        format: Format::Json,
        literals: true,
        jobs: 1,
    }
}

/// An event in a few numbers: text, user, query time, and the rest.
type Spec = (u8, u8, Option<u64>, u8);

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let query_ns = prop_oneof![0_u64..100, 1_000_u64..10_000_000, any::<u64>()];
    vec((0_u8..9, 0_u8..6, proptest::option::of(query_ns), any::<u8>()), 0..60)
}

fn digest_specs(request: &Request, specs: &[Spec]) -> DigestResult {
    let mut done = DigestResult::new(request.settings);
    for (text, user, query_ns, rest) in specs {
        // Some are not UTF-8, some longer than is kept.
        let mut statement =
            format!("select {rest} from t{} where `", "x".repeat((*text).into())).into_bytes();
        statement.extend((0..*text / 4).map(|n| 0xfc + n));
        statement.extend_from_slice("`=1 ".as_bytes());
        if *text == 8 {
            statement.extend(std::iter::repeat_n("ä", 2_500 + usize::from(*user)).flat_map(str::bytes));
        }
        let rows = rest.to_string();
        let attributes = [("Rows_read", rows.as_bytes())];
        done.digest.on_event(&Event {
            start_ns: u64::from(*rest) * 1_001,
            query_ns: *query_ns,
            text: &statement,
            kind: if rest % 9 == 0 { CommandKind::Execute } else { CommandKind::Query },
            user: &[b'a' + user],
            host: b"web1",
            db: if rest % 2 == 0 { b"shop" } else { b"" },
            rows_sent: (rest % 3 == 0).then_some(u64::from(*rest) << (rest % 50)),
            error: (rest % 7 == 0)
                .then_some(ErrorInfo { number: 1000 + u16::from(rest % 5), ..ErrorInfo::default() }),
            flags: Flags { full_scan: (rest % 4 > 0).then_some(rest % 4 == 1), ..Flags::default() },
            tainted: rest % 11 == 0,
            attributes: &attributes[..usize::from(rest % 5 > 0)],
            ..Event::default()
        });
    }
    done.digest.settle();
    done
}

fn write_document(request: &Request, done: &DigestResult) -> String {
    let mut out = Vec::new();
    print_line(request, done, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn read_document(request: &Request, text: &str) -> anyhow::Result<DigestResult> {
    let input = Input {
        name: "a.json".to_owned(),
        kind: super::Type::Digest,
        reader: Box::new(Cursor::new(text.as_bytes().to_vec())),
        plain_bytes: None,
    };
    let mut done = DigestResult::new(request.settings);
    stored::merge_stored(request, input, &mut done, &AtomicBool::new(false))?;
    done.digest.settle();
    Ok(done)
}

fn expect_refusal(request: &Request, text: &str) -> String {
    let error = read_document(request, text).err().expect("it is refused");
    format!("{error:#}")
}

/// As JSON, but for where it comes from; names that occurred as often as others are in any order.
fn value(request: &Request, done: &DigestResult) -> Value {
    let mut value = serde_json::to_value(json::build_document(request, done)).unwrap();
    for name in ["inputs", "merged"] {
        value.as_object_mut().unwrap().remove(name);
    }
    for class in value["classes"].as_array_mut().unwrap() {
        for names in ["users", "dbs", "hosts"] {
            class[names].as_array_mut().unwrap().sort_by_key(Value::to_string);
        }
    }
    value
}

const GROUPS: [GroupBy; 4] = [GroupBy::Fingerprint, GroupBy::Tables, GroupBy::User, GroupBy::Error];

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn what_was_written_merges_as_it_would_have_in_memory(a in specs(), b in specs(), group in 0_usize..4) {
        let request = request(GROUPS[group], 0);
        let (mut one, other) = (digest_specs(&request, &a), digest_specs(&request, &b));
        let merged = read_document(&request, &(write_document(&request, &one) + &write_document(&request, &other))).unwrap();
        one.digest.merge(&other.digest);
        one.digest.settle();
        prop_assert_eq!(value(&request, &merged), value(&request, &one));
        let again = read_document(&request, &write_document(&request, &merged)).unwrap();
        prop_assert_eq!(value(&request, &again), value(&request, &one));
    }

    #[test]
    fn a_damaged_digest_is_refused_or_read_but_never_ends_the_program(
        specs in specs(), at in any::<prop::sample::Index>(), byte in any::<u8>(), is_cut in any::<bool>(),
    ) {
        let request = request(GroupBy::Fingerprint, 0);
        let mut text = write_document(&request, &digest_specs(&request, &specs)).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        if is_cut {
            text.truncate(at);
        }
        if let Ok(text) = String::from_utf8(text)
            && let Ok(done) = read_document(&request, &text)
        {
            value(&request, &done);
        }
    }
}

fn some_events() -> Vec<Spec> {
    (0..200_u8).map(|n| (n % 8, n % 6, Some(u64::from(n) * 1_000_003), n)).collect()
}

#[test]
fn classes_beyond_the_limit_stay_in_the_totals_and_the_rest_says_so() {
    let all = request(GroupBy::Fingerprint, 0);
    let few = request(GroupBy::Fingerprint, 3);
    let whole = digest_specs(&all, &some_events());
    let merged = read_document(&all, &write_document(&few, &whole)).unwrap();
    let (whole, merged) = (value(&all, &whole), value(&all, &merged));
    assert_eq!(merged["totals"], whole["totals"]);
    assert_eq!(merged["classes"].as_array().unwrap()[..], whole["classes"].as_array().unwrap()[..3]);
    let count = |value: &Value| value["count"].as_u64().unwrap();
    let beyond: Vec<u64> = whole["classes"].as_array().unwrap()[3..].iter().map(count).collect();
    assert_eq!(merged["other"]["classes"], beyond.len());
    assert_eq!(merged["other"]["count"], beyond.iter().sum::<u64>());
    assert_eq!(merged["other"]["count_max"], beyond.into_iter().max().unwrap());
    // A digest that lists another class learns that some of its events may be in that rest.
    let more = digest_specs(&all, &[(8, 0, Some(5), 1)]);
    let both = read_document(
        &all,
        &(write_document(&few, &digest_specs(&all, &some_events())) + &write_document(&all, &more)),
    )
    .unwrap();
    let both = value(&all, &both);
    let rare = both["classes"].as_array().unwrap().iter().find(|class| class["count"] == 1).unwrap();
    assert_eq!(rare["count_short_by_at_most"], merged["other"]["count_max"]);
}

#[test]
fn what_does_not_merge_exactly_is_refused_with_the_reason() {
    let request = request(GroupBy::Fingerprint, 0);
    let done = digest_specs(&request, &some_events());
    let text = write_document(&request, &done);
    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        expect_refusal(&request, &text.replacen(from, to, 1))
    };
    let refusals = [
        (changed("\"version\":1", "\"version\":2"), "schema is version 2"),
        (changed("log-linear-64/1", "log-linear-64/2"), "log-linear-64/2"),
        (changed("\"toll-digest\"", "\"digest\""), "not a digest of toll's"),
        (changed("\"group_by\":\"fingerprint\"", "\"group_by\":\"host\""), "grouped by host"),
        (changed("\"commands\":200", "\"commands\":201"), "come to 200 commands, its totals to 201"),
        (changed("\"commands\":200", "\"commands\":4503599627370496"), "2^52"),
        (changed("\"id\":\"", "\"id\":\"0"), "hexadecimal"),
        (changed("\"select ? from t where", "\"select ? from u where"), "not that of its fingerprint"),
        (changed("\"histogram\":[[", "\"histogram\":[[1"), "contradict each other"),
        (changed("\"sum\":\"", "\"sum\":\"1"), "contradict each other"),
        (changed("\"unit\":\"ns\"", "\"unit\":\"s\""), "unit is `s`"),
        (changed("\"name\":\"Full_scan\"", "\"name\":\"Full\""), "flag `Full`"),
        (expect_refusal(&request, "{\"inputs\": [], \"totals\": 1}"), "cannot be read"),
        (expect_refusal(&request, "{\"frames\": 12}\n"), "holds no digest"),
        (expect_refusal(&request, "{\"schema\": "), "EOF"),
    ];
    for (error, why) in &refusals {
        assert!(error.contains(why) && error.lines().count() == 1, "{why}: {error}");
    }
    let old = r#"{"inputs": [], "interrupted": false, "totals": {"commands": 1, "queries": 1, "prepares": 0,
        "admin": 0, "errors": 0, "tainted": 0}, "classes": []}"#;
    assert!(expect_refusal(&request, old).contains("older toll"));
    let class = text.split_once("\"classes\":[").unwrap().1.split_once(",{\"rank\":2").unwrap().0;
    let many = format!("\"classes\":[{}", format!("{class},").repeat(9_000));
    let error = expect_refusal(&request, &text.replacen("\"classes\":[", &many, 1));
    assert!(error.contains("more than 8192"), "{error}");
    let twice = format!("\"classes\":[{class},");
    assert!(expect_refusal(&request, &text.replacen("\"classes\":[", &twice, 1)).contains("twice"));
}

#[test]
fn estimates_of_a_share_are_not_added_up() {
    let request = request(GroupBy::Fingerprint, 0);
    let mut done = digest_specs(&request, &some_events());
    done.sampled.set_share(&SampleShare { time_ns: 1_000, fraction: 0.5, requests: None });
    let error = expect_refusal(&request, &write_document(&request, &done));
    assert!(error.contains("share of the connections"), "{error}");
}

#[test]
fn objects_that_are_no_digest_are_passed_by() {
    let request = request(GroupBy::Fingerprint, 0);
    let done = digest_specs(&request, &some_events());
    let text = write_document(&request, &done) + "{\"queries\": {\"packets\": 12}}\n";
    let merged = read_document(&request, &text).unwrap();
    assert_eq!(merged.merged.digests, 1);
    assert_eq!(value(&request, &merged), value(&request, &done));
}
