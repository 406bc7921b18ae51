//! Signal handling for an orderly shutdown.
//!
//! HUP (a closed terminal) and QUIT (the quit key) count like INT and TERM.

use crate::tell;
use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// True from the first signal on.
pub static RAISED: AtomicBool = AtomicBool::new(false);

/// Returns an error after a shutdown signal arrived. For use in wait loops.
pub fn check() -> anyhow::Result<()> {
    if RAISED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sets [`RAISED`] at the first shutdown signal. No such signal ends the process by itself. A second signal
/// does not interrupt the restoring of settings: toll prints what is still in progress.
pub fn listen() -> anyhow::Result<()> {
    let mut signals = Signals::new(that_end()).context("cannot listen to signals")?;
    std::thread::spawn(move || {
        for _ in &mut signals {
            if RAISED.swap(true, Ordering::Relaxed) {
                tell!(
                    "toll: still putting things back; if that hangs, kill -9 {} and run `toll clean`",
                    std::process::id()
                );
            }
        }
    });
    Ok(())
}

/// Runs `work` and calls `end` at the first signal in the meantime. For work that waits for another process,
/// which `end` terminates.
pub fn ended_by<T>(end: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    const LOOK: Duration = Duration::from_millis(50);
    struct Over<'a>(&'a AtomicBool, &'a Thread);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            self.1.unpark();
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if RAISED.load(Ordering::Relaxed) {
                    return end();
                }
                std::thread::park_timeout(LOOK);
            }
        });
        let _over = Over(&over, watch.thread());
        work()
    })
}

/// Shutdown signals of this process. HUP is not one of them if it was ignored at the start (nohup): such a
/// process must outlive its terminal. Call this before a handler is installed.
pub fn that_end() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    those_heeded(&status)
}

fn those_heeded(status: &str) -> Vec<i32> {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let hup_ignored = ignored & (1 << (SIGHUP - 1)) != 0;
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|s| *s != SIGHUP || !hup_ignored).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_ends_toll_unless_it_was_started_to_outlive_it() {
        assert!(that_end().contains(&SIGTERM) && that_end().contains(&SIGQUIT));
        // As written under nohup, and without it (Rust itself ignores PIPE).
        assert!(!those_heeded("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n").contains(&SIGHUP));
        assert!(those_heeded("SigIgn:\t0000000000001000\n").contains(&SIGHUP));
        assert_eq!(those_heeded("").len(), 4);
    }
}
