//! Limit on log lines about peers, who could otherwise fill the host's log.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use toll_sys::count_format::format_count;

/// Lines are counted in periods of this length.
const PERIOD: Duration = Duration::from_secs(60);

/// Writes some lines a minute, and counts the others.
pub struct LogLimit {
    lines_per_period: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the period; `None`: there was no line yet.
    since: Option<Instant>,
    lines: u64,
}

impl LogLimit {
    pub fn new(lines_per_period: u64) -> Self {
        Self { lines_per_period, state: Mutex::default() }
    }

    pub fn warn(&self, line: impl Display) {
        self.write_count_if(|age| age >= PERIOD);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.since.get_or_insert_with(Instant::now);
        state.lines += 1;
        let is_within = state.lines <= self.lines_per_period;
        drop(state);
        if is_within {
            tracing::warn!("{line}");
        }
    }

    /// Writes how many lines were left out, once their period is over.
    pub fn write_count_if_due(&self) {
        self.write_count_if(|age| age >= PERIOD);
    }

    /// Writes how many lines were left out until now.
    pub fn write_count(&self) {
        self.write_count_if(|_| true);
    }

    fn write_count_if(&self, is_due: impl Fn(Duration) -> bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.since.is_some_and(|since| is_due(since.elapsed())) {
            return;
        }
        let left_out = state.lines.saturating_sub(self.lines_per_period);
        *state = State::default();
        drop(state);
        if left_out > 0 {
            let like_these = format_count(left_out, "connection");
            tracing::warn!("{like_these} more ended like these within a minute, without a line for each");
        }
    }
}
