//! Results of one worker in one bin: counts, sums and histograms. Never evaluates them.

use super::latency_counts::LatencyCounts;
use std::collections::BTreeMap;

/// Counters of a time interval. Those of several workers, or of consecutive intervals, add up.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Answered by the server, be it with an error: what its `Questions` counts.
    pub statements: u64,
    /// Events that succeeded.
    pub events: u64,
    /// Events that failed.
    pub errors: u64,
    /// Connections that broke and came back.
    pub reconnects: u64,
    /// Connections made anew because the plan says so.
    pub reconnects_asked: u64,
    /// Connections or events that failed, by the server's or the client's code.
    pub errors_by_code: BTreeMap<u16, u64>,
    pub latency_ns_sum: u64,
    pub latency_ns_max: u64,
    /// Events begun and not done at the end of the stretch.
    pub in_flight: u64,
    /// Age of the oldest event begun or due at the end of the stretch.
    pub oldest_ns: u64,
}

impl Counts {
    /// Another worker's share of the same stretch.
    pub fn add(&mut self, other: &Self) {
        self.statements += other.statements;
        self.events += other.events;
        self.errors += other.errors;
        self.reconnects += other.reconnects;
        self.reconnects_asked += other.reconnects_asked;
        for (code, n) in &other.errors_by_code {
            *self.errors_by_code.entry(*code).or_default() += n;
        }
        self.latency_ns_sum += other.latency_ns_sum;
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.in_flight += other.in_flight;
        self.oldest_ns = self.oldest_ns.max(other.oldest_ns);
    }

    /// The stretch that follows: what was under way at the end of the first is no longer of interest.
    pub fn append(&mut self, next: &Self) {
        (self.in_flight, self.oldest_ns) = (0, 0);
        self.add(next);
        self.oldest_ns = next.oldest_ns;
    }
}

/// Counts, and how the latencies behind them are spread.
#[derive(Debug, Clone)]
pub struct Tally {
    pub counts: Counts,
    /// From the intended start to the last answer, of events that succeeded.
    pub latency: LatencyCounts,
    /// In an open loop: from the real start to the last answer; and how late the start was.
    pub open: Option<Box<OpenTally>>,
}

#[derive(Debug, Clone)]
pub struct OpenTally {
    pub service: LatencyCounts,
    pub lag: LatencyCounts,
}

impl Tally {
    pub fn new(open: bool) -> Self {
        Self {
            counts: Counts::default(),
            latency: LatencyCounts::default(),
            open: open.then(|| {
                Box::new(OpenTally { service: LatencyCounts::default(), lag: LatencyCounts::default() })
            }),
        }
    }

    /// An event is done: it was due, was begun and ended at these times.
    #[inline]
    pub fn record_event(&mut self, intended_ns: u64, begun_ns: u64, ended_ns: u64) {
        let latency = ended_ns.saturating_sub(intended_ns);
        self.counts.events += 1;
        self.counts.latency_ns_sum += latency;
        self.counts.latency_ns_max = self.counts.latency_ns_max.max(latency);
        self.latency.record(latency);
        if let Some(open) = &mut self.open {
            open.service.record(ended_ns.saturating_sub(begun_ns));
            open.lag.record(begun_ns.saturating_sub(intended_ns));
        }
    }

    pub fn record_failed_event(&mut self, code: u16) {
        self.counts.errors += 1;
        self.record_error(code);
    }

    /// A connection could not be made, or broke while idle.
    pub fn record_error(&mut self, code: u16) {
        *self.counts.errors_by_code.entry(code).or_default() += 1;
    }

    /// Another worker's share of the same stretch.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.latency.add(&other.latency);
        if let (Some(ours), Some(theirs)) = (&mut self.open, &other.open) {
            ours.service.add(&theirs.service);
            ours.lag.add(&theirs.lag);
        }
    }

    /// Makes it as new, keeping its memory.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.latency.clear();
        if let Some(open) = &mut self.open {
            open.service.clear();
            open.lag.clear();
        }
    }
}
