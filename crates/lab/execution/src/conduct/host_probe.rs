//! Probe of the host and its servers: unwritten pages, restarts.

use super::calm::Waited;
use std::time::Duration;

pub trait HostProbe {
    /// Returns once the host is as calm as under the baseline, or will not be.
    fn wait_until_calm(&mut self) -> Waited;
    /// Bytes of pages that are not on the disk yet.
    fn unwritten_bytes(&self) -> u64;
    /// From now on calm is what these samples of the baseline say; waited for by windows of that length.
    fn calm_is(&mut self, unwritten: Vec<u64>, window: Duration);
    /// Whether a server is another process than it was; an error where it does not come back.
    fn server_restarted(&mut self) -> anyhow::Result<bool>;
}
