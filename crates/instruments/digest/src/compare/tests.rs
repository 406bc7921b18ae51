//! Tests of comparisons, on a simulated host that drifts.

use super::{Change, Comparison, compare, write_json, write_report};
use crate::DigestResult;
use crate::classes::{GroupBy, Settings};
use serde_json::Value;
use std::collections::BTreeMap;
use toll_stats::SeededRng;
use toll_wire::event::{Event, Sink};

const CLASSES: u32 = 12;
/// Statements that are seldom run, each a class of its own.
const RARE: u32 = 40;
const EVENTS: u32 = 48_000;
const SECONDS: f64 = 60.0;
/// Of ln(query time) within a class.
const SPREAD: f64 = 0.4;

/// One side: what is unlike the other in it, besides the host's level.
#[derive(Clone, Copy, Default)]
struct Side {
    seed: u64,
    /// Class 3 takes this much longer.
    regression: f64,
    /// Another class, every 100th event.
    extra: Option<&'static str>,
}

fn normal(draws: &mut SeededRng) -> f64 {
    let radius = (-2.0 * (1.0 - draws.next_fraction()).ln()).sqrt();
    radius * (std::f64::consts::TAU * draws.next_fraction()).cos()
}

fn settings() -> Settings {
    Settings { group_by: GroupBy::Fingerprint, keep_time_bins: true, ..Settings::default() }
}

/// Capture of a host whose level drifts from one side to the other by 10%, and within each by as much.
fn capture(side: Side) -> DigestResult {
    let mut draws = SeededRng::new(side.seed, 2_000);
    let between = 0.1 * normal(&mut draws);
    let follow: Vec<f64> = (0..CLASSES).map(|_| 1.0 + 0.05 * normal(&mut draws)).collect();
    let mut level = 0.0;
    let mut done = DigestResult::new(settings());
    let start_ns = 1_700_000_000_000_000_000 + side.seed * 1_000_000_000_000;
    for n in 0..EVENTS {
        if n % (EVENTS / 240) == 0 {
            level = 0.9 * level + 0.04 * normal(&mut draws);
        }
        let at_ns = start_ns + (f64::from(n) * SECONDS * 1e9 / f64::from(EVENTS)) as u64;
        let (text, ln_us) = match (side.extra, draws.below(200)) {
            (Some(text), _) if n % 100 == 0 => (text.to_owned(), 7.0),
            (_, 0) => (format!("select r from rare_{}", letters(draws.below(RARE))), 9.0),
            (_, draw) => {
                let class = draw % CLASSES;
                let own = if class == 3 { side.regression } else { 0.0 };
                let host = follow[class as usize] * (between + level);
                (
                    format!("select c from t_{} where id = {n}", letters(class)),
                    5.0 + f64::from(class) / 4.0 + own + host,
                )
            }
        };
        let us = (ln_us + SPREAD * normal(&mut draws)).exp();
        done.digest.on_event(&Event {
            start_ns: at_ns,
            query_ns: Some((us * 1_000.0) as u64),
            text: text.as_bytes(),
            ..Event::default()
        });
    }
    done.digest.settle();
    done
}

/// A name without digits, which a fingerprint would hide.
fn letters(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'g')).collect()
}

/// Classes that are reported, with their changes.
fn reported(comparison: &Comparison<'_>) -> BTreeMap<String, Change> {
    let is_reported =
        |change: Change| matches!(change, Change::Slower | Change::Faster | Change::New | Change::Gone);
    let classes = comparison.classes.iter().filter(|class| is_reported(class.change));
    let name = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    classes.map(|class| (name(&class.class().unwrap().text), class.change)).collect()
}

#[test]
fn a_regression_of_one_class_is_found_alone_and_twenty_unchanged_pairs_report_nothing() {
    let mut false_reports = Vec::new();
    for pair in 0..20 {
        let sides = [2 * pair, 2 * pair + 1].map(|seed| capture(Side { seed, ..Side::default() }));
        let comparison = compare(&sides[0], &sides[1], 5.0);
        assert_eq!(comparison.slices, Some(12));
        assert!(comparison.common.unwrap().series >= CLASSES as usize);
        false_reports.extend(reported(&comparison).into_iter().map(|report| (pair, report)));
    }
    // 5% of 20.
    assert!(false_reports.len() <= 1, "{false_reports:?}");

    let slow = format!("select c from t_{} where id = ?", letters(3));
    let mut found_alone = 0;
    for pair in 100..110 {
        let before = capture(Side { seed: 2 * pair, ..Side::default() });
        let after = capture(Side { seed: 2 * pair + 1, regression: 1.2_f64.ln(), ..Side::default() });
        let comparison = compare(&before, &after, 5.0);
        let class = comparison.classes.iter().find(|class| class.class().unwrap().text == slow.as_bytes());
        let interval = class.unwrap().log_change.unwrap().interval.unwrap().to_pct();
        assert!(interval.contains(20.0) && interval.low > 0.0, "{pair}: {interval:?}");
        found_alone += usize::from(reported(&comparison) == BTreeMap::from([(slow.clone(), Change::Slower)]));
    }
    assert!(found_alone >= 9, "{found_alone} of 10");
}

