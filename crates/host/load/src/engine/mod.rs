//! Load engine: opens connections, starts workers, collects bins and ends the run.

mod bins;
mod blocking_worker;
mod client_ports;
mod collector;
mod connection_slot;
mod delay_injection;
mod event_loop_worker;
mod event_quota;
mod latency_counts;
mod poller;
mod reconnect;
mod session;
mod tally;
mod watchdog;
mod worker_counters;

pub use bins::{Bin, FailureStreak, Totals};
pub use latency_counts::LatencyCounts;
pub use tally::{Counts, OpenTally, Tally};

use crate::mix::Mix;
use blocking_worker::BlockingWorker;
use collector::Collector;
use delay_injection::DelayInjection;
use event_loop_worker::EventLoopWorker;
use session::{Session, SessionFactory};
use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use toll_mysql::connection::Error;
use toll_mysql::target::Target;
use toll_stats::random::Rng;
use toll_stats::schedule::{Pacing, Schedule, ScheduledEvent};
use toll_sys::clock::mono_ns;
use watchdog::Watchdog;
use worker_counters::{BinReport, RunTimes};

/// After the end, answers still on their way are awaited for this long.
const DRAIN_NS: u64 = 2_000_000_000;
/// However long nothing happens, a worker looks this often whether it is to stop.
const MAX_WAIT_NS: u64 = 100_000_000;

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    pub target: Target,
    pub mix: Mix,
    pub pace: Pacing,
    /// Connections, each with at most one event at a time.
    pub connections: usize,
    /// Threads that share them.
    pub workers: usize,
    pub prepared: bool,
    /// Events after which a connection is made anew; 0: never. Then each needs a worker of its own.
    pub reconnect_every: u64,
    /// Each event's last reply is held back for this share of the time since the event began, and counts as done only
    /// then: 0.02 makes every response time 2% longer. 0: none is.
    pub delay: f64,
    /// Connections with a thread each begin only as many events in a bin as fit into it: at its edges none is under way, and
    /// bins hold whole events, the same ones each. For a closed loop.
    pub rest_at_edges: bool,
    /// How long events begin, warm-up included; `None`: until stopped, and a recording until each of its
    /// events has begun, however late.
    pub time: Option<Duration>,
    /// Not counted in the totals.
    pub warmup: Duration,
    pub bins: BinGrid,
    pub seed: u64,
    /// End the run once no event has succeeded for this long while some failed.
    pub give_up: Duration,
}

/// Where bins end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinGrid {
    /// Counted from the end of the warm-up.
    FromStart(Duration),
    /// At multiples of CLOCK_MONOTONIC, so that several programs' bins line up.
    Clock(Duration),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("system call failed: {0}")]
    System(io::Error),
    /// The run was aborted. Its measurements until then are kept.
    #[error("{silence}; {}: {message}", describe_most_common(silence))]
    NothingSucceeds { silence: FailureStreak, message: String, totals: Box<Totals> },
    #[error("a worker thread ended early: {0}")]
    Worker(String),
    #[error("{0}")]
    Plan(String),
}

/// What workers have in common.
#[derive(Debug)]
pub struct Shared {
    stop: Arc<AtomicBool>,
    times: RunTimes,
    access: SessionFactory,
    /// Events after which a connection is made anew; 0: never.
    reconnect_every: u64,
    delay: Option<DelayInjection>,
    rest_at_edges: bool,
    schedule: Option<Mutex<Schedule>>,
    /// Events of a recording that have not begun; absent where something else ends the run.
    events_left: Option<AtomicU64>,
    /// Next event of a recorded sequence in a closed loop; absent where events are drawn.
    sequence: Option<AtomicU64>,
    /// Tallies to use again.
    spare_tallies: Mutex<Vec<Tally>>,
    /// The first message of each error code.
    messages: Mutex<BTreeMap<u16, String>>,
}

/// More codes than any server has in use at once; a bound, not a filter.
const MAX_MESSAGES: usize = 256;

