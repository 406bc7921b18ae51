//! Changes of many series between two periods that were observed one after the other, not randomised.
//!
//! Both periods are cut into the same number of slices of time, and the i-th slices are pairs. The slice is the
//! unit: values within one depend on each other. A host that drifts moves all series together, so the median
//! course of the series is subtracted from each of them (their change is relative to the others'). The signs of
//! what is left are flipped for all series at once, as in [`crate::simultaneous_sign_flips`].
//!
//! Slices of one period say nothing about the time between the periods. The series say it for each other: the
//! spread of their changes beyond the error of their slices is estimated robustly and widens every interval. The
//! estimate tau solves Q(e^2 / (s^2 + tau^2)) = upper quartile of F(1, n - 1). Q is the upper quartile over the
//! series, e the distance of a change from the median change, and s its standard error: the estimating equation of
//! R. Paule and J. Mandel (1982), with a quartile in place of the mean, so that the few series that did change do not
//! count. The interval takes Student's t with k - 1 degrees of freedom for k series: the largest of k distances is
//! in it in more than 95 of 100 draws, from 5 series to 60.
//!
//! # Invariants
//! Never claims a cause: neither order nor period is random.

use crate::interval::{Interval, IntervalError};
use crate::moments::{mean, median, sd};
use crate::quantiles::student_t_quantile;
use crate::signflip::{rounds_for_interval, sign_flip, simultaneous_sign_flips};

/// With two series, neither can be told from the course of both.
pub const MIN_COMMON_SERIES: usize = 3;
/// With fewer, one that did change would be a part of the spread.
pub const MIN_SPREAD_SERIES: usize = 5;
/// From here on, Student's t is the normal distribution in three digits.
const DF_MAX: u32 = 1_000;
/// Halvings of the bracket around tau^2: to 12 digits of it.
const BISECTIONS: usize = 40;

/// Values of one series by slice of time, on the log scale. Absent where a slice has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedSeries {
    pub before: Vec<Option<f64>>,
    pub after: Vec<Option<f64>>,
}

/// Changes on the log scale; [`Interval::to_pct`] turns them into percent.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedChanges {
    /// Change that the series have in common; `None`: too few series have values in every slice.
    pub common: Option<CommonChange>,
    /// Standard deviation of the changes beyond the error of their slices. It is in the intervals. `None`: too few
    /// series, and a drift between the periods is not in the intervals.
    pub between_sd: Option<f64>,
    /// In the order of the series.
    pub changes: Vec<ObservedChange>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommonChange {
    pub mean: f64,
    pub interval: Result<Interval, IntervalError>,
    /// Series it was estimated from.
    pub series: usize,
}

/// Change of one series, relative to the common change where there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedChange {
    /// NaN without pairs.
    pub mean: f64,
    /// All intervals hold at once with probability 1 - alpha.
    pub interval: Result<Interval, IntervalError>,
}

/// The changes of all series, with simultaneous intervals.
#[must_use]
pub fn observed_changes(series: &[ObservedSeries], alpha: f64, seed: u64) -> ObservedChanges {
    let steady: Vec<&ObservedSeries> = series.iter().filter(|one| one.is_steady(alpha)).collect();
    let course = (steady.len() >= MIN_COMMON_SERIES).then(|| common_course(&steady));
    let differences: Vec<Vec<Option<f64>>> =
        series.iter().map(|one| one.differences(course.as_ref())).collect();
    let arms: Vec<&[Option<f64>]> = differences.iter().map(Vec::as_slice).collect();
    let flipped = simultaneous_sign_flips(&arms, alpha, seed);
    let errors: Vec<Option<SliceError>> = differences.iter().map(|d| SliceError::new(d)).collect();
    let between_sd = between_sd(series.iter().zip(&errors).filter(|(one, _)| one.is_steady(alpha)));
    let judged = flipped.iter().filter(|found| found.interval.is_ok()).count().max(1);
    let df = u32::try_from(steady.len()).unwrap_or(DF_MAX).saturating_sub(1).clamp(1, DF_MAX);
    let half = student_t_quantile(1.0 - alpha / (2 * judged) as f64, df) * between_sd.unwrap_or(0.0);
    let changes = flipped
        .iter()
        .map(|found| ObservedChange {
            mean: found.mean,
            interval: found.interval.map(|interval| widen_interval(interval, found.mean, half)),
        })
        .collect();
    let common = course.map(|course| {
        let d: Vec<f64> =
            course.after.iter().zip(&course.before).map(|(after, before)| after - before).collect();
        let found = sign_flip(&d, alpha, seed);
        CommonChange { mean: found.mean, interval: found.interval, series: steady.len() }
    });
    ObservedChanges { common, between_sd, changes }
}

