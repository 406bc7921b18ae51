//! Wait for writeback: a trial begins once what the one before wrote is on the disk.
//!
//! A trial that begins while the pages of the one before are still written back pays for them.

use super::TrialLoop;
use super::environment::Environment;
use std::time::Duration;

/// How much of unwritten memory this host has under the baseline's load alone.
#[derive(Debug, Clone, Copy)]
pub struct WritebackBarrier {
    /// Bytes.
    limit: u64,
    timeout_us: u64,
}

/// Kernels write pages back once they are 30 s old; a disk that takes longer is not waited for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_EVERY_US: u64 = 100_000;
/// Above the third quartile of the baseline. Logs of servers and toll's own lines lie about unwritten
/// for up to 30 s (14 MB were seen) and no window feels them; a capture leaves 100 MB a second.
const SLACK: u64 = 64 << 20;

/// What came of waiting.
#[derive(Debug, PartialEq)]
pub enum WritebackWait {
    Finished,
    /// Not finished within the time limit: bytes that are still unwritten.
    TimedOut(u64),
    Interrupted,
}

impl WritebackBarrier {
    /// By samples of the baseline; `None` without any. Never waits for longer than two windows, so
    /// that no run takes three times as long as was said.
    pub fn from_samples(mut samples: Vec<u64>, window: Duration) -> Option<Self> {
        samples.sort_unstable();
        let third_quartile = *samples.get(samples.len() * 3 / 4)?;
        let timeout_us = LONGEST_TIMEOUT.min(2 * window).as_micros() as u64;
        Some(Self { limit: third_quartile + SLACK, timeout_us })
    }
}

impl<E: Environment> TrialLoop<'_, E> {
    /// Returns once as little is unwritten as under the baseline, or the time limit is reached.
    pub(super) fn wait_for_writeback(&mut self) -> anyhow::Result<WritebackWait> {
        let Some(barrier) = self.env.writeback_barrier() else { return Ok(WritebackWait::Finished) };
        let begun_us = self.env.now_us();
        loop {
            let left = self.env.unwritten_bytes();
            if left <= barrier.limit {
                return Ok(WritebackWait::Finished);
            }
            let now_us = self.env.now_us();
            if now_us - begun_us >= barrier.timeout_us {
                return Ok(WritebackWait::TimedOut(left));
            }
            if !self.wait_until(now_us + POLL_EVERY_US)? {
                return Ok(WritebackWait::Interrupted);
            }
        }
    }
}

impl WritebackWait {
    /// What a reader of the trial should know.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Finished | Self::Interrupted => None,
            Self::TimedOut(bytes) => Some(format!(
                "began while {} MB of pages were still to be written: use a longer --gap",
                bytes / 1_000_000
            )),
        }
    }
}
