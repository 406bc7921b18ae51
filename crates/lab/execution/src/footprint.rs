//! What toll itself takes of a server that serves users and of its host: CPU of its processes, queries, connections.

use crate::treatment::cpu_of_process_us;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
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
    /// Process IDs: none has started yet, or there is none.
    guards: Mutex<Vec<u32>>,
    taps: Mutex<Vec<u32>>,
    due_us: AtomicU64,
}

impl FootprintMeter {
    pub fn new(usage: Usage) -> Self {
        Self { usage, guards: Mutex::default(), taps: Mutex::default(), due_us: AtomicU64::new(0) }
    }

    pub fn add_guard(&self, pid: u32) {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
    }

    pub fn add_tap(&self, pid: u32) {
        self.taps.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
    }

    /// `None`: the last reading is not old enough, or not all processes have started.
    pub fn read(&self, look: &Look) -> Option<Footprint> {
        let of_all = |pids: &Mutex<Vec<u32>>| -> Option<u64> {
            let pids = pids.lock().unwrap_or_else(PoisonError::into_inner);
            (!pids.is_empty()).then(|| pids.iter().copied().map(cpu_of_process_us).sum())
        };
        if look.at_us < self.due_us.load(Ordering::Relaxed) {
            return None;
        }
        let guard_cpu_us = of_all(&self.guards)?;
        self.due_us.store(look.at_us + EVERY_US, Ordering::Relaxed);
        Some(Footprint {
            mono_us: toll_sys::clock::mono_us(),
            toll_cpu_us: cpu_of_process_us(std::process::id()),
            guard_cpu_us,
            tap_cpu_us: of_all(&self.taps).unwrap_or(0),
            queries: self.usage.queries() + look.queries,
            connections: self.usage.connections() + look.connections,
        })
    }
}
