//! Throttle that slows a dump to keep a latency limit for the users of the server.
//!
//! A dump read through a [`ThrottledReader`] is read no faster than the probe latency allows. Back-pressure alone
//! slows the dump, whatever program writes it.
//!
//! ```text
//! dump -> pipe -> ThrottledReader (RateLimiter) -> consumer
//!                      ^ rate
//! probe -> controller -+   history, flag file, control socket
//! ```
//!
//! `controller`, `decision`, `baseline`, `loaded_latency`, `stall_attribution`, `sketch`, `compliance` and
//! `control_commands` are pure. Only `command`, which is `toll throttle`, starts a dump.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod baseline;
mod calibration;
pub mod command;
mod compliance;
pub mod control_commands;
mod control_loop;
pub mod control_socket;
mod controller;
#[cfg(test)]
mod controller_tests;
mod decision;
mod history_list;
mod loaded_latency;
mod progress;
mod rate_limiter;
#[cfg(test)]
mod simulation;
mod sketch;
mod stall_attribution;
mod summary;
mod tuning;

pub use progress::{Progress, ProgressSnapshot};
pub use rate_limiter::{RateLimiter, ThrottledReader};
pub use summary::ThrottleSummary;

use anyhow::{Context, Result, bail};
use baseline::ProbeSample;
use calibration::ServerLoad;
use control_commands::ThrottleSettings;
use control_loop::ControlLoop;
use control_socket::ControlState;
use controller::{LIMIT_QUANTILE, RateController};
use decision::Limits;
use history_list::HistoryListMonitor;
use rate_limiter::ReaderTimes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toll_journal::Journal;
use toll_mysql::Target;
use toll_probe::{Probe, ProbeQuery};
use toll_sys::cancel::CancelToken;
use toll_sys::clock::mono_ns;
use toll_sys::named_choice::NamedChoice;
use toll_sys::number_format;
use tuning::Tuning;

/// Options of a throttle.
#[derive(Debug, Clone)]
pub struct ThrottleOptions {
    pub target: Target,
    /// Largest relative growth of the probe's p99: 0.1 for 10%.
    pub max_p99_overhead: f64,
    /// Probe query; `None`: chosen from the tables that the user may read.
    pub probe_query: Option<String>,
    /// Probe queries a second; `None`: few compared with the server's load ([`ServerLoad`]).
    pub probe_rate_per_s: Option<f64>,
    /// Duration of the probe before the dump.
    pub baseline_duration: Duration,
    /// Bytes a second.
    pub min_rate: Option<f64>,
    pub max_rate: Option<f64>,
    /// While it exists, the dump pauses.
    pub flag_file: Option<PathBuf>,
    /// Path of the control socket.
    pub control_socket: Option<PathBuf>,
    pub max_time: Option<Duration>,
    pub max_history: Option<u64>,
    pub limit_action: LimitAction,
    /// A JSON line for each decision.
    pub log: Option<PathBuf>,
    /// Ends the dump, or the baseline measurement before it.
    pub cancel: CancelToken,
    pub progress: Arc<dyn Progress>,
}

/// Action when the dump's snapshot is too old, or the history list too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitAction {
    /// Suspend the latency limit and finish the dump unthrottled
    SuspendLimit,
    /// End the dump
    EndDump,
}

impl NamedChoice for LimitAction {
    const CHOICES: &'static [(&'static str, Self, &'static str)] = &[
        ("open", Self::SuspendLimit, "Suspend the latency limit and finish the dump unthrottled"),
        ("end", Self::EndDump, "End the dump"),
    ];
}

/// So many answers before the dump begins, or there is nothing to compare with.
const BASELINE_MIN_SAMPLES: usize = 250;
/// A server waits for its reader until a third of its socket's buffer is empty (Linux: `sk_stream_is_writeable`,
/// and three quarters of a Unix socket's), and TCP buffers grow to 4 MiB (`tcp_wmem`): a reader that has
/// taken this much has set every server free to write.
const KEEPALIVE_BYTES: f64 = 2.0 * 1_048_576.0;
/// The share of net_write_timeout after which something must move.
const PAUSE_TIMEOUT_SHARE: f64 = 1.0 / 3.0;
/// Where neither the user nor the timeout says more.
const DEFAULT_MIN_RATE: f64 = 131_072.0;
const PROBE_CONNECTIONS: usize = 4;
/// Seed of the probe's queries and times, the same for each throttle: they affect no result.
const SEED: u64 = 14;

