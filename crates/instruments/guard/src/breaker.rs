//! Decides, from what is read ten times a second, that a method must go off. Acts on seconds and knows no statistics.
//!
//! Knows no clock, server or file: readings come with their times, and the thresholds are values. So every condition is
//! tested on invented readings, and false alarms are simulated for days.

use super::limits::Limits;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How far the p90 of the probe looks back, microseconds.
const P90_SPAN_US: u64 = 2_000_000;
/// Fewer answers have no p90.
const P90_LEAST: usize = 20;
/// A load that stays above its limit for so long is no burst, microseconds.
const RUNNING_SPAN_US: u64 = 500_000;
/// Counters are compared over this time, microseconds.
const COUNT_SPAN_US: u64 = 1_000_000;
/// Over so long it is summed how much of the time tasks waited, microseconds.
const STALL_SPAN_US: u64 = 2_000_000;
/// A replica lags if its lag has grown for so long, microseconds.
const LAG_SPAN_US: u64 = 2_000_000;

/// What can take a method off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Two probe queries in a row took too long, one was not answered, or all fail.
    ProbeSlow,
    /// A tenth of the probe queries of two seconds took too long.
    ProbeP90,
    ThreadsRunning,
    /// A statement of toll's own took too long, or waits for a lock.
    OwnStatement,
    ReplicaLag,
    /// Aborted clients, failed connections, deadlocks.
    Errors,
    FreeSpace,
    WrittenBytes,
    /// Whoever should have switched off by now does not.
    OnTooLong,
    CpuPressure,
    IoPressure,
    SwapIn,
    /// Somebody asked for it: a file, a socket, an HTTP service.
    Veto,
    /// The process that switches, or the one that guards, has not been heard of.
    Silence,
    /// The server cannot be reached.
    Unreachable,
    /// None: toll asked for a trial of the breaker, with nothing on.
    Drill,
}

impl Condition {
    /// In words, as on the plan's page.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::ProbeSlow => "two probe queries in a row, or one without an answer",
            Self::ProbeP90 => "p90 of the probe queries over 2 s",
            Self::ThreadsRunning => "Threads_running, for half a second",
            Self::OwnStatement => "a statement of toll's own without an answer",
            Self::ReplicaLag => "lag of a named replica, and growing",
            Self::Errors => "aborted clients, failed connections or deadlocks in a second",
            Self::FreeSpace => "free space of a file system that the method writes to",
            Self::WrittenBytes => "bytes that the method has written",
            Self::OnTooLong => "time for which the method is on at a stretch",
            Self::CpuPressure => "time in which tasks waited for a CPU, over 2 s",
            Self::IoPressure => "time in which all tasks waited for a disk, over 2 s",
            Self::SwapIn => "pages read back from swap in a second",
            Self::Veto => "a veto: file, control socket or HTTP service",
            Self::Silence => "toll or its guard has not been heard of",
            Self::Unreachable => "the server does not let the guard in",
            Self::Drill => "a drill, with nothing on",
        }
    }
}

/// Why a method goes off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trip {
    pub condition: Condition,
    /// CLOCK_MONOTONIC, microseconds, of the reading that decided it.
    pub at_us: u64,
    /// What was read, with its unit, and the limit.
    pub reason: String,
}

