//! When within a trial were the packets sent that its capture does not hold?
//!
//! From the stamps of those that it holds, which number all that were sent: a gap in the numbers is as many lost as no
//! packet without a stamp stands for, and they were sent between the two around it.

use crate::replay::Stamp;
use toll_record::Losses;

/// Bins of a capture: fine enough to see a ring run full, few enough to write down.
const BIN_US: u64 = 10_000;
/// A capture of a minute; what comes later counts in the last one.
const MOST_BINS: usize = 6_000;

/// Follows a capture packet by packet.
#[derive(Debug, Default)]
pub struct Dating {
    losses: Losses,
    /// The first stamp's time, and the last stamp.
    first_ns: Option<u64>,
    last: Option<Stamp>,
    /// Packets without a stamp since the last one.
    unstamped: u64,
}

impl Dating {
    pub fn take(&mut self, stamp: Option<Stamp>) {
        let Some(stamp) = stamp else {
            self.unstamped += 1;
            return;
        };
        let first_ns = *self.first_ns.get_or_insert(stamp.sent_ns);
        let bin =
            |ns: u64| usize::try_from(ns.saturating_sub(first_ns) / 1_000 / BIN_US).unwrap_or(usize::MAX);
        let unstamped = std::mem::take(&mut self.unstamped);
        let (after, since_ns) = match self.last {
            // A reader may have begun late: what was sent before its first packet is no loss of a trial's that it saw.
            None => (stamp.number.saturating_sub(unstamped), stamp.sent_ns),
            Some(last) => (last.number + 1, last.sent_ns),
        };
        let lost = stamp.number.saturating_sub(after).saturating_sub(unstamped);
        let gap_ns = stamp.sent_ns.saturating_sub(since_ns);
        for n in 1..=lost {
            let at = since_ns + (u128::from(gap_ns) * u128::from(n) / u128::from(lost + 1)) as u64;
            self.count(bin(at), 1, 1);
        }
        self.count(bin(stamp.sent_ns), 1 + unstamped, 0);
        self.last = Some(stamp);
    }

    fn count(&mut self, bin: usize, sent: u64, lost: u64) {
        let Losses { sent: all_sent, lost: all_lost, .. } = &mut self.losses;
        let bin = bin.min(MOST_BINS - 1);
        if bin >= all_sent.len() {
            all_sent.resize(bin + 1, 0);
            all_lost.resize(bin + 1, 0);
        }
        all_sent[bin] += sent;
        all_lost[bin] += lost;
    }

    /// `None`: no packet had a stamp.
    pub fn end(mut self) -> Option<Losses> {
        self.losses.bin_us = BIN_US;
        self.first_ns.map(|_| self.losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dated(packets: &[Option<(u64, u64)>]) -> Option<Losses> {
        let mut dating = Dating::default();
        for packet in packets {
            dating.take(packet.map(|(number, ms)| Stamp { number, sent_ns: 77 + ms * 1_000_000 }));
        }
        dating.end()
    }

    #[test]
    fn a_gap_in_the_numbers_is_dated_between_its_neighbours() {
        // 2 is there without a stamp; 4 and 5 are lost between 3 ms and 36 ms, at 14 and 25 ms.
        let packets = [Some((0, 0)), Some((1, 1)), None, Some((3, 3)), Some((6, 36)), Some((7, 41))];
        let losses = dated(&packets).unwrap();
        assert_eq!((losses.sent, losses.lost), (vec![4, 1, 1, 1, 1], vec![0, 1, 1, 0, 0]));
        assert_eq!(losses.bin_us, 10_000);
    }

    #[test]
    fn nothing_is_lost_before_the_first_and_without_stamps_nothing_is_known() {
        let losses = dated(&[None, Some((900, 0)), Some((901, 1))]).unwrap();
        assert_eq!((losses.sent, losses.lost), (vec![3], vec![0]));
        assert_eq!(dated(&[None, None]), None);
        // A second sender's numbers, which begin anew, are no loss of the first's.
        assert_eq!(dated(&[Some((5, 0)), Some((0, 1))]).unwrap().lost, [0]);
    }
}
