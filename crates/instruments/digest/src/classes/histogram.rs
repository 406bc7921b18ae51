//! Log-linear histogram whose buckets are at most 1/64 wide.
//!
//! A percentile is within 0.8% of a true value. Two histograms merge exactly.

use toll_wire::accounting;

/// Buckets for each power of two, as a power of two.
const BITS: u32 = 6;
const PER_OCTAVE: usize = 1 << BITS;
/// Values below are their own bucket.
const LINEAR: u64 = 1 << BITS;
/// Name and version of the buckets, for whoever stores counts by their number. Whoever moves a bound counts the
/// version up.
///
/// Bucket `b` is `b % 64` of octave `k = b / 64`. Octave 0 holds the values 0 to 63, each in a bucket of its own. In
/// octave `k >= 1` a bucket is `2^(k-1)` wide, and its least value is `(64 + b % 64) * 2^(k-1)`.
pub const HISTOGRAM_SCHEME: &str = "log-linear-64/1";
/// The greatest value is in the last of these.
pub const BUCKETS: u16 = 59 << BITS;
/// Most classes see few distinct values; past this many buckets, whole octaves are kept.
const SPARSE_MAX: usize = 24;
/// Memory of a bucket kept by itself, and of an octave.
const SPARSE_BYTES: usize = size_of::<(u16, u64)>();
const OCTAVE_BYTES: usize = size_of::<[u64; PER_OCTAVE]>() + 16;

#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Buckets,
}

#[derive(Debug, Clone)]
enum Buckets {
    /// Bucket and count, by bucket.
    Sparse(Vec<(u16, u64)>),
    /// Octave and its counts, by octave.
    Dense(Vec<(u8, Box<[u64; PER_OCTAVE]>)>),
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Buckets::Sparse(Vec::new()) }
    }
}

/// Bucket of a value: octave times 64, and the six bits below its first.
pub(super) fn bucket(value: u64) -> u16 {
    if value < LINEAR {
        return value as u16;
    }
    let octave = value.ilog2() - BITS + 1;
    let within = (value >> (octave - 1)) as u16 & (PER_OCTAVE as u16 - 1);
    ((octave as u16) << BITS) | within
}

/// Middle of a bucket.
fn value(bucket: u16) -> u64 {
    let (least, width) = range(bucket);
    least + width / 2
}

/// Least value of a bucket, and its width.
fn range(bucket: u16) -> (u64, u64) {
    let octave = u32::from(bucket >> BITS);
    let within = u64::from(bucket) & (PER_OCTAVE as u64 - 1);
    if octave == 0 {
        return (within, 1);
    }
    let width = 1_u64 << (octave - 1);
    ((LINEAR + within) * width, width)
}

impl Histogram {
    /// Returns by how many bytes it has grown.
    pub fn record(&mut self, value: u64) -> usize {
        self.add(bucket(value), 1)
    }

    /// The same value so many times.
    pub fn record_many(&mut self, value: u64, count: u64) {
        self.add(bucket(value), count);
    }

    pub fn merge(&mut self, other: &Self) {
        other.each(|bucket, count| {
            self.add(bucket, count);
        });
    }

    /// The value that a share `q` (0 to 1) of all values is at most.
    pub fn quantile(&self, q: f64) -> u64 {
        let mut total: u64 = 0;
        self.each(|_, count| accounting::saturating_add_to(&mut total, count));
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let (mut seen, mut found) = (0_u64, 0);
        self.each(|bucket, count| {
            if count > 0 && seen < rank {
                found = value(bucket);
            }
            accounting::saturating_add_to(&mut seen, count);
        });
        found
    }

    /// Least value of a bucket.
    pub fn least_of(bucket: u16) -> u64 {
        range(bucket).0
    }

    /// Buckets that hold values and their counts, in order; [`HISTOGRAM_SCHEME`] says which values.
    pub fn buckets(&self) -> Vec<(u16, u64)> {
        let mut buckets = Vec::new();
        self.each(|bucket, count| buckets.push((bucket, count)));
        buckets
    }

    /// As [`Self::buckets`] gives them; `None`: not in order, a count of nothing, or beyond the last bucket.
    pub fn of_buckets(buckets: &[(u16, u64)]) -> Option<Self> {
        let is_ordered = buckets.is_sorted_by(|(a, _), (b, _)| a < b);
        let is_within = buckets.iter().all(|(bucket, count)| *bucket < BUCKETS && *count > 0);
        let mut histogram = Self::default();
        for (bucket, count) in buckets {
            histogram.add(*bucket, *count);
        }
        (is_ordered && is_within).then_some(histogram)
    }

