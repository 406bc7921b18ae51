//! Is what the last treatment wrote on the disk yet?
//!
//! A trial that begins while the pages of the one before are still written back pays for them.

use super::Interrupt;
use crate::host::memory;
use std::time::{Duration, Instant};

/// How much of unwritten memory this host has under the baseline's load alone.
#[derive(Debug)]
pub struct Calm {
    /// The third quartile, bytes.
    limit: u64,
}

/// Kernels write pages back once they are 30 s old; a disk that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY_S: f64 = 0.1;
/// A log or two of a server: no window feels it.
const NOTHING: u64 = 8 << 20;

/// What came of waiting.
#[derive(Debug, PartialEq)]
pub enum Waited {
    Calm,
    /// Not calm after the patience was spent: bytes that are still unwritten.
    InVain(u64),
    Interrupted,
}

impl Calm {
    /// By samples of the baseline; `None` without any.
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let third_quartile = *samples.get(samples.len() * 3 / 4)?;
        Some(Self { limit: third_quartile.max(NOTHING) })
    }

    /// Returns once as little is unwritten as under the baseline.
    pub fn wait(&self, interrupt: &Interrupt) -> Waited {
        self.wait_for(interrupt, memory::unwritten_bytes, PATIENCE)
    }

    fn wait_for(&self, interrupt: &Interrupt, unwritten: impl Fn() -> u64, patience: Duration) -> Waited {
        let begun = Instant::now();
        loop {
            let left = unwritten();
            if left <= self.limit {
                return Waited::Calm;
            }
            if begun.elapsed() >= patience {
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
                "began while {} MB of pages were still to be written, after a wait of {} s: use a longer --gap",
                bytes / 1_000_000,
                PATIENCE.as_secs()
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
        let calm = Calm::of(vec![10 * MIB, 40 * MIB, 20 * MIB, 30 * MIB]).unwrap();
        let left = Cell::new(90 * MIB);
        let drains = || {
            left.set(left.get().saturating_sub(30 * MIB));
            left.get()
        };
        let interrupt = Interrupt::default();
        assert_eq!(calm.wait_for(&interrupt, drains, PATIENCE), Waited::Calm);
        assert_eq!(left.get(), 30 * MIB);
    }

    #[test]
    fn a_disk_that_never_catches_up_is_noted_and_not_waited_for_for_ever() {
        let calm = Calm::of(vec![0]).unwrap();
        let waited = calm.wait_for(&Interrupt::default(), || 900 * MIB, Duration::from_millis(150));
        assert!(waited.note().is_some_and(|note| note.contains("943 MB") && note.contains("--gap")));
        assert!(Calm::of(Vec::new()).is_none());
    }
}
