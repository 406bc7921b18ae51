//! Send schedule: the due time of each packet. Pure: reads no clock.
//!
//! Every deadline counts from the start, in 128 bits, so rounding errors never accumulate. A late packet does
//! not delay those after it.

/// Send rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Bits of frames a second, without preamble, checksum and gap, as tcpreplay counts them.
    BitsPerSecond(u64),
    /// Thousandths of a packet a second.
    MilliPacketsPerSecond(u64),
    /// Millionths of the speed at which they were captured: 2,000,000 is twice as fast.
    MicroMultiples(u64),
    /// As fast as they go.
    TopSpeed,
}

/// Deadlines of a replay.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    rate: Rate,
}

/// Packets sent before this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentSoFar {
    pub packets: u64,
    pub bytes: u64,
    /// Time of the packet in the recording, from its first packet on, rounds before this one included.
    pub recorded_ns: u64,
}

impl Pace {
    /// `None` where the rate is zero: nothing would ever be due.
    pub fn new(rate: Rate) -> Option<Self> {
        let some = match rate {
            Rate::BitsPerSecond(n) | Rate::MilliPacketsPerSecond(n) | Rate::MicroMultiples(n) => n > 0,
            Rate::TopSpeed => true,
        };
        some.then_some(Self { rate })
    }

    pub fn rate(self) -> Rate {
        self.rate
    }

    /// From the start, ns; at top speed everything is due at once.
    #[inline]
    pub fn due_ns(self, before: SentSoFar) -> u64 {
        let (count, unit, rate) = match self.rate {
            Rate::BitsPerSecond(rate) => (before.bytes, 8_000_000_000, rate),
            Rate::MilliPacketsPerSecond(rate) => (before.packets, 1_000_000_000_000, rate),
            Rate::MicroMultiples(rate) => (before.recorded_ns, 1_000_000, rate),
            Rate::TopSpeed => return 0,
        };
        u64::try_from(u128::from(count) * unit / u128::from(rate)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(rate: Rate, packets: u64, bytes: u64, recorded_ns: u64) -> u64 {
        Pace::new(rate).unwrap().due_ns(SentSoFar { packets, bytes, recorded_ns })
    }

    #[test]
    fn deadlines_follow_from_what_was_asked() {
        // 125 bytes are 1,000 bits: 1 us of a gigabit.
        assert_eq!(due(Rate::BitsPerSecond(1_000_000_000), 1, 125, 0), 1_000);
        assert_eq!(due(Rate::MilliPacketsPerSecond(2_500), 5, 0, 0), 2_000_000_000);
        assert_eq!(due(Rate::MicroMultiples(2_000_000), 9, 9, 3_000), 1_500);
        assert_eq!(due(Rate::TopSpeed, 9, 9, 9), 0);
        assert!(Pace::new(Rate::BitsPerSecond(0)).is_none());
    }

    #[test]
    fn a_year_at_a_terabit_is_due_to_the_nanosecond() {
        let seconds = 365 * 86_400;
        let bytes = 125_000_000_000 * seconds;
        assert_eq!(due(Rate::BitsPerSecond(1_000_000_000_000), 0, bytes, 0), seconds * 1_000_000_000);
        assert_eq!(due(Rate::BitsPerSecond(1), 0, u64::MAX, 0), u64::MAX);
    }

    proptest::proptest! {
        #[test]
        fn deadlines_never_go_back(rate in 1_u64..10_000_000_000, steps in proptest::collection::vec(1_u64..9_000, 1..200)) {
            let pace = Pace::new(Rate::BitsPerSecond(rate)).unwrap();
            let mut before = SentSoFar::default();
            let mut last = 0;
            for bytes in steps {
                before.bytes += bytes;
                let due = pace.due_ns(before);
                proptest::prop_assert!(due >= last);
                last = due;
            }
        }
    }
}
