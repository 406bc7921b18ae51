//! Collector that merges the workers' tallies into bins, and the bins into totals.

use super::bins::{Bin, FailureStreak, Totals};
use super::latency_counts::wide_histogram;
use super::tally::{Counts, Tally};
use super::worker_counters::{BinReport, RunTimes};
use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use toll_stats::schedule::{Pacing, Schedule};
use toll_sys::clock::mono_ns;

/// A backlog that grows this long is called growing.
const GROWING_S: f64 = 3.0;
/// With this many failures and not one success, waiting longer teaches nothing.
const ABORT_ERRORS: u64 = 100;

/// A worker that has ended, and what it left under way.
struct FinishedWorker {
    at_ns: u64,
    in_flight: u64,
    oldest_ns: u64,
}

pub struct Collector {
    times: RunTimes,
    warm_ns: u64,
    workers: usize,
    finished: Vec<FinishedWorker>,
    /// Bins that not every worker has handed in yet, by their end.
    pending: BTreeMap<u64, (usize, Tally)>,
    last_end_ns: u64,
    /// Counts events that are due, independently of the workers.
    due: Option<Schedule>,
    due_count: u64,
    due_count_warm: u64,
    done_count: u64,
    rate_per_s: f64,
    backlog: u64,
    growing_ns: u64,
    overloaded: bool,
    total: Counts,
    latency: Histogram<u64>,
    /// Service time and lag.
    open: Option<(Histogram<u64>, Histogram<u64>)>,
    cpu_ns: u64,
    cpu_begin_ns: u64,
    last_success_ns: u64,
    ever_succeeded: bool,
    errors_since_success: BTreeMap<u16, u64>,
}

/// CPU time of this process so far, ns.
fn cpu_ns() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        let ns = |t: nix::sys::time::TimeVal| {
            t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_usec().unsigned_abs() * 1000
        };
        ns(usage.user_time()) + ns(usage.system_time())
    })
}

impl Collector {
    pub fn new(
        pace: &Pacing,
        times: RunTimes,
        warm_ns: u64,
        due: Option<Schedule>,
        workers: usize,
        open: bool,
    ) -> Self {
        let rate_per_s = match pace {
            Pacing::Open { rate_per_s, .. } => *rate_per_s,
            _ => 0.0,
        };
        let cpu = cpu_ns();
        Self {
            times,
            warm_ns,
            workers,
            finished: Vec::new(),
            pending: BTreeMap::new(),
            last_end_ns: times.start_ns,
            due,
            due_count: 0,
            due_count_warm: 0,
            done_count: 0,
            rate_per_s,
            backlog: 0,
            growing_ns: 0,
            overloaded: false,
            total: Counts::default(),
            latency: wide_histogram(),
            open: open.then(|| (wide_histogram(), wide_histogram())),
            cpu_ns: cpu,
            cpu_begin_ns: cpu,
            last_success_ns: times.start_ns,
            ever_succeeded: false,
            errors_since_success: BTreeMap::new(),
        }
    }

    /// Adds one worker's report; answers the bins that are complete by it, in order.
    pub fn add_report(&mut self, report: BinReport) -> Vec<Bin> {
        let counts = &report.tally.counts;
        let ended = report.is_final.then_some(FinishedWorker {
            at_ns: report.bin_end_ns,
            in_flight: counts.in_flight,
            oldest_ns: counts.oldest_ns,
        });
        // What a worker did in its last, cut bin belongs to the bin it would have been.
        let key = self.times.bin_end_after(report.bin_end_ns.saturating_sub(1));
        match self.pending.get_mut(&key) {
            Some((count, tally)) => {
                *count += 1;
                tally.add(&report.tally);
            }
            None => {
                self.pending.insert(key, (1, report.tally));
            }
        }
        self.finished.extend(ended);
        let mut bins = Vec::new();
        while let Some(entry) = self.pending.first_entry() {
            let key = *entry.key();
            // Those that ended in an earlier bin have nothing to say of this one, but for what they
            // left under way.
            let is_gone =
                |ended: &&FinishedWorker| self.times.bin_end_after(ended.at_ns.saturating_sub(1)) < key;
            let gone = self.finished.iter().filter(is_gone).count();
            if entry.get().0 + gone < self.workers {
                break;
            }
            let (_, mut tally) = entry.remove();
            let all_ended = self.finished.len() == self.workers && self.pending.is_empty();
            let last_ns = self.finished.iter().map(|ended| ended.at_ns).max().filter(|_| all_ended);
            let end_ns = last_ns.unwrap_or(key).min(key);
            for ended in self.finished.iter().filter(is_gone).filter(|ended| ended.in_flight > 0) {
                let age_ns = ended.oldest_ns + (end_ns - ended.at_ns);
                tally.counts.in_flight += ended.in_flight;
                tally.counts.oldest_ns = tally.counts.oldest_ns.max(age_ns);
            }
            bins.push(self.complete_bin(end_ns, tally));
        }
        bins
    }

