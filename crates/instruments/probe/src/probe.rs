//! Probe that measures the latency of a small query, sent like a user's query.
//!
//! Some connections share one schedule of intended times: an open loop with Poisson arrivals, so the probe
//! falls into step with nothing. Latency counts from the intended time. One slow answer occupies one
//! connection; the others continue. A query more than a second overdue is not sent any more. Otherwise a
//! server that hung would receive a burst of queries. Its delay counts as its latency.

use super::query::ProbeQuery;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use toll_mysql::{Connection, Target};
use toll_stats::random::Rng;
use toll_stats::schedule::{ArrivalProcess, Pacing, Schedule, ScheduledEvent};
use toll_sys::clock::mono_ns;

/// Timeout of a probe query. A query that exceeds it counts with this latency.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Queries overdue by more are not sent.
const MAX_DELAY_NS: u64 = 1_000_000_000;
/// Pause before the next connection attempt.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Result of one probe query: an answer, or a timeout.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeResult {
    /// Intended send time, CLOCK_MONOTONIC, ns.
    pub sent_ns: u64,
    pub latency_ns: u64,
    /// Error of the query, if it failed; its latency is then meaningless.
    pub error: Option<String>,
}

/// Running probe. It sends queries until it is dropped.
#[derive(Debug)]
pub struct Probe {
    results: Receiver<ProbeResult>,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: Target,
    query: ProbeQuery,
    schedule: Mutex<Schedule>,
    /// Since when each connection waits for an answer; 0: it does not.
    waiting_since_ns: Vec<AtomicU64>,
    stop: AtomicBool,
}

impl Probe {
    /// `connections`: of four, one that waits a second leaves three quarters of the queries on time.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        target: &Target,
        query: ProbeQuery,
        connections: usize,
        per_s: f64,
        seed: u64,
    ) -> std::io::Result<Self> {
        let pace = Pacing::Open { rate_per_s: per_s, arrivals: ArrivalProcess::Poisson };
        let Some(schedule) = Schedule::new(&pace, seed, mono_ns(), u64::MAX) else {
            return Err(std::io::Error::other("an open loop has a schedule"));
        };
        let (tell, answers) = channel();
        let shared = Arc::new(Shared {
            target: Target { connect_timeout: QUERY_TIMEOUT.min(target.connect_timeout), ..target.clone() },
            query,
            schedule: Mutex::new(schedule),
            waiting_since_ns: (0..connections).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
        });
        let mut probe = Self { results: answers, shared, workers: Vec::new() };
        for number in 0..connections {
            let (shared, tell) = (Arc::clone(&probe.shared), tell.clone());
            let rng = Rng::new(seed, number as u64);
            let worker = std::thread::Builder::new().name("probe".into()).spawn(move || {
                Worker { number, shared: &shared, results: tell, rng, connection: None }.run()
            })?;
            probe.workers.push(worker);
        }
        Ok(probe)
    }

    /// Results since the last call.
    pub fn drain_results(&self) -> impl Iterator<Item = ProbeResult> {
        self.results.try_iter()
    }

    /// Wait of the oldest open query, microseconds.
    pub fn oldest_wait_us(&self) -> f64 {
        let since = self.shared.waiting_since_ns.iter().map(|since| since.load(Ordering::Relaxed));
        let oldest = since.filter(|since| *since > 0).min();
        oldest.map_or(0.0, |since| mono_ns().saturating_sub(since) as f64 / 1e3)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // One that waits for a server that hangs ends with the process.
            if self.shared.is_idle() || worker.is_finished() {
                let _ = worker.join();
            }
        }
    }
}

impl Shared {
    fn is_idle(&self) -> bool {
        self.waiting_since_ns.iter().all(|since| since.load(Ordering::Relaxed) == 0)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn next_due(&self) -> Option<ScheduledEvent> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

struct Worker<'a> {
    number: usize,
    shared: &'a Shared,
    results: Sender<ProbeResult>,
    rng: Rng,
    connection: Option<Connection>,
}

impl Worker<'_> {
    fn run(mut self) {
        while let Some(due) = self.shared.next_due() {
            self.sleep_until(due.intended_ns);
            if self.shared.is_stopped() {
                return;
            }
            let waiting = &self.shared.waiting_since_ns[self.number];
            waiting.store(due.intended_ns, Ordering::Relaxed);
            let is_too_late = mono_ns().saturating_sub(due.intended_ns) > MAX_DELAY_NS;
            let refused = if is_too_late { None } else { self.send_query().err() };
            let latency_ns = mono_ns().saturating_sub(due.intended_ns);
            waiting.store(0, Ordering::Relaxed);
            let cannot_connect = refused.is_some() && self.connection.is_none();
            if self
                .results
                .send(ProbeResult { sent_ns: due.intended_ns, latency_ns, error: refused })
                .is_err()
            {
                return;
            }
            if cannot_connect && !self.shared.is_stopped() {
                std::thread::sleep(RECONNECT_DELAY);
            }
        }
    }

    /// The end of the probe wakes it, so nothing has to look for that meanwhile.
    fn sleep_until(&self, deadline_ns: u64) {
        let left_ns = || deadline_ns.saturating_sub(mono_ns());
        while left_ns() > 0 && !self.shared.is_stopped() {
            std::thread::park_timeout(Duration::from_nanos(left_ns()));
        }
    }

    /// A timeout is not an error: it counts as an answer with that latency.
    fn send_query(&mut self) -> Result<(), String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().map_err(|error| error.to_string())?,
        };
        let sql = self.shared.query.next_sql(&mut self.rng);
        match connection.query(&sql) {
            Ok(_) => {
                self.connection = Some(connection);
                Ok(())
            }
            Err(error) if error.is_timeout() => Ok(()),
            Err(error) => {
                if !error.is_fatal() {
                    self.connection = Some(connection);
                }
                Err(error.to_string())
            }
        }
    }

    fn connect(&self) -> Result<Connection, toll_mysql::Error> {
        let mut connection = Connection::connect(&self.shared.target)?;
        connection.set_read_timeout(Some(QUERY_TIMEOUT))?;
        Ok(connection)
    }
}