/// A running throttle. Dropping it closes its rate limiter for good.
#[derive(Debug)]
pub struct Throttle {
    limiter: Arc<RateLimiter>,
    finished: Arc<AtomicBool>,
    control_loop: Option<JoinHandle<ThrottleSummary>>,
}

impl Throttle {
    /// Measures the undisturbed probe latency for a while, then opens the rate limiter within its limits. Call it
    /// right before the dump starts.
    pub fn start(options: ThrottleOptions, journal: &Journal) -> Result<Self> {
        let at = format!("the server at {}", options.target.address);
        let load =
            ServerLoad::measure(&options.target).with_context(|| format!("cannot read the load of {at}"))?;
        let question = ProbeQuery::choose(&options.target, options.probe_query.as_deref())
            .with_context(|| format!("the probe cannot query {at}"))?;
        let history_at_begin = history_list::query_length_once(&options.target);
        if options.max_history.is_some() && history_at_begin.is_none() {
            bail!(
                "--max-history: {} has no privilege to read the history list of {at}. Grant PROCESS, or \
                 omit --max-history.",
                options.target.user
            );
        }
        let limits = rate_limits(&options, load.net_write_timeout_s)?;
        let control = Arc::new(ControlState {
            settings: Mutex::new(ThrottleSettings {
                paused: false,
                max_p99_overhead: options.max_p99_overhead,
                ceiling: options.max_rate,
                min_rate: limits.floor,
                panic: false,
            }),
            status: Mutex::new("measuring the undisturbed latency before the dump".into()),
        });
        if let Some(path) = &options.control_socket {
            control_socket::listen(path, Arc::clone(&control), journal)?;
        }
        let per_s = match options.probe_rate_per_s {
            Some(per_s) => per_s,
            None => load
                .probe_rate_per_s(&options.target, &question, SEED)
                .with_context(|| format!("the probe cannot query {at}"))?,
        };
        let described = question.describe();
        let probe = Probe::start(&options.target, question, PROBE_CONNECTIONS, per_s, SEED)
            .context("cannot start the probe")?;
        let history = HistoryListMonitor::start(&options.target).context("cannot start a thread")?;
        tracing::info!("probe query, {per_s:.0}/s: {described}");
        let before = collect_baseline(&probe, options.baseline_duration, &control, &options.cancel)?;
        let controller = RateController::from_baseline_samples(
            Tuning::default(),
            limits,
            options.max_p99_overhead,
            &before,
            now_s(),
        );
        log_baseline(&controller, &limits, options.max_p99_overhead);
        let limiter = Arc::new(RateLimiter::default());
        let finished = Arc::new(AtomicBool::new(false));
        let control_loop = ControlLoop::new(
            control_loop::ControlLoopParams {
                options,
                probe_rate_per_s: per_s,
                probe_query: described,
                history_at_begin,
                baseline_samples: before,
            },
            control_loop::Shared { limiter: Arc::clone(&limiter), finished: Arc::clone(&finished), control },
            probe,
            history,
            controller,
        )?;
        let thread = std::thread::Builder::new()
            .name("throttle".into())
            .spawn(move || control_loop.run())
            .context("cannot start a thread")?;
        Ok(Self { limiter, finished, control_loop: Some(thread) })
    }

    /// Rate limiter for the reader of the dump: see [`ThrottledReader::new`].
    pub fn limiter(&self) -> &Arc<RateLimiter> {
        &self.limiter
    }

