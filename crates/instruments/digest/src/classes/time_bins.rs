//! Query times of a class over time, in a bounded number of bins of equal width. Exact integers, so bins merge in any
//! order.
//!
//! All classes of a digest share one [`TimeAxis`]. Its bins begin at Unix time 0. When events span more than
//! [`BINS_MAX`] of them, the bins of all classes are merged in pairs.

/// Bins between the first event and the last, at most. At least half of it once bins were merged in pairs.
pub const BINS_MAX: u64 = 128;
/// Width of a bin at first, as a power of two in ns: 17 ms.
const FIRST_WIDTH_BITS: u32 = 24;
/// Logarithms are kept in parts of this, so that their sum is an integer: each is within 0.001%.
const PARTS_OF_LOG: f64 = 65_536.0;
/// Shorter times count as this, ns: logs write microseconds, and the logarithm of 0 is none.
const SHORTEST_NS: u64 = 1_000;

/// Position and width of the bins of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeAxis {
    width_bits: u32,
    /// First and last bin; `None`: there was no event yet.
    span: Option<(u64, u64)>,
}

/// Bins of one class, by index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeBins {
    bins: Vec<TimeBin>,
}

/// Events of one class in one bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBin {
    /// Bins since Unix time 0.
    pub index: u64,
    pub events: u64,
    /// Of those: with a query time.
    pub timed: u64,
    log_sum: i64,
}

/// Times of events, to be added to a bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BinnedTimes {
    pub events: u64,
    pub timed: u64,
    pub log_sum: i64,
}

impl BinnedTimes {
    /// One event.
    pub(super) fn of_event(query_ns: Option<u64>) -> Self {
        let mut times = Self { events: 1, ..Self::default() };
        if let Some(query_ns) = query_ns {
            times.add_time(query_ns, 1);
        }
        times
    }

    pub(super) fn add_time(&mut self, query_ns: u64, count: u64) {
        self.timed = self.timed.saturating_add(count);
        let log = (query_ns.max(SHORTEST_NS) as f64).ln() * PARTS_OF_LOG;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.log_sum = self.log_sum.saturating_add((log.round() as i64).saturating_mul(count));
    }
}

impl Default for TimeAxis {
    fn default() -> Self {
        Self { width_bits: FIRST_WIDTH_BITS, span: None }
    }
}

impl TimeAxis {
    /// Makes room for a moment, Unix ns. Returns its bin, and how often bins have to be merged in pairs first.
    pub(super) fn extend(&mut self, time_ns: u64) -> (u64, u32) {
        let index = time_ns >> self.width_bits;
        let merges = self.extend_span(index, index);
        (index >> merges, merges)
    }

    /// The same for the bins of another axis. Returns how often the bins of this one, and of that one, have to be
    /// merged.
    pub(super) fn extend_to(&mut self, other: Self) -> (u32, u32) {
        let Some((first, last)) = other.span else { return (0, 0) };
        let coarser = other.width_bits.saturating_sub(self.width_bits);
        self.coarsen(coarser);
        let finer = self.width_bits.saturating_sub(other.width_bits);
        let merges = self.extend_span(first >> finer, last >> finer);
        (coarser + merges, finer + merges)
    }

    fn coarsen(&mut self, merges: u32) {
        self.width_bits += merges;
        self.span = self.span.map(|(first, last)| (first >> merges, last >> merges));
    }

    fn extend_span(&mut self, first: u64, last: u64) -> u32 {
        let (mut first, mut last) =
            self.span.map_or((first, last), |(from, to)| (from.min(first), to.max(last)));
        let mut merges = 0;
        while last - first >= BINS_MAX {
            (first, last, merges) = (first >> 1, last >> 1, merges + 1);
        }
        self.width_bits += merges;
        self.span = Some((first, last));
        merges
    }
}

impl TimeBins {
    pub fn iter(&self) -> impl Iterator<Item = &TimeBin> {
        self.bins.iter()
    }

    /// Memory that it takes beyond itself.
    pub(super) fn bytes(&self) -> usize {
        self.bins.len() * size_of::<TimeBin>()
    }

