//! Bin stream of a meter: samples for the record, and one sum for each window.

use crate::recorder::Recorder;
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use toll_record::{Bin, Sample, Second, latency_histogram};

/// One bin of any driver.
#[derive(Debug, Clone)]
pub struct ReportedBin {
    pub bin: Bin,
    /// (lowest latency of the bucket in us, count). Empty if the driver has no histogram.
    pub histogram: Vec<(u64, u64)>,
    /// The one percentile of a driver without a histogram, microseconds.
    pub p99_us: Option<u64>,
    /// Width of a whole bin, microseconds, which is the distance of bin boundaries. A driver's first bin is
    /// shorter.
    pub bin_interval_us: u64,
}

/// Parses a line of a driver's standard output. `None` if it is not a bin.
pub type BinReader = Box<dyn FnMut(&str) -> Option<ReportedBin> + Send>;

/// Source of consecutive bins. Its end is the meter's.
pub type Bins = Box<dyn Iterator<Item = ReportedBin> + Send>;

/// The bins in a driver's standard output.
pub fn read_bins(stdout: ChildStdout, mut read: BinReader) -> Bins {
    let mut lines = BufReader::with_capacity(1 << 16, stdout);
    let mut line = String::new();
    Box::new(std::iter::from_fn(move || {
        loop {
            line.clear();
            match lines.read_line(&mut line) {
                Ok(n) if n > 0 => {
                    if let Some(reported) = read(&line) {
                        return Some(reported);
                    }
                }
                _ => return None,
            }
        }
    }))
}

/// Smoothed current figures of the load.
#[derive(Debug, Clone, Copy)]
pub struct LiveLoad {
    pub bin_end_us: u64,
    pub bin_width_us: u64,
    pub statements_per_s: f64,
    /// Mean of the bins in which something completed. Absent until there is one.
    pub latency_us_mean: Option<f64>,
}

/// Counts inside a window.
#[derive(Debug, Clone, Default)]
pub struct WindowLoad {
    pub statements: u64,
    pub events: u64,
    pub latency_us_sum: u64,
    /// `None` if the driver has none.
    pub histogram: Option<Box<Histogram<u64>>>,
    /// Statements completed from the window's begin to the end of each of its first bins.
    pub first_bins: Vec<(u64, u64)>,
}

/// Bins at a window's head that are stored one by one.
const FIRST_BINS: usize = 64;
/// Bins that are stored for the pilot: seven minutes of a tenth of a second.
const LAST_BINS: usize = 4096;

/// Reader of one meter's bins until it ends.
#[derive(Debug)]
pub struct BinStream {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    live: Option<LiveLoad>,
    last: VecDeque<Bin>,
    window: Option<Window>,
    ended: bool,
}

#[derive(Debug)]
struct Window {
    begin_us: u64,
    end_us: u64,
    load: WindowLoad,
    has_histogram: bool,
    complete: bool,
}

/// Smoothing length of the current figures, in bins.
const SMOOTHING_BINS: f64 = 10.0;

impl BinStream {
    /// Starts reading. `threads`: connections of a closed loop, all of which wait if nothing completes; 0:
    /// unknown.
    pub fn start(bins: Bins, threads: u32, recorder: Recorder) -> Self {
        let shared = Arc::new(Shared::default());
        let state = shared.clone();
        let thread = std::thread::spawn(move || {
            let mut seconds = SecondAggregator::new(threads);
            for reported in bins {
                if let Some(second) = seconds.add_bin(&reported) {
                    recorder.record_sample(Sample::Second(second));
                }
                // First: with the window's last bin the trial loop goes on, and the run may end.
                recorder.record_sample(Sample::Bin(reported.bin.clone()));
                state.add_bin(&reported);
            }
            state.lock().ended = true;
            state.changed.notify_all();
        });
        Self { shared, thread: Some(thread) }
    }

    /// True if there will be no more bins.
    pub fn has_ended(&self) -> bool {
        self.shared.lock().ended
    }

    pub fn live(&self) -> Option<LiveLoad> {
        self.shared.lock().live
    }

    /// Stored bins that began at that moment or later.
    pub fn bins_since(&self, moment_us: u64) -> Vec<Bin> {
        let state = self.shared.lock();
        state.last.iter().filter(|bin| bin.mono_us >= moment_us + bin.width_us).cloned().collect()
    }

    /// The first boundary between bins at or after `moment_us`.
    pub fn edge_at_or_after(&self, moment_us: u64) -> u64 {
        match self.live() {
            Some(live) if moment_us > live.bin_end_us => {
                let bins = (moment_us - live.bin_end_us).div_ceil(live.bin_width_us.max(1));
                live.bin_end_us + bins * live.bin_width_us
            }
            Some(live) => live.bin_end_us,
            None => moment_us,
        }
    }