impl Shared {
    /// True if no further event starts.
    #[inline]
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.times.end_ns
            || self.stop.load(Relaxed)
            || self.events_left.as_ref().is_some_and(|left| left.load(Relaxed) == 0)
    }

    /// The next event to begin, if its time has come; one drawn before its time stays `reserved`.
    #[inline]
    fn next_due(&self, reserved: &mut Option<ScheduledEvent>, now_ns: u64) -> Option<ScheduledEvent> {
        let Some(schedule) = &self.schedule else {
            let number = self.sequence.as_ref().map_or(0, |next| next.fetch_add(1, Relaxed));
            return Some(ScheduledEvent { intended_ns: now_ns, number });
        };
        if reserved.is_none() {
            *reserved = schedule.lock().unwrap_or_else(PoisonError::into_inner).pop();
        }
        let due = reserved.take_if(|due| due.intended_ns <= now_ns)?;
        if let Some(left) = &self.events_left {
            left.fetch_sub(1, Relaxed);
        }
        Some(due)
    }

    /// Waits where the reader is far behind; fails where it has gone, and then the run is ending.
    fn submit_report(&self, reports: &SyncSender<BinReport>, report: BinReport) {
        if reports.send(report).is_err() {
            self.stop.store(true, Relaxed);
        }
    }

    fn remember_message(&self, code: u16, message: &str) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < MAX_MESSAGES && !messages.contains_key(&code) {
            messages.insert(code, message.to_owned());
        }
    }

    fn take_spare_tally(&self) -> Option<Tally> {
        self.spare_tallies.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Bins in which nobody has read a report: then workers wait rather than fill memory.
const REPORT_QUEUE: usize = 64;

/// What a worker's thread does from the beginning to the end.
type WorkerTask = Box<dyn FnOnce() -> Result<(), RunError> + Send>;

/// Connections up to which each has a thread of its own, however few the CPUs.
const BLOCKING_WORKERS_MAX: usize = 8;
/// Event loops that are at work at least: one alone sends what is due together in a burst, in which
/// the server's threads trip over each other.
const EVENT_LOOPS_MIN: usize = 4;

/// Default number of threads for a number of connections. A thread that blocks in one connection answers it
/// soonest; many connections cost less CPU in loops, of which one keeps up with a few hundred thousand
/// answers a second.
pub fn default_workers(connections: usize) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if connections <= cpus.max(BLOCKING_WORKERS_MAX) {
        connections.max(1)
    } else {
        EVENT_LOOPS_MIN.max(cpus / 4)
    }
}

/// Runs the plan. `see` is called with each bin in turn and may end the run early, as may `stop`. Returns the
/// totals after the warm-up, also if the run ended early.
pub fn run_load(
    plan: LoadPlan,
    stop: Arc<AtomicBool>,
    mut see: impl FnMut(&Bin) -> ControlFlow<()>,
) -> Result<Totals, RunError> {
    check_plan(&plan)?;
    let open = !matches!(plan.pace, Pacing::Closed);
    let multi_statements = plan.mix.may_hold_several();
    let access = SessionFactory {
        target: Target { multi_statements, ..plan.target.clone() },
        mix: Arc::new(plan.mix.clone()),
        prepared: plan.prepared,
    };
    let shares: Vec<usize> =
        (0..plan.workers).map(|w| (plan.connections + w) / plan.workers).filter(|n| *n > 0).collect();
    let sessions = open_sessions(&access, &shares, plan.seed, &stop)?;

    let start_ns = mono_ns() + 2_000_000;
    let warm_ns = start_ns + plan.warmup.as_nanos() as u64;
    let end_ns = plan.time.map_or(u64::MAX, |t| start_ns.saturating_add(t.as_nanos() as u64));
    let (bin_origin_ns, bin_ns) = match plan.bins {
        BinGrid::FromStart(width) => (warm_ns, width.as_nanos() as u64),
        BinGrid::Clock(width) => (0, width.as_nanos() as u64),
    };
    let times = RunTimes { start_ns, end_ns, bin_origin_ns, bin_ns };
    let schedule = Schedule::new(&plan.pace, plan.seed, start_ns, end_ns);
    let to_begin = match &plan.pace {
        Pacing::Recorded { offsets_ns } if plan.time.is_none() => {
            Some(AtomicU64::new(offsets_ns.len() as u64))
        }
        _ => None,
    };
    let shared = Arc::new(Shared {
        stop: stop.clone(),
        times,
        reconnect_every: plan.reconnect_every,
        delay: DelayInjection::new(plan.delay),
        rest_at_edges: plan.rest_at_edges,
        schedule: schedule.clone().map(Mutex::new),
        events_left: to_begin,
        sequence: plan.mix.sequence.is_some().then(AtomicU64::default),
        access,
        spare_tallies: Mutex::default(),
        messages: Mutex::default(),
    });
    let reconnects = reconnect::start_reconnector(shared.clone());
    let (reports, inbox) = sync_channel(REPORT_QUEUE * shares.len());
    let (mut watch, mut threads) = (Watchdog::default(), Vec::new());
    for (number, sessions) in sessions.into_iter().enumerate() {
        let rng = Rng::new(plan.seed, number as u64);
        let (shared, reports, lost) = (shared.clone(), reports.clone(), reconnects.clone());
        let stop = stop.clone();
        let carry_out: WorkerTask = match <[Session; 1]>::try_from(sessions) {
            Ok([session]) => {
                let account = watch.add_worker(&shared);
                Box::new(move || BlockingWorker::new(shared, account, session, rng, reports, lost)?.run())
            }
            Err(sessions) => {
                Box::new(move || EventLoopWorker::new(shared, sessions, rng, reports, lost)?.run())
            }
        };
        let work = move || {
            // To the nanosecond where it is asked for: the default slack is 50 µs.
            let _ = nix::sys::prctl::set_timerslack(1);
            let outcome = carry_out();
            if outcome.is_err() {
                stop.store(true, Relaxed);
            }
            outcome
        };
        let thread = std::thread::Builder::new().name(format!("load-{number}"));
        threads.push(thread.spawn(work).map_err(RunError::System)?);
    }
    drop((reports, reconnects));

    let mut collector = Collector::new(&plan.pace, times, warm_ns, schedule, shares.len(), open);
    let (mut failure, mut received) = (None, Vec::new());
    loop {
        match inbox.recv_timeout(Duration::from_millis(50)) {
            Ok(report) => received.push(report),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        watch.poll(&shared, &inbox, &mut received);
        for report in received.drain(..) {
            for bin in collector.add_report(report) {
                if see(&bin).is_break() {
                    stop.store(true, Relaxed);
                }
                if failure.is_none() && collector.should_abort(plan.give_up) {
                    failure = Some(collector.failure_streak());
                    stop.store(true, Relaxed);
                }
                collector.recycle(bin, &shared.spare_tallies);
            }
        }
    }
    stop.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| RunError::Worker("it panicked".into()))??;
    }
    let messages = shared.messages.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let totals = collector.totals(messages);
    let Some(silence) = failure else { return Ok(totals) };
    let said = silence.most_common_error().and_then(|code| totals.messages.get(&code));
    let message = said.cloned().unwrap_or_default();
    Err(RunError::NothingSucceeds { silence, message, totals: Box::new(totals) })
}

