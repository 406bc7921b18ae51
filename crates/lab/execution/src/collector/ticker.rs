//! Ticker that detects delays of the harness: a stall may be its own and not the server's.

use crate::recorder::Recorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use toll_record::{Sample, Tick};
use toll_sys::clock;

/// Each wake-up takes some 20 us of a CPU that a server may want.
const PERIOD_US: u64 = 25_000;
/// On a server that serves users, where no stall of a load of toll's is to be told from the server's.
const LIVE_PERIOD_US: u64 = 500_000;
/// A tick this late, in microseconds, is recorded: the host did not schedule toll in time.
const LATE_US: u64 = 50_000;

pub fn start_ticker(recorder: Recorder, is_live: bool, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    let period_us = if is_live { LIVE_PERIOD_US } else { PERIOD_US };
    std::thread::spawn(move || {
        let mut due = clock::mono_us();
        while !stop.load(Ordering::Relaxed) {
            due += period_us;
            clock::sleep_until(due);
            let now = clock::mono_us();
            let late_us = now.saturating_sub(due);
            if late_us > LATE_US {
                recorder.record_sample(Sample::Tick(Tick { mono_us: now, late_us }));
                due = now;
            }
        }
    })
}
