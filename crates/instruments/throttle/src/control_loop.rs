//! Control loop that enforces the latency limit during the dump.
//!
//! Ten times a second a thread reads the probe, the flag file and the control socket, runs the controller,
//! and sets the rate limiter. Decides only on the limits of time and history.

use super::baseline::ProbeSample;
use super::compliance::LimitCompliance;
use super::control_commands::{ThrottleSettings, share_to_percent};
use super::control_socket::ControlState;
use super::controller::{LIMIT_QUANTILE, RateController};
use super::decision::{Decision, DumpState, ReadLimit, Reason};
use super::history_list::HistoryListMonitor;
use super::progress::ProgressSnapshot;
use super::rate_limiter::RateLimiter;
use super::sketch::Sketch;
use super::summary::{HistoryListSummary, LatencyQuantiles, ProbeSummary, ThrottleSummary, Unthrottled};
use super::{LimitAction, ThrottleOptions, now_s, times_in_seconds};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_probe::Probe;
use toll_sys::number_format;

const TICK: Duration = Duration::from_millis(100);
/// The rate that is shown is the mean of so many beats.
const DISPLAY_TICKS: usize = 30;
/// Minimum change of the undisturbed median for a warning.
const DRIFT_MIN: f64 = 0.1;
/// Share of failed probe queries above which the probe is unreliable.
const PROBE_ERROR_SHARE: f64 = 0.01;

/// Parameters fixed before the dump starts.
pub struct ControlLoopParams {
    pub options: ThrottleOptions,
    pub probe_rate_per_s: f64,
    pub probe_query: String,
    pub history_at_begin: Option<u64>,
    pub baseline_samples: Vec<ProbeSample>,
}

/// State shared with other threads.
pub struct Shared {
    pub limiter: Arc<RateLimiter>,
    pub finished: Arc<AtomicBool>,
    pub control: Arc<ControlState>,
}

pub struct ControlLoop {
    params: ControlLoopParams,
    shared: Shared,
    probe: Probe,
    history: HistoryListMonitor,
    controller: RateController,
    compliance: LimitCompliance,
    undisturbed: Sketch,
    with_dump: Sketch,
    begun_s: f64,
    probe_queries: u64,
    probe_errors: u64,
    last_probe_error: Option<String>,
    history_max: Option<u64>,
    /// As they were at the last beat.
    settings: ThrottleSettings,
    flag_file_exists: bool,
    limit_suspended_by: Option<String>,
    limit_was_unattainable: bool,
    probe_was_unanswered: bool,
    last_decision: Option<Decision>,
    recent_progress: VecDeque<(f64, u64)>,
    log: Option<File>,
}

/// A log line, for each change of the permission.
#[derive(Debug, Serialize)]
struct LogEntry {
    at_s: f64,
    why: Reason,
    /// None: as fast as it goes. 0: nothing.
    bytes_per_s: Option<f64>,
    moved_bytes: u64,
    toll_pct: Option<f64>,
    undisturbed_us_p99: Option<f64>,
}

/// Opens the rate limiter if the control loop fails: nobody would do so any more, and a dump that waits holds its snapshot
/// and its metadata locks.
struct OpenOnPanic(Arc<RateLimiter>);

impl Drop for OpenOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_limit(ReadLimit::Unlimited);
        }
    }
}

impl ControlLoop {
    pub fn new(
        params: ControlLoopParams,
        shared: Shared,
        probe: Probe,
        history: HistoryListMonitor,
        controller: RateController,
    ) -> Result<Self> {
        let log = params.options.log.as_ref().map(|path| {
            File::create(path).with_context(|| format!("cannot write {}: name another --log", path.display()))
        });
        let mut undisturbed = Sketch::new(f64::INFINITY);
        params.baseline_samples.iter().for_each(|answer| undisturbed.add(answer.sent_s, answer.ln_us));
        let begun_s = now_s();
        Ok(Self {
            settings: shared.control.settings(),
            history_max: params.history_at_begin,
            probe_queries: params.baseline_samples.len() as u64,
            log: log.transpose()?,
            compliance: LimitCompliance::new(begun_s),
            with_dump: Sketch::new(f64::INFINITY),
            undisturbed,
            begun_s,
            probe_errors: 0,
            last_probe_error: None,
            flag_file_exists: false,
            limit_suspended_by: None,
            limit_was_unattainable: false,
            probe_was_unanswered: false,
            last_decision: None,
            recent_progress: VecDeque::new(),
            params,
            shared,
            probe,
            history,
            controller,
        })
    }