impl ObservedSeries {
    /// True if it has a value in every slice of both periods, and enough of them for an interval.
    fn is_steady(&self, alpha: f64) -> bool {
        self.before.len() == self.after.len()
            && self.before.len() >= rounds_for_interval(alpha)
            && self.values().count() == 2 * self.before.len()
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.before.iter().chain(&self.after).flatten().copied().filter(|value| value.is_finite())
    }

    fn differences(&self, course: Option<&CommonCourse>) -> Vec<Option<f64>> {
        let pairs = self.before.iter().zip(&self.after).enumerate();
        pairs
            .map(|(slice, (before, after))| {
                let common = course.map_or(0.0, |course| course.after[slice] - course.before[slice]);
                Some(after.as_ref()? - before.as_ref()? - common)
            })
            .collect()
    }
}

/// Median of the series in each slice, each less its own mean.
struct CommonCourse {
    before: Vec<f64>,
    after: Vec<f64>,
}

/// `steady`: not empty, all with the same slices.
fn common_course(steady: &[&ObservedSeries]) -> CommonCourse {
    let centres: Vec<f64> = steady.iter().map(|one| mean(&one.values().collect::<Vec<_>>())).collect();
    let of_period = |values: fn(&ObservedSeries) -> &[Option<f64>]| {
        let slices = steady.iter().map(|one| values(one).len()).min().unwrap_or(0);
        (0..slices)
            .map(|slice| {
                let about = steady.iter().zip(&centres);
                let about: Vec<f64> =
                    about.filter_map(|(one, centre)| Some(values(one)[slice]? - centre)).collect();
                median(&about)
            })
            .collect()
    };
    CommonCourse { before: of_period(|one| &one.before), after: of_period(|one| &one.after) }
}

/// Mean of the differences of a series and its standard error.
#[derive(Debug, Clone, Copy)]
struct SliceError {
    mean: f64,
    standard_error: f64,
    df: u32,
}

impl SliceError {
    fn new(differences: &[Option<f64>]) -> Option<Self> {
        let d: Vec<f64> = differences.iter().flatten().copied().collect();
        let standard_error = sd(&d) / (d.len() as f64).sqrt();
        let df = u32::try_from(d.len().saturating_sub(1)).unwrap_or(u32::MAX);
        standard_error.is_finite().then(|| Self { mean: mean(&d), standard_error, df })
    }
}

fn between_sd<'a>(steady: impl Iterator<Item = (&'a ObservedSeries, &'a Option<SliceError>)>) -> Option<f64> {
    let errors: Vec<SliceError> = steady.filter_map(|(_, error)| *error).collect();
    if errors.len() < MIN_SPREAD_SERIES {
        return None;
    }
    let centre = median(&errors.iter().map(|error| error.mean).collect::<Vec<_>>());
    let expected = student_t_quantile(0.875, errors.iter().map(|error| error.df).min()?).powi(2);
    let quartile_ratio = |variance: f64| {
        let ratio = |error: &SliceError| {
            let distance = (error.mean - centre).powi(2);
            // A series without any noise that is where it should be is no evidence of a spread.
            if distance == 0.0 { 0.0 } else { distance / (error.standard_error.powi(2) + variance) }
        };
        upper_quartile(errors.iter().map(ratio).collect())
    };
    let farthest = errors.iter().map(|error| (error.mean - centre).powi(2)).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, farthest / expected);
    if quartile_ratio(0.0) <= expected {
        return Some(0.0);
    }
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (low + high);
        *if quartile_ratio(middle) > expected { &mut low } else { &mut high } = middle;
    }
    // Distances are from the median of the same series, which is nearer to them than the true centre.
    let series = errors.len() as f64;
    Some((high * series / (series - 1.0)).sqrt())
}

