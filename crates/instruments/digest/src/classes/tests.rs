//! Tests of query digests.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use toll_wire::event::{ErrorInfo, Flags};
use toll_wire::fingerprint::QueryId;

fn event(text: &str, query_ns: u64) -> Event<'_> {
    Event {
        start_ns: 1_700_000_000_000_000_000,
        query_ns: Some(query_ns),
        text: text.as_bytes(),
        ..Event::default()
    }
}

#[test]
fn shards_merge_to_the_same_as_one_digest() {
    let texts: Vec<String> =
        (0..500).map(|n| format!("select {n} from t{} where a='x{n}'", "y".repeat(n % 7))).collect();
    let (mut one, mut two, mut both) = (
        Digest::new(Settings::default()),
        Digest::new(Settings::default()),
        Digest::new(Settings::default()),
    );
    for (n, text) in (0..).zip(&texts) {
        let event = event(text, n * 1_000);
        if n % 2 == 0 {
            one.on_event(&event)
        } else {
            two.on_event(&event)
        }
        both.on_event(&event);
    }
    one.merge(&two);
    let limit = Limit { share: None, count: None };
    let (merged, _) = one.ranked(limit);
    let (whole, _) = both.ranked(limit);
    assert_eq!(merged.len(), 7);
    for (a, b) in merged.iter().zip(&whole) {
        let (x, y) = (a.measure(Attribute::QueryTime).unwrap(), b.measure(Attribute::QueryTime).unwrap());
        assert_eq!((a.id, a.count, x.sum, x.min, x.max), (b.id, b.count, y.sum, y.min, y.max));
        assert_eq!((x.stddev(), x.quantile(0.95)), (y.stddev(), y.quantile(0.95)));
    }
}

#[test]
fn what_is_folded_is_counted_and_said() {
    let mut digest = Digest::new(Settings { classes_max: 16, ..Settings::default() });
    let names: Vec<String> = (0_u8..100)
        .map(|n| format!("select a from {}", (b'g' + n % 10) as char).repeat(1) + &"z".repeat(n.into()))
        .collect();
    for name in &names {
        digest.on_event(&event(name, 5));
    }
    assert!(digest.classes().len() <= 16);
    let kept: u64 = digest.classes().iter().map(|class| class.count).sum();
    assert_eq!(kept + digest.folded.count, 100);
    assert!(digest.classes().iter().any(|class| class.count_short_by_at_most > 0));
    assert_eq!(digest.unique(), 100);
}

/// Clients choose statements, and by `sleep` and `limit` how long they take and how much they return.
#[test]
fn classes_whose_values_spread_widely_stay_within_their_memory() {
    let most = 1 << 20;
    let settings = Settings { classes_bytes_max: most, keep_samples: true, ..Settings::default() };
    let (mut digest, mut peak, mut events) = (Digest::new(settings), 0, 0);
    let mut add = |digest: &mut Digest, class: usize, value: u64| {
        let text = format!("select a from {}", "z".repeat(class));
        let rows = value / 3;
        let spread = Event { rows_sent: Some(rows), rows_examined: Some(rows * 40), ..event(&text, value) };
        digest.on_event(&spread);
        events += 1;
        let bytes: usize = digest.classes().iter().map(Class::bytes).sum();
        assert_eq!(bytes, digest.bytes);
        peak = peak.max(bytes);
    };
    for octave in 0..60 {
        for class in 1..50 {
            // The first comes most often.
            for n in 0..if class == 1 { 20 } else { 2 } {
                add(&mut digest, class, (1 << octave) + ((n as u64) << octave) / 32);
            }
        }
    }
    assert!(peak <= most && peak > most / 2, "{peak} bytes");
    assert!(digest.folded_classes > 0 && digest.classes().len() > 1);
    let kept: u64 = digest.classes().iter().map(|class| class.count).sum();
    assert_eq!(kept + digest.folded.count, events);
    assert!(digest.classes().iter().any(|class| class.text == b"select a from z"));
    // Merged, and stored, they stay there, too.
    let mut merged = Digest::new(settings);
    merged.merge(&digest);
    merged.merge(&digest);
    assert!(merged.classes().iter().map(Class::bytes).sum::<usize>() <= most);
    let kept: u64 = merged.classes().iter().map(|class| class.count).sum();
    assert_eq!(kept + merged.folded.count, 2 * events);
}

#[test]
fn limits_read_like_those_of_pt_query_digest() {
    assert_eq!("20".parse(), Ok(Limit { share: None, count: Some(20) }));
    assert_eq!("95%".parse(), Ok(Limit { share: Some(0.95), count: None }));
    assert_eq!("95%:20".parse(), Ok(Limit { share: Some(0.95), count: Some(20) }));
    assert!("95:20".parse::<Limit>().is_err());
    assert!("-1".parse::<Limit>().is_err());
}

