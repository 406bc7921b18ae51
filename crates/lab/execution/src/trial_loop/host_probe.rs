//! Probe of the host and its servers: unwritten pages, restarts.

use super::writeback::WritebackBarrier;

pub trait HostProbe {
    /// Bytes of pages that are not on the disk yet.
    fn unwritten_bytes(&self) -> u64;
    /// What trials wait for; `None` before the pilot has seen the baseline.
    fn writeback_barrier(&self) -> Option<WritebackBarrier>;
    fn set_writeback_barrier(&mut self, barrier: Option<WritebackBarrier>);
    /// Whether a server is another process than it was; an error where it does not come back.
    fn server_restarted(&mut self) -> anyhow::Result<bool>;
}