    pub fn bin_width_us(&self) -> u64 {
        self.live().map_or(100_000, |l| l.bin_width_us)
    }

    /// Begins to sum bins that end in (begin, end]. `begin` must not have passed.
    pub fn open_window(&self, begin_us: u64, end_us: u64) {
        self.shared.lock().window = Some(Window {
            begin_us,
            end_us,
            load: WindowLoad {
                statements: 0,
                events: 0,
                latency_us_sum: 0,
                histogram: Some(Box::new(latency_histogram())),
                first_bins: Vec::with_capacity(FIRST_BINS),
            },
            has_histogram: false,
            complete: false,
        });
    }

    /// Statements and events in the open window's bins so far.
    pub fn window_counts(&self) -> (u64, u64) {
        let state = self.shared.lock();
        state.window.as_ref().map_or((0, 0), |window| (window.load.statements, window.load.events))
    }

    /// Ends the open window early, at a boundary between two bins. Returns the actual end.
    ///
    /// If that bin was already reported, the end is the last reported one.
    pub fn close_early(&self, edge_us: u64) -> u64 {
        let mut state = self.shared.lock();
        let reported = state.live.map_or(0, |live| live.bin_end_us);
        let Some(window) = &mut state.window else { return edge_us };
        window.end_us = edge_us.max(reported).min(window.end_us);
        window.complete |= reported >= window.end_us;
        let end_us = window.end_us;
        drop(state);
        self.shared.changed.notify_all();
        end_us
    }

    /// Waits for the window's last bin. `None` if the driver ended or stopped reporting.
    pub fn close_window(&self, within: Duration) -> Option<WindowLoad> {
        let pending = |s: &mut State| !s.ended && s.window.as_ref().is_some_and(|w| !w.complete);
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), within, pending);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let mut window = state.window.take().filter(|w| w.complete)?;
        if !window.has_histogram {
            window.load.histogram = None;
        }
        Some(window.load)
    }

    /// Waits until the driver's output has been read to its end.
    pub fn finish(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A reader that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_bin(&self, reported: &ReportedBin) {
        let bin = &reported.bin;
        let mut state = self.lock();
        let rate = bin.statements as f64 * 1e6 / bin.width_us.max(1) as f64;
        let mean = (bin.events > 0).then(|| bin.latency_us_sum as f64 / bin.events as f64);
        let mean_before = state.live.and_then(|l| l.latency_us_mean);
        let smooth = |old: Option<f64>, new: f64| old.map_or(new, |old| old + (new - old) / SMOOTHING_BINS);
        state.live = Some(LiveLoad {
            bin_end_us: bin.mono_us,
            bin_width_us: reported.bin_interval_us,
            statements_per_s: smooth(state.live.map(|l| l.statements_per_s), rate),
            latency_us_mean: mean.map(|mean| smooth(mean_before, mean)).or(mean_before),
        });
        if state.last.len() == LAST_BINS {
            state.last.pop_front();
        }
        state.last.push_back(bin.clone());
        if let Some(window) = &mut state.window {
            if bin.mono_us > window.begin_us && bin.mono_us <= window.end_us {
                window.load.statements += bin.statements;
                window.load.events += bin.events;
                window.load.latency_us_sum += bin.latency_us_sum;
                if window.load.first_bins.len() < FIRST_BINS {
                    window.load.first_bins.push((bin.mono_us, window.load.statements));
                }
                if let Some(histogram) = &mut window.load.histogram {
                    for (latency_us, count) in &reported.histogram {
                        histogram.saturating_record_n(*latency_us, *count);
                        window.has_histogram = true;
                    }
                }
            }
            if bin.mono_us >= window.end_us && !window.complete {
                window.complete = true;
                self.changed.notify_all();
            }
        }
    }
}

/// Accumulates bins into seconds with percentiles.
struct SecondAggregator {
    threads: u32,
    histogram: Histogram<u64>,
    sum: Option<Bin>,
}

impl SecondAggregator {
    fn new(threads: u32) -> Self {
        Self { threads, histogram: latency_histogram(), sum: None }
    }

