//! Counters of one worker since its last report, and the bins that have ended.
//!
//! Never waits and never sends: it creates reports, workers submit them.

use super::Shared;
use super::connection_slot::{ConnectionSlot, SlotProgress};
use super::tally::Tally;
use std::sync::{Arc, PoisonError};
use toll_mysql::connection::Error;
use toll_stats::schedule::ScheduledEvent;

/// One worker's tally of one bin.
pub struct BinReport {
    pub bin_end_ns: u64,
    /// The worker has ended; `bin_end_ns` is when.
    pub is_final: bool,
    pub tally: Tally,
}

/// The times of a run, all of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
pub struct RunTimes {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Bins end at `bin_origin_ns` plus multiples of `bin_ns`.
    pub bin_origin_ns: u64,
    pub bin_ns: u64,
}

impl RunTimes {
    /// The first bin end after `now_ns`.
    pub fn bin_end_after(&self, now_ns: u64) -> u64 {
        let origin = self.bin_origin_ns % self.bin_ns;
        let past = (now_ns - origin.min(now_ns)) / self.bin_ns;
        origin + (past + 1) * self.bin_ns
    }
}

pub struct WorkerCounters {
    shared: Arc<Shared>,
    tally: Tally,
    bin_end_ns: u64,
}

impl WorkerCounters {
    pub fn new(shared: Arc<Shared>) -> Self {
        let tally = Tally::new(shared.schedule.is_some());
        Self { tally, bin_end_ns: shared.times.bin_end_after(shared.times.start_ns), shared }
    }

    /// When the bin under way ends.
    pub fn bin_end_ns(&self) -> u64 {
        self.bin_end_ns
    }

    /// Counts the progress of a connection's event, at this time.
    #[inline]
    pub fn record_progress(&mut self, progress: &SlotProgress, slot: &ConnectionSlot, now_ns: u64) {
        let tally = &mut self.tally;
        match progress {
            SlotProgress::Blocked => {}
            SlotProgress::Answered => tally.counts.statements += 1,
            SlotProgress::Done => {
                tally.counts.statements += 1;
                tally.record_event(slot.intended_ns, slot.begun_ns, now_ns);
            }
            SlotProgress::RollingBack(error) => {
                tally.counts.statements += 1;
                self.shared.remember_message(error.code, &error.message);
            }
            SlotProgress::Failed(code, error) => {
                tally.counts.statements += 1;
                tally.record_failed_event(*code);
                if let Some(error) = error {
                    self.shared.remember_message(*code, &error.message);
                }
            }
            SlotProgress::Lost(error, under_way) => {
                if matches!(error, Error::Server(_)) {
                    tally.counts.statements += 1;
                }
                if *under_way {
                    tally.record_failed_event(error.code());
                } else {
                    tally.record_error(error.code());
                }
                self.shared.remember_message(error.code(), &error.to_string());
            }
        }
    }

    /// An attempt to make a broken connection again has failed.
    pub fn record_connect_failure(&mut self, error: &Error) {
        self.tally.record_error(error.code());
        self.shared.remember_message(error.code(), &error.to_string());
    }

    /// A broken connection is back.
    pub fn record_reconnect(&mut self) {
        self.tally.counts.reconnects += 1;
    }

    /// The connection that an event needs could not be made, so that the event has failed.
    pub fn record_event_connect_failure(&mut self, error: &Error) {
        self.tally.record_failed_event(error.code());
        self.shared.remember_message(error.code(), &error.to_string());
    }

    /// A connection was made anew, as the plan says.
    pub fn record_planned_reconnect(&mut self) {
        self.tally.counts.reconnects_asked += 1;
    }

    /// The report of the next bin that has ended by now. `begun` holds the intended times of events
    /// under way, `reserved` an event that waits for its time or for a connection.
    #[inline]
    pub fn take_ended_bin(
        &mut self,
        now_ns: u64,
        begun: impl IntoIterator<Item = u64>,
        reserved: Option<ScheduledEvent>,
    ) -> Option<BinReport> {
        if now_ns < self.bin_end_ns {
            return None;
        }
        let end_ns = self.bin_end_ns;
        self.bin_end_ns += self.shared.times.bin_ns;
        Some(self.build_report(end_ns, false, begun, reserved))
    }

    /// What is left when the worker ends; no bin ends after that.
    pub fn final_report(
        &mut self,
        now_ns: u64,
        begun: impl IntoIterator<Item = u64>,
        reserved: Option<ScheduledEvent>,
    ) -> BinReport {
        self.bin_end_ns = u64::MAX;
        self.build_report(now_ns, true, begun, reserved)
    }

    #[cold]
    fn build_report(
        &mut self,
        end_ns: u64,
        last: bool,
        begun: impl IntoIterator<Item = u64>,
        reserved: Option<ScheduledEvent>,
    ) -> BinReport {
        let age = |intended_ns: u64| end_ns.saturating_sub(intended_ns);
        let (mut in_flight, mut oldest_ns) = (0, 0);
        for intended_ns in begun.into_iter().filter(|intended_ns| *intended_ns <= end_ns) {
            in_flight += 1;
            oldest_ns = age(intended_ns).max(oldest_ns);
        }
        let schedule = self.shared.schedule.as_ref();
        let next = schedule.and_then(|s| s.lock().unwrap_or_else(PoisonError::into_inner).peek());
        for due in reserved.into_iter().chain(next) {
            oldest_ns = age(due.intended_ns).max(oldest_ns);
        }
        (self.tally.counts.in_flight, self.tally.counts.oldest_ns) = (in_flight, oldest_ns);
        let fresh = self.shared.take_spare_tally().unwrap_or_else(|| Tally::new(schedule.is_some()));
        BinReport { bin_end_ns: end_ns, is_final: last, tally: std::mem::replace(&mut self.tally, fresh) }
    }
}
