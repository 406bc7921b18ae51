//! Is what the last treatment wrote on the disk yet?
//!
//! A trial that begins while the pages of the one before are still written back pays for them.

use std::time::{Duration, Instant};
use toll_sys::interrupt::Interrupt;
use toll_sys::memory;

/// How much of unwritten memory this host has under the baseline's load alone.
#[derive(Debug)]
pub struct Calm {
    /// Bytes.
    limit: u64,
    patience: Duration,
}

/// Kernels write pages back once they are 30 s old; a disk that takes longer is not waited for.
const MOST_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY_S: f64 = 0.1;
/// Above the third quartile of the baseline. Logs of servers and toll's own lines lie about unwritten
/// for up to 30 s (14 MB were seen) and no window feels them; a capture leaves 100 MB a second.
const SLACK: u64 = 64 << 20;

/// What came of waiting.
#[derive(Debug, PartialEq)]
pub enum Waited {
    Calm,
    /// Not calm after the patience was spent: bytes that are still unwritten.
    InVain(u64),
    Interrupted,
}

impl Calm {
    /// By samples of the baseline; `None` without any. Never waits for longer than two windows, so
    /// that no run takes three times as long as was said.
    pub fn of(mut samples: Vec<u64>, window: Duration) -> Option<Self> {
        samples.sort_unstable();
        let third_quartile = *samples.get(samples.len() * 3 / 4)?;
        Some(Self { limit: third_quartile + SLACK, patience: MOST_PATIENCE.min(2 * window) })
    }

    /// Returns once as little is unwritten as under the baseline.
    pub fn wait(&self, interrupt: &Interrupt) -> Waited {
        self.wait_for(interrupt, memory::unwritten_bytes)
    }

    fn wait_for(&self, interrupt: &Interrupt, unwritten: impl Fn() -> u64) -> Waited {
        let begun = Instant::now();
        loop {
            let left = unwritten();
            if left <= self.limit {
                return Waited::Calm;
            }
            if begun.elapsed() >= self.patience {
                return Waited::InVain(left);
            }
            if !interrupt.sleep(LOOK_EVERY_S) {
                return Waited::Interrupted;
            }
        }
    }
}

impl Waited {
    /// What a reader of the trial should know.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Calm | Self::Interrupted => None,
            Self::InVain(bytes) => Some(format!(
                "began while {} MB of pages were still to be written: use a longer --gap",
                bytes / 1_000_000
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_trial_waits_until_no_more_is_unwritten_than_under_the_baseline() {
        let baseline = vec![10 * MIB, 40 * MIB, 20 * MIB, 30 * MIB];
        let calm = Calm::of(baseline, Duration::from_secs(5)).unwrap();
        let left = Cell::new(190 * MIB);
        let drains = || {
            left.set(left.get().saturating_sub(30 * MIB));
            left.get()
        };
        let interrupt = Interrupt::default();
        assert_eq!(calm.wait_for(&interrupt, drains), Waited::Calm);
        assert_eq!(left.get(), 100 * MIB);
    }

    #[test]
    fn a_disk_that_never_catches_up_is_noted_and_not_waited_for_for_ever() {
        let calm = Calm::of(vec![0], Duration::from_millis(75)).unwrap();
        let waited = calm.wait_for(&Interrupt::default(), || 900 * MIB);
        assert!(waited.note().is_some_and(|note| note.contains("943 MB") && note.contains("--gap")));
        assert!(Calm::of(Vec::new(), Duration::from_secs(1)).is_none());
    }
}