/// An event in a few numbers: text, user, query time, and the rest.
type Spec = (u8, u8, Option<u64>, u8);

fn specs() -> impl Strategy<Value = Spec> {
    let query_ns = prop_oneof![0_u64..100, 1_000_u64..10_000_000, any::<u64>()];
    (0_u8..9, 0_u8..6, proptest::option::of(query_ns), any::<u8>())
}

fn digest_of(specs: &[Spec]) -> Digest {
    let mut digest = Digest::new(Settings::default());
    for (text, user, query_ns, rest) in specs {
        let text = format!("select {rest} from t{}", "x".repeat((*text).into()));
        let rows = rest.to_string();
        let attributes = [("Rows_read", rows.as_bytes())];
        digest.on_event(&Event {
            start_ns: u64::from(*rest) * 1_000,
            query_ns: *query_ns,
            text: text.as_bytes(),
            user: &[b'a' + user],
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
    digest
}

/// All that must not depend on the order of merges.
fn exact(digest: &Digest) -> impl PartialEq + std::fmt::Debug + use<> {
    let measured = |measure: &Measure| {
        let Measure { count, sum, min, max, .. } = *measure;
        (count, sum, measure.sum_of_squares(), min, max, measure.histogram.buckets())
    };
    let named = |names: &NameCounts| {
        let named = |(id, count): (u32, u64)| (digest.name(id).to_vec(), count);
        names.by_count().into_iter().map(named).collect::<BTreeMap<_, _>>()
    };
    let of_class = |class: &Class| {
        let own = Attribute::ALL.map(|attribute| class.measure(attribute).map(measured));
        let others: BTreeMap<_, _> = (0..)
            .zip(digest.other_attributes())
            .filter_map(|(id, (name, _))| Some((name.clone(), measured(class.other(id)?))))
            .collect();
        let counts = (class.count, class.errors, class.tainted, class.first_ns, class.last_ns, class.flags);
        let errors: BTreeMap<_, _> = class.error_numbers.iter().copied().collect();
        (counts, own, others, named(&class.users), named(&class.dbs), errors)
    };
    let classes: BTreeMap<_, _> = digest.classes().iter().map(|class| (class.id, of_class(class))).collect();
    let Totals { commands, queries, errors, tainted, first_ns, last_ns, .. } = digest.totals;
    (classes, (commands, queries, errors, tainted, first_ns, last_ns))
}

proptest! {
    // Together more than 100,000 merges.
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn merges_in_any_order_and_grouping_come_to_the_digest_of_the_whole(
        parts in vec(vec(specs(), 1..4), 1_600..1_700),
        seed in any::<u64>(),
    ) {
        let whole = digest_of(&parts.concat());
        let mut digests: Vec<Digest> = parts.iter().map(|part| digest_of(part)).collect();
        let mut state = seed;
        while digests.len() > 1 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let from = digests.swap_remove((state >> 33) as usize % digests.len());
            let to = (state >> 17) as usize % digests.len();
            digests[to].merge(&from);
        }
        prop_assert_eq!(exact(&digests[0]), exact(&whole));
    }
}

#[test]
fn a_class_says_how_many_of_its_events_another_digest_may_have_folded() {
    let mut folded = Digest::new(Settings { classes_max: 2, ..Settings::default() });
    for text in ["select a", "select a", "select b", "select c"] {
        folded.on_event(&event(text, 5));
    }
    let mut listed = Digest::new(Settings::default());
    listed.on_event(&event("select c", 5));
    let short = |digest: &Digest| {
        let of_c = |class: &&Class| class.text == b"select c";
        let class = digest.classes().iter().find(of_c).unwrap();
        (class.count, class.count_short_by_at_most)
    };
    assert_eq!(short(&folded), (1, 1));
    listed.merge(&folded);
    assert_eq!(short(&listed), (2, 1));
    let mut other = Digest::new(Settings::default());
    other.on_event(&event("select d", 5));
    other.merge(&folded);
    let of_d = other.classes().iter().find(|class| class.text == b"select d").unwrap();
    assert_eq!((of_d.count, of_d.count_short_by_at_most), (1, 1), "it may be among what was folded");
}

#[test]
fn names_beyond_those_counted_apart_stay_one_line_in_a_merge() {
    let of_users = |first: u8| {
        let mut digest = Digest::new(Settings::default());
        for user in first..first + 40 {
            digest.on_event(&Event { user: &[user], ..event("select a", 5) });
        }
        digest
    };
    // As it is read back: most frequent first.
    let mut stored = Digest::new(Settings::default());
    let mut class = Class::from_text(b"select a", QueryId::from_fingerprint(b"select a")).unwrap();
    class.users.add(stored.name_id(b"(others)"), 8);
    assert!(stored.insert(class));
    let mut merged = Digest::new(Settings::default());
    merged.merge(&stored);
    merged.merge(&of_users(1));
    let users = merged.classes()[0].users.by_count();
    let beyond: Vec<u64> =
        users.iter().filter(|(id, _)| merged.name(*id) == b"(others)").map(|(_, count)| *count).collect();
    assert_eq!(beyond, [8 + 40 - 32]);
    assert_eq!(users.len(), 33);
}

#[test]
fn a_class_holds_a_bounded_part_of_a_hostile_statement() {
    let names: Vec<String> = (0..20_000).map(|n| format!("a{n}")).collect();
    let many = format!("select 1 from {}", names.join(","));
    let long = format!("select * from {}", "x".repeat(1 << 20));
    let verbs = "insert select ".repeat(20_000);
    for group_by in [GroupBy::Fingerprint, GroupBy::Distill, GroupBy::Tables] {
        let mut digest = Digest::new(Settings { group_by, ..Settings::default() });
        for text in [&many, &long, &verbs] {
            digest.on_event(&Event { db: b"shop", ..event(text, 5) });
        }
        assert!(digest.classes().len() <= 65, "{}", digest.classes().len());
        for class in digest.classes() {
            let tables: usize = class.tables.iter().map(Vec::len).sum();
            let kept = class.key.len() + class.text.len() + class.distill.capacity() + tables;
            assert!(kept < 16 << 10 && class.tables.len() <= 64, "{kept} bytes, {tables} of tables");
        }
    }
}

#[test]
fn names_that_clients_choose_take_bounded_memory() {
    let mut digest = Digest::new(Settings::default());
    for n in 0..40_000 {
        let user = format!("{n}{}", "u".repeat(8_000));
        digest.on_event(&Event { user: user.as_bytes(), ..event("select a", 5) });
    }
    let bytes: usize = (0..digest.names.len()).map(|id| digest.name(id).len()).sum();
    assert!(bytes <= 9 << 20, "{bytes}");
    let counted: u64 = digest.classes()[0].users.by_count().iter().map(|(_, count)| count).sum();
    assert_eq!(counted, 40_000, "those beyond are counted together");
}

/// A statement that comes back, with literals that caches take and with some that they do not.
fn recurring() -> impl Strategy<Value = (String, CommandKind)> {
    let text = prop::sample::select(vec![
        "select a from t where id = {}",
        "select a from t where id = {} and b = 'x'",
        "select a from t{} where id = 1",
        "select b from t where s = '{}'",
        "select b from t where s = \"{}\"",
        "select b from t where s = '{}\\''",
        "insert into t values ({}, 'a'), (2, 'b')",
        "use {}",
        "call p{}(1)",
        "select `c{}` from t /* {} */",
        "commit",
    ]);
    let literal = prop::sample::select(vec!["1", "22", "0x3", "abc", "it(s)", "", "null"]);
    let kind = prop::sample::select(vec![CommandKind::Query, CommandKind::Prepare, CommandKind::Execute]);
    (text, literal, kind).prop_map(|(text, literal, kind)| (text.replace("{}", literal), kind))
}

proptest! {
    #[test]
    fn caches_never_change_a_class(
        events in vec(recurring(), 1..400),
        restarts in vec(1_usize..200, 0..4),
        classes_max in 4_usize..40,
    ) {
        let settings = Settings { classes_max, ..Settings::default() };
        let mut digest = Digest::new(settings);
        let mut whole = Digest::new(Settings::default());
        let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (n, (text, kind)) in events.iter().enumerate() {
            if restarts.contains(&n) {
                let next = digest.successor();
                whole.merge(&std::mem::replace(&mut digest, next));
            }
            let event = Event { kind: *kind, ..event(text, 5) };
            digest.on_event(&event);
            let key = GroupKeys::default().of_text(GroupBy::Fingerprint, &event).to_vec();
            *expected.entry(key).or_default() += 1;
        }
        whole.merge(&digest);
        let found: u64 = whole.classes().iter().map(|class| class.count).sum();
        prop_assert_eq!(found + whole.folded.count, events.len() as u64);
        for class in whole.classes() {
            let count = expected[&class.text];
            prop_assert!((class.count..=class.count_at_most()).contains(&count), "{}", String::from_utf8_lossy(&class.text));
        }
    }
}