    /// Runs until the dump has ended.
    pub fn run(mut self) -> ThrottleSummary {
        let _opens = OpenOnPanic(Arc::clone(&self.shared.limiter));
        while !self.shared.finished.load(Ordering::Relaxed) {
            self.tick();
            std::thread::sleep(TICK);
        }
        self.collect_probe_results();
        self.params.options.progress.finish();
        self.summarise()
    }

    fn tick(&mut self) {
        // Whoever waits at the rate limiter looks at nothing else.
        if self.params.options.cancel.is_cancelled() {
            self.shared.limiter.close("interrupted");
        }
        self.collect_probe_results();
        self.apply_settings();
        self.enforce_dump_limits();
        let (now_s, moved) = (now_s(), self.shared.limiter.bytes_read());
        let held = self.settings.paused || self.flag_file_exists;
        let decision = self.controller.decide(now_s, moved, self.probe.oldest_wait_us(), held);
        self.shared.limiter.set_limit(decision.limit);
        if self.limit_suspended_by.is_none() {
            self.compliance.advance(now_s, self.controller.baseline(), self.settings.max_p99_overhead);
        }
        if self.last_decision != Some(decision) {
            self.report_trouble(decision.reason);
            self.log_decision(decision, now_s, moved);
            self.last_decision = Some(decision);
        }
        self.recent_progress.push_back((now_s, moved));
        if self.recent_progress.len() > DISPLAY_TICKS {
            self.recent_progress.pop_front();
        }
        let now = self.progress_snapshot(decision);
        self.shared.control.set_status(self.render_status(&now));
        self.params.options.progress.show(&now);
    }

    fn collect_probe_results(&mut self) {
        let results: Vec<_> = self.probe.drain_results().collect();
        for asked in results {
            self.probe_queries += 1;
            if let Some(why) = asked.error {
                self.probe_errors += 1;
                self.last_probe_error = Some(why);
                continue;
            }
            let (sent_s, latency_us) = (asked.sent_ns as f64 / 1e9, asked.latency_ns as f64 / 1e3);
            self.compliance.add_sample(sent_s, latency_us);
            let ln_us = latency_us.max(1e-3).ln();
            match self.controller.add_sample(sent_s, latency_us) {
                DumpState::Running => self.with_dump.add(sent_s, ln_us),
                DumpState::Paused => self.undisturbed.add(sent_s, ln_us),
                DumpState::Transition => {}
            }
        }
    }

    fn apply_settings(&mut self) {
        let settings = self.shared.control.settings();
        if settings != self.settings {
            self.controller.set_max_p99_overhead(settings.max_p99_overhead);
            self.controller.set_ceiling(settings.ceiling);
            self.params.options.progress.show_message(&format!("on the control socket: {settings}"));
            self.settings = settings;
        }
        if settings.panic {
            self.shared.limiter.close("the command panic came on the control socket");
        }
        let flag_file = self.params.options.flag_file.as_deref();
        let flagged = flag_file.is_some_and(std::path::Path::exists);
        if let Some(file) = flag_file.filter(|_| flagged != self.flag_file_exists) {
            let what = if flagged { "is there: paused" } else { "is gone" };
            self.params.options.progress.show_message(&format!("{} {what}", file.display()));
        }
        self.flag_file_exists = flagged;
    }