/// What one look sees. Absent values cannot be read here, and never trip anything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC, microseconds.
    pub at_us: u64,
    /// Latencies of the answers since the last look, in order.
    pub probes_us: Vec<f64>,
    /// Age of the oldest probe query without an answer, microseconds.
    pub oldest_probe_us: f64,
    /// Of the last probe query since the last look that failed.
    pub probe_error: Option<String>,
    pub threads_running: Option<u64>,
    /// Age of the oldest statement of toll's own without an answer, microseconds.
    pub own_statement_us: u64,
    pub waits_for_lock: bool,
    /// Counters since the server's start, by name.
    pub errors: BTreeMap<String, u64>,
    /// Seconds of lag, by replica.
    pub lag_s: BTreeMap<String, f64>,
    /// Why the lag of a replica cannot be read, with its name.
    pub lag_unknown: Option<String>,
    pub free_bytes: Option<u64>,
    pub free_pct: Option<f64>,
    pub written_bytes: u64,
    /// For how long the method has been on at a stretch, microseconds.
    pub on_us: u64,
    /// Time in which tasks waited for a CPU, and in which all of them waited for a disk; microseconds since the host's start.
    pub cpu_stalled_us: Option<u64>,
    pub io_stalled_us: Option<u64>,
    /// Pages since the host's start.
    pub swapped_in: Option<u64>,
    /// Whoever vetoes, in words.
    pub veto: Option<String>,
    /// Age of the other process's last sign of life, microseconds.
    pub silent_us: u64,
    /// The other process has ended.
    pub has_gone: bool,
    /// Why the server cannot be asked.
    pub unreachable: Option<String>,
}

/// Decides once; what has tripped stays so.
#[derive(Debug, Clone)]
pub struct Breaker {
    limits: Limits,
    tripped: Option<Trip>,
    was_slow: bool,
    /// Since when probe queries have only failed, and how.
    failing: Option<(u64, String)>,
    probes: VecDeque<(u64, f64)>,
    /// Since when the server has run too many threads.
    crowded_since: Option<u64>,
    errors: VecDeque<(u64, BTreeMap<String, u64>)>,
    swapped_in: VecDeque<(u64, u64)>,
    cpu_stalled: VecDeque<(u64, u64)>,
    io_stalled: VecDeque<(u64, u64)>,
    lag: BTreeMap<String, VecDeque<(u64, f64)>>,
}

impl Breaker {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            tripped: None,
            was_slow: false,
            failing: None,
            probes: VecDeque::new(),
            crowded_since: None,
            errors: VecDeque::new(),
            swapped_in: VecDeque::new(),
            cpu_stalled: VecDeque::new(),
            io_stalled: VecDeque::new(),
            lag: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The first reason, once there is one.
    pub fn look(&mut self, reading: &Reading) -> Option<&Trip> {
        if self.tripped.is_none() {
            self.tripped = self.find(reading).map(|(condition, reason)| Trip {
                condition,
                at_us: reading.at_us,
                reason,
            });
        }
        self.tripped.as_ref()
    }

    fn find(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        // All of them look at each reading: what they remember must not depend on the order.
        let found = [
            self.veto(reading),
            self.silence(reading),
            self.unreachable(reading),
            self.own_statement(reading),
            self.probe_slow(reading),
            self.probe_fails(reading),
            self.threads_running(reading),
            self.errors(reading),
            self.free_space(reading),
            self.written(reading),
            self.on_too_long(reading),
            self.swap_in(reading),
            self.cpu_stalls(reading),
            self.io_stalls(reading),
            self.replica_lag(reading),
            self.probe_p90(reading),
        ];
        found.into_iter().flatten().next()
    }

    fn veto(&self, reading: &Reading) -> Option<(Condition, String)> {
        reading.veto.clone().map(|by| (Condition::Veto, by))
    }

    fn silence(&self, reading: &Reading) -> Option<(Condition, String)> {
        if reading.has_gone {
            return Some((Condition::Silence, "toll has ended without a word".into()));
        }
        let silent_s = reading.silent_us as f64 / 1e6;
        let reason =
            || format!("toll was not heard of for {silent_s:.1} s, limit {:.1} s", self.limits.silence_s);
        (silent_s > self.limits.silence_s).then(|| (Condition::Silence, reason()))
    }

    fn unreachable(&self, reading: &Reading) -> Option<(Condition, String)> {
        reading.unreachable.clone().map(|why| (Condition::Unreachable, why))
    }

    fn own_statement(&self, reading: &Reading) -> Option<(Condition, String)> {
        if reading.waits_for_lock {
            return Some((Condition::OwnStatement, "a statement of toll's own waits for a lock".into()));
        }
        let open_s = reading.own_statement_us as f64 / 1e6;
        let most_s = self.limits.own_statement_s;
        (open_s > most_s).then(|| {
            let reason = format!("a statement of toll's own has taken {open_s:.1} s, limit {most_s:.1} s");
            (Condition::OwnStatement, reason)
        })
    }