/// Between two values by interpolation.
fn upper_quartile(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let rank = 0.75 * (values.len() as f64 - 1.0);
    let (at, share) = (rank.floor() as usize, rank.fract());
    match values.get(at + 1) {
        Some(next) if share > 0.0 && values[at].is_finite() => values[at] + share * (next - values[at]),
        _ => values[at],
    }
}

/// Adds an independent error to both sides of an interval.
fn widen_interval(interval: Interval, mean: f64, half: f64) -> Interval {
    Interval {
        low: mean - (mean - interval.low).hypot(half),
        high: mean + (interval.high - mean).hypot(half),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12 slices a period: a common course, a change of its own, and a wobble that differs by series.
    fn series(own: f64, common: f64, wobble: f64, number: usize) -> ObservedSeries {
        let value = |slice: usize, level: f64| {
            let sign = if (slice * (number + 2) + number).is_multiple_of(3) { 2.0 } else { -1.0 };
            Some(-7.0 - number as f64 + level + sign * wobble)
        };
        ObservedSeries {
            before: (0..12).map(|slice| value(slice, 0.0)).collect(),
            after: (0..12).map(|slice| value(slice + 5, own + common)).collect(),
        }
    }

    #[test]
    fn one_change_among_many_is_relative_to_the_others() {
        let all: Vec<ObservedSeries> =
            (0..9).map(|n| series(if n == 4 { 0.2 } else { 0.0 }, 0.1, 0.01, n)).collect();
        let found = observed_changes(&all, 0.05, 1);
        let common = found.common.unwrap();
        assert_eq!(common.series, 9);
        assert!((common.mean - 0.1).abs() < 0.02, "{common:?}");
        for (n, change) in found.changes.iter().enumerate() {
            let interval = change.interval.unwrap();
            assert_eq!(interval.contains(0.2), n == 4, "{n}: {change:?}");
            assert_eq!(interval.contains(0.0), n != 4, "{n}: {change:?}");
        }
    }

    #[test]
    fn two_series_have_nothing_in_common_and_four_no_spread() {
        let all: Vec<ObservedSeries> = (0..4).map(|n| series(0.3, 0.0, 0.01, n)).collect();
        let two = observed_changes(&all[..2], 0.05, 1);
        assert_eq!((two.common, two.between_sd), (None, None));
        assert!((two.changes[0].mean - 0.3).abs() < 0.02, "{two:?}");
        let four = observed_changes(&all, 0.05, 1);
        assert!(four.common.is_some() && four.between_sd.is_none(), "{four:?}");
    }

    #[test]
    fn series_that_changed_differently_widen_the_intervals_of_all() {
        let width = |spread: f64| {
            let own = |n: usize| spread * (n as f64 - 4.0);
            let all: Vec<ObservedSeries> = (0..9).map(|n| series(own(n), 0.0, 0.01, n)).collect();
            let found = observed_changes(&all, 0.05, 1);
            let interval = found.changes[4].interval.unwrap();
            (found.between_sd.unwrap(), interval.high - interval.low)
        };
        let (alike, apart) = (width(0.0), width(0.03));
        assert!(alike.0 < 0.01 && apart.0 > 0.05, "{alike:?} {apart:?}");
        assert!(apart.1 > 5.0 * alike.1, "{alike:?} {apart:?}");
    }

    #[test]
    fn a_series_with_few_slices_has_no_interval_and_disturbs_no_other() {
        let mut all: Vec<ObservedSeries> = (0..6).map(|n| series(0.0, 0.0, 0.01, n)).collect();
        let without = observed_changes(&all, 0.05, 1);
        let mut rare = series(5.0, 0.0, 0.01, 6);
        rare.after[3..].fill(None);
        all.push(rare);
        let with = observed_changes(&all, 0.05, 1);
        assert_eq!(with.changes[..6], without.changes[..]);
        assert_eq!(with.changes[6].interval, Err(IntervalError::TooFewRounds { have: 3, need: 6 }));
        assert!(observed_changes(&[], 0.05, 1).changes.is_empty());
    }
}
