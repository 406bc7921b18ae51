//! Throttle that slows a dump to keep a latency limit for the users of the server.
//!
//! A dump read through a [`Throttled`] is read no faster than the probe latency allows. Back-pressure alone
//! slows the dump, whatever program writes it.
//!
//! ```text
//! dump -> pipe -> Throttled (gate) -> consumer
//!                     ^ allow
//! canary -> steering -+   history, flag file, control socket
//! ```
//!
//! `steering`, `decision`, `baseline`, `beside`, `seconds`, `sketch`, `promise` and `orders` are pure. Only
//! `command`, which is `toll throttle`, starts a dump.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod account;
mod baseline;
mod beside;
mod canary;
pub mod command;
pub mod control;
mod decision;
mod gate;
mod habits;
mod history;
mod keeper;
pub mod orders;
mod progress;
mod promise;
mod question;
mod seconds;
#[cfg(test)]
mod simulated;
mod sketch;
mod steering;
#[cfg(test)]
mod steering_tests;
mod tuning;

pub use account::Account;
pub use gate::{Gate, Throttled};
pub use progress::{Now, Progress};

use anyhow::{Context, Result, bail};
use baseline::Answer;
use canary::Canary;
use control::Desk;
use decision::Limits;
use gate::Times;
use habits::Habits;
use history::History;
use keeper::Keeper;
use orders::Wishes;
use question::Question;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use steering::{PROMISED, Steering};
use toll_journal::Journal;
use toll_mysql::Target;
use toll_sys::cancel::CancelToken;
use toll_sys::clock::mono_ns;
use toll_sys::named_choice::NamedChoice;
use toll_sys::number_format;
use tuning::Tuning;

/// Options of a throttle.
#[derive(Debug, Clone)]
pub struct Asked {
    pub target: Target,
    /// Largest relative growth of the probe's p99: 0.1 for 10%.
    pub max_toll: f64,
    /// Probe query; `None`: chosen from the tables that the user may read.
    pub canary: Option<String>,
    /// Probe queries a second; `None`: few compared with the server's load ([`Habits`]).
    pub canary_per_s: Option<f64>,
    /// Duration of the probe before the dump.
    pub before: Duration,
    /// Bytes a second.
    pub min_rate: Option<f64>,
    pub max_rate: Option<f64>,
    /// While it exists, the dump pauses.
    pub flag_file: Option<PathBuf>,
    /// Path of the control socket.
    pub control: Option<PathBuf>,
    pub max_time: Option<Duration>,
    pub max_history: Option<u64>,
    pub past_limit: PastLimit,
    /// A JSON line for each decision.
    pub log: Option<PathBuf>,
    /// Ends the dump, or the wait for the canary before it.
    pub cancel: CancelToken,
    pub progress: Arc<dyn Progress>,
}

/// Action when the dump's snapshot is too old, or the history list too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastLimit {
    /// Give up the promise, and be done soon
    Open,
    /// End the dump
    End,
}

impl NamedChoice for PastLimit {
    const CHOICES: &'static [(&'static str, Self, &'static str)] =
        &[("open", Self::Open, "Give up the promise, and be done soon"), ("end", Self::End, "End the dump")];
}

/// So many answers before the dump begins, or there is nothing to compare with.
const BEFORE_LEAST: usize = 250;
/// A server waits for its reader until a third of its socket's buffer is empty (Linux: `sk_stream_is_writeable`,
/// and three quarters of a Unix socket's), and TCP buffers grow to 4 MiB (`tcp_wmem`): a reader that has
/// taken this much has set every server free to write.
const FREES_WRITER: f64 = 2.0 * 1_048_576.0;
/// The share of net_write_timeout after which something must move.
const TIMEOUT_SHARE: f64 = 1.0 / 3.0;
/// Where neither the user nor the timeout says more.
const MIN_RATE: f64 = 131_072.0;
/// Seed of the probe's queries and times, the same for each throttle: they affect no result.
const SEED: u64 = 14;

/// A running throttle. Dropping it closes its gate for good.
#[derive(Debug)]
pub struct Throttle {
    gate: Arc<Gate>,
    finished: Arc<AtomicBool>,
    keeper: Option<JoinHandle<Account>>,
}

impl Throttle {
    /// Measures the undisturbed probe latency for a while, then opens the gate within its limits. Call it
    /// right before the dump starts.
    pub fn begin(asked: Asked, journal: &Journal) -> Result<Self> {
        let at = format!("the server at {}", asked.target.address);
        let habits = Habits::of(&asked.target).with_context(|| format!("cannot ask {at} for its habits"))?;
        let question = Question::choose(&asked.target, asked.canary.as_deref())
            .with_context(|| format!("the canary cannot ask {at}"))?;
        let history_at_begin = history::length_now(&asked.target);
        if asked.max_history.is_some() && history_at_begin.is_none() {
            bail!(
                "--max-history: {} may not see the history list of {at}: grant PROCESS, or leave it out",
                asked.target.user
            );
        }
        let limits = limits(&asked, habits.net_write_timeout_s)?;
        let desk = Arc::new(Desk {
            wishes: Mutex::new(Wishes {
                paused: false,
                max_toll: asked.max_toll,
                ceiling: asked.max_rate,
                slowest: limits.floor,
                panic: false,
            }),
            status: Mutex::new("listening to the canary before the dump".into()),
        });
        if let Some(path) = &asked.control {
            control::listen(path, Arc::clone(&desk), journal)?;
        }
        let per_s = match asked.canary_per_s {
            Some(per_s) => per_s,
            None => habits
                .canary_per_s(&asked.target, &question, SEED)
                .with_context(|| format!("the canary cannot ask {at}"))?,
        };
        let described = question.described();
        let canary =
            Canary::start(&asked.target, question, per_s, SEED).context("cannot start the canary")?;
        let history = History::watch(&asked.target).context("cannot start a thread")?;
        tracing::info!("canary, {per_s:.0}/s: {described}");
        let before = listen(&canary, asked.before, &desk, &asked.cancel)?;
        let steering = Steering::begin(Tuning::default(), limits, asked.max_toll, &before, now_s());
        tell_of_baseline(&steering, &limits, asked.max_toll);
        let gate = Arc::new(Gate::default());
        let finished = Arc::new(AtomicBool::new(false));
        let keeper = Keeper::new(
            keeper::Given { asked, per_s, question: described, history_at_begin, before },
            keeper::Shared { gate: Arc::clone(&gate), finished: Arc::clone(&finished), desk },
            canary,
            history,
            steering,
        )?;
        let keeper = std::thread::Builder::new()
            .name("throttle".into())
            .spawn(move || keeper.keep())
            .context("cannot start a thread")?;
        Ok(Self { gate, finished, keeper: Some(keeper) })
    }

