//! Access from outside to a worker that is blocked in a read.
//!
//! Its counters are readable here, so bins end on time even while the server is silent. Its connection can be
//! cut, so a hanging server does not delay the end of the run. Never reads or writes the connection.

use super::ledger::{Ledger, Report};
use super::session::Session;
use super::{DRAIN_NS, Shared};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toll_mysql::connection::{AbortHandle, Error};
use toll_sys::clock::mono_ns;

/// Interval between checks of all accounts.
const LOOK_NS: u64 = 50_000_000;

/// State that a blocking worker shares with the thread that collects reports.
pub struct Account {
    /// Intended time of the event under way; 0: none. Outside the lock, which is taken only once for
    /// each answer.
    under_way_ns: AtomicU64,
    entries: Mutex<Entries>,
}

pub struct Entries {
    pub ledger: Ledger,
    cutter: AbortHandle,
    /// The run has been over for too long: what breaks now was broken by us.
    pub cut: bool,
}

impl Account {
    pub fn new(shared: Arc<Shared>) -> Self {
        let entries = Entries { ledger: Ledger::new(shared), cutter: AbortHandle::default(), cut: false };
        Self { under_way_ns: AtomicU64::new(0), entries: Mutex::new(entries) }
    }

    /// Nobody else holds the lock for longer than it takes to make a report.
    #[inline]
    pub fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn begin(&self, intended_ns: u64) {
        self.under_way_ns.store(intended_ns, Relaxed);
    }

    #[inline]
    pub fn end(&self) {
        self.under_way_ns.store(0, Relaxed);
    }

    /// Intended time of the event under way.
    #[inline]
    pub fn under_way(&self) -> Option<u64> {
        Some(self.under_way_ns.load(Relaxed)).filter(|intended_ns| *intended_ns > 0)
    }

    /// Registers the session that the worker blocks in.
    pub fn adopt(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.set_read_timeout(None)?;
        self.attach(session.connection.stream().abort_handle());
        Ok(())
    }

    /// Registers the connection that the worker blocks in, also during the login.
    pub fn attach(&self, cutter: AbortHandle) {
        let mut entries = self.entries();
        if entries.cut {
            cutter.abort();
        }
        entries.cutter = cutter;
    }

    /// Takes what the worker has sent, and then what it would have sent by now were it not blocked.
    /// Does nothing while the worker has the account in hand.
    fn catch_up(&self, inbox: &Receiver<Report>, reports: &mut Vec<Report>) {
        let Ok(mut entries) = self.entries.try_lock() else { return };
        let now = mono_ns();
        // The worker hands in with the lock held: all that it did before is in the inbox.
        reports.extend(inbox.try_iter());
        reports.extend(std::iter::from_fn(|| entries.ledger.ended_bin(now, self.under_way(), None)));
    }

    /// The same: a worker that has it in hand is not blocked.
    fn cut(&self) {
        if let Ok(mut entries) = self.entries.try_lock() {
            entries.cut = true;
            entries.cutter.abort();
        }
    }
}

/// Watchdog that checks all accounts periodically.
#[derive(Default)]
pub struct Watch {
    accounts: Vec<Arc<Account>>,
    next_ns: u64,
    over_since_ns: Option<u64>,
}

impl Watch {
    /// Creates an account and adds it to the watchdog.
    pub fn open(&mut self, shared: &Arc<Shared>) -> Arc<Account> {
        let account = Arc::new(Account::new(shared.clone()));
        self.accounts.push(account.clone());
        account
    }

    /// Takes reports from the inbox, and adds overdue ones. Call it often.
    pub fn look(&mut self, shared: &Shared, inbox: &Receiver<Report>, reports: &mut Vec<Report>) {
        let now = mono_ns();
        if now < self.next_ns {
            return;
        }
        self.next_ns = now + LOOK_NS;
        if shared.is_over(now) {
            self.over_since_ns.get_or_insert(now);
        }
        for account in &self.accounts {
            account.catch_up(inbox, reports);
            if self.over_since_ns.is_some_and(|since_ns| now >= since_ns + DRAIN_NS) {
                account.cut();
            }
        }
    }
}
