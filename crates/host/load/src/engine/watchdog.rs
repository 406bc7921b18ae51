//! Access from outside to a worker that is blocked in a read.
//!
//! Its counters are readable here, so bins end on time even while the server is silent. Its connection can be
//! cut, so a hanging server does not delay the end of the run. Never reads or writes the connection.

use super::session::Session;
use super::worker_counters::{BinReport, WorkerCounters};
use super::{DRAIN_NS, Shared};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toll_mysql::connection::{AbortHandle, Error};
use toll_sys::clock::mono_ns;

/// Interval between checks of all accounts.
const POLL_INTERVAL_NS: u64 = 50_000_000;

/// State that a blocking worker shares with the thread that collects reports.
pub struct WorkerHandle {
    /// Intended time of the event under way; 0: none. Outside the lock, which is taken only once for
    /// each answer.
    event_start_ns: AtomicU64,
    state: Mutex<WorkerState>,
}

pub struct WorkerState {
    pub counters: WorkerCounters,
    cutter: AbortHandle,
    /// The run has been over for too long: what breaks now was broken by us.
    pub was_cut: bool,
}

impl WorkerHandle {
    pub fn new(shared: Arc<Shared>) -> Self {
        let entries = WorkerState {
            counters: WorkerCounters::new(shared),
            cutter: AbortHandle::default(),
            was_cut: false,
        };
        Self { event_start_ns: AtomicU64::new(0), state: Mutex::new(entries) }
    }

    /// Nobody else holds the lock for longer than it takes to make a report.
    #[inline]
    pub fn lock_state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn begin_event(&self, intended_ns: u64) {
        self.event_start_ns.store(intended_ns, Relaxed);
    }

    #[inline]
    pub fn end_event(&self) {
        self.event_start_ns.store(0, Relaxed);
    }

    /// Intended time of the event under way.
    #[inline]
    pub fn event_in_flight(&self) -> Option<u64> {
        Some(self.event_start_ns.load(Relaxed)).filter(|intended_ns| *intended_ns > 0)
    }

    /// Registers the session that the worker blocks in.
    pub fn register_session(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.set_read_timeout(None)?;
        self.register_connection(session.connection.stream().abort_handle());
        Ok(())
    }

    /// Registers the connection that the worker blocks in, also during the login.
    pub fn register_connection(&self, cutter: AbortHandle) {
        let mut entries = self.lock_state();
        if entries.was_cut {
            cutter.abort();
        }
        entries.cutter = cutter;
    }

    /// Takes what the worker has sent, and then what it would have sent by now were it not blocked.
    /// Does nothing while the worker has the account in hand.
    fn collect_reports(&self, inbox: &Receiver<BinReport>, reports: &mut Vec<BinReport>) {
        let Ok(mut entries) = self.state.try_lock() else { return };
        let now = mono_ns();
        // The worker hands in with the lock held: all that it did before is in the inbox.
        reports.extend(inbox.try_iter());
        reports.extend(std::iter::from_fn(|| {
            entries.counters.take_ended_bin(now, self.event_in_flight(), None)
        }));
    }

    /// The same: a worker that has it in hand is not blocked.
    fn cut_connection(&self) {
        if let Ok(mut entries) = self.state.try_lock() {
            entries.was_cut = true;
            entries.cutter.abort();
        }
    }
}

/// Watchdog that checks all accounts periodically.
#[derive(Default)]
pub struct Watchdog {
    workers: Vec<Arc<WorkerHandle>>,
    next_ns: u64,
    over_since_ns: Option<u64>,
}

impl Watchdog {
    /// Creates an account and adds it to the watchdog.
    pub fn add_worker(&mut self, shared: &Arc<Shared>) -> Arc<WorkerHandle> {
        let account = Arc::new(WorkerHandle::new(shared.clone()));
        self.workers.push(account.clone());
        account
    }

    /// Takes reports from the inbox, and adds overdue ones. Call it often.
    pub fn poll(&mut self, shared: &Shared, inbox: &Receiver<BinReport>, reports: &mut Vec<BinReport>) {
        let now = mono_ns();
        if now < self.next_ns {
            return;
        }
        self.next_ns = now + POLL_INTERVAL_NS;
        if shared.is_over(now) {
            self.over_since_ns.get_or_insert(now);
        }
        for account in &self.workers {
            account.collect_reports(inbox, reports);
            if self.over_since_ns.is_some_and(|since_ns| now >= since_ns + DRAIN_NS) {
                account.cut_connection();
            }
        }
    }
}
