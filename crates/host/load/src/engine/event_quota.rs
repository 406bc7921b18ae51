//! Events of one connection in each bin, for a load that rests at bin edges.
//!
//! With the same number in each bin, and the same draws, windows of whole bins hold the same transactions whatever they
//! cost.

use super::worker_counters::RunTimes;

/// Of a bin, the share that its events fill at first: what slows them down later by a sixth leaves none under way.
const FILL_PCT: u64 = 85;
/// Events by whose median the number is chosen; the first few are slow.
const FIRST: usize = 12;

pub struct EventQuota {
    times: RunTimes,
    first_ns: Vec<u64>,
    /// Absent while it is not known; 0: events take longer than bins, and begin at any time.
    per_bin: Option<u64>,
    edge_ns: u64,
    begun: u64,
}

impl EventQuota {
    pub fn new(times: RunTimes) -> Self {
        Self { times, first_ns: Vec::with_capacity(FIRST), per_bin: None, edge_ns: 0, begun: 0 }
    }

    /// The edge until which no event may begin any more.
    #[inline]
    pub fn edge_to_rest_at(&mut self, now_ns: u64) -> Option<u64> {
        let per_bin = self.per_bin.filter(|per_bin| *per_bin > 0)?;
        let edge_ns = self.times.bin_end_after(now_ns);
        if edge_ns != self.edge_ns {
            (self.edge_ns, self.begun) = (edge_ns, 0);
        }
        if self.begun >= per_bin {
            return Some(edge_ns);
        }
        self.begun += 1;
        None
    }

    /// An event has ended.
    #[inline]
    pub fn record(&mut self, lasted_ns: u64) {
        if self.per_bin.is_some() {
            return;
        }
        self.first_ns.push(lasted_ns);
        if self.first_ns.len() == FIRST {
            self.first_ns.sort_unstable();
            self.per_bin = Some(self.times.bin_ns * FILL_PCT / 100 / self.first_ns[FIRST / 2].max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_events_of(lasted_ns: u64) -> EventQuota {
        let times = RunTimes { start_ns: 0, end_ns: u64::MAX, bin_origin_ns: 0, bin_ns: 100 };
        let mut quota = EventQuota::new(times);
        for i in 0..FIRST as u64 {
            assert_eq!(quota.edge_to_rest_at(7), None, "nothing is known yet");
            // The first were slow.
            quota.record(if i < 4 { 5 * lasted_ns } else { lasted_ns });
        }
        quota
    }

    #[test]
    fn each_bin_has_as_many_events_as_fit_into_it() {
        let mut quota = after_events_of(34);
        for bin in [200, 300, 400] {
            assert_eq!([10, 44].map(|at| quota.edge_to_rest_at(bin + at)), [None, None]);
            // Slower ones since are no reason for fewer.
            quota.record(60);
            assert_eq!([80, 99].map(|at| quota.edge_to_rest_at(bin + at)), [Some(bin + 100); 2]);
        }
    }

    #[test]
    fn events_longer_than_bins_begin_at_any_time() {
        let mut quota = after_events_of(90);
        assert!((0..50).all(|at| quota.edge_to_rest_at(at * 20).is_none()));
    }
}