fn describe_most_common(silence: &FailureStreak) -> String {
    silence.most_common_error().map_or_else(String::new, |code| code.to_string())
}

fn check_plan(plan: &LoadPlan) -> Result<(), RunError> {
    let bad = |text: &str| Err(RunError::Plan(text.into()));
    if plan.connections == 0 || plan.workers == 0 {
        return bad("a run needs at least one connection and one worker: raise --threads");
    }
    if plan.reconnect_every > 0 && plan.workers != plan.connections {
        return bad("reconnecting connections need a worker each: omit --workers");
    }
    if let Pacing::Open { rate_per_s, .. } = plan.pace
        && !(rate_per_s.is_finite() && rate_per_s > 0.0)
    {
        return bad("the rate must be a number above 0: give events a second as --rate");
    }
    if !(plan.delay.is_finite() && plan.delay >= 0.0) {
        return bad("the delay must be a share of the response time, such as 2%");
    }
    if plan.rest_at_edges && !matches!(plan.pace, Pacing::Closed) {
        return bad("events at a rate begin when they are due, not by bins: leave out --rest-at-edges");
    }
    if plan.time.is_some_and(|time| time <= plan.warmup) {
        return bad("nothing is left after the warm-up: raise the time");
    }
    match plan.bins {
        BinGrid::FromStart(width) | BinGrid::Clock(width) if width < Duration::from_millis(1) => {
            bad("a bin must be at least 1 ms wide")
        }
        _ => Ok(()),
    }
}

/// Logs every connection in, the workers' shares side by side. The first failure ends it all.
fn open_sessions(
    access: &SessionFactory,
    shares: &[usize],
    seed: u64,
    stop: &AtomicBool,
) -> Result<Vec<Vec<Session>>, RunError> {
    std::thread::scope(|scope| {
        let open_share = |numbers: Range<usize>| {
            let mut sessions = Vec::with_capacity(numbers.len());
            for number in numbers {
                if stop.load(Relaxed) {
                    return Err(RunError::Plan("interrupted while connecting".into()));
                }
                sessions.push(access.open_first_session(client_ports::candidates(seed, number))?);
            }
            Ok(sessions)
        };
        let mut first = 0;
        let mut threads = Vec::new();
        for share in shares {
            let numbers = first..first + share;
            first = numbers.end;
            threads.push(scope.spawn(move || open_share(numbers)));
        }
        let joined = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(RunError::Worker("it panicked".into()))));
        joined.collect()
    })
}