    /// Counts of a coarser histogram: of the values up to each of `bounds` and beyond the one before, and last of the values
    /// beyond all. `bounds` are in order. A bucket counts as its least value, so that a bound holds within a bucket's width.
    pub fn counts_between(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len() + 1];
        self.each(|bucket, count| {
            let at = bounds.partition_point(|bound| *bound < range(bucket).0);
            accounting::saturating_add_to(&mut counts[at], count);
        });
        counts
    }

    /// Memory that it takes beyond itself.
    pub fn bytes(&self) -> usize {
        match &self.buckets {
            Buckets::Sparse(counts) => counts.len() * SPARSE_BYTES,
            Buckets::Dense(octaves) => octaves.len() * OCTAVE_BYTES,
        }
    }

    /// Calls with the middle of each bucket and its count, in order.
    pub fn each_value(&self, mut with: impl FnMut(u64, u64)) {
        self.each(|bucket, count| with(value(bucket), count));
    }

    fn add(&mut self, bucket: u16, count: u64) -> usize {
        match &mut self.buckets {
            Buckets::Sparse(counts) => match counts.binary_search_by_key(&bucket, |(b, _)| *b) {
                Ok(at) => {
                    accounting::saturating_add_to(&mut counts[at].1, count);
                    0
                }
                Err(at) if counts.len() < SPARSE_MAX => {
                    counts.insert(at, (bucket, count));
                    SPARSE_BYTES
                }
                Err(_) => {
                    let mut dense = Vec::new();
                    let mut bytes = 0;
                    for &(bucket, count) in counts.iter() {
                        bytes += add_dense(&mut dense, bucket, count);
                    }
                    bytes += add_dense(&mut dense, bucket, count);
                    bytes = bytes.saturating_sub(counts.len() * SPARSE_BYTES);
                    self.buckets = Buckets::Dense(dense);
                    bytes
                }
            },
            Buckets::Dense(octaves) => add_dense(octaves, bucket, count),
        }
    }

    fn each(&self, mut with: impl FnMut(u16, u64)) {
        match &self.buckets {
            Buckets::Sparse(counts) => counts.iter().for_each(|(bucket, count)| with(*bucket, *count)),
            Buckets::Dense(octaves) => {
                for (octave, counts) in octaves {
                    for (within, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                        with((u16::from(*octave) << BITS) | within as u16, *count);
                    }
                }
            }
        }
    }
}

fn add_dense(octaves: &mut Vec<(u8, Box<[u64; PER_OCTAVE]>)>, bucket: u16, count: u64) -> usize {
    let octave = (bucket >> BITS) as u8;
    let mut bytes = 0;
    let at = match octaves.iter().position(|(o, _)| *o >= octave) {
        Some(at) if octaves[at].0 == octave => at,
        at => {
            let at = at.unwrap_or(octaves.len());
            octaves.insert(at, (octave, Box::new([0; PER_OCTAVE])));
            bytes = OCTAVE_BYTES;
            at
        }
    };
    accounting::saturating_add_to(&mut octaves[at].1[usize::from(bucket) % PER_OCTAVE], count);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_is_within_one_percent_of_its_values() {
        for shift in 0..64 {
            for offset in [0_u64, 1, 3, 1 << 20] {
                let exact = (1_u64 << shift).saturating_add(offset);
                let error = value(bucket(exact)).abs_diff(exact) as f64 / exact as f64;
                assert!(error <= 0.01, "{exact} is kept as {} ({error})", value(bucket(exact)));
            }
        }
        assert_eq!(value(bucket(0)), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_bounds_of_each_bucket_are_as_its_scheme_says() {
        let least = |b: u16| match (b / 64, u64::from(b % 64)) {
            (0, within) => within,
            (k, within) => (64 + within) << (k - 1),
        };
        for b in 0..BUCKETS {
            assert_eq!(bucket(least(b)), b);
            let last = if b + 1 < BUCKETS { least(b + 1) - 1 } else { u64::MAX };
            assert_eq!(bucket(last), b);
        }
    }

    #[test]
    fn a_coarser_histogram_has_every_value_once_and_round_values_below_their_bound() {
        let bounds = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];
        let mut histogram = Histogram::default();
        bounds.iter().for_each(|value| {
            histogram.record(*value);
        });
        assert_eq!(histogram.counts_between(&bounds), [[1; 13].as_slice(), &[0]].concat());
        // A bucket's width is at most a 64th of its values.
        for value in [0, 3, 51, 203, 1_016, 10_157, u64::MAX] {
            histogram.record(value);
        }
        assert_eq!(histogram.counts_between(&bounds), [2, 1, 2, 1, 1, 1, 2, 1, 2, 1, 2, 1, 1, 2]);
        assert_eq!(histogram.counts_between(&[]), [20]);
    }

    #[test]
    fn buckets_that_no_histogram_has_are_refused() {
        assert!(Histogram::of_buckets(&[(3, 1), (BUCKETS - 1, u64::MAX)]).is_some());
        for buckets in [&[(3, 1), (3, 1)][..], &[(4, 1), (3, 1)], &[(BUCKETS, 1)], &[(1, 0)]] {
            assert!(Histogram::of_buckets(buckets).is_none(), "{buckets:?}");
        }
    }

    #[test]
    fn merging_is_the_same_as_recording_together() {
        let (mut a, mut b, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        let mut bytes = [0; 3];
        for n in 0..10_000_u64 {
            let value = n * n * 37;
            if n % 3 == 0 {
                bytes[0] += a.record(value)
            } else {
                bytes[1] += b.record(value)
            }
            bytes[2] += both.record(value);
            assert_eq!(bytes, [&a, &b, &both].map(Histogram::bytes));
        }
        a.merge(&b);
        for q in [0.0, 0.01, 0.5, 0.95, 0.99, 1.0] {
            assert_eq!(a.quantile(q), both.quantile(q));
        }
        let p95 = 9_499_f64.powi(2) * 37.0;
        assert!((both.quantile(0.95) as f64 - p95).abs() / p95 < 0.01);
    }
}
