use super::*;

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
            one.event(&event)
        } else {
            two.event(&event)
        }
        both.event(&event);
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
        digest.event(&event(name, 5));
    }
    assert!(digest.classes().len() <= 16);
    let kept: u64 = digest.classes().iter().map(|class| class.count).sum();
    assert_eq!(kept + digest.folded.count, 100);
    assert!(digest.classes().iter().any(|class| class.count_short_by_at_most > 0));
    assert_eq!(digest.unique(), 100);
}

#[test]
fn limits_read_like_those_of_pt_query_digest() {
    assert_eq!("20".parse(), Ok(Limit { share: None, count: Some(20) }));
    assert_eq!("95%".parse(), Ok(Limit { share: Some(0.95), count: None }));
    assert_eq!("95%:20".parse(), Ok(Limit { share: Some(0.95), count: Some(20) }));
    assert!("95:20".parse::<Limit>().is_err());
    assert!("-1".parse::<Limit>().is_err());
}
