//! Two periods of a drifting host, compared without randomisation: false reports, coverage, and power.

use crate::share_pct;
use crate::simulated_host::SimulatedHost;
use toll_stats::{ObservedChanges, ObservedSeries, observed_changes};

const SLICES: usize = 12;
/// A change is reported where its whole interval is beyond this, as `toll digest --compare` does.
const MARGIN: f64 = 0.05;
const REGRESSION: f64 = 1.2;

/// Series of one host, and how it drifts.
#[derive(Clone, Copy)]
struct Drift {
    series: usize,
    /// Of the level between the periods, and from slice to slice within them.
    between_sd: f64,
    within_sd: f64,
    /// Of how strongly a series follows the level, about 1.
    sensitivity_sd: f64,
}

/// Both periods; the first series changes by `factor`.
fn periods(seed: u64, drift: Drift, factor: f64) -> Vec<ObservedSeries> {
    let mut host = SimulatedHost::new(seed);
    let mut course = |start: f64| {
        let mut level = start;
        let levels: Vec<f64> = (0..SLICES)
            .map(|_| {
                level = start + 0.7 * (level - start) + drift.within_sd * host.normal();
                level
            })
            .collect();
        levels
    };
    let before = course(0.0);
    let after = {
        let start = drift.between_sd * SimulatedHost::new(seed ^ 0x5eed).normal();
        course(start)
    };
    (0..drift.series)
        .map(|number| {
            let sensitivity = 1.0 + drift.sensitivity_sd * host.normal();
            // From busy series to rare ones.
            let noise = 0.005 * 1.4_f64.powi(number as i32 % 8);
            let own = if number == 0 { factor.ln() } else { 0.0 };
            let mut values = |course: &[f64], own: f64| {
                course.iter().map(|level| Some(sensitivity * level + noise * host.normal() + own)).collect()
            };
            ObservedSeries { before: values(&before, 0.0), after: values(&after, own) }
        })
        .collect()
}

fn reported(found: &ObservedChanges) -> Vec<usize> {
    let is_beyond = |low: f64, high: f64| low > MARGIN.ln_1p() || high < -MARGIN.ln_1p();
    let changes = found.changes.iter().enumerate();
    changes
        .filter(|(_, change)| change.interval.is_ok_and(|found| is_beyond(found.low, found.high)))
        .map(|(number, _)| number)
        .collect()
}

/// Hosts from quiet to wild. On the last one a change of 20% is not to be told from drift.
const HOSTS: [(&str, Drift); 6] = [
    ("quiet", Drift { series: 12, between_sd: 0.02, within_sd: 0.02, sensitivity_sd: 0.2 }),
    ("drifting", Drift { series: 12, between_sd: 0.15, within_sd: 0.05, sensitivity_sd: 0.1 }),
    ("many series", Drift { series: 60, between_sd: 0.15, within_sd: 0.05, sensitivity_sd: 0.1 }),
    ("drifting, 5 series", Drift { series: 5, between_sd: 0.15, within_sd: 0.05, sensitivity_sd: 0.1 }),
    ("drifting, 7 series", Drift { series: 7, between_sd: 0.15, within_sd: 0.05, sensitivity_sd: 0.1 }),
    ("wild", Drift { series: 12, between_sd: 0.40, within_sd: 0.10, sensitivity_sd: 0.3 }),
];

#[test]
fn nothing_is_reported_where_nothing_but_the_host_changed() {
    for (what, drift) in HOSTS {
        let share = share_pct(&format!("A/A on a {what} host: any series reported"), 0..300, |seed| {
            !reported(&observed_changes(&periods(seed, drift, 1.0), 0.05, seed)).is_empty()
        });
        assert!(share <= 5.0, "{what}: {share}%");
    }
}

#[test]
fn a_regression_of_one_series_is_found_alone() {
    for (what, drift) in &HOSTS[..3] {
        let share = share_pct(&format!("+20% of one series on a {what} host: found alone"), 0..200, |seed| {
            reported(&observed_changes(&periods(seed, *drift, REGRESSION), 0.05, seed)) == [0]
        });
        assert!(share >= 90.0, "{what}: {share}%");
    }
}

/// What the course of the others is subtracted for.
#[test]
fn each_series_by_itself_would_report_the_drift_of_the_host() {
    let (_, drift) = HOSTS[1];
    let share = share_pct("A/A on a drifting host, each series by itself: any reported", 0..100, |seed| {
        let all = periods(seed, drift, 1.0);
        all.iter().any(|one| !reported(&observed_changes(std::slice::from_ref(one), 0.05, seed)).is_empty())
    });
    assert!(share > 50.0, "{share}%");
}
