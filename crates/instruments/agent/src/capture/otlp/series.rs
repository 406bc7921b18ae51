//! Sums and histograms of query classes over digests: the time series behind the metrics.
//!
//! Their number is bounded. A class without a series of its own counts in that of all others, so that no query is missing.

use super::attributes::class_attributes;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use std::collections::BTreeMap;
use toll_digest::DigestResult;
use toll_digest::classes::{Class, GroupBy, Limit, Measure};
use toll_wire::attribute::Attribute;
use toll_wire::fingerprint::QueryId;

/// Series of classes: each class that is among the costliest of a digest has one, while there are so many.
const MAX_SERIES: usize = 100;
/// Those that the semantic conventions advise, and three below: most queries take less than a millisecond.
pub const DURATION_BOUNDS_NS: [u64; 12] = [
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// Those that the semantic conventions advise.
pub const ROWS_BOUNDS: [u64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// Counts of values between bounds.
#[derive(Debug, Clone, Default)]
pub struct BucketCounts {
    pub count: u64,
    pub sum: u128,
    /// Empty as long as there are no values.
    pub counts: Vec<u64>,
}

impl BucketCounts {
    fn add(&mut self, measure: Option<&Measure>, bounds: &[u64]) {
        let Some(measure) = measure else { return };
        let counts = measure.histogram.counts_between(bounds);
        self.counts.resize(counts.len(), 0);
        for (sum, count) in self.counts.iter_mut().zip(&counts) {
            *sum = sum.saturating_add(*count);
        }
        // Of the same values as the counts, whose sum a receiver may check.
        self.count = self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
        self.sum = self.sum.saturating_add(measure.sum);
    }
}

/// One time series of each metric.
#[derive(Debug, Clone)]
pub struct Series {
    pub attributes: Vec<KeyValue>,
    /// Since when it counts, Unix ns.
    pub since_ns: u64,
    pub duration: BucketCounts,
    pub rows: BucketCounts,
    pub errors: u64,
    /// Digest that last listed it.
    listed: u64,
}

impl Series {
    fn new(attributes: Vec<KeyValue>, since_ns: u64) -> Self {
        Self {
            attributes,
            since_ns,
            duration: BucketCounts::default(),
            rows: BucketCounts::default(),
            errors: 0,
            listed: 0,
        }
    }

    fn add(&mut self, class: &Class) {
        self.duration.add(class.measure(Attribute::QueryTime), &DURATION_BOUNDS_NS);
        self.rows.add(class.measure(Attribute::RowsSent), &ROWS_BOUNDS);
        self.errors = self.errors.saturating_add(class.errors);
    }
}

/// All series of a capture.
pub struct SeriesTable {
    group_by: GroupBy,
    limit: Limit,
    classes: BTreeMap<QueryId, Series>,
    others: Option<Series>,
    /// Digests so far.
    digests: u64,
}

impl SeriesTable {
    /// `limit`: the classes of a digest that get series.
    pub fn new(group_by: GroupBy, limit: Limit) -> Self {
        Self { group_by, limit, classes: BTreeMap::new(), others: None, digests: 0 }
    }

    /// Adds a digest of the time since `since_ns`.
    pub fn add(&mut self, done: &DigestResult, since_ns: u64) {
        self.digests += 1;
        let (listed, beyond) = done.digest.ranked(self.limit);
        for class in listed {
            self.make_room_for(class.id);
            let is_full = self.classes.len() >= MAX_SERIES && !self.classes.contains_key(&class.id);
            if is_full {
                self.add_to_others(class, since_ns);
                continue;
            }
            let group_by = self.group_by;
            let new = || Series::new(class_attributes(Some(class), group_by), since_ns);
            let series = self.classes.entry(class.id).or_insert_with(new);
            series.listed = self.digests;
            series.add(class);
        }
        for class in beyond {
            match self.classes.get_mut(&class.id) {
                Some(series) => series.add(class),
                None => self.add_to_others(class, since_ns),
            }
        }
        if done.digest.folded.count > 0 {
            self.add_to_others(&done.digest.folded, since_ns);
        }
    }

    /// Those of classes, then that of all others.
    pub fn iter(&self) -> impl Iterator<Item = &Series> {
        self.classes.values().chain(&self.others)
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.classes.clear();
        self.others = None;
    }

    /// A series ends that no digest has listed for longest, where a new one has no room. What it counted stays counted; the
    /// class counts among the others from now on.
    fn make_room_for(&mut self, id: QueryId) {
        if self.classes.len() < MAX_SERIES || self.classes.contains_key(&id) {
            return;
        }
        let oldest = self.classes.iter().min_by_key(|(_, series)| series.listed);
        let oldest = oldest.filter(|(_, series)| series.listed < self.digests).map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.classes.remove(&oldest);
        }
    }

    fn add_to_others(&mut self, class: &Class, since_ns: u64) {
        let group_by = self.group_by;
        self.others.get_or_insert_with(|| Series::new(class_attributes(None, group_by), since_ns)).add(class);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::digest_of;
    use super::*;

    const ALL: Limit = Limit { share: None, count: None };

    fn counts(table: &SeriesTable) -> (usize, u64, u64) {
        let of = |series: &Series| (series.duration.count, series.errors);
        let (queries, _) = table.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (table.classes.len(), queries, table.others.as_ref().map_or(0, |others| others.duration.count))
    }

    /// A name without digits, which a fingerprint would hide.
    fn letters(number: usize) -> String {
        number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'g')).collect()
    }

    #[test]
    fn no_query_is_missing_whatever_has_a_series() {
        let mut table = SeriesTable::new(GroupBy::Fingerprint, Limit { share: None, count: Some(1) });
        table.add(&digest_of(&[("select a", 9_000), ("select b", 5), ("select c", 4)]), 1);
        assert_eq!(counts(&table), (1, 3, 2));
        // The one with a series keeps it where it is not among the costliest.
        table.add(&digest_of(&[("select a", 5), ("select a", 6), ("select d", 9_000)]), 2);
        assert_eq!(counts(&table), (2, 6, 2));
        assert_eq!(table.iter().map(|series| series.since_ns).max(), Some(2));
    }

    #[test]
    fn the_number_of_series_is_bounded_and_old_ones_make_room() {
        let mut table = SeriesTable::new(GroupBy::Fingerprint, ALL);
        let many: Vec<String> =
            (0..MAX_SERIES + 20).map(|number| format!("select a from {}", letters(number))).collect();
        let events: Vec<(&str, u64)> = many.iter().map(|text| (text.as_str(), 1_000)).collect();
        let done = digest_of(&events);
        assert!(done.digest.classes().len() > MAX_SERIES, "the texts are of different classes");
        table.add(&done, 1);
        let all = events.len() as u64;
        assert_eq!(counts(&table), (MAX_SERIES, all, all - MAX_SERIES as u64));
        table.add(&digest_of(&[("select new", 7)]), 2);
        let (series, queries, others) = counts(&table);
        // The series that ended took its one query along.
        assert_eq!((series, queries, others), (MAX_SERIES, all, all - MAX_SERIES as u64));
        assert!(table.iter().any(|series| series.since_ns == 2));
        table.clear();
        assert_eq!(table.iter().count(), 0);
    }

    #[test]
    fn a_histogram_counts_its_values_between_its_bounds() {
        let mut table = SeriesTable::new(GroupBy::Fingerprint, ALL);
        let times = [50_000, 100_000, 3_000_000, 20_000_000_000];
        let events = times.map(|ns| ("select a", ns));
        table.add(&digest_of(&events), 1);
        table.add(&digest_of(&events[..1]), 2);
        let series = table.iter().next().unwrap();
        let duration = &series.duration;
        assert_eq!(duration.counts, [3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((duration.count, duration.sum), (5, 20_003_200_000));
        // None of these has rows.
        assert_eq!((series.rows.count, series.rows.counts.len()), (0, 0));
    }
}
