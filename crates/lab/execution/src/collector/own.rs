//! Reader of toll's own resource use.

use crate::treatment::{cpu_of_process_us, resident_bytes};
use toll_record::OwnSample;
use toll_sys::clock;

pub fn read_own_usage() -> OwnSample {
    let own = std::process::id();
    OwnSample {
        mono_us: clock::mono_us(),
        cpu_us: cpu_of_process_us(own),
        memory_bytes: resident_bytes(own),
        written_bytes: written_bytes(),
    }
}

/// Bytes written by the threads that live now. The few that have ended wrote next to nothing.
///
/// Only a thread's own file leaves out bytes of reaped children.
fn written_bytes() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("io")).ok())
        .filter_map(|io| io.lines().find_map(|l| l.strip_prefix("write_bytes: ")?.trim().parse::<u64>().ok()))
        .sum()
}
