//! Comparison of two digests: classes that are slower, faster, new or gone, with simultaneous intervals.
//!
//! The figure that is judged is the typical (geometric mean) query time of a class. Slices of time are the repeats.
//! Statistics: [`toll_stats::observed_changes`].
//!
//! # Invariants
//! Never reports a class on the evidence of single queries: queries of one time depend on each other.

mod json;
mod report;
mod slices;

pub use json::write_json;
pub use report::write_report;

use crate::DigestResult;
use crate::classes::{Class, Digest, Limit};
pub use slices::SLICES_MIN;
use slices::{count_bins, count_events, cut_sides};
use toll_stats::{CommonChange, Interval, ObservedChange, ObservedSeries, observed_changes};
use toll_wire::attribute::Attribute;

/// Classes with the most time that are judged together. Intervals widen with their number, and what is beyond has
/// hardly any calls.
pub const COMPARED_MAX: usize = 1_000;
/// Times shorter than this count as this, as in [`crate::classes::TimeBins`].
const SHORTEST_NS: u64 = 1_000;
/// Of all intervals together, and of all new and gone classes together.
const ALPHA: f64 = 0.05;
/// Any seed will do: up to 16 slices all sign vectors are counted, none is drawn.
const SEED: u64 = 1;

/// Result of a comparison of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The whole interval is beyond the smallest change that counts.
    Slower,
    Faster,
    /// On one side alone, in more stretches of time than chance would give.
    New,
    Gone,
    /// The whole interval is within the smallest change that counts.
    Within,
    /// The interval is wider than an answer.
    Inconclusive,
    /// Too few calls for an interval, or on one side alone by chance.
    Rare,
    /// There are no repeats, or no query times.
    NotTested,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Within => "within_margin",
            Self::Inconclusive => "inconclusive",
            Self::Rare => "rare",
            Self::NotTested => "not_tested",
        }
    }
}

/// One class on both sides.
pub struct ComparedClass<'a> {
    pub before: Option<&'a Class>,
    pub after: Option<&'a Class>,
    pub change: Change,
    /// Log scale, relative to the common change.
    pub log_change: Option<ObservedChange>,
}

/// Two digests, compared.
pub struct Comparison<'a> {
    pub before: &'a DigestResult,
    pub after: &'a DigestResult,
    /// Slices of each side; `None`: a side has too few stretches of time with events.
    pub slices: Option<usize>,
    pub common: Option<CommonChange>,
    /// Spread of the changes between the sides, log scale.
    pub between_sd: Option<f64>,
    /// Smallest change that counts, percent.
    pub min_change_pct: f64,
    /// By time that changed, the most first.
    pub classes: Vec<ComparedClass<'a>>,
}

/// Compares two digests whose settings keep bins of time.
pub fn compare<'a>(before: &'a DigestResult, after: &'a DigestResult, min_change_pct: f64) -> Comparison<'a> {
    let (both, alone) = pair_classes(&before.digest, &after.digest);
    let events = (count_events(&before.digest), count_events(&after.digest));
    let slices = cut_sides(&events.0, &events.1);
    let series: Vec<ObservedSeries> = match &slices {
        Some((in_before, in_after)) => both
            .iter()
            .take(COMPARED_MAX)
            .map(|(before, after)| ObservedSeries {
                before: in_before.mean_logs(before),
                after: in_after.mean_logs(after),
            })
            .collect(),
        None => Vec::new(),
    };
    let found = observed_changes(&series, ALPHA, SEED);
    let margin = (min_change_pct / 100.0).ln_1p();
    let mut classes: Vec<ComparedClass<'a>> = (0..)
        .zip(both)
        .map(|(n, (before, after))| {
            let log_change = found.changes.get(n).copied().filter(|change| change.mean.is_finite());
            let change = if slices.is_none() || time_of(before) == 0 || time_of(after) == 0 {
                Change::NotTested
            } else {
                judge(log_change.and_then(|change| change.interval.ok()), margin)
            };
            ComparedClass { before: Some(before), after: Some(after), change, log_change }
        })
        .collect();
    let chance = Chance {
        bins: (events.0.len(), events.1.len()),
        commands: (before.digest.totals.commands, after.digest.totals.commands),
        // Any class might have been on one side alone, on either.
        alpha: ALPHA / (2 * (classes.len() + alone.len()).max(1)) as f64,
    };
    classes.extend(alone.into_iter().map(|class| {
        let (before, after, elsewhere) = match class {
            OneSided::Before(class) => (Some(class), None, &after.digest),
            OneSided::After(class) => (None, Some(class), &before.digest),
        };
        let change = chance.judge(before, after, elsewhere);
        ComparedClass { before, after, change, log_change: None }
    }));
    classes.sort_by(|a, b| b.weight_ns().total_cmp(&a.weight_ns()));
    Comparison {
        before,
        after,
        slices: slices.map(|(slices, _)| slices.count()),
        common: found.common,
        between_sd: found.between_sd,
        min_change_pct,
        classes,
    }
}

