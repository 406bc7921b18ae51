//! What time is it, on the one clock that all of a run is stamped with?

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// CLOCK_MONOTONIC, in nanoseconds. Linux cannot fail to answer it.
#[inline]
pub fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs())
}

/// Sleeps until `deadline_ns` of [`now_ns`], or a signal.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = TimeSpec::new((deadline_ns / 1_000_000_000) as i64, (deadline_ns % 1_000_000_000) as i64);
    // Interrupted by a signal: the caller looks at its stop flag and comes back.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &deadline);
}