    /// Frees or ends a dump that exceeded a limit of time or history, and reports it.
    fn enforce_dump_limits(&mut self) {
        let length = self.history.length();
        self.history_max = self.history_max.max(length);
        if self.limit_suspended_by.is_some() {
            return;
        }
        let elapsed_s = now_s() - self.begun_s;
        let options = &self.params.options;
        let late = options.max_time.is_some_and(|most| elapsed_s > most.as_secs_f64());
        let long = options.max_history.zip(length).is_some_and(|(most, length)| length > most);
        let what = match (late, long) {
            (true, _) => format!("the dump has run for {}", number_format::format_duration_s(elapsed_s)),
            (_, true) => format!("the history list length is {}", length.unwrap_or(0)),
            _ => return,
        };
        match options.limit_action {
            LimitAction::SuspendLimit => {
                self.params.options.progress.show_message(&format!(
                    "{what}: the latency limit is suspended, the dump runs unthrottled"
                ));
                self.controller.suspend_limit();
            }
            LimitAction::EndDump => {
                self.shared.limiter.close(&format!("{what}: dump ended (--past-limit end)"))
            }
        }
        self.limit_suspended_by = Some(what);
    }

    fn report_trouble(&mut self, why: Reason) {
        if why == Reason::Unkept && !self.limit_was_unattainable {
            self.limit_was_unattainable = true;
            let goes_on = match self.params.options.min_rate {
                Some(_) => "the dump continues at --min-rate",
                None => "the dump continues at that rate, with pauses of a third of net_write_timeout",
            };
            self.params.options.progress.show_message(&format!(
                "the latency limit is exceeded even at the lowest rate: the host itself has become slow, or \
                 the limit is smaller than the random variation of the p99; {goes_on}"
            ));
        }
        if why == Reason::Blind && !self.probe_was_unanswered {
            self.probe_was_unanswered = true;
            let reason = self.last_probe_error.as_deref().unwrap_or("no answer in time");
            self.params.options.progress.show_message(&format!(
                "the probe query gets no answer ({reason}): lowest rate until it does"
            ));
        }
    }

    /// A log that cannot be written any more (a full disk) is no reason to end a dump.
    fn log_decision(&mut self, decision: Decision, now_s: f64, moved: u64) {
        let overhead = self.controller.recent_overhead();
        let undisturbed = self.controller.baseline().estimate(LIMIT_QUANTILE);
        let Some(log) = &mut self.log else { return };
        let line = LogEntry {
            at_s: now_s - self.begun_s,
            why: decision.reason,
            bytes_per_s: match decision.limit {
                ReadLimit::Unlimited => None,
                ReadLimit::Rate(rate) => Some(rate),
                ReadLimit::Paused => Some(0.0),
            },
            moved_bytes: moved,
            toll_pct: overhead.map(|toll| 100.0 * toll.ln.exp_m1()),
            undisturbed_us_p99: undisturbed.map(|p99| p99.ln.exp()),
        };
        if let Ok(mut text) = serde_json::to_vec(&line) {
            text.push(b'\n');
            let _ = log.write_all(&text);
        }
    }

    fn progress_snapshot(&self, decision: Decision) -> ProgressSnapshot {
        let (first, last) = (self.recent_progress.front(), self.recent_progress.back());
        let bytes_per_s = match (first, last) {
            (Some(first), Some(last)) if last.0 > first.0 => (last.1 - first.1) as f64 / (last.0 - first.0),
            _ => 0.0,
        };
        let why = serde_json::to_value(decision.reason).ok();
        let why = why.as_ref().and_then(|why| why.as_str()).unwrap_or_default().to_owned();
        let base = self.controller.baseline().estimate(LIMIT_QUANTILE);
        let p99_us = self.controller.recent_overhead().zip(base).map(|(toll, base)| {
            let base = base.ln.exp();
            (base * toll.ln.exp(), base)
        });
        let windows = self.compliance.windows();
        ProgressSnapshot {
            bytes: self.shared.limiter.bytes_read(),
            bytes_per_s,
            limit_text: match decision.limit {
                ReadLimit::Rate(rate) => {
                    format!("{why}, {} MB/s allowed", number_format::format_megabytes(rate))
                }
                ReadLimit::Unlimited | ReadLimit::Paused => why,
            },
            p99_us,
            max_p99_overhead_pct: share_to_percent(self.settings.max_p99_overhead),
            windows_within_limit: windows.kept,
            windows_judged: windows.judged,
        }
    }

    fn render_status(&self, now: &ProgressSnapshot) -> String {
        let mut status = format!("{}\n{}", now.render_line(), self.settings);
        if let (true, Some(file)) = (self.flag_file_exists, &self.params.options.flag_file) {
            status += &format!("\npaused while {} exists", file.display());
        }
        if let Some(length) = self.history.length() {
            status += &format!("\nhistory list: {length}");
        }
        status
    }

