//! Clock of the trial loop, and waiting on it.

pub trait Clock {
    /// CLOCK_MONOTONIC, microseconds.
    fn now_us(&self) -> u64;
    /// Unix time, microseconds.
    fn wall_us(&self) -> u64;
    fn is_interrupted(&self) -> bool;
    /// False when interrupted before that moment.
    fn sleep_until(&self, moment_us: u64) -> bool;
}
