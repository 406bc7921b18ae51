//! Pause of a load, by signal, while a treatment is switched on or off slowly.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use toll_record::Clock;

/// A load that may be paused while a treatment is switched.
///
/// Opening and closing a packet socket, and entering a control group, wait until every CPU has passed a quiescent state
/// (RCU). If the load keeps all CPUs busy, the kernel's thread for that does not run for seconds. Measured at the end:
/// tcpdump obeyed its signal at once and waited in close(2) for up to 16 s, 0.04 s without a load, and 0.02 to 0.06 s
/// from the moment the load was paused. At the start it did not say `listening on` within 10 s, and `sleep` took 3.9 s to
/// enter its group. No further signal hastens it.
#[derive(Debug, Clone, Copy)]
pub struct PausableLoad {
    driver: Pid,
    /// How long switching may take before the load is paused.
    patience: Duration,
}

/// Time after which a tool is assumed to wait for CPUs that the load keeps busy. What is quicker leaves the load alone.
const PAUSE_AFTER: Duration = Duration::from_millis(150);

impl PausableLoad {
    /// The load of this driver, a child of this run that is not waited for yet.
    ///
    /// Where all share one counted CPU, a tool that starts beside a load takes minutes: there it is paused at once.
    pub fn new(driver: Pid, clock: Clock) -> Self {
        Self { driver, patience: if clock.is_real() { PAUSE_AFTER } else { Duration::ZERO } }
    }

    /// Pauses the load, unless the guard is dropped before its patience is over; dropped, the load goes on.
    #[must_use]
    pub fn pause_if_slow(self) -> PauseGuard {
        let mut guard = PauseGuard { driver: self.driver, is_paused: false, waiting: None };
        if self.patience.is_zero() {
            guard.is_paused = send(self.driver, Signal::SIGSTOP);
            return guard;
        }
        let (done, is_done) = channel();
        let wait = move || {
            let is_slow = is_done.recv_timeout(self.patience) == Err(RecvTimeoutError::Timeout);
            is_slow && send(self.driver, Signal::SIGSTOP)
        };
        // Without a thread the switching takes as long as it takes.
        let thread = std::thread::Builder::new().name("pause".into()).spawn(wait);
        guard.waiting = thread.ok().map(|thread| (done, thread));
        guard
    }
}

/// A load that is paused once switching has taken long, until this is dropped.
#[derive(Debug)]
pub struct PauseGuard {
    driver: Pid,
    is_paused: bool,
    waiting: Option<(Sender<()>, JoinHandle<bool>)>,
}

impl Drop for PauseGuard {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.waiting.take() {
            drop(done);
            // A thread that has failed may have sent its signal.
            self.is_paused |= thread.join().unwrap_or(true);
        }
        if self.is_paused {
            send(self.driver, Signal::SIGCONT);
        }
    }
}

#[allow(clippy::disallowed_methods)] // the driver: a child of this run, not waited for yet
fn send(driver: Pid, signal: Signal) -> bool {
    kill(driver, signal).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use toll_sys::proc_file;

    #[allow(clippy::disallowed_methods)] // a child of this test
    fn driver() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn is_stopped(child: &Child) -> bool {
        proc_file::field(&proc_file::status(child.id()), "State").is_some_and(|state| state.starts_with('T'))
    }

    fn await_state(child: &Child, stopped: bool) {
        while is_stopped(child) != stopped {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_load_is_paused_once_switching_takes_long_and_goes_on_afterwards() {
        let mut child = driver();
        let pid = Pid::from_raw(child.id() as i32);
        for patience in [Duration::from_millis(20), Duration::ZERO] {
            let guard = PausableLoad { driver: pid, patience }.pause_if_slow();
            await_state(&child, true);
            drop(guard);
            await_state(&child, false);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_is_switched_quickly_leaves_the_load_alone_on_the_real_clock() {
        let mut child = driver();
        let pid = Pid::from_raw(child.id() as i32);
        let never = PausableLoad { driver: pid, patience: Duration::from_secs(3_600) };
        drop(never.pause_if_slow());
        assert!(!is_stopped(&child));
        assert_eq!(PausableLoad::new(pid, Clock::Real).patience, PAUSE_AFTER);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