    /// Returns by how many bytes it has grown.
    pub(super) fn add(&mut self, index: u64, times: BinnedTimes) -> usize {
        // Events come nearly in order.
        let at = match self.bins.last() {
            Some(last) if last.index == index => Ok(self.bins.len() - 1),
            Some(last) if last.index > index => self.bins.binary_search_by_key(&index, |bin| bin.index),
            _ => Err(self.bins.len()),
        };
        match at {
            Ok(at) => {
                self.bins[at].add(times);
                0
            }
            Err(at) => {
                let BinnedTimes { events, timed, log_sum } = times;
                self.bins.insert(at, TimeBin { index, events, timed, log_sum });
                size_of::<TimeBin>()
            }
        }
    }

    /// Merges bins in pairs, as often as [`TimeAxis`] says.
    pub(super) fn coarsen(&mut self, merges: u32) {
        if merges == 0 {
            return;
        }
        let bins = std::mem::take(&mut self.bins);
        bins.into_iter().for_each(|bin| {
            self.add(bin.index >> merges, bin.times());
        });
    }

    /// Adds bins that have to be merged `merges` times first.
    pub(super) fn merge(&mut self, other: &Self, merges: u32) {
        other.bins.iter().for_each(|bin| {
            self.add(bin.index >> merges, bin.times());
        });
    }
}

impl TimeBin {
    /// Sum of ln(query time in ns) of the events that have one.
    pub fn log_sum(&self) -> f64 {
        self.log_sum as f64 / PARTS_OF_LOG
    }

    fn times(&self) -> BinnedTimes {
        BinnedTimes { events: self.events, timed: self.timed, log_sum: self.log_sum }
    }

    fn add(&mut self, times: BinnedTimes) {
        self.events = self.events.saturating_add(times.events);
        self.timed = self.timed.saturating_add(times.timed);
        self.log_sum = self.log_sum.saturating_add(times.log_sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Bins of one class, with the axis.
    fn binned(events: &[(u64, u64)]) -> (TimeAxis, TimeBins) {
        let (mut axis, mut bins) = (TimeAxis::default(), TimeBins::default());
        for &(time_ns, query_ns) in events {
            let (index, merges) = axis.extend(time_ns);
            bins.coarsen(merges);
            bins.add(index, BinnedTimes::of_event(Some(query_ns)));
        }
        (axis, bins)
    }

    #[test]
    fn bins_are_bounded_and_lose_no_event() {
        let start = 1_700_000_000_000_000_000;
        let events: Vec<(u64, u64)> = (0..10_000).map(|n| (start + n * 1_000_000_000, 2_000_000)).collect();
        let (_, bins) = binned(&events);
        assert!((64..=128).contains(&bins.bins.len()), "{}", bins.bins.len());
        assert_eq!(bins.iter().map(|bin| bin.events).sum::<u64>(), 10_000);
        let mean = bins.iter().map(TimeBin::log_sum).sum::<f64>() / 10_000.0;
        assert!((mean - 2_000_000_f64.ln()).abs() < 1e-5, "{mean}");
        let (_, zero) = binned(&[(start, 0)]);
        assert!((zero.bins[0].log_sum() - 1_000_f64.ln()).abs() < 1e-5);
    }

    proptest! {
        #[test]
        fn parts_merge_to_the_bins_of_the_whole(
            a in vec((0_u64..1 << 45, 0_u64..1 << 40), 0..40),
            b in vec((0_u64..1 << 36, 0_u64..1 << 40), 0..40),
        ) {
            let whole = binned(&[a.as_slice(), &b].concat());
            for (one, other) in [(&a, &b), (&b, &a)] {
                let ((mut axis, mut bins), (other_axis, other_bins)) = (binned(one), binned(other));
                let (mine, theirs) = axis.extend_to(other_axis);
                bins.coarsen(mine);
                bins.merge(&other_bins, theirs);
                prop_assert_eq!((axis, bins), whole.clone());
            }
        }
    }
}
