//! Slices of the time of a digest, with about equally many events each: the repeats of a comparison.

use crate::classes::{Class, Digest, TimeBin};
use std::collections::BTreeMap;

/// Slices of a side. Longer slices depend less on each other, and 12 leave 11 degrees of freedom.
pub const SLICES_MAX: usize = 12;
/// Fewer give no interval of 95%.
pub const SLICES_MIN: usize = 6;

/// Slice of each bin of time.
pub struct Slices {
    by_bin: BTreeMap<u64, usize>,
    count: usize,
}

/// Events of all classes by bin of time.
pub fn count_events(digest: &Digest) -> BTreeMap<u64, u64> {
    let mut events = BTreeMap::new();
    for bin in digest.classes().iter().filter_map(Class::time_bins).flat_map(|bins| bins.iter()) {
        let count: &mut u64 = events.entry(bin.index).or_default();
        *count = count.saturating_add(bin.events);
    }
    events
}

/// The same number of slices for both sides, as many as there can be. `None`: fewer than [`SLICES_MIN`].
pub fn cut_sides(before: &BTreeMap<u64, u64>, after: &BTreeMap<u64, u64>) -> Option<(Slices, Slices)> {
    (SLICES_MIN..=SLICES_MAX)
        .rev()
        .find_map(|count| Slices::cut(before, count).zip(Slices::cut(after, count)))
}

impl Slices {
    /// `None`: a bin is longer than a slice, so that one would be empty.
    fn cut(events: &BTreeMap<u64, u64>, count: usize) -> Option<Self> {
        let total: u128 = events.values().map(|events| u128::from(*events)).sum();
        let mut passed = 0_u128;
        let mut by_bin = BTreeMap::new();
        let mut is_used = vec![false; count];
        for (&index, &events) in events.iter().filter(|(_, events)| **events > 0) {
            // A bin belongs to the slice of its middle event.
            let middle = 2 * passed + u128::from(events);
            let slice = usize::try_from(middle * count as u128 / (2 * total)).ok()?.min(count - 1);
            passed += u128::from(events);
            by_bin.insert(index, slice);
            is_used[slice] = true;
        }
        is_used.into_iter().all(|is_used| is_used).then_some(Self { by_bin, count })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Mean of ln(query time in ns) of a class in each slice. The mean of logarithms does not depend on the number of
    /// calls, which the logarithm of a mean does.
    pub fn mean_logs(&self, class: &Class) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0.0); self.count];
        for bin in class.time_bins().into_iter().flat_map(|bins| bins.iter()) {
            if let Some(&slice) = self.by_bin.get(&bin.index) {
                sums[slice].0 += bin.log_sum();
                sums[slice].1 += bin.timed as f64;
            }
        }
        sums.into_iter().map(|(sum, timed)| (timed > 0.0).then(|| sum / timed)).collect()
    }
}

/// Bins in which a class has events.
pub fn count_bins(class: &Class) -> usize {
    class.time_bins().map_or(0, |bins| bins.iter().filter(|bin: &&TimeBin| bin.events > 0).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_hold_about_equally_many_events_however_they_are_spread() {
        let bins: BTreeMap<u64, u64> = (0..100).map(|n| (n * 7, if n < 50 { 1 } else { 3 })).collect();
        let slices = Slices::cut(&bins, 4).unwrap();
        let mut events = [0; 4];
        bins.iter().for_each(|(index, count)| events[slices.by_bin[index]] += count);
        assert!(events.iter().all(|&count| (47..=53).contains(&count)), "{events:?}");
        assert!(slices.by_bin.values().is_sorted());
    }

    #[test]
    fn one_long_bin_leaves_fewer_slices_or_none() {
        let even: BTreeMap<u64, u64> = (0..8).map(|n| (n, 10)).collect();
        let (before, after) = cut_sides(&even, &even).unwrap();
        assert_eq!((before.count(), after.count()), (8, 8));
        let uneven: BTreeMap<u64, u64> = (0..8).map(|n| (n, if n == 3 { 100 } else { 1 })).collect();
        assert!(cut_sides(&even, &uneven).is_none());
        assert!(cut_sides(&BTreeMap::new(), &even).is_none());
    }
}
