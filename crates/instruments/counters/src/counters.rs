//! Counters of one class of the server's, and what came between two readings of them.

use crate::spread::Bounds;
use std::collections::BTreeMap;

/// Schema and digest, by which the server tells its classes apart. Without a digest: what it had no room for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub schema: Option<String>,
    pub digest: Option<String>,
}

/// Since the server's start, or since its table was truncated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// When the server saw the first, on its clock: another time is another count.
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
    /// What came since `before`; the maximum is that of all. `None`: nothing.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let came = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        (self.count > before.count).then(|| Self {
            first_seen: self.first_seen.clone(),
            count: came(|sums| sums.count),
            time_ps: came(|sums| sums.time_ps),
            max_ps: self.max_ps,
            lock_ps: came(|sums| sums.lock_ps),
            errors: came(|sums| sums.errors),
            rows_affected: came(|sums| sums.rows_affected),
            rows_sent: came(|sums| sums.rows_sent),
            rows_examined: came(|sums| sums.rows_examined),
        })
    }
}

/// Counts of the buckets that hold values, by their number.
pub type Counts = BTreeMap<u32, u64>;

/// What came since `before`, with the buckets' bounds.
pub fn counts_since(now: &Counts, before: &Counts, bounds: &[Bounds]) -> Vec<(Bounds, u64)> {
    let of_bucket = |(bucket, count): (&u32, &u64)| {
        let came = count.saturating_sub(before.get(bucket).copied().unwrap_or(0));
        bounds.get(*bucket as usize).filter(|_| came > 0).map(|bounds| (*bounds, came))
    };
    now.iter().filter_map(of_bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_a_difference() {
        let sums = |count, time_ps| Sums { count, time_ps, max_ps: 9, ..Sums::default() };
        assert_eq!(sums(5, 70).since(&sums(3, 40)), Some(sums(2, 30)));
        assert_eq!(sums(5, 70).since(&sums(5, 70)), None);
        let bounds: Vec<Bounds> = (0..4).map(|low_ns| Bounds { low_ns, high_ns: low_ns + 1 }).collect();
        let counts = |list: &[(u32, u64)]| list.iter().copied().collect::<Counts>();
        let came = |now, before| counts_since(&counts(now), &counts(before), &bounds);
        assert_eq!(came(&[(1, 5), (2, 1)], &[(1, 3)]), [(bounds[1], 2), (bounds[2], 1)]);
        assert_eq!(came(&[(1, 3), (9, 4)], &[(1, 3)]), [], "a bucket that the server does not describe");
    }
}
