//! Tests of percentiles from short windows, and from windows without a histogram.

use super::analysis::warning_codes;
use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_record::*;

/// Windows of half a second have too few events for a p99, each by itself.
#[test]
fn a_p99_of_short_windows_is_of_blocks_of_rounds() {
    let p99 = |rounds| {
        let arms = vec![SyntheticArm::new("B", Role::Treatment, 1.12)];
        let mut host = SyntheticRun::with(11, rounds, arms);
        (host.window_s, host.qps) = (0.5, 16_000.0);
        let run = analyse::analyse(&host.record());
        (arm(&run, "B").outcomes.get("latency_us_p99").cloned(), arm(&run, "B").notes.clone())
    };
    // About 500 events a window, two windows and a bit for a thousand.
    let (found, notes) = p99(60);
    let found = found.unwrap();
    assert!(found.method.starts_with("bootstrap-bca of ") && found.method.ends_with(" rounds"), "{found:?}");
    let [low, high] = found.ci95_pct.unwrap();
    assert!(low < 12.0 && 12.0 < high && high - low < 20.0, "[{low}, {high}]");
    assert!((12..=30).contains(&found.values.len()), "one value a block: {found:?}");
    assert!(!notes.iter().any(|note| note.contains("p99 ")), "{notes:?}");
    let (found, _) = p99(24);
    assert!(found.unwrap().method.starts_with("sign-flip of "));
    let (found, notes) = p99(8);
    assert_eq!(found.unwrap().verdict, Verdict::NoInterval);
    assert!(
        notes.iter().any(|note| note.contains("p99 has no interval: an interval of this quantile")),
        "{notes:?}"
    );
    let (found, notes) = p99(1);
    assert!(found.is_none() && notes.iter().any(|note| note.contains("p99 needs 1000 events")), "{notes:?}");
}

#[test]
fn a_window_without_a_distribution_takes_no_percentile_from_the_others() {
    let mut host = SyntheticRun::with(11, 60, vec![SyntheticArm::new("B", Role::Treatment, 1.12)]);
    (host.window_s, host.qps) = (0.5, 16_000.0);
    let mut recorded = host.record();
    let lost = |arm: &str, round: u32| {
        let of = |line: &&TrialLine| line.arm == arm && line.round == round;
        recorded.trials.iter().find(of).expect("a trial").trial
    };
    let lost = [lost("none", 3), lost("B", 20)];
    recorded.latencies.retain(|latency| !lost.contains(&latency.trial));
    let run = analyse::analyse(&recorded);
    let found = &arm(&run, "B").outcomes["latency_us_p99"];
    assert!(found.method.starts_with("bootstrap-bca of ") && found.ci95_pct.is_some(), "{found:?}");
    assert!(arm(&run, "none").outcomes.contains_key("latency_us_p99"));
    assert!(warning_codes(&run).contains(&"latency-missing"), "{:?}", warning_codes(&run));
}