    /// For whoever reads the dump: [`Throttled::new`].
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Stops the control loop after the dump ended or failed. Returns the cost of the latency limit.
    pub fn finish(mut self) -> Result<Account> {
        self.finished.store(true, Ordering::Relaxed);
        match self.keeper.take().map(JoinHandle::join) {
            Some(Ok(account)) => Ok(account),
            _ => bail!("the throttle's thread has failed: this is a mistake in toll; please report it"),
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.finished.store(true, Ordering::Relaxed);
        self.gate.end("the throttle has ended");
    }
}

/// Now, on the clock of the probe's intended times, seconds.
fn now_s() -> f64 {
    mono_ns() as f64 / 1e9
}

/// Between which ends the rate may lie, given how long the server waits for its reader.
fn limits(asked: &Asked, net_write_timeout_s: f64) -> Result<Limits> {
    let longest_pause_s = net_write_timeout_s * TIMEOUT_SHARE;
    let trickle = FREES_WRITER / longest_pause_s;
    let floor = asked.min_rate.unwrap_or(MIN_RATE).max(trickle);
    if let Some(ceiling) = asked.max_rate.filter(|ceiling| *ceiling < floor) {
        bail!(
            "a rate of {ceiling:.0} bytes/s at most is below the slowest, {floor:.0}: the server gives up a \
             reader that takes less (net_write_timeout is {net_write_timeout_s:.0} s there), or --min-rate says so"
        );
    }
    if trickle > asked.min_rate.unwrap_or(MIN_RATE) {
        tracing::warn!(
            "never slower than {} MB/s: net_write_timeout is {net_write_timeout_s:.0} s there, and the \
             server gives up a reader that takes less; SET GLOBAL net_write_timeout = 600 makes room",
            number_format::format_megabytes(trickle)
        );
    }
    let floor_is_asked = asked.min_rate.is_some();
    Ok(Limits { floor, floor_is_asked, trickle, ceiling: asked.max_rate, longest_pause_s })
}

/// Collects probe answers before the dump starts.
fn listen(canary: &Canary, long: Duration, desk: &Desk, cancel: &CancelToken) -> Result<Vec<Answer>> {
    let begun = Instant::now();
    let (mut answers, mut refused) = (Vec::new(), None);
    while begun.elapsed() < long || answers.len() < BEFORE_LEAST {
        std::thread::sleep(Duration::from_millis(50));
        cancel.check()?;
        if desk.wishes().panic {
            bail!("panic was said on the control socket");
        }
        for asked in canary.answers() {
            match asked.refused {
                Some(why) => refused = Some(why),
                None => answers.push(answer(asked.sent_ns, asked.latency_ns)),
            }
        }
        if begun.elapsed() > long.saturating_mul(3) + Duration::from_secs(30) {
            match refused {
                Some(why) => bail!("the canary is not answered: {why}"),
                None => bail!(
                    "the canary got {} answers in {} s, and needs {BEFORE_LEAST}: is the server stuck, or \
                     --canary slow?",
                    answers.len(),
                    begun.elapsed().as_secs()
                ),
            }
        }
    }
    Ok(answers)
}

fn answer(sent_ns: u64, latency_ns: u64) -> Answer {
    Answer { sent_s: sent_ns as f64 / 1e9, ln_us: (latency_ns as f64 / 1e3).max(1e-3).ln() }
}

fn tell_of_baseline(steering: &Steering, limits: &Limits, max_toll: f64) {
    let baseline = steering.baseline();
    let (Some(p50), Some(p99)) = (baseline.estimate(0.5), baseline.estimate(PROMISED)) else { return };
    tracing::info!(
        "undisturbed p50 {}, p99 {} (give or take {:.0}%); the dump begins, never slower than {} MB/s",
        number_format::format_duration_us(p50.ln.exp()),
        number_format::format_duration_us(p99.ln.exp()),
        100.0 * p99.error,
        number_format::format_megabytes(limits.floor)
    );
    let wobble = baseline.wobble();
    if wobble > max_toll.ln_1p() {
        tracing::warn!(
            "without any dump the canary differs by {:.0}% from one second to the next: a promise of {}% is \
             lost in that, and the dump goes slowly; a larger promise, more of --canary-rate, or a quieter hour helps",
            100.0 * wobble.exp_m1(),
            orders::pct(max_toll)
        );
    }
}

/// Of the gate's times, for the account.
fn seconds_of(times: &Times) -> [f64; 4] {
    [times.still, times.slowed, times.dump, times.taker].map(|time| time.as_secs_f64())
}
