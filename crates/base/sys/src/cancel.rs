//! Cancellation token: passed to long-running work. Never set by this crate itself.

use crate::clock;
use anyhow::bail;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Clones share one state, which is cancelled once and stays so. Loops check it at least ten times a second.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    pub fn new() -> Self {
        Self::default()
    }

    /// The answer is whether it was cancelled before.
    pub fn cancel(&self) -> bool {
        self.0.swap(true, Ordering::Relaxed)
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it is cancelled, for whoever waits in a loop.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.is_cancelled() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// For loops that take a plain flag.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// For threads and signal handlers that take a plain flag.
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Sleeps until a moment of the monotonic clock; false when cancelled before it.
    pub fn sleep_until(&self, moment_us: u64) -> bool {
        const SLICE_US: u64 = 200_000;
        loop {
            if self.is_cancelled() {
                return false;
            }
            let now = clock::mono_us();
            if now >= moment_us {
                return true;
            }
            clock::sleep_until(moment_us.min(now + SLICE_US));
        }
    }

    pub fn sleep(&self, seconds: f64) -> bool {
        self.sleep_until(clock::mono_us() + (seconds * 1e6) as u64)
    }

    /// Does `work`, and calls `end` once it is cancelled meanwhile: for work that waits for another process, which `end`
    /// ends.
    pub fn run_interruptible<T>(&self, end: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
        const CHECK_EVERY: Duration = Duration::from_millis(50);
        struct FinishGuard<'a>(&'a AtomicBool, &'a Thread);
        impl Drop for FinishGuard<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
                self.1.unpark();
            }
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if self.is_cancelled() {
                        return end();
                    }
                    std::thread::park_timeout(CHECK_EVERY);
                }
            });
            let _over = FinishGuard(&over, watch.thread());
            work()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_cancelled_together_and_whoever_waits_is_told() {
        let cancel = CancelToken::new();
        let held = cancel.clone();
        assert!(held.check().is_ok() && held.sleep(0.0));
        assert!(!cancel.cancel(), "it was not before");
        assert!(cancel.cancel() && held.is_cancelled() && held.flag().load(Ordering::Relaxed));
        assert_eq!(held.check().unwrap_err().to_string(), "interrupted");
        assert!(!held.sleep(60.0), "and not after a minute");
    }

    #[test]
    fn work_that_waits_for_somebody_else_is_ended_from_outside() {
        let (cancel, ended) = (CancelToken::new(), AtomicBool::new(false));
        let end = || ended.store(true, Ordering::Relaxed);
        assert_eq!(cancel.run_interruptible(end, || 1), 1);
        assert!(!ended.load(Ordering::Relaxed), "nobody asked for an end");
        let waited = cancel.run_interruptible(end, || {
            cancel.cancel();
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            2
        });
        assert_eq!(waited, 2);
    }
}
