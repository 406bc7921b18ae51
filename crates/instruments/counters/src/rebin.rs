//! Conversion of a server's histogram, whose buckets are wide, to toll's buckets.
//!
//! The server's buckets are 4.7% wide (a fiftieth of a power of ten). A value is taken for the middle of its bucket, so that it
//! is off by 2.3% at most. Sum and maximum come from its other counters, and are exact.

use toll_digest::classes::Histogram;

/// Bounds of a bucket, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub low_ns: u64,
    pub high_ns: u64,
}

impl Bounds {
    /// On the scale by which buckets grow.
    fn middle_ns(self) -> u64 {
        if self.low_ns == 0 {
            return self.high_ns / 2;
        }
        // The last one has no end.
        if self.high_ns / 2 > self.low_ns {
            return self.low_ns;
        }
        (self.low_ns as f64 * self.high_ns as f64).sqrt().round() as u64
    }
}

/// Buckets of toll's histograms, and the greatest value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebinned {
    pub buckets: Vec<(u16, u64)>,
    pub max_ns: u64,
}

/// `counts`: bucket and count, in order. `sum_ns`: of the values. `max_ns`: the greatest, where it is known.
///
/// The result agrees with the sum: the least value times the count is at most the sum, and the greatest at least.
pub fn rebin(counts: &[(Bounds, u64)], sum_ns: u64, max_ns: Option<u64>) -> Rebinned {
    let n = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    if n == 0 {
        return Rebinned::default();
    }
    let limit_ns = max_ns.unwrap_or(u64::MAX);
    let mut values: Vec<(u64, u64)> = Vec::with_capacity(counts.len() + 2);
    values.extend(counts.iter().map(|(bounds, count)| (bounds.middle_ns().min(limit_ns), *count)));
    let (mean_floor_ns, mean_ceil_ns) = (sum_ns / n, sum_ns.div_ceil(n));
    let last_ns = values.last().map_or(0, |(value, _)| *value);
    let greatest_ns = max_ns.unwrap_or(last_ns).max(mean_ceil_ns);
    if greatest_ns != last_ns {
        take_one(values.last_mut());
        values.push((greatest_ns, 1));
    }
    let first_ns = values.iter().find(|(_, count)| *count > 0).map_or(0, |(value, _)| *value);
    if first_ns > mean_floor_ns {
        take_one(values.iter_mut().find(|(_, count)| *count > 0));
        values.push((mean_floor_ns, 1));
    }
    let mut histogram = Histogram::default();
    let mut max_ns = 0;
    for (value, count) in values.into_iter().filter(|(_, count)| *count > 0) {
        histogram.record_many(value, count);
        max_ns = max_ns.max(value);
    }
    Rebinned { buckets: histogram.buckets(), max_ns }
}

fn take_one(value: Option<&mut (u64, u64)>) {
    if let Some((_, count)) = value {
        *count = count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toll_digest::classes::Measure;

    /// As the server has them: 10 us times powers of 10^(1/50), the first from 0.
    fn bounds(at: i32) -> Bounds {
        let of = |at: i32| if at == 0 { 0 } else { (10_000.0 * 10_f64.powf(f64::from(at) / 50.0)) as u64 };
        Bounds { low_ns: of(at), high_ns: if at == 449 { u64::MAX } else { of(at + 1) } }
    }

    #[test]
    fn one_value_is_exact_and_many_are_near() {
        let one = rebin(&[(bounds(50), 1)], 100_500, None);
        assert_eq!((one.max_ns, one.buckets.len()), (100_500, 1));
        let many =
            rebin(&[(bounds(50), 10), (bounds(100), 5)], 10 * 102_000 + 5 * 1_020_000, Some(1_040_000));
        assert_eq!(many.max_ns, 1_040_000);
        assert_eq!(many.buckets.iter().map(|(_, n)| n).sum::<u64>(), 15);
        let median = Histogram::of_buckets(&many.buckets).unwrap().quantile(0.5) as f64;
        assert!((median / 102_329.0 - 1.0).abs() < 0.01, "{median}");
        // The last bucket goes on for ever.
        let endless = rebin(&[(bounds(449), 3)], 3 << 50, None);
        assert!(endless.max_ns >= 1 << 50, "{endless:?}");
    }

    #[test]
    fn a_percentile_is_within_3_2_percent_of_a_value() {
        for step in 0..4_000 {
            let value_ns = 11_000.0 * 1.005_f64.powi(step);
            let at = (50.0 * (value_ns / 10_000.0).log10()).floor() as i32;
            let found = rebin(&[(bounds(at), 1_000)], 1_000 * value_ns as u64, None);
            let median_ns = Histogram::of_buckets(&found.buckets).unwrap().quantile(0.5) as f64;
            assert!((median_ns / value_ns - 1.0).abs() <= 0.032, "{value_ns}: {median_ns}");
        }
    }

    proptest! {
        #[test]
        fn no_part_contradicts_another(
            counts in prop::collection::btree_map(0_i32..450, 1_u64..1_000, 1..40),
            within in 0.0_f64..1.0,
            knows_max in any::<bool>(),
        ) {
            let counts: Vec<(Bounds, u64)> = counts.into_iter().map(|(at, n)| (bounds(at), n)).collect();
            let value = |of: &Bounds| of.low_ns + ((of.high_ns.min(of.low_ns.max(10_000) * 2) - of.low_ns) as f64 * within) as u64;
            let sum: u64 = counts.iter().map(|(of, n)| value(of) * n).sum();
            let max = counts.last().map(|(of, _)| value(of));
            let found = rebin(&counts, sum, max.filter(|_| knows_max));
            let n: u64 = counts.iter().map(|(_, n)| n).sum();
            prop_assert_eq!(found.buckets.iter().map(|(_, n)| n).sum::<u64>(), n);
            let measure = Measure::of_histogram(sum.into(), found.max_ns, &found.buckets).unwrap();
            let again = Measure::of_parts(sum.into(), 0, measure.min, measure.max, &found.buckets);
            prop_assert!(again.is_some(), "{:?} of {} values with sum {}", found, n, sum);
        }
    }
}
