//! Interface of the host at the other end of a link, which processes of a treatment run on.

use super::{ProcessGroup, TreatmentContext};
use std::net::Ipv4Addr;
use std::path::Path;

/// The host at the other end of a link. The test setup provides it, if the scenario has one.
pub trait RemoteHost {
    fn ip(&self) -> Ipv4Addr;

    /// Prefix of a command that runs there.
    fn enter_command(&self) -> Vec<String>;

    /// Shapes the link to another rate, or (`None`) back to the rig's. An unshaped link stays unshaped.
    ///
    /// # Errors
    /// The kernel refuses the rate.
    fn shape(&self, rate: Option<&str>) -> anyhow::Result<()>;

    /// Starts a real `nc` that accepts one connection and writes it to `file`.
    ///
    /// # Errors
    /// `nc` does not start, or does not listen in time.
    fn listen(
        &self,
        port: u16,
        file: &Path,
        stem: &str,
        context: &TreatmentContext<'_>,
    ) -> anyhow::Result<ProcessGroup>;
}
