//! End of a child process of toll's own: asked first, then killed.

use anyhow::ensure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Child;
use std::time::{Duration, Instant};
use toll_sys::process::escalate;

/// A killed process is the kernel's to end, which first takes its probes and packet sockets away: for more than five seconds on a
/// host whose CPUs are all busy.
const KILLED_WITHIN: Duration = Duration::from_secs(60);

/// Ends it, and waits for it: `patience` before it is killed.
///
/// # Errors
/// It is still there.
pub fn end_child(child: &mut Child, patience: Duration) -> anyhow::Result<()> {
    let pid = Pid::from_raw(child.id() as i32);
    if !has_ended(child) {
        #[allow(clippy::disallowed_methods)] // a child that has not been waited for
        let send = |signal| {
            let _ = kill(pid, signal);
        };
        let steps = [(Signal::SIGTERM, patience), (Signal::SIGKILL, KILLED_WITHIN)];
        escalate(&steps, send, |patience| {
            let begun = Instant::now();
            while !has_ended(child) && begun.elapsed() < patience {
                std::thread::sleep(Duration::from_millis(2));
            }
            has_ended(child)
        });
    }
    ensure!(has_ended(child), "process {pid} does not end");
    Ok(())
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}
