//! Traffic per time interval of a capture. The intervals grow with the capture, their number does not.

use super::TrafficSum;
use std::collections::VecDeque;

/// Maximum number of bins. Beyond it, ten bins merge into one.
const MAX_BINS: u64 = 5_000;
/// The shortest stretch, ns: 1 ms, over which a burst fills a buffer.
const MIN_WIDTH_NS: u64 = 1_000_000;
const FOLD_FACTOR: u64 = 10;

/// Packets and bytes by time.
#[derive(Debug)]
pub struct RateHistogram {
    width_ns: u64,
    /// The first stretch begins at so many widths since 1970.
    first_bin: u64,
    bins: VecDeque<TrafficSum>,
    max: u64,
}

/// The busiest stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateBin {
    /// When it begins, Unix ns.
    pub from_ns: u64,
    pub sum: TrafficSum,
}

impl Default for RateHistogram {
    fn default() -> Self {
        Self::with_max_bins(MAX_BINS)
    }
}

impl RateHistogram {
    /// `max` is more than `FOLD_FACTOR`, so that folding always helps.
    pub(super) fn with_max_bins(max: u64) -> Self {
        RateHistogram { width_ns: MIN_WIDTH_NS, first_bin: 0, bins: VecDeque::new(), max }
    }

    #[inline]
    pub(super) fn add(&mut self, time_ns: u64, bytes: u64) {
        let at = (time_ns / self.width_ns).wrapping_sub(self.first_bin);
        match self.bins.get_mut(at as usize) {
            Some(sum) => sum.add(bytes),
            None => self.add_bin(time_ns).add(bytes),
        }
    }

    /// The stretch of a time that has none yet.
    #[cold]
    fn add_bin(&mut self, time_ns: u64) -> &mut TrafficSum {
        if self.bins.is_empty() {
            self.first_bin = time_ns / self.width_ns;
        }
        loop {
            let at = time_ns / self.width_ns;
            let end = (self.first_bin + self.bins.len() as u64).max(at + 1);
            if end - self.first_bin.min(at) <= self.max {
                break;
            }
            self.fold();
        }
        let at = time_ns / self.width_ns;
        while at < self.first_bin {
            self.bins.push_front(TrafficSum::default());
            self.first_bin -= 1;
        }
        let place = (at - self.first_bin) as usize;
        if self.bins.len() <= place {
            self.bins.resize(place + 1, TrafficSum::default());
        }
        &mut self.bins[place]
    }

    fn fold(&mut self) {
        let mut folded: VecDeque<TrafficSum> = VecDeque::new();
        let first = self.first_bin / FOLD_FACTOR;
        for (at, &sum) in (self.first_bin..).zip(&self.bins) {
            let place = (at / FOLD_FACTOR - first) as usize;
            if folded.len() <= place {
                folded.resize(place + 1, TrafficSum::default());
            }
            folded[place] += sum;
        }
        self.width_ns *= FOLD_FACTOR;
        self.first_bin = first;
        self.bins = folded;
    }

    /// Length of a stretch, ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// When the first stretch begins, Unix ns.
    pub fn from_ns(&self) -> u64 {
        self.first_bin * self.width_ns
    }

    /// One after the other, those without packets too.
    pub fn bins(&self) -> impl ExactSizeIterator<Item = TrafficSum> + '_ {
        self.bins.iter().copied()
    }

    /// The stretch of most bytes, the first of them. `None`: no packet has a time.
    pub fn busiest(&self) -> Option<RateBin> {
        // Of equals the last is found: backwards, that is the first.
        let (at, &sum) = self.bins.iter().enumerate().rev().max_by_key(|(_, sum)| sum.bytes)?;
        Some(RateBin { from_ns: (self.first_bin + at as u64) * self.width_ns, sum })
    }

    pub(super) fn total(&self) -> TrafficSum {
        self.bins.iter().fold(TrafficSum::default(), |mut total, &sum| {
            total += sum;
            total
        })
    }
}
