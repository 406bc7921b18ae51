//! CLOCK_MONOTONIC reads, and precise waits for a moment in the near future.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Nanoseconds. Linux cannot fail to answer it.
#[inline]
pub fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs())
}

/// Asks the scheduler to prefer this thread, where this user may: another that wants its CPU would have it for
/// milliseconds, and every packet due meanwhile would leave late.
pub fn raise_thread_priority() {
    // SAFETY: no pointers; 0 is the calling thread, and a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// A sleeper wakes this late at most, as a rule: timer slack of 50 us and the way back onto a CPU.
const SLACK_NS: u64 = 120_000;

/// Sleeps until shortly before the deadline, and spins for the rest; a signal ends the sleep.
pub fn wait_until(deadline_ns: u64) {
    let sleep_until = deadline_ns.saturating_sub(SLACK_NS);
    if now_ns() < sleep_until {
        let at = TimeSpec::new((sleep_until / 1_000_000_000) as i64, (sleep_until % 1_000_000_000) as i64);
        // Interrupted: the caller looks whether it shall end, and comes back.
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
        return;
    }
    while now_ns() < deadline_ns {
        std::hint::spin_loop();
    }
}
