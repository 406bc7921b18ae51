//! Results of a run: one bin, the totals, and the silence after which a run is aborted.

use super::tally::{Counts, Tally};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt;
use toll_sys::count_format::format_error_codes;

/// Results of all workers in one bin.
#[derive(Debug)]
pub struct Bin {
    /// CLOCK_MONOTONIC, as all times.
    pub begin_ns: u64,
    pub end_ns: u64,
    /// When the load began, its warm-up included.
    pub load_began_ns: u64,
    /// True for a bin of full width that started before the load's end: valid for rates.
    pub is_complete: bool,
    /// Part of the warm-up: not in the totals.
    pub warmup: bool,
    pub tally: Tally,
    /// Events due by the bin's end that have not begun.
    pub backlog: u64,
    /// The backlog has grown for 3 s and is more than a second's worth of events.
    pub overloaded: bool,
    /// CPU time of this process since the bin before, ns.
    pub cpu_ns: u64,
}

/// Totals after the warm-up.
#[derive(Debug)]
pub struct Totals {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// When the load began, its warm-up included.
    pub load_began_ns: u64,
    pub counts: Counts,
    /// Exact where a bucket of the bins' 32-bit counts would overflow.
    pub latency: Histogram<u64>,
    pub service: Option<Histogram<u64>>,
    pub lag: Option<Histogram<u64>>,
    pub backlog: u64,
    /// True if the backlog grew without bound for some time.
    pub overloaded: bool,
    /// Events that were due in an open loop, and how long they were due for, s.
    pub due: Option<u64>,
    pub due_for_s: f64,
    /// CPU time of this process, user and system, ns.
    pub cpu_ns: u64,
    /// First error message for each code of `tally.counts.errors_by_code`.
    pub messages: BTreeMap<u16, String>,
}

/// Period without success after which the run was aborted.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureStreak {
    /// How long no event has succeeded.
    pub lasted_s: f64,
    /// Since when, by the clock and after the load began; absent where none ever had.
    pub since: Option<(jiff::Zoned, f64)>,
    /// Failures in it by code.
    pub errors: BTreeMap<u16, u64>,
}

impl FailureStreak {
    /// The most frequent error code.
    pub fn most_common_error(&self) -> Option<u16> {
        self.errors.iter().max_by_key(|(_, n)| **n).map(|(code, _)| *code)
    }
}

impl fmt::Display for FailureStreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = format_error_codes(&self.errors);
        match &self.since {
            None => write!(f, "no event has succeeded in {:.2} s of load; errors: {errors}", self.lasted_s),
            // The server's error log has times of day.
            Some((at, after_s)) => write!(
                f,
                "no event has succeeded for {:.1} s, since {}, {after_s:.1} s after the load began; \
                 errors since then: {errors}",
                self.lasted_s,
                at.strftime("%H:%M:%S")
            ),
        }
    }
}
