//! Test whether slow seconds are more frequent during the dump than in its pauses.
//!
//! A host with neighbours stalls for a part of some seconds, with or without a dump. A single such second is
//! no evidence. The dump is the cause only where they are more frequent during the dump. Knows no clock.

/// Seconds beside the dump that count: its rate changes, and harm must be told within a few; what happens
/// seldom is told by many.
const RECENT_HALF_LIFE: f64 = 4.0;
const LONG_HALF_LIFE: f64 = 60.0;
/// Seconds without it, a few a minute.
const WITHOUT_DUMP_HALF_LIFE: f64 = 60.0;
/// What is so many standard errors more is no chance.
const SIGNIFICANT_ERRORS: f64 = 1.5;

/// How many of the seconds so far were slow; a second weighs half after so many more.
#[derive(Debug, Clone, Copy)]
struct DecayingShare {
    half_life: f64,
    all: f64,
    slow: f64,
}

impl DecayingShare {
    fn new(half_life: f64) -> Self {
        Self { half_life, all: 0.0, slow: 0.0 }
    }

    fn record(&mut self, is_slow: bool) {
        let kept = (-1.0 / self.half_life).exp2();
        self.all = kept * self.all + 1.0;
        self.slow = kept * self.slow + f64::from(u8::from(is_slow));
    }

    /// As if one more had been half slow: none of few is no certainty.
    fn share(&self) -> f64 {
        (self.slow + 0.5) / (self.all + 1.0)
    }

    fn is_more_than(&self, other: &Self) -> bool {
        let both = Self { slow: self.slow + other.slow, all: self.all + other.all, ..*self }.share();
        let variance = both * (1.0 - both) * (1.0 / self.all.max(1.0) + 1.0 / other.all.max(1.0));
        self.share() - other.share() > SIGNIFICANT_ERRORS * variance.sqrt()
    }
}

/// Seconds that were slow in one way, beside the dump and without it.
#[derive(Debug, Clone, Copy)]
pub struct SlowSecondStats {
    recent: DecayingShare,
    long: DecayingShare,
    without_dump: DecayingShare,
}

impl Default for SlowSecondStats {
    fn default() -> Self {
        Self {
            recent: DecayingShare::new(RECENT_HALF_LIFE),
            long: DecayingShare::new(LONG_HALF_LIFE),
            without_dump: DecayingShare::new(WITHOUT_DUMP_HALF_LIFE),
        }
    }
}

impl SlowSecondStats {
    pub fn record_during_dump(&mut self, is_slow: bool) {
        self.recent.record(is_slow);
        self.long.record(is_slow);
    }

    pub fn record_without_dump(&mut self, is_slow: bool) {
        self.without_dump.record(is_slow);
    }

    /// Of the slow seconds beside the dump, the part that the host has without it.
    pub fn host_share(&self) -> f64 {
        (self.without_dump.share() / self.long.share()).min(1.0)
    }

    /// True if chance and the host do not explain the slow seconds.
    pub fn caused_by_dump(&self) -> bool {
        self.recent.is_more_than(&self.without_dump) || self.long.is_more_than(&self.without_dump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(without: &[bool], beside: &[bool]) -> SlowSecondStats {
        let mut seconds = SlowSecondStats::default();
        without.iter().for_each(|slow| seconds.record_without_dump(*slow));
        beside.iter().for_each(|slow| seconds.record_during_dump(*slow));
        seconds
    }

    fn each(count: usize, every: usize) -> Vec<bool> {
        (1..=count).map(|second| second % every == 0).collect()
    }

    #[test]
    fn one_slow_second_of_several_accuses_nobody_and_two_in_a_row_do() {
        let quiet = [false; 6];
        assert!(!seconds(&quiet, &[false, false, true]).caused_by_dump());
        assert!(seconds(&quiet, &[true, true]).caused_by_dump());
        assert!(seconds(&[false; 30], &[&[false; 60][..], &[true; 2]].concat()).caused_by_dump());
    }

    #[test]
    fn what_the_host_does_as_often_by_itself_is_not_the_dumps() {
        assert!(!seconds(&each(60, 5), &each(200, 5)).caused_by_dump());
        assert!(!seconds(&each(60, 5), &[true, false, true, false, false]).caused_by_dump());
        // One in five where there is none without: told by many.
        assert!(seconds(&[false; 60], &each(200, 5)).caused_by_dump());
        // All of them where one in five is usual.
        assert!(seconds(&each(60, 5), &[true; 6]).caused_by_dump());
    }
}
