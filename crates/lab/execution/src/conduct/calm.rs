//! Wait for writeback: a trial begins once what the one before wrote is on the disk.
//!
//! A trial that begins while the pages of the one before are still written back pays for them.

use super::Conductor;
use super::environment::Environment;
use std::time::Duration;

/// How much of unwritten memory this host has under the baseline's load alone.
#[derive(Debug, Clone, Copy)]
pub struct Calm {
    /// Bytes.
    limit: u64,
    patience_us: u64,
}

/// Kernels write pages back once they are 30 s old; a disk that takes longer is not waited for.
const MOST_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY_US: u64 = 100_000;
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
        let patience_us = MOST_PATIENCE.min(2 * window).as_micros() as u64;
        Some(Self { limit: third_quartile + SLACK, patience_us })
    }
}

impl<E: Environment> Conductor<'_, E> {
    /// Returns once as little is unwritten as under the baseline, or the patience is spent.
    pub(super) fn wait_until_calm(&mut self) -> anyhow::Result<Waited> {
        let Some(calm) = self.env.calm() else { return Ok(Waited::Calm) };
        let begun_us = self.env.now_us();
        loop {
            let left = self.env.unwritten_bytes();
            if left <= calm.limit {
                return Ok(Waited::Calm);
            }
            let now_us = self.env.now_us();
            if now_us - begun_us >= calm.patience_us {
                return Ok(Waited::InVain(left));
            }
            if !self.wait_until(now_us + LOOK_EVERY_US)? {
                return Ok(Waited::Interrupted);
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
