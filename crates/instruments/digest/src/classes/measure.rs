//! Summary of one attribute's values. Sums are integers, so merging is exact.

use super::Histogram;
use super::histogram::bucket;
use toll_wire::accounting;

#[derive(Debug, Clone, Default)]
pub struct Measure {
    pub count: u64,
    pub sum: u128,
    sum_of_squares: u128,
    pub min: u64,
    pub max: u64,
    pub histogram: Histogram,
}

impl Measure {
    /// Returns by how many bytes it has grown.
    pub fn record(&mut self, value: u64) -> usize {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        self.sum_of_squares = self.sum_of_squares.saturating_add(u128::from(value) * u128::from(value));
        self.histogram.record(value)
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        accounting::saturating_add_to(&mut self.count, other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
        self.histogram.merge(&other.histogram);
    }

    /// What was stored of one; `None`: no values come to this.
    pub fn of_parts(
        sum: u128,
        sum_of_squares: u128,
        min: u64,
        max: u64,
        buckets: &[(u16, u64)],
    ) -> Option<Self> {
        let histogram = Histogram::of_buckets(buckets)?;
        let (first, last) = (buckets.first()?.0, buckets.last()?.0);
        let count = buckets.iter().try_fold(0_u64, |sum, (_, count)| sum.checked_add(*count))?;
        let of_all = |value: u64| u128::from(value) * u128::from(count);
        let is_possible = (first, last) == (bucket(min), bucket(max))
            && min <= max
            && (of_all(min)..=of_all(max)).contains(&sum);
        is_possible.then_some(Self { count, sum, sum_of_squares, min, max, histogram })
    }

    /// What a histogram says of values whose sum and maximum are known; their minimum and the sum of their squares are within a
    /// bucket's width. `None`: no values.
    pub fn of_histogram(sum: u128, max: u64, buckets: &[(u16, u64)]) -> Option<Self> {
        let histogram = Histogram::of_buckets(buckets)?;
        let min = Histogram::least_of(buckets.first()?.0).min(max);
        let (mut count, mut sum_of_squares) = (0_u64, 0_u128);
        histogram.each_value(|value, n| {
            accounting::saturating_add_to(&mut count, n);
            let square = u128::from(value) * u128::from(value);
            sum_of_squares = sum_of_squares.saturating_add(square.saturating_mul(n.into()));
        });
        Some(Self { count, sum, sum_of_squares, min, max, histogram })
    }

    /// Stops at the greatest number that there is a place for.
    pub fn sum_of_squares(&self) -> u128 {
        self.sum_of_squares
    }

    /// 0 when there are no values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Standard deviation of the values themselves (not of a larger population).
    pub fn stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // n * sum(x^2) - sum(x)^2 in integers where it fits: two close numbers of 30 digits.
        let n = u128::from(self.count);
        let spread = n
            .checked_mul(self.sum_of_squares)
            .zip(self.sum.checked_mul(self.sum))
            .map(|(a, b)| a.saturating_sub(b) as f64)
            .unwrap_or_else(|| n as f64 * self.sum_of_squares as f64 - (self.sum as f64).powi(2));
        spread.max(0.0).sqrt() / n as f64
    }

    /// Within 0.8% of a value that occurred, and never outside of them.
    pub fn quantile(&self, q: f64) -> u64 {
        self.histogram.quantile(q).clamp(self.min, self.max)
    }
}