    fn probe_slow(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        let limit_us = self.limits.probe_us;
        let mut slow = None;
        for &latency_us in &reading.probes_us {
            let is_slow = latency_us > limit_us;
            if is_slow && self.was_slow && slow.is_none() {
                slow = Some(format!(
                    "two probe queries in a row took over {}, the last one {}",
                    ms(limit_us),
                    ms(latency_us)
                ));
            }
            self.was_slow = is_slow;
        }
        if reading.oldest_probe_us > limit_us.max(self.limits.probe_timeout_us) {
            slow = slow.or_else(|| {
                Some(format!("a probe query has had no answer for {}", ms(reading.oldest_probe_us)))
            });
        }
        slow.map(|reason| (Condition::ProbeSlow, reason))
    }

    /// Errors alone for as long as one query may wait: one lost connection is no reason.
    fn probe_fails(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        if !reading.probes_us.is_empty() {
            self.failing = None;
            return None;
        }
        if let Some(error) = &reading.probe_error {
            self.failing.get_or_insert_with(|| (reading.at_us, error.clone()));
        }
        let (since_us, error) = self.failing.as_ref()?;
        let failed_us = (reading.at_us - since_us) as f64;
        (failed_us > self.limits.probe_timeout_us).then(|| {
            (Condition::ProbeSlow, format!("probe queries have failed for {}: {error}", ms(failed_us)))
        })
    }

    fn probe_p90(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        self.probes.extend(reading.probes_us.iter().map(|us| (reading.at_us, *us)));
        forget(&mut self.probes, reading.at_us, P90_SPAN_US);
        if self.probes.len() < P90_LEAST {
            return None;
        }
        let mut latencies: Vec<f64> = self.probes.iter().map(|(_, latency_us)| *latency_us).collect();
        let p90 = quantile(&mut latencies, 0.9);
        let limit_us = self.limits.probe_p90_us;
        (p90 > limit_us).then(|| {
            let reason =
                format!("the p90 of the probe queries of 2 s is {}, limit {}", ms(p90), ms(limit_us));
            (Condition::ProbeP90, reason)
        })
    }

    fn threads_running(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        let running = reading.threads_running?;
        let limit = self.limits.threads_running;
        if running < limit {
            self.crowded_since = None;
            return None;
        }
        let since = *self.crowded_since.get_or_insert(reading.at_us);
        (reading.at_us - since >= RUNNING_SPAN_US).then(|| {
            (
                Condition::ThreadsRunning,
                format!("Threads_running is {running}, limit {limit} for half a second"),
            )
        })
    }

    fn errors(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        let (_, earlier) = before(&mut self.errors, reading.at_us, COUNT_SPAN_US, reading.errors.clone())?;
        reading.errors.iter().find_map(|(name, now)| {
            let grown = now.saturating_sub(*earlier.get(name)?);
            let limit = self.limits.errors_per_s.get(name).copied()?;
            (grown > limit)
                .then(|| (Condition::Errors, format!("{name} grew by {grown} in a second, limit {limit}")))
        })
    }

    fn free_space(&self, reading: &Reading) -> Option<(Condition, String)> {
        let few = reading.free_bytes.filter(|free| *free < self.limits.free_bytes).map(|free| {
            format!("{} MB are free, limit {} MB", free / 1_000_000, self.limits.free_bytes / 1_000_000)
        });
        let small = reading
            .free_pct
            .filter(|pct| *pct < self.limits.free_pct)
            .map(|pct| format!("{pct:.1}% are free, limit {:.0}%", self.limits.free_pct));
        few.or(small).map(|reason| (Condition::FreeSpace, reason))
    }