    /// Stops the control loop after the dump ended or failed. Returns the cost of the latency limit.
    pub fn finish(mut self) -> Result<ThrottleSummary> {
        self.finished.store(true, Ordering::Relaxed);
        match self.control_loop.take().map(JoinHandle::join) {
            Some(Ok(account)) => Ok(account),
            _ => bail!("the throttle's thread has failed: this is a bug in toll. Please report it."),
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.finished.store(true, Ordering::Relaxed);
        self.limiter.close("the throttle has ended");
    }
}

/// Now, on the clock of the probe's intended times, seconds.
fn now_s() -> f64 {
    mono_ns() as f64 / 1e9
}

/// Between which ends the rate may lie, given how long the server waits for its reader.
fn rate_limits(options: &ThrottleOptions, net_write_timeout_s: f64) -> Result<Limits> {
    let longest_pause_s = net_write_timeout_s * PAUSE_TIMEOUT_SHARE;
    let trickle = KEEPALIVE_BYTES / longest_pause_s;
    let floor = options.min_rate.unwrap_or(DEFAULT_MIN_RATE).max(trickle);
    if let Some(ceiling) = options.max_rate.filter(|ceiling| *ceiling < floor) {
        bail!(
            "--max-rate of {ceiling:.0} bytes/s is below the lowest rate, {floor:.0}: the server would time \
             out a slower reader (net_write_timeout = {net_write_timeout_s:.0} s), or --min-rate sets it"
        );
    }
    if trickle > options.min_rate.unwrap_or(DEFAULT_MIN_RATE) {
        tracing::warn!(
            "the lowest rate is {} MB/s: the server times out a slower reader (net_write_timeout = \
             {net_write_timeout_s:.0} s). For a lower rate: SET GLOBAL net_write_timeout = 600",
            number_format::format_megabytes(trickle)
        );
    }
    let floor_is_asked = options.min_rate.is_some();
    Ok(Limits {
        floor,
        floor_is_set_by_user: floor_is_asked,
        keepalive_rate: trickle,
        ceiling: options.max_rate,
        longest_pause_s,
    })
}

/// Collects probe answers before the dump starts.
fn collect_baseline(
    probe: &Probe,
    long: Duration,
    control: &ControlState,
    cancel: &CancelToken,
) -> Result<Vec<ProbeSample>> {
    let begun = Instant::now();
    let (mut answers, mut refused) = (Vec::new(), None);
    while begun.elapsed() < long || answers.len() < BASELINE_MIN_SAMPLES {
        std::thread::sleep(Duration::from_millis(50));
        cancel.check()?;
        if control.settings().panic {
            bail!("the command panic came on the control socket");
        }
        for asked in probe.drain_results() {
            match asked.error {
                Some(why) => refused = Some(why),
                None => answers.push(probe_sample(asked.sent_ns, asked.latency_ns)),
            }
        }
        if begun.elapsed() > long.saturating_mul(3) + Duration::from_secs(30) {
            match refused {
                Some(why) => bail!("the probe query gets no answer: {why}"),
                None => bail!(
                    "the probe got {} answers in {} s and needs {BASELINE_MIN_SAMPLES}. Check the server, \
                     or use a faster --canary.",
                    answers.len(),
                    begun.elapsed().as_secs()
                ),
            }
        }
    }
    Ok(answers)
}

fn probe_sample(sent_ns: u64, latency_ns: u64) -> ProbeSample {
    ProbeSample { sent_s: sent_ns as f64 / 1e9, ln_us: (latency_ns as f64 / 1e3).max(1e-3).ln() }
}

fn log_baseline(controller: &RateController, limits: &Limits, max_toll: f64) {
    let baseline = controller.baseline();
    let (Some(p50), Some(p99)) = (baseline.estimate(0.5), baseline.estimate(LIMIT_QUANTILE)) else { return };
    tracing::info!(
        "undisturbed p50 {}, p99 {} (±{:.0}%); dump starts, at least {} MB/s",
        number_format::format_duration_us(p50.ln.exp()),
        number_format::format_duration_us(p99.ln.exp()),
        100.0 * p99.error,
        number_format::format_megabytes(limits.floor)
    );
    let wobble = baseline.noise();
    if wobble > max_toll.ln_1p() {
        tracing::warn!(
            "without a dump the probe latency varies by {:.0}% from second to second: a limit of {}% is \
             below that noise, so the dump will be slow. Raise --max-p99-toll or --canary-rate, or run at a \
             time of less load.",
            100.0 * wobble.exp_m1(),
            control_commands::share_to_percent(max_toll)
        );
    }
}

/// Times of the rate limiter in seconds, for the summary.
fn times_in_seconds(times: &ReaderTimes) -> [f64; 4] {
    [times.paused, times.throttled, times.dump_wait, times.consumer].map(|time| time.as_secs_f64())
}
