//! Interface of all taps. Independent of the output.

use super::output::CaptureOutput;
use std::time::Duration;

/// Source of captured data.
pub trait Tap {
    /// Passes on data that has arrived, waiting at most `wait` for it. A signal ends the wait.
    ///
    /// # Errors
    /// The device or the server is gone, or `to` can take no more.
    fn poll(&mut self, wait: Duration, to: &mut dyn CaptureOutput) -> anyhow::Result<()>;

    /// Stops capturing. [`poll`](Self::poll) still passes on data that arrived before.
    ///
    /// # Errors
    /// The kernel refuses.
    fn close(&mut self) -> anyhow::Result<()>;

    /// 64-bit counters since the tap was opened.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    fn counters(&mut self) -> anyhow::Result<TapCounters>;

    /// First and last time of losses in the kernel (Unix time, ns), if known.
    fn loss_interval(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Counters of the kernel. `passed` = `delivered` + `lost_kernel` + what is still in the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TapCounters {
    /// Items that passed the filter.
    pub passed: u64,
    /// Handed on to the output.
    pub delivered: u64,
    /// Items dropped by the kernel.
    pub lost_kernel: u64,
}