#[test]
fn a_class_that_comes_or_goes_is_told_from_one_that_is_rare() {
    let plain = capture(Side { seed: 1, ..Side::default() });
    let extra = capture(Side { seed: 2, extra: Some("select x from cart"), ..Side::default() });
    let of = |before, after| reported(&compare(before, after, 5.0));
    assert_eq!(of(&plain, &extra), BTreeMap::from([("select x from cart".to_owned(), Change::New)]));
    assert_eq!(of(&extra, &plain), BTreeMap::from([("select x from cart".to_owned(), Change::Gone)]));
}

#[test]
fn a_class_that_the_other_side_may_have_folded_is_not_new() {
    let mut plain = capture(Side { seed: 1, ..Side::default() });
    let extra = capture(Side { seed: 2, extra: Some("select x from cart"), ..Side::default() });
    plain.digest.folded_classes = 1;
    assert!(reported(&compare(&plain, &extra, 5.0)).is_empty());
}

#[test]
fn without_times_new_classes_are_found_and_no_interval_is_invented() {
    let untimed = |names: &[&str]| {
        let mut done = DigestResult::new(settings());
        for name in names.iter().cycle().take(400) {
            let text = format!("select a from {name}");
            done.digest.on_event(&Event {
                query_ns: Some(5_000_000),
                text: text.as_bytes(),
                ..Event::default()
            });
        }
        done.digest.settle();
        done
    };
    let (before, after) = (untimed(&["old", "kept"]), untimed(&["kept", "fresh"]));
    let comparison = compare(&before, &after, 5.0);
    assert_eq!(comparison.slices, None);
    let want = [("select a from fresh", Change::New), ("select a from old", Change::Gone)];
    assert_eq!(reported(&comparison), want.map(|(text, change)| (text.to_owned(), change)).into());
    let text = report(&comparison);
    assert!(text.contains("No intervals") && text.contains("Not tested: 1"), "{text}");
}

fn report(comparison: &Comparison<'_>) -> String {
    let mut out = Vec::new();
    write_report(comparison, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_report_fits_a_screen_and_says_what_it_rests_on() {
    let before = capture(Side { seed: 5, extra: Some("select y from basket"), ..Side::default() });
    let after = capture(Side { seed: 6, regression: 0.4, extra: Some("select x from cart") });
    let comparison = compare(&before, &after, 5.0);
    let text = report(&comparison);
    for part in [
        "Slower: 1\n",
        "Faster: none",
        "New: 1\n",
        "Gone: 1\n",
        "select x from cart",
        "12 slices of time each",
        "95% intervals of all classes together",
        "The order of the sides is not random",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(text.lines().count() <= 40 && text.lines().all(|line| line.chars().count() <= 100), "{text}");

    let mut out = Vec::new();
    write_json(&comparison, &mut out).unwrap();
    let json: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(json["schema"]["name"], "toll-digest-comparison");
    let slower: Vec<&Value> =
        json["classes"].as_array().unwrap().iter().filter(|class| class["change"] == "slower").collect();
    let [slower] = slower[..] else { panic!("{json}") };
    let pct = |name: &str| slower["change_pct"][name].as_f64().unwrap();
    assert!(pct("low") < 49.2 && 49.2 < pct("high") && pct("low") < pct("estimate"), "{slower}");
    assert!(slower["before"]["typical_us"].as_f64() < slower["after"]["typical_us"].as_f64(), "{slower}");
    assert!(json["common_change_pct"]["low"].is_f64() && json["slices"] == 12, "{json}");
}

#[test]
fn many_changes_are_cut_to_a_screen() {
    let side = |name: &str| {
        let mut done = DigestResult::new(settings());
        for n in 0..6_000_u32 {
            let text =
                format!("select {} from {name}_{}", "column_with_a_long_name, ".repeat(8), letters(n % 60));
            done.digest.on_event(&Event {
                start_ns: 1_700_000_000_000_000_000 + u64::from(n) * 10_000_000,
                query_ns: Some(1_000_000),
                text: text.as_bytes(),
                ..Event::default()
            });
        }
        done.digest.settle();
        done
    };
    let (before, after) = (side("old"), side("new"));
    let text = report(&compare(&before, &after, 5.0));
    assert!(text.contains("New: 60, the first 5") && text.contains("Gone: 60, the first 4"), "{text}");
    assert!(text.lines().count() <= 40 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
