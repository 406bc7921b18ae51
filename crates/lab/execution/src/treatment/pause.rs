//! How is a load held up for a moment?

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A load that may be held up while a treatment ends.
///
/// Closing a packet socket waits until every CPU has passed a quiet point (RCU), and on a host whose
/// CPUs are all busy with the load the kernel's thread for that gets no turn for seconds: tcpdump has
/// obeyed its signal at once and sits in close(2) (seen: 0.04 s without a load, up to 16 s with one,
/// and 0.02 to 0.06 s from the moment that the load was stopped). No further signal hastens it.
#[derive(Debug, Clone, Copy)]
pub struct Pausable(pub Pid);

/// A load that stands still until this is dropped.
pub struct Paused(Pid);

impl Pausable {
    #[allow(clippy::disallowed_methods)] // the driver: a child of this run, not waited for yet
    pub fn pause(self) -> Paused {
        let _ = kill(self.0, Signal::SIGSTOP);
        Paused(self.0)
    }
}

impl Drop for Paused {
    #[allow(clippy::disallowed_methods)] // as above
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}