    fn summarise(&self) -> ThrottleSummary {
        let times = self.shared.limiter.times();
        let [paused_s, slowed_s, waited_for_dump_s, waited_for_taker_s] = times_in_seconds(&times);
        let (bytes, elapsed_s) = (self.shared.limiter.bytes_read(), now_s() - self.begun_s);
        let moved = self.controller.baseline().drift_since_start();
        ThrottleSummary {
            max_p99_toll_pct: share_to_percent(self.settings.max_p99_overhead),
            elapsed_s,
            bytes,
            bytes_per_s: bytes as f64 / elapsed_s.max(1e-3),
            paused_s,
            slowed_s,
            waited_for_dump_s,
            waited_for_taker_s,
            unthrottled: Unthrottled::estimate(&times, bytes),
            canary: ProbeSummary {
                question: self.params.probe_query.clone(),
                questions_per_s: self.params.probe_rate_per_s,
                questions: self.probe_queries,
                refused: self.probe_errors,
                undisturbed: LatencyQuantiles::from_sketch(&self.undisturbed),
                with_dump: LatencyQuantiles::from_sketch(&self.with_dump),
                undisturbed_moved_pct: moved.map(|moved| 100.0 * moved.exp_m1()),
                undisturbed_wobble_pct: 100.0 * self.controller.baseline().noise().exp_m1(),
            },
            windows: self.compliance.windows(),
            history: HistoryListSummary { at_begin: self.params.history_at_begin, most: self.history_max },
            doubts: self.warnings(moved),
        }
    }

    fn warnings(&self, moved: Option<f64>) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(what) = &self.limit_suspended_by {
            doubts.push(format!("the latency limit applied only until {what}"));
        }
        if self.limit_was_unattainable {
            doubts.push("at times, even the lowest rate exceeded the latency limit".into());
        }
        if self.probe_was_unanswered {
            doubts.push("at times, the probe got no answer: the latency then is unknown".into());
        }
        if self.probe_errors as f64 > PROBE_ERROR_SHARE * self.probe_queries as f64 {
            let why = self.last_probe_error.as_deref().unwrap_or_default();
            doubts.push(format!("{} probe queries failed; last error: {why}", self.probe_errors));
        }
        let wobble = self.controller.baseline().noise();
        if wobble > self.settings.max_p99_overhead.ln_1p() / 2.0 {
            doubts.push(format!(
                "without a dump the probe latency varies by {:.0}% from second to second: more windows \
                 exceed the limit by that alone than the expected share shows",
                100.0 * wobble.exp_m1()
            ));
        }
        let most = self.settings.max_p99_overhead.ln_1p().max(DRIFT_MIN);
        if let Some(moved) = moved.filter(|moved| moved.abs() > most) {
            doubts.push(format!(
                "the undisturbed median changed by {} since before the dump: the load changed, or the dump \
                 evicted pages from the buffer pool; pauses cannot distinguish the two",
                number_format::format_signed_percent(100.0 * moved.exp_m1())
            ));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThrottledReader;
    use std::io::Read;

    #[test]
    fn a_control_loop_that_fails_lets_the_dump_go_on() {
        let limiter = Arc::new(RateLimiter::default());
        let reader = {
            let limiter = Arc::clone(&limiter);
            std::thread::spawn(move || {
                let mut dump = String::new();
                ThrottledReader::new(&b"the dump"[..], limiter).read_to_string(&mut dump).map(|_| dump)
            })
        };
        let failing = {
            let limiter = Arc::clone(&limiter);
            std::thread::spawn(move || {
                let _opens = OpenOnPanic(limiter);
                panic!("as a bug would");
            })
        };
        assert!(failing.join().is_err());
        assert_eq!(reader.join().unwrap().unwrap(), "the dump");
        // One that has ended in order leaves it as it is.
        let ended = Arc::new(RateLimiter::default());
        drop(OpenOnPanic(Arc::clone(&ended)));
        ended.close("closed");
        assert!(ThrottledReader::new(&b"x"[..], ended).read(&mut [0]).is_err());
    }
}
