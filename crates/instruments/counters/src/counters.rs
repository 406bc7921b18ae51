//! Counters of one class of the server's, and their differences between two readings.

use crate::rebin::Bounds;
use std::collections::BTreeMap;

/// Schema and digest, by which the server tells its classes apart. Without a digest: statements beyond its table's size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub schema: Option<String>,
    pub digest: Option<String>,
}

/// Since the server's start, or since its table was truncated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// Time of the first query, on the server's clock. It changes if the table is truncated.
    pub first_seen: String,
    pub count: u64,
    pub time_ps: u64,
    pub max_ps: u64,
    pub lock_ps: u64,
    pub errors: u64,
    pub rows_affected: u64,
    pub rows_sent: u64,
    pub rows_examined: u64,
}

impl Sums {
    /// Difference to `before`, with the maximum of all. `None`: no more queries.
    pub fn delta_since(&self, before: &Self) -> Option<Self> {
        let delta = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        (self.count > before.count).then(|| Self {
            first_seen: self.first_seen.clone(),
            count: delta(|sums| sums.count),
            time_ps: delta(|sums| sums.time_ps),
            max_ps: self.max_ps,
            lock_ps: delta(|sums| sums.lock_ps),
            errors: delta(|sums| sums.errors),
            rows_affected: delta(|sums| sums.rows_affected),
            rows_sent: delta(|sums| sums.rows_sent),
            rows_examined: delta(|sums| sums.rows_examined),
        })
    }
}

/// Counts of the buckets that hold values, by their number.
pub type Counts = BTreeMap<u32, u64>;

/// Differences to `before` that are not 0, with the buckets' bounds.
pub fn count_deltas(now: &Counts, before: &Counts, bounds: &[Bounds]) -> Vec<(Bounds, u64)> {
    let of_bucket = |(bucket, count): (&u32, &u64)| {
        let delta = count.saturating_sub(before.get(bucket).copied().unwrap_or(0));
        bounds.get(*bucket as usize).filter(|_| delta > 0).map(|bounds| (*bounds, delta))
    };
    now.iter().filter_map(of_bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_are_differences_of_known_buckets() {
        let sums = |count, time_ps| Sums { count, time_ps, max_ps: 9, ..Sums::default() };
        assert_eq!(sums(5, 70).delta_since(&sums(3, 40)), Some(sums(2, 30)));
        assert_eq!(sums(5, 70).delta_since(&sums(5, 70)), None);
        let bounds: Vec<Bounds> = (0..4).map(|low_ns| Bounds { low_ns, high_ns: low_ns + 1 }).collect();
        let counts = |list: &[(u32, u64)]| list.iter().copied().collect::<Counts>();
        let deltas = |now, before| count_deltas(&counts(now), &counts(before), &bounds);
        assert_eq!(deltas(&[(1, 5), (2, 1)], &[(1, 3)]), [(bounds[1], 2), (bounds[2], 1)]);
        assert_eq!(deltas(&[(1, 3), (9, 4)], &[(1, 3)]), [], "a bucket that the server does not describe");
    }
}
