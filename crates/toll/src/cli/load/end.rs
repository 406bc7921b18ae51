//! What if a server that hangs, or a reader that does not read, keeps `toll load` from ending?
//!
//! Then it ends all the same: there is nothing on the host that it would have to put back.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use toll_sys::tell;

/// A signal is noticed this soon.
const LOOK: Duration = Duration::from_millis(100);
/// A load gives answers on their way two seconds.
const GRACE: Duration = Duration::from_secs(5);
/// Standard error may be what does not move.
const LAST_WORD: Duration = Duration::from_secs(1);

/// From now on the process ends soon after `stop` is raised, whatever its other threads wait for.
/// `left` says in which state that leaves things.
pub fn within_bounds(stop: &Arc<AtomicBool>, left: &'static str) -> Result<()> {
    let stop = stop.clone();
    let watch = move || {
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        thread::sleep(GRACE);
        let word = thread::Builder::new().spawn(move || {
            tell!(
                "toll: the server does not answer, or nobody reads the output: ended without waiting for it; \
                 {left}"
            );
        });
        let said = Instant::now();
        while word.as_ref().is_ok_and(|word| !word.is_finished()) && said.elapsed() < LAST_WORD {
            thread::sleep(Duration::from_millis(1));
        }
        std::process::exit(1);
    };
    let started = thread::Builder::new().name("end".into()).spawn(watch);
    started.map(drop).context("cannot start a thread")
}
