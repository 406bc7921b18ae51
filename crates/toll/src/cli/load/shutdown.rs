//! Bounded shutdown of `toll load`, if a hung server or a blocked reader prevents its end.
//!
//! It exits without cleanup: there is nothing on the host to restore.

use super::super::console::eprint_line;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a signal is checked.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Time limit after a signal. A load waits two seconds for outstanding answers.
const GRACE: Duration = Duration::from_secs(5);
/// Time limit of the last message: standard error itself may be blocked.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Ends the process soon after `stop` is set, whatever its other threads wait for.
///
/// `left` describes the state that remains.
pub fn exit_soon_after_stop(stop: &Arc<AtomicBool>, left: &'static str) -> Result<()> {
    let stop = stop.clone();
    let watch = move || {
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(POLL_EVERY);
        }
        thread::sleep(GRACE);
        let word = thread::Builder::new().spawn(move || {
            eprint_line!(
                "toll: the server does not answer, or nobody reads the output: ended without waiting for it; \
                 {left}"
            );
        });
        let said = Instant::now();
        while word.as_ref().is_ok_and(|word| !word.is_finished()) && said.elapsed() < MESSAGE_TIMEOUT {
            thread::sleep(Duration::from_millis(1));
        }
        std::process::exit(1);
    };
    let started = thread::Builder::new().name("end".into()).spawn(watch);
    started.map(drop).context("cannot start a thread")
}
