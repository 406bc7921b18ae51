//! Counts of latencies, as a bin has them: a few buckets of the many that there are.
//!
//! Ten times a second those of each worker are added up and emptied. A histogram that goes through all its buckets for that
//! took 2,000,000 instructions a bin for eight workers.

use hdrhistogram::Histogram;
use std::ops::Range;

/// Latencies are kept to three digits from 64 ns to an hour; longer ones count as an hour.
pub const LOWEST_NS: u64 = 64;
pub const HIGHEST_NS: u64 = 3_600_000_000_000;
/// log2 of the lowest bucket's width, ns.
const UNIT_BITS: u32 = LOWEST_NS.trailing_zeros();
/// log2 of the buckets in each doubling of the latency: a bucket is at most a thousandth of it wide.
const HALF_BITS: u32 = 10;

/// Latencies in buckets, those of [`HdrHistogram`](https://hdrhistogram.org) with the same bounds.
#[derive(Debug, Clone)]
pub struct LatencyCounts {
    counts: Box<[u32]>,
    /// Buckets outside are empty.
    used: Range<usize>,
}

fn bucket_of(ns: u64) -> usize {
    let bits = u64::BITS - ns.leading_zeros();
    let shift = bits.saturating_sub(HALF_BITS + 1).max(UNIT_BITS);
    ((shift - UNIT_BITS) as usize).wrapping_shl(HALF_BITS) + (ns >> shift) as usize
}

fn highest_ns_of(bucket: usize) -> u64 {
    let doublings = (bucket >> HALF_BITS).saturating_sub(1);
    let within = (bucket - (doublings << HALF_BITS)) as u64;
    ((within + 1) << (doublings as u32 + UNIT_BITS)) - 1
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self { counts: vec![0; bucket_of(HIGHEST_NS) + 1].into(), used: 0..0 }
    }
}

impl LatencyCounts {
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let bucket = bucket_of(ns.min(HIGHEST_NS));
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.use_buckets(bucket..bucket + 1);
    }

    pub fn add(&mut self, other: &Self) {
        let Range { start, end } = other.used;
        for (into, from) in self.counts[start..end].iter_mut().zip(&other.counts[start..end]) {
            *into = into.saturating_add(*from);
        }
        self.use_buckets(start..end);
    }

    pub fn clear(&mut self) {
        self.counts[self.used.clone()].fill(0);
        self.used = 0..0;
    }

    /// (Highest latency of the bucket, ns; count), rising, of buckets that are not empty.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buckets = self.used.clone().zip(&self.counts[self.used.clone()]);
        buckets
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (highest_ns_of(bucket), u64::from(*count)))
    }

    /// The same for whoever wants percentiles.
    pub fn to_histogram(&self) -> Histogram<u64> {
        let mut histogram = wide_histogram();
        self.add_to(&mut histogram);
        histogram
    }

    pub fn add_to(&self, histogram: &mut Histogram<u64>) {
        for (ns, count) in self.iter() {
            histogram.saturating_record_n(ns, count);
        }
    }

    #[inline]
    fn use_buckets(&mut self, more: Range<usize>) {
        if more.is_empty() {
            return;
        }
        self.used = match self.used.is_empty() {
            true => more,
            false => self.used.start.min(more.start)..self.used.end.max(more.end),
        };
    }
}

/// An empty histogram of the same bounds and digits.
pub fn wide_histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 3) {
        Ok(histogram) => histogram,
        Err(e) => unreachable!("constant bounds are valid: {e:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_stats::random::Rng;

    /// Latencies of all sizes, and the edges of buckets.
    fn latencies() -> Vec<u64> {
        let mut draws = Rng::new(1, 0);
        let edges = (0..63).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        edges.chain((0..10_000).map(|_| draws.next_u64() >> draws.below(60))).collect()
    }

    #[test]
    fn buckets_and_percentiles_are_those_of_the_library() {
        let (mut ours, mut theirs) = (LatencyCounts::default(), wide_histogram());
        for ns in latencies() {
            ours.record(ns);
            theirs.saturating_record(ns.min(HIGHEST_NS));
        }
        let of_library: Vec<_> =
            theirs.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect();
        assert_eq!(ours.iter().collect::<Vec<_>>(), of_library);
        assert_eq!(ours.to_histogram(), theirs);
    }

    #[test]
    fn counts_of_workers_add_up_and_nothing_is_left_of_what_was_cleared() {
        let (mut whole, mut sum) = (LatencyCounts::default(), LatencyCounts::default());
        for some in latencies().chunks(100) {
            let mut part = LatencyCounts::default();
            some.iter().for_each(|ns| part.record(*ns));
            some.iter().for_each(|ns| whole.record(*ns));
            sum.add(&part);
            part.clear();
            assert_eq!(part.iter().count(), 0);
            sum.add(&part);
        }
        assert_eq!(sum.iter().collect::<Vec<_>>(), whole.iter().collect::<Vec<_>>());
        sum.clear();
        assert!(sum.counts.iter().all(|count| *count == 0));
    }
}