    fn written(&self, reading: &Reading) -> Option<(Condition, String)> {
        let (written, limit) = (reading.written_bytes, self.limits.written_bytes);
        (written > limit).then(|| {
            let reason = format!("{} MB are written, limit {} MB", written / 1_000_000, limit / 1_000_000);
            (Condition::WrittenBytes, reason)
        })
    }

    fn on_too_long(&self, reading: &Reading) -> Option<(Condition, String)> {
        let (on_s, limit_s) = (reading.on_us as f64 / 1e6, self.limits.on_s);
        (on_s > limit_s).then(|| {
            let reason = format!(
                "the method has been on for {on_s:.1} s, limit {limit_s:.1} s: toll does not switch it off"
            );
            (Condition::OnTooLong, reason)
        })
    }

    fn swap_in(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        let now = reading.swapped_in?;
        let (_, earlier) = before(&mut self.swapped_in, reading.at_us, COUNT_SPAN_US, now)?;
        let grown = now.saturating_sub(earlier);
        let limit = self.limits.swap_in_per_s;
        (grown > limit).then(|| {
            (Condition::SwapIn, format!("{grown} pages came back from swap in a second, limit {limit}"))
        })
    }

    fn cpu_stalls(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        let pct = stalled_pct(&mut self.cpu_stalled, reading.at_us, reading.cpu_stalled_us?)?;
        let limit = self.limits.cpu_stalled_pct.filter(|limit| pct > *limit)?;
        Some((
            Condition::CpuPressure,
            format!("tasks waited for a CPU for {pct:.0}% of 2 s, limit {limit:.0}%"),
        ))
    }

    fn io_stalls(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        let pct = stalled_pct(&mut self.io_stalled, reading.at_us, reading.io_stalled_us?)?;
        let limit = self.limits.io_stalled_pct.filter(|limit| pct > *limit)?;
        Some((
            Condition::IoPressure,
            format!("all tasks waited for a disk for {pct:.0}% of 2 s, limit {limit:.0}%"),
        ))
    }

    fn replica_lag(&mut self, reading: &Reading) -> Option<(Condition, String)> {
        let mut found = reading.lag_unknown.clone().map(|reason| (Condition::ReplicaLag, reason));
        for (name, lag_s) in &reading.lag_s {
            let seen = self.lag.entry(name.clone()).or_default();
            let earlier = before(seen, reading.at_us, LAG_SPAN_US, *lag_s);
            let grows = earlier.is_some_and(|(_, earlier)| *lag_s > earlier);
            if grows && *lag_s > self.limits.lag_s {
                let reason = format!(
                    "replica {name} lags by {lag_s:.1} s and more and more, limit {:.1} s",
                    self.limits.lag_s
                );
                found = found.or(Some((Condition::ReplicaLag, reason)));
            }
        }
        found
    }
}

/// Share of the time, percent, by which a counter of stalled time grew over the last two seconds.
pub(crate) fn stalled_pct(seen: &mut VecDeque<(u64, u64)>, at_us: u64, stalled_us: u64) -> Option<f64> {
    let (then_us, earlier) = before(seen, at_us, STALL_SPAN_US, stalled_us)?;
    Some(100.0 * stalled_us.saturating_sub(earlier) as f64 / (at_us - then_us) as f64)
}

/// Adds a value, and returns the newest one that is at least `span_us` old, with its time.
fn before<T: Clone>(seen: &mut VecDeque<(u64, T)>, at_us: u64, span_us: u64, value: T) -> Option<(u64, T)> {
    seen.push_back((at_us, value));
    while seen.get(1).is_some_and(|(then, _)| at_us - then >= span_us) {
        seen.pop_front();
    }
    seen.front().filter(|(then, _)| at_us - then >= span_us).cloned()
}

fn forget(seen: &mut VecDeque<(u64, f64)>, at_us: u64, span_us: u64) {
    while seen.front().is_some_and(|(then, _)| at_us - then > span_us) {
        seen.pop_front();
    }
}

/// By the nearest rank.
pub(crate) fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (q * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn ms(us: f64) -> String {
    format!("{:.1} ms", us / 1e3)
}

#[cfg(test)]
mod tests;
