//! Control of the load that keeps the subject busy.

use crate::treatment::PauseGuard;
use toll_record::Arm;

pub trait LoadControl {
    /// Has the arm's load running and its meter counting: what does so already goes on, anything else is
    /// taken down. `fresh`: with new connections.
    fn ensure_load(&mut self, arm: &Arm, fresh: bool) -> anyhow::Result<()>;
    fn stop_load(&mut self) -> anyhow::Result<()>;
    /// Pauses it until the guard is dropped; `None`: it cannot be paused without harm.
    fn pause_load(&mut self) -> Option<PauseGuard>;
}
