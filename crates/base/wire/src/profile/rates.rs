//! Traffic per time interval of a capture. The intervals grow with the capture, their number does not.

use super::Sum;
use std::collections::VecDeque;

/// A capture is told in at most so many stretches: past them, ten become one.
const MAX: u64 = 5_000;
/// The shortest stretch, ns: 1 ms, over which a burst fills a buffer.
const SHORTEST_NS: u64 = 1_000_000;
const FOLD: u64 = 10;

/// Packets and bytes by time.
#[derive(Debug)]
pub struct Rates {
    width_ns: u64,
    /// The first stretch begins at so many widths since 1970.
    first: u64,
    stretches: VecDeque<Sum>,
    max: u64,
}

/// The busiest stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// When it begins, Unix ns.
    pub from_ns: u64,
    pub sum: Sum,
}

impl Default for Rates {
    fn default() -> Self {
        Self::in_at_most(MAX)
    }
}

impl Rates {
    /// `max` is more than `FOLD`, so that folding always helps.
    pub(super) fn in_at_most(max: u64) -> Self {
        Rates { width_ns: SHORTEST_NS, first: 0, stretches: VecDeque::new(), max }
    }

    #[inline]
    pub(super) fn add(&mut self, time_ns: u64, bytes: u64) {
        let at = (time_ns / self.width_ns).wrapping_sub(self.first);
        match self.stretches.get_mut(at as usize) {
            Some(sum) => sum.add(bytes),
            None => self.make_room(time_ns).add(bytes),
        }
    }

    /// The stretch of a time that has none yet.
    #[cold]
    fn make_room(&mut self, time_ns: u64) -> &mut Sum {
        if self.stretches.is_empty() {
            self.first = time_ns / self.width_ns;
        }
        loop {
            let at = time_ns / self.width_ns;
            let end = (self.first + self.stretches.len() as u64).max(at + 1);
            if end - self.first.min(at) <= self.max {
                break;
            }
            self.fold();
        }
        let at = time_ns / self.width_ns;
        while at < self.first {
            self.stretches.push_front(Sum::default());
            self.first -= 1;
        }
        let place = (at - self.first) as usize;
        if self.stretches.len() <= place {
            self.stretches.resize(place + 1, Sum::default());
        }
        &mut self.stretches[place]
    }

    fn fold(&mut self) {
        let mut folded: VecDeque<Sum> = VecDeque::new();
        let first = self.first / FOLD;
        for (at, &sum) in (self.first..).zip(&self.stretches) {
            let place = (at / FOLD - first) as usize;
            if folded.len() <= place {
                folded.resize(place + 1, Sum::default());
            }
            folded[place] += sum;
        }
        self.width_ns *= FOLD;
        self.first = first;
        self.stretches = folded;
    }

    /// Length of a stretch, ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// When the first stretch begins, Unix ns.
    pub fn from_ns(&self) -> u64 {
        self.first * self.width_ns
    }

    /// One after the other, those without packets too.
    pub fn stretches(&self) -> impl ExactSizeIterator<Item = Sum> + '_ {
        self.stretches.iter().copied()
    }

    /// The stretch of most bytes, the first of them. `None`: no packet has a time.
    pub fn busiest(&self) -> Option<Rate> {
        // Of equals the last is found: backwards, that is the first.
        let (at, &sum) = self.stretches.iter().enumerate().rev().max_by_key(|(_, sum)| sum.bytes)?;
        Some(Rate { from_ns: (self.first + at as u64) * self.width_ns, sum })
    }

    pub(super) fn total(&self) -> Sum {
        self.stretches.iter().fold(Sum::default(), |mut total, &sum| {
            total += sum;
            total
        })
    }
}