    fn complete_bin(&mut self, end_ns: u64, mut tally: Tally) -> Bin {
        let begin_ns = std::mem::replace(&mut self.last_end_ns, end_ns);
        self.done_count += tally.counts.events + tally.counts.errors;
        let before = self.due_count;
        if let Some(due) = &mut self.due {
            while due.peek().is_some_and(|d| d.intended_ns <= end_ns) {
                due.pop();
                self.due_count += 1;
            }
        }
        if end_ns <= self.warm_ns {
            self.due_count_warm = self.due_count;
        }
        let backlog = self.due_count.saturating_sub(self.done_count + tally.counts.in_flight);
        self.watch_backlog(backlog, end_ns - begin_ns, self.due_count - before);
        if self.due.is_some() {
            tally.counts.in_flight += backlog;
        }
        let warmup = begin_ns < self.warm_ns;
        let cpu = cpu_ns();
        let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu_ns, cpu));
        if warmup {
            self.cpu_begin_ns = cpu;
        } else {
            self.total.append(&tally.counts);
            tally.latency.add_to(&mut self.latency);
            if let (Some((service, lag)), Some(more)) = (&mut self.open, &tally.open) {
                more.service.add_to(service);
                more.lag.add_to(lag);
            }
        }
        if tally.counts.events > 0 {
            (self.last_success_ns, self.ever_succeeded) = (end_ns, true);
            self.errors_since_success.clear();
        } else {
            for (code, n) in &tally.counts.errors_by_code {
                *self.errors_since_success.entry(*code).or_default() += n;
            }
        }
        Bin {
            begin_ns,
            end_ns,
            load_began_ns: self.times.start_ns,
            is_complete: end_ns - begin_ns >= self.times.bin_ns && begin_ns < self.times.end_ns,
            warmup,
            tally,
            backlog,
            overloaded: self.growing_ns as f64 >= GROWING_S * 1e9,
            cpu_ns: used,
        }
    }

    fn watch_backlog(&mut self, backlog: u64, width_ns: u64, due: u64) {
        let many = backlog as f64 > self.rate_per_s.max(due as f64 * 1e9 / width_ns.max(1) as f64);
        self.growing_ns = if backlog > self.backlog && many { self.growing_ns + width_ns } else { 0 };
        self.backlog = backlog;
        self.overloaded |= self.growing_ns as f64 >= GROWING_S * 1e9;
    }

    /// True if nothing has succeeded for so long, or so often, that continuing is pointless.
    pub fn should_abort(&self, give_up: Duration) -> bool {
        let errors: u64 = self.errors_since_success.values().sum();
        let never = !self.ever_succeeded && errors >= ABORT_ERRORS;
        never || (errors > 0 && self.since_last_success_ns() >= give_up.as_nanos() as u64)
    }

    fn since_last_success_ns(&self) -> u64 {
        self.last_end_ns.saturating_sub(self.last_success_ns)
    }

    /// Report of an aborted run.
    pub fn failure_streak(&self) -> FailureStreak {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let since = || {
            let ago = Duration::from_nanos(mono_ns().saturating_sub(self.last_success_ns));
            let at = jiff::Zoned::now().saturating_sub(ago);
            (at, seconds(self.last_success_ns - self.times.start_ns))
        };
        FailureStreak {
            lasted_s: seconds(self.since_last_success_ns()),
            since: self.ever_succeeded.then(since),
            errors: self.errors_since_success.clone(),
        }
    }

    /// A bin that was seen gives its memory back to the workers.
    pub fn recycle(&self, bin: Bin, spares: &Mutex<Vec<Tally>>) {
        let mut spares = spares.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < 2 * self.workers {
            let mut tally = bin.tally;
            tally.clear();
            spares.push(tally);
        }
    }

    pub fn totals(self, messages: BTreeMap<u16, String>) -> Totals {
        let (service, lag) = self.open.unzip();
        Totals {
            begin_ns: self.warm_ns.min(self.last_end_ns),
            end_ns: self.last_end_ns,
            load_began_ns: self.times.start_ns,
            counts: self.total,
            latency: self.latency,
            service,
            lag,
            backlog: self.backlog,
            overloaded: self.overloaded,
            due_for_s: self.last_end_ns.min(self.times.end_ns).saturating_sub(self.warm_ns) as f64 / 1e9,
            due: self.due.is_some().then_some(self.due_count - self.due_count_warm),
            cpu_ns: self.cpu_ns - self.cpu_begin_ns,
            messages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_left_under_way_counts_though_others_end_in_a_later_bin() {
        let times = RunTimes { start_ns: 1000, end_ns: u64::MAX, bin_origin_ns: 0, bin_ns: 100 };
        let mut collector = Collector::new(&Pacing::Closed, times, 1000, None, 2, false);
        let report = |bin_end_ns, last, oldest_ns| {
            let mut tally = Tally::new(false);
            (tally.counts.in_flight, tally.counts.oldest_ns) = (2, oldest_ns);
            BinReport { bin_end_ns, is_final: last, tally }
        };
        assert!(collector.add_report(report(1090, true, 80)).is_empty());
        assert_eq!(collector.add_report(report(1100, false, 10)).len(), 1);
        assert_eq!(collector.add_report(report(1120, true, 30)).len(), 1);
        let counts = collector.totals(BTreeMap::new()).counts;
        assert_eq!((counts.in_flight, counts.oldest_ns), (4, 110));
    }
}
