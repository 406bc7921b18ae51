//! What toll itself takes of a server that serves users and of its host: CPU of its processes, queries, connections.

use crate::treatment::cpu_of_process_us;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use toll_guard::messages::Look;
use toll_mysql::Usage;
use toll_record::Footprint;

/// Half of the shortest window, so that a stretch between two readings lies inside of each.
const EVERY_US: u64 = 500_000;

/// Reads it as the guard's looks come in.
#[derive(Debug)]
pub struct FootprintMeter {
    /// Of the server, by toll itself.
    usage: Usage,
    /// 0: not started yet, or there is none.
    guard: AtomicU32,
    tap: AtomicU32,
    due_us: AtomicU64,
}

impl FootprintMeter {
    pub fn new(usage: Usage) -> Self {
        Self { usage, guard: AtomicU32::new(0), tap: AtomicU32::new(0), due_us: AtomicU64::new(0) }
    }

    pub fn set_guard(&self, pid: u32) {
        self.guard.store(pid, Ordering::Relaxed);
    }

    pub fn set_tap(&self, pid: u32) {
        self.tap.store(pid, Ordering::Relaxed);
    }

    /// `None`: the last reading is not old enough, or not all processes have started.
    pub fn read(&self, look: &Look) -> Option<Footprint> {
        let guard = self.guard.load(Ordering::Relaxed);
        if guard == 0 || look.at_us < self.due_us.load(Ordering::Relaxed) {
            return None;
        }
        self.due_us.store(look.at_us + EVERY_US, Ordering::Relaxed);
        let of_process = |pid: u32| if pid == 0 { 0 } else { cpu_of_process_us(pid) };
        Some(Footprint {
            mono_us: toll_sys::clock::mono_us(),
            toll_cpu_us: cpu_of_process_us(std::process::id()),
            guard_cpu_us: of_process(guard),
            tap_cpu_us: of_process(self.tap.load(Ordering::Relaxed)),
            queries: self.usage.queries() + look.queries,
            connections: self.usage.connections() + look.connections,
        })
    }
}