    /// A second, once it is complete.
    fn add_bin(&mut self, reported: &ReportedBin) -> Option<Second> {
        let bin = &reported.bin;
        for (latency_us, count) in &reported.histogram {
            self.histogram.saturating_record_n(*latency_us, *count);
        }
        let sum = match &mut self.sum {
            Some(sum) => {
                sum.mono_us = bin.mono_us;
                sum.width_us += bin.width_us;
                sum.statements += bin.statements;
                sum.events += bin.events;
                sum.latency_us_sum += bin.latency_us_sum;
                sum.latency_us_max = sum.latency_us_max.max(bin.latency_us_max);
                sum
            }
            none => none.insert(bin.clone()),
        };
        if sum.width_us < 1_000_000 {
            return None;
        }
        let quantile = |q| (!self.histogram.is_empty()).then(|| self.histogram.value_at_quantile(q));
        let second = Second {
            mono_us: sum.mono_us,
            width_us: sum.width_us,
            events: sum.events,
            statements: sum.statements,
            // Nothing completed: each of the closed loop's requests has waited all the while.
            latency_us_mean: if sum.events > 0 {
                sum.latency_us_sum as f64 / sum.events as f64
            } else if self.threads > 0 {
                sum.width_us as f64
            } else {
                0.0
            },
            latency_us_p50: quantile(0.5),
            latency_us_p95: quantile(0.95),
            latency_us_p99: quantile(0.99).or(reported.p99_us),
            latency_us_max: sum.latency_us_max,
        };
        self.histogram.reset();
        self.sum = None;
        Some(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn feed_of(shared: &Arc<Shared>) -> BinStream {
        BinStream { shared: shared.clone(), thread: None }
    }

    fn bin(end_us: u64) -> ReportedBin {
        let bin = Bin {
            mono_us: end_us,
            width_us: 100,
            statements: 10,
            events: 1,
            errors: 0,
            latency_us_sum: 5,
            latency_us_max: None,
            in_flight: 0,
            oldest_us: 0,
            errors_by_code: BTreeMap::new(),
        };
        ReportedBin { bin, histogram: Vec::new(), p99_us: None, bin_interval_us: 100 }
    }

    #[test]
    fn a_window_closed_early_holds_the_bins_up_to_its_new_end() {
        let shared = Arc::new(Shared::default());
        let feed = feed_of(&shared);
        feed.open_window(1_000, 2_000);
        shared.add_bin(&bin(1_100));
        assert_eq!(feed.close_early(1_300), 1_300);
        for end in [1_200, 1_300, 1_400, 1_500] {
            shared.add_bin(&bin(end));
        }
        assert_eq!(feed.close_window(Duration::ZERO).unwrap().statements, 30);
    }

    #[test]
    fn edges_follow_each_other_by_whole_bins_after_a_short_first_one() {
        let shared = Arc::new(Shared::default());
        let feed = feed_of(&shared);
        let mut first = bin(1_000);
        first.bin.width_us = 33;
        shared.add_bin(&first);
        assert_eq!((feed.edge_at_or_after(1_001), feed.bin_width_us()), (1_100, 100));
    }

    #[test]
    fn a_bin_in_which_nothing_completed_has_no_response_time_to_show() {
        let shared = Arc::new(Shared::default());
        let feed = feed_of(&shared);
        let empty = |end_us| {
            let mut reported = bin(end_us);
            (reported.bin.events, reported.bin.statements, reported.bin.latency_us_sum) = (0, 0, 0);
            reported
        };
        shared.add_bin(&bin(1_000));
        let before = feed.live().unwrap();
        shared.add_bin(&empty(1_100));
        let after = feed.live().unwrap();
        assert_eq!(after.latency_us_mean, before.latency_us_mean);
        assert!(after.statements_per_s < before.statements_per_s);

        let stalled = Shared::default();
        stalled.add_bin(&empty(1_000));
        assert_eq!(stalled.lock().live.unwrap().latency_us_mean, None);
    }

    #[test]
    fn the_last_bins_can_be_looked_back_on() {
        let shared = Arc::new(Shared::default());
        let feed = feed_of(&shared);
        for i in 1..=LAST_BINS as u64 + 2 {
            shared.add_bin(&bin(100 * i));
        }
        let ends = |since| feed.bins_since(since).iter().map(|bin| bin.mono_us).collect::<Vec<_>>();
        assert_eq!(ends(0).first(), Some(&300));
        let last = 100 * (LAST_BINS as u64 + 2);
        assert_eq!(ends(last - 250), [last - 100, last]);
    }

    #[test]
    fn an_edge_that_has_been_reported_already_moves_to_the_latest_one() {
        let shared = Arc::new(Shared::default());
        let feed = feed_of(&shared);
        feed.open_window(1_000, 2_000);
        for end in [1_100, 1_200, 1_300] {
            shared.add_bin(&bin(end));
        }
        assert_eq!(feed.close_early(1_200), 1_300);
        assert_eq!(feed.close_window(Duration::ZERO).unwrap().statements, 30);
        // Never later than planned.
        feed.open_window(1_300, 2_000);
        assert_eq!(feed.close_early(9_000), 2_000);
    }
}
