//! Where does a capture's material come from? What every tap can be asked; never what becomes of what it saw.

use super::output::Output;
use std::time::Duration;

/// Where a capture's material comes from.
pub trait Tap {
    /// Hands on what has arrived, waiting no longer than `wait` for it; a signal ends the wait.
    ///
    /// # Errors
    /// The device or the server is gone, or `to` can take no more.
    fn take(&mut self, wait: Duration, to: &mut dyn Output) -> anyhow::Result<()>;

    /// Lets nothing more in; what has come until now is still handed on by [`take`](Self::take).
    ///
    /// # Errors
    /// The kernel refuses.
    fn close(&mut self) -> anyhow::Result<()>;

    /// 64-bit counters since the tap was opened.
    ///
    /// # Errors
    /// The kernel does not say.
    fn counters(&mut self) -> anyhow::Result<Seen>;

    /// Between which moments the kernel lost something (Unix time, ns), where the tap knows it.
    fn lost_between(&self) -> Option<(u64, u64)> {
        None
    }
}

/// What the kernel's side says. `passed` = `taken` + `lost_kernel` + what is still in the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Everything that the filter let pass.
    pub passed: u64,
    /// Handed on to the output.
    pub taken: u64,
    /// What the kernel had no room for.
    pub lost_kernel: u64,
}
