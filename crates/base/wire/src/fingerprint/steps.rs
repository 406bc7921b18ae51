//! Bytes that searches have examined so far on this thread: a test can assert that work is linear without a clock.

use std::cell::Cell;

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn count_steps(bytes: usize) {
    STEPS.set(STEPS.get() + bytes as u64);
}

pub(super) fn take_steps() -> u64 {
    STEPS.take()
}
