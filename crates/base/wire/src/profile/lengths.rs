//! Packet length distribution: a count for every length, separate for TCP, UDP and the rest.

use super::TrafficSum;
use std::cmp::Reverse;

/// Lengths below this are counted one by one: IP's largest packet behind any link header. Longer ones (some
/// networks and loopback devices have them) are counted together.
pub const EXACT_LIMIT: usize = 65_600;
/// Width of a bin, bytes: the one in which packet lengths are mostly shown.
pub const BIN_WIDTH: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthKind {
    Tcp,
    Udp,
    Other,
}

#[derive(Debug)]
pub struct LengthDistribution {
    /// Packets of each length, by kind, as far as there were any.
    exact: Vec<[u64; 3]>,
    /// Packets of `EXACT_LIMIT` bytes and more.
    pub longer: [TrafficSum; 3],
    shortest: u64,
    longest: [u64; 3],
}

impl Default for LengthDistribution {
    fn default() -> Self {
        LengthDistribution {
            exact: Vec::new(),
            longer: [TrafficSum::default(); 3],
            shortest: u64::MAX,
            longest: [0; 3],
        }
    }
}

impl LengthDistribution {
    #[inline]
    pub(super) fn add(&mut self, kind: LengthKind, bytes: u64) {
        let kind = kind as usize;
        match self.exact.get_mut(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            Some(counts) => counts[kind] += 1,
            None => self.add_longest(kind, bytes),
        }
        self.shortest = self.shortest.min(bytes);
        self.longest[kind] = self.longest[kind].max(bytes);
    }

    /// Makes room up to the length, if it is one of those that are counted one by one.
    #[cold]
    fn add_longest(&mut self, kind: usize, bytes: u64) {
        match usize::try_from(bytes) {
            Ok(length) if length < EXACT_LIMIT => {
                self.exact.resize((length + 1).next_power_of_two().min(EXACT_LIMIT), [0; 3]);
                self.exact[length][kind] += 1;
            }
            _ => self.longer[kind].add(bytes),
        }
    }

    pub(super) fn packets(&self) -> u64 {
        let exact: u64 = self.exact.iter().flatten().sum();
        exact + self.longer.iter().map(|sum| sum.packets).sum::<u64>()
    }

    /// Shortest and longest packet; `None`: there was none.
    pub fn span(&self) -> Option<(u64, u64)> {
        let longest = self.longest.into_iter().max().unwrap_or(0);
        (self.shortest <= longest).then_some((self.shortest, longest))
    }

    /// The longest packet of a kind; 0: there was none.
    pub fn longest(&self, kind: LengthKind) -> u64 {
        self.longest[kind as usize]
    }

    /// Packets (TCP, UDP, other) of 0 to 99 bytes, of 100 to 199, and so on up to the longest below `EXACT_LIMIT`.
    pub fn bins(&self) -> Vec<[u64; 3]> {
        let mut bins: Vec<[u64; 3]> = self
            .exact
            .chunks(BIN_WIDTH)
            .map(|lengths| {
                lengths
                    .iter()
                    .fold([0; 3], |sum, counts| std::array::from_fn(|kind| sum[kind] + counts[kind]))
            })
            .collect();
        let used = bins.iter().rposition(|bin| *bin != [0; 3]).map_or(0, |last| last + 1);
        bins.truncate(used);
        bins
    }

    /// The `n` most frequent lengths of a kind with their packets, the most first; ties by length.
    pub fn most_frequent(&self, kind: LengthKind, n: usize) -> Vec<(usize, u64)> {
        let counts = self.exact.iter().map(|counts| counts[kind as usize]);
        let mut seen: Vec<(usize, u64)> = counts.enumerate().filter(|&(_, packets)| packets > 0).collect();
        seen.sort_by_key(|&(length, packets)| (Reverse(packets), length));
        seen.truncate(n);
        seen
    }

    /// The length that half of the packets do not exceed. `None`: no packets, or it is beyond `EXACT_LIMIT`.
    pub fn median(&self) -> Option<usize> {
        let half = self.packets().div_ceil(2);
        let mut below = 0;
        self.exact.iter().position(|counts| {
            below += counts.iter().sum::<u64>();
            below >= half && half > 0
        })
    }
}