fn judge(interval: Option<Interval>, margin: f64) -> Change {
    match interval {
        None => Change::Rare,
        Some(interval) if interval.low > margin => Change::Slower,
        Some(interval) if interval.high < -margin => Change::Faster,
        Some(interval) if interval.lies_within(margin) => Change::Within,
        Some(_) => Change::Inconclusive,
    }
}

/// A class that the other side does not have.
enum OneSided<'a> {
    Before(&'a Class),
    After(&'a Class),
}

/// Classes of both sides, those with the most time first, and classes of one side.
fn pair_classes<'a>(
    before: &'a Digest,
    after: &'a Digest,
) -> (Vec<(&'a Class, &'a Class)>, Vec<OneSided<'a>>) {
    let all = Limit { share: None, count: None };
    let (mut both, mut alone) = (Vec::new(), Vec::new());
    for class in after.ranked(all).0 {
        match before.find_class(class) {
            Some(same) => both.push((same, class)),
            None => alone.push(OneSided::After(class)),
        }
    }
    let gone = before.ranked(all).0.into_iter().filter(|class| after.find_class(class).is_none());
    alone.extend(gone.map(OneSided::Before));
    (both, alone)
}

/// Probability that a class is on one side alone although nothing changed.
struct Chance {
    /// Bins of time with events on each side.
    bins: (usize, usize),
    commands: (u64, u64),
    /// Corrected for all classes and both sides.
    alpha: f64,
}

impl Chance {
    fn judge(&self, before: Option<&Class>, after: Option<&Class>, elsewhere: &Digest) -> Change {
        let (class, bins, commands) = match (before, after) {
            (None, Some(class)) => (class, self.bins, self.commands),
            (Some(class), None) => (class, (self.bins.1, self.bins.0), (self.commands.1, self.commands.0)),
            _ => return Change::NotTested,
        };
        // It may be among the classes that were not kept apart.
        if elsewhere.folded_classes > 0 {
            return Change::NotTested;
        }
        let p = match (bins, count_bins(class)) {
            ((2.., 2..), occupied @ 1..) => all_on_one_side(occupied, bins.0, bins.1),
            // Without times, calls are all there is.
            _ => {
                let share = commands.1 as f64 / (commands.0.saturating_add(commands.1)).max(1) as f64;
                share.powf(class.count as f64)
            }
        };
        match (p <= self.alpha, after) {
            (false, _) => Change::Rare,
            (true, Some(_)) => Change::New,
            (true, None) => Change::Gone,
        }
    }
}

/// Probability that `occupied` bins, drawn from those of both sides, are all of the side with `here` bins.
fn all_on_one_side(occupied: usize, elsewhere: usize, here: usize) -> f64 {
    (0..occupied.min(here)).map(|n| (here - n) as f64 / (here + elsewhere - n) as f64).product()
}

impl ComparedClass<'_> {
    /// What the class says of itself: the later side's words.
    pub fn class(&self) -> Option<&Class> {
        self.after.or(self.before)
    }

    /// Time that changed, ns.
    fn weight_ns(&self) -> f64 {
        let time = |class: Option<&Class>| class.map_or(0, time_of) as f64;
        match (self.change, self.log_change) {
            (Change::New | Change::Gone, _) | (_, None) => time(self.after).max(time(self.before)),
            (_, Some(change)) => time(self.after) * (1.0 - (-change.mean).exp()).abs(),
        }
    }
}

fn time_of(class: &Class) -> u128 {
    class.measure(Attribute::QueryTime).map_or(0, |measure| measure.sum)
}

/// Geometric mean of the query times of a class, ns; `None`: it has none.
pub fn typical_ns(class: &Class) -> Option<f64> {
    let measure = class.measure(Attribute::QueryTime)?;
    let (mut logs, mut count) = (0.0, 0.0);
    measure.histogram.each_value(|ns, n| {
        logs += (ns.max(SHORTEST_NS) as f64).ln() * n as f64;
        count += n as f64;
    });
    (count > 0.0).then(|| (logs / count).exp())
}

#[cfg(test)]
mod tests;
