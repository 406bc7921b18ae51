//! Monotonic, wall and CPU clocks.
//!
//! Every run is recorded on the monotonic and the wall clock.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::time::Duration;

/// CLOCK_MONOTONIC in microseconds: the clock of every sample and step.
pub fn mono_us() -> u64 {
    read_us(ClockId::CLOCK_MONOTONIC)
}

/// Unix time in microseconds: the clock of packets and logs.
pub fn wall_us() -> u64 {
    read_us(ClockId::CLOCK_REALTIME)
}

/// [`mono_us`] of a moment of [`wall_us`], to some microseconds: what is between the clocks changes only where the wall clock is set.
pub fn mono_of_wall_us(moment_us: u64) -> u64 {
    let ago_us = wall_us().wrapping_sub(moment_us);
    mono_us().wrapping_sub(ago_us)
}

/// The next moment at which the wall clock shows a multiple of that width, as [`mono_us`].
pub fn next_multiple_us(width_us: u64) -> u64 {
    mono_of_wall_us((wall_us() / width_us + 1) * width_us)
}

/// CPU time of the calling thread, user and system, microseconds.
pub fn thread_cpu_us() -> u64 {
    read_us(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of this process, user and system, microseconds.
pub fn process_cpu_us() -> u64 {
    read_us(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Sleeps until a moment of [`mono_us`]; returns at once if it has passed.
pub fn sleep_until(moment_us: u64) {
    let now = mono_us();
    if moment_us > now {
        std::thread::sleep(Duration::from_micros(moment_us - now));
    }
}

fn read_us(clock: ClockId) -> u64 {
    // No clock can fail on Linux; a zero would show at once in every sample.
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * 1_000_000 + t.tv_nsec() as u64 / 1000)
}
/// CLOCK_MONOTONIC, in nanoseconds. Linux cannot fail to answer it.
#[inline]
pub fn mono_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs())
}

/// Sleeps until `deadline_ns` of [`mono_ns`], or a signal.
pub fn sleep_until_ns(deadline_ns: u64) {
    let deadline = TimeSpec::new((deadline_ns / 1_000_000_000) as i64, (deadline_ns % 1_000_000_000) as i64);
    // Interrupted by a signal: the caller looks at its stop flag and comes back.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &deadline);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_the_wall_clock_lies_between_the_readings_around_it() {
        for _ in 0..1_000 {
            let before_us = mono_us();
            let moment_us = mono_of_wall_us(wall_us());
            let after_us = mono_us();
            // Both clocks are read to the microsecond below.
            assert!(before_us <= moment_us + 2, "{before_us} {moment_us}");
            assert!(moment_us <= after_us + 2, "{moment_us} {after_us}");
            assert!(next_multiple_us(10_000) + 2 >= after_us);
        }
    }
}
