//! Interrupt flag that wait loops poll.

use crate::{clock, signals};
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag set by a shutdown signal. Wait loops poll it at least ten times a second.
#[derive(Debug, Clone, Copy)]
pub struct Interrupt(&'static AtomicBool);

/// An interrupt that is never raised.
impl Default for Interrupt {
    fn default() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self(&NEVER)
    }
}

impl Interrupt {
    pub fn listen() -> anyhow::Result<Self> {
        signals::listen()?;
        Ok(Self(&signals::RAISED))
    }

    pub fn raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps until a moment of the monotonic clock; false when interrupted before it.
    pub fn sleep_until(&self, moment_us: u64) -> bool {
        const SLICE_US: u64 = 50_000;
        loop {
            if self.raised() {
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
}
