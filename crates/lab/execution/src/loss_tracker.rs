//! Loss times within a trial, computed from the sender's stamps in a capture.
//!
//! Stamps number all sent packets, so that a gap in the numbers counts the lost ones. Packets without a stamp
//! are subtracted from the gap. Lost packets were sent between the two stamps around the gap.

use toll_net::replay::Stamp;
use toll_record::Losses;

/// Width of a bin, microseconds: fine enough to show a ring filling, coarse enough to write down.
const BIN_US: u64 = 10_000;
/// Most bins: a capture of a minute. Later packets count in the last bin.
const MOST_BINS: usize = 6_000;

/// Largest gap that counts as loss. A larger one means another sender's numbers.
const LARGEST_GAP: u64 = 10_000_000;

/// The bin of a moment so long after the first stamp.
fn bin_index(after_ns: u64) -> usize {
    usize::try_from(after_ns / 1_000 / BIN_US).unwrap_or(usize::MAX).min(MOST_BINS - 1)
}

/// Loss counter that is fed a capture packet by packet.
#[derive(Debug, Default)]
pub struct LossTracker {
    losses: Losses,
    /// Time of the first stamp, and the last stamp.
    first_ns: Option<u64>,
    last: Option<Stamp>,
    /// Packets without a stamp since the last one.
    unstamped: u64,
}

impl LossTracker {
    pub fn add_packet(&mut self, stamp: Option<Stamp>) {
        let Some(stamp) = stamp else {
            self.unstamped += 1;
            return;
        };
        let first_ns = *self.first_ns.get_or_insert(stamp.sent_ns);
        let bin = |ns: u64| bin_index(ns.saturating_sub(first_ns));
        let unstamped = std::mem::take(&mut self.unstamped);
        let (after, since_ns) = match self.last {
            // Handed over late, by a card of several queues: it was taken for lost.
            Some(last) if stamp.number <= last.number => {
                let bin = bin(stamp.sent_ns);
                self.add_to_bin(bin, 1 + unstamped, 0);
                if let Some(lost @ 1..) = self.losses.lost.get_mut(bin) {
                    *lost -= 1;
                    self.losses.sent[bin] -= 1;
                }
                return;
            }
            // A reader may have begun late: what was sent before its first packet is no loss of a trial's that it saw.
            None => (stamp.number.saturating_sub(unstamped), stamp.sent_ns),
            Some(last) => (last.number + 1, last.sent_ns),
        };
        let lost = stamp.number.saturating_sub(after).saturating_sub(unstamped);
        if lost <= LARGEST_GAP {
            self.spread_loss(lost, since_ns, stamp.sent_ns.max(since_ns), first_ns);
        }
        self.add_to_bin(bin(stamp.sent_ns), 1 + unstamped, 0);
        self.last = Some(stamp);
    }

    /// Spreads `lost` packets evenly between two moments.
    fn spread_loss(&mut self, lost: u64, since_ns: u64, until_ns: u64, first_ns: u64) {
        let gap_ns = u128::from(until_ns - since_ns);
        let (first_bin, last_bin) =
            (bin_index(since_ns.saturating_sub(first_ns)), bin_index(until_ns.saturating_sub(first_ns)));
        let mut before = 0;
        for bin in first_bin..=last_bin {
            let end_ns = u128::from(first_ns) + (bin as u128 + 1) * u128::from(BIN_US * 1_000);
            // The n-th was sent at since + n gap / (lost + 1); so many of them before the bin's end.
            let reached = match (bin == last_bin, end_ns.saturating_sub(u128::from(since_ns))) {
                (true, _) => lost,
                (false, part_ns) => {
                    let upto = (part_ns * u128::from(lost + 1)).div_ceil(gap_ns.max(1)).saturating_sub(1);
                    u64::try_from(upto).unwrap_or(lost).min(lost)
                }
            };
            self.add_to_bin(bin, reached - before, reached - before);
            before = reached;
        }
    }

    fn add_to_bin(&mut self, bin: usize, sent: u64, lost: u64) {
        let Losses { sent: all_sent, lost: all_lost, .. } = &mut self.losses;
        if bin >= all_sent.len() {
            all_sent.resize(bin + 1, 0);
            all_lost.resize(bin + 1, 0);
        }
        all_sent[bin] += sent;
        all_lost[bin] += lost;
    }

    /// The losses. `None` if no packet had a stamp.
    pub fn finish(mut self) -> Option<Losses> {
        self.losses.bin_us = BIN_US;
        self.first_ns.map(|_| self.losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dated(packets: &[Option<(u64, u64)>]) -> Option<Losses> {
        let mut dating = LossTracker::default();
        for packet in packets {
            dating.add_packet(packet.map(|(number, ms)| Stamp { number, sent_ns: 77 + ms * 1_000_000 }));
        }
        dating.finish()
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

    #[test]
    fn numbers_that_nobody_can_have_sent_are_no_loss_and_take_no_time() {
        let losses = dated(&[Some((0, 0)), Some((u64::MAX, 1)), Some((3, 2))]).unwrap();
        assert_eq!((losses.sent, losses.lost), (vec![3], vec![0]));
        let far = dated(&[Some((0, 0)), Some((LARGEST_GAP, 3_600_000))]).unwrap();
        assert_eq!(far.lost.iter().sum::<u64>(), LARGEST_GAP - 1);
        assert_eq!(far.lost.len(), MOST_BINS);
    }

    #[test]
    fn what_comes_late_is_not_lost() {
        let losses = dated(&[Some((5, 0)), Some((7, 2)), Some((6, 1)), Some((8, 3))]).unwrap();
        assert_eq!((losses.sent, losses.lost), (vec![4], vec![0]));
    }
}
