//! Tests of a run's figures over time: an arm's first seconds, the run's length, other hours and days.

use super::analysis::warning_codes;
use super::arm;
use super::synthetic::{SyntheticArm, SyntheticRun};
use toll_analysis as analyse;
use toll_record::*;

#[test]
fn a_toll_that_grows_after_the_short_windows_is_told_and_drawn() {
    let mut log = SyntheticArm::new("log", Role::Treatment, 1.05);
    log.later = Some((2.0, 1.10));
    let flat = SyntheticArm::new("flat", Role::Treatment, 1.15);
    let arms = vec![log, flat, SyntheticArm::new("none-2", Role::Aa, 1.0)];
    let mut host = SyntheticRun::with(5, 40, arms);
    (host.window_s, host.long) = (0.5, Some((4, 4.0)));
    let run = analyse::analyse(&host.record());
    let told: Vec<_> = run.warnings.iter().filter(|w| w.code == "window-on-slope").collect();
    let [of_log] = told[..] else { panic!("{told:#?}") };
    assert_eq!(of_log.arm.as_deref(), Some("log"));
    assert!(of_log.advice.contains("settle = \"3s\""), "{}", of_log.advice);

    let course = run.charts.iter().find(|chart| chart.id == "course").unwrap();
    let of_log = course.series.iter().find(|series| series.name == "log").unwrap();
    for (at_s, truth) in [(1.0, 5.0), (3.5, 100.0 * (1.05 * 1.10 - 1.0))] {
        let nearest = |a: &&toll_record::ChartPoint| (a.0 - at_s).abs();
        let point = of_log.points.iter().min_by(|a, b| nearest(a).total_cmp(&nearest(b))).unwrap();
        assert!(point.2 < Some(truth) && Some(truth) < point.3, "{at_s} s: {point:?}, {truth:.1}% is true");
    }
    // Windows of one length cannot say what comes after them.
    host.long = None;
    let run = analyse::analyse(&host.record());
    assert!(!warning_codes(&run).contains(&"window-on-slope"), "{:#?}", run.warnings);
}

#[test]
fn the_width_of_intervals_is_drawn_by_time_and_ends_as_reported() {
    let run = analyse::analyse(&SyntheticRun::with(11, 30, SyntheticArm::usual()).record());
    let chart = run.charts.iter().find(|chart| chart.id == "precision").unwrap();
    let [so_far, then] = &chart.series[..] else { panic!("{:?}", chart.series) };
    let half = |name: &str| {
        let [low, high] = arm(&run, name).outcomes["qps"].ci95_pct.unwrap();
        (high - low) / 2.0
    };
    let mut halves = [half("B"), half("C"), half("K")];
    halves.sort_by(f64::total_cmp);
    let (first, last) = (so_far.points[0], so_far.points[so_far.points.len() - 1]);
    assert!((last.1 - halves[1]).abs() < 1e-9, "{last:?} {halves:?}");
    assert!(first.0 < last.0 && first.1 > last.1, "{:?}", so_far.points);
    assert!(then.points[1].1 < last.1 && (then.points[1].0 - last.0 - 10.0).abs() < 1e-9);
}

#[test]
fn like_runs_are_pooled_with_the_spread_between_them_and_unlike_ones_are_not() {
    let arms =
        || vec![SyntheticArm::new("B", Role::Treatment, 1.12), SyntheticArm::new("none-2", Role::Aa, 1.0)];
    let run = |seed| analyse::analyse(&SyntheticRun::with(seed, 10, arms()).record());
    let mut runs = vec![run(1), run(2), run(3)];
    let pooled = analyse::pool_runs(&runs).unwrap();
    let b = pooled.arms.iter().find(|arm| arm.name == "B").unwrap();
    let truth = 100.0 * (1.0 / 1.12 - 1.0);
    assert!(b.ci95_pct[0] < truth && truth < b.ci95_pct[1], "{b:?}");
    let of_runs: Vec<Option<f64>> = runs.iter().map(|run| arm(run, "B").outcomes["qps"].toll_pct).collect();
    assert_eq!(b.tolls_pct.len(), 3);
    for (pooled, own) in b.tolls_pct.iter().zip(&of_runs) {
        assert!((pooled.unwrap() - own.unwrap()).abs() < 1e-9, "{b:?} {of_runs:?}");
    }
    // One that differs by far more than its own error says widens what is said of all.
    let narrow = b.ci95_pct[1] - b.ci95_pct[0];
    for (i, times) in [(1, 2.0), (2, 0.5)] {
        let outcome =
            runs[i].arms.iter_mut().find(|arm| arm.name == "B").unwrap().outcomes.get_mut("qps").unwrap();
        outcome.toll_pct = outcome.toll_pct.map(|pct| pct * times);
    }
    let b = &analyse::pool_runs(&runs).unwrap().arms[0];
    assert!(b.ci95_pct[1] - b.ci95_pct[0] > 2.0 * narrow && b.between_pct > 1.0, "{b:?}, {narrow}");
    runs[2].host.label = "another".into();
    assert_eq!(analyse::pool_runs(&runs).unwrap_err(), "they differ in host");
    assert!(analyse::pool_runs(&runs[..1]).is_err());
}

#[test]
fn the_parts_of_a_run_that_was_spread_over_hours_are_taken_together() {
    let arms =
        vec![SyntheticArm::new("B", Role::Treatment, 1.12), SyntheticArm::new("none-2", Role::Aa, 1.0)];
    let mut recorded = SyntheticRun::with(1, 24, arms).record();
    assert!(analyse::analyse(&recorded).parts.is_none());
    recorded.plan.spread = Some(Spread { over_s: 9_000.0, begins: vec![8, 16] });
    let run = analyse::analyse(&recorded);
    let parts = run.parts.as_ref().unwrap();
    assert_eq!(parts.over, "3 parts of this run");
    let b = parts.arms.iter().find(|arm| arm.name == "B").unwrap();
    let truth = 100.0 * (1.0 / 1.12 - 1.0);
    assert!(b.tolls_pct.len() == 3 && b.ci95_pct[0] < truth && truth < b.ci95_pct[1], "{b:?}");
    // Parts of eight rounds each, of which the whole's estimate lies in the midst.
    let whole = arm(&run, "B").outcomes["qps"].toll_pct.unwrap();
    let tolls: Vec<f64> = b.tolls_pct.iter().flatten().copied().collect();
    assert!(tolls.iter().any(|toll| *toll <= whole) && tolls.iter().any(|toll| *toll >= whole), "{tolls:?}");
    let text =
        toll_report::text::text(&run, toll_report::text::ColourMode::Plain, toll_report::text::Detail::All);
    assert!(text.contains("Pooled over 3 parts of this run"), "{text}");
}
