//! What the breaker looks at: the server over connections that are open already, the host's files, replicas, vetoes.
//!
//! Nothing here waits: each source that can hang has a thread of its own, and a look takes what is known by then. How long a
//! source has been silent is a part of what is known.

use super::breaker::Reading;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use toll_mysql::{Connection, Rows, Target};
use toll_probe::{Probe, ProbeQuery};
use toll_sys::proc_file::ProcFile;
use toll_sys::{clock, disk};

/// Time between two looks.
pub const LOOK_US: u64 = 100_000;
/// Time between two of the guard's words to toll: each wakes toll, which does nothing with a single look.
pub const BEAT_US: u64 = 2 * LOOK_US;
/// Time between two readings of what the kernel takes longer to tell: all of /proc/vmstat, and file systems.
const SLOW_US: u64 = 500_000;
/// Probe queries a second.
pub const PROBES_PER_S: f64 = 20.0;
/// An answer that takes so long that both wait has tripped the breaker already.
const PROBE_CONNECTIONS: usize = 2;
/// The guard's on the server: probe queries, status, and one kept for switching off.
pub const GUARD_CONNECTIONS: usize = PROBE_CONNECTIONS + 2;
const STATUS_US: u64 = 200_000;
const LAG_US: u64 = 1_000_000;
/// A statement of toll's own that takes longer has tripped the breaker long before.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// toll's sessions never wait longer for a lock, seconds; then the statement fails, and the breaker knows.
const LOCK_WAIT: &str = "SET SESSION lock_wait_timeout = 1, SESSION innodb_lock_wait_timeout = 1";
/// ER_LOCK_WAIT_TIMEOUT.
const ER_LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Counters whose growth says that users are hurt. Servers that lack one say nothing of it.
const ERROR_COUNTERS: [&str; 3] = ["Aborted_clients", "Aborted_connects", "Innodb_deadlocks"];

/// A replica whose lag is looked at.
#[derive(Debug, Clone)]
pub struct Replica {
    pub name: String,
    pub target: Target,
}

/// What is watched on this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedFiles {
    /// Whose file systems must keep free space: where the method writes to.
    pub space: Vec<PathBuf>,
    /// A veto while it is there.
    pub flag_file: Option<PathBuf>,
    /// The server is on this host: its CPUs, disks and memory are watched, too.
    pub sees_host: bool,
}

/// All sources, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    probe: Probe,
    status: Arc<Source<Status>>,
    lag: Vec<(String, Arc<Source<f64>>)>,
    files: WatchedFiles,
    /// `None`: the server is on another host.
    host: Option<HostFiles>,
    slow: SlowReading,
    stop: Arc<AtomicBool>,
}

/// What is read less often.
#[derive(Debug, Default)]
struct SlowReading {
    due_us: u64,
    swapped_in: Option<u64>,
    /// The least free space: bytes, and percent of the whole.
    free: (Option<u64>, Option<f64>),
}

/// What one thread last learned.
#[derive(Debug)]
struct Source<T> {
    known: Mutex<Known<T>>,
    /// Since when a statement has had no answer, microseconds; 0: none is open.
    open_since_us: AtomicU64,
}

#[derive(Debug)]
struct Known<T> {
    value: Option<T>,
    error: Option<String>,
    waits_for_lock: bool,
}

#[derive(Debug, Clone, Default)]
struct Status {
    threads_running: Option<u64>,
    errors: BTreeMap<String, u64>,
}

impl Watch {
    /// Opens all connections, and begins.
    ///
    /// # Errors
    /// A server cannot be reached: nothing may be switched on it.
    pub fn start(
        target: &Target,
        query: ProbeQuery,
        replicas: &[Replica],
        files: WatchedFiles,
        seed: u64,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let probe = Probe::start(target, query, PROBE_CONNECTIONS, PROBES_PER_S, seed)
            .context("cannot start the probe")?;
        let status = Source::start(target, STATUS_US, &stop, read_status)?;
        let lag = replicas
            .iter()
            .map(|replica| {
                let source = Source::start(&replica.target, LAG_US, &stop, read_lag)
                    .with_context(|| format!("replica {}", replica.name))?;
                ensure!(
                    source.value().is_some_and(f64::is_finite),
                    "replica {} does not replicate now, so its lag says nothing: see its status, or leave it out",
                    replica.name
                );
                Ok((replica.name.clone(), source))
            })
            .collect::<Result<_>>()?;
        let host = files.sees_host.then(HostFiles::open);
        Ok(Self { probe, status, lag, files, host, slow: SlowReading::default(), stop })
    }

    /// What is known now.
    pub fn look(&mut self) -> Reading {
        let at_us = clock::mono_us();
        let (mut probes_us, mut probe_error) = (Vec::new(), None);
        for result in self.probe.drain_results() {
            match result.error {
                None => probes_us.push(result.latency_ns as f64 / 1e3),
                error => probe_error = error,
            }
        }
        let known = self.status.known.lock().unwrap_or_else(PoisonError::into_inner);
        let status = known.value.clone().unwrap_or_default();
        if at_us >= self.slow.due_us {
            self.slow = SlowReading {
                due_us: at_us + SLOW_US,
                swapped_in: self.host.as_mut().and_then(HostFiles::swapped_in),
                free: least_space(&self.files.space),
            };
        }
        let (free_bytes, free_pct) = self.slow.free;
        let stalled = self.host.as_mut().map(HostFiles::stalled).unwrap_or_default();
        Reading {
            at_us,
            probes_us,
            probe_error,
            oldest_probe_us: self.probe.oldest_wait_us(),
            threads_running: status.threads_running,
            own_statement_us: self.status.open_for_us(at_us),
            waits_for_lock: known.waits_for_lock,
            errors: status.errors,
            lag_s: self
                .lag
                .iter()
                .filter_map(|(name, source)| Some((name.clone(), source.value()?)))
                .collect(),
            lag_unknown: self.lag.iter().find_map(|(name, source)| {
                Some(format!("the lag of replica {name} cannot be read: {}", source.error()?))
            }),
            free_bytes,
            free_pct,
            written_bytes: 0,
            on_us: 0,
            cpu_stalled_us: stalled.cpu_us,
            io_stalled_us: stalled.io_us,
            swapped_in: self.slow.swapped_in,
            veto: self.files.flag_file.as_deref().and_then(flag_veto),
            silent_us: 0,
            has_gone: false,
            unreachable: known.error.clone(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // One that waits for a server that hangs ends with the process.
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl<T: Clone + Send + 'static> Source<T> {
    fn start(
        target: &Target,
        period_us: u64,
        stop: &Arc<AtomicBool>,
        read: fn(&mut Connection) -> Result<T, toll_mysql::Error>,
    ) -> Result<Arc<Self>> {
        let target =
            Target { connect_timeout: CONNECT_TIMEOUT.min(target.connect_timeout), ..target.clone() };
        let mut connection = open(&target).with_context(|| format!("cannot reach {}", target.address))?;
        let first = read(&mut connection).with_context(|| format!("cannot ask {}", target.address))?;
        let known = Known { value: Some(first), error: None, waits_for_lock: false };
        let source = Arc::new(Self { known: Mutex::new(known), open_since_us: AtomicU64::new(0) });
        let (shared, stop) = (Arc::clone(&source), Arc::clone(stop));
        std::thread::Builder::new().name("watch".into()).spawn(move || {
            let mut due_us = clock::mono_us();
            while !stop.load(Ordering::Relaxed) {
                shared.open_since_us.store(clock::mono_us(), Ordering::Relaxed);
                let mut found = read(&mut connection);
                if found.as_ref().is_err_and(toll_mysql::Error::is_fatal) {
                    // A server that closed an idle session lets it in again at once.
                    match open(&target) {
                        Ok(new) => {
                            connection = new;
                            found = read(&mut connection);
                        }
                        Err(error) => found = Err(error),
                    }
                }
                shared.open_since_us.store(0, Ordering::Relaxed);
                shared.learn(found);
                due_us = (due_us + period_us).max(clock::mono_us());
                clock::sleep_until(due_us);
            }
        })?;
        Ok(source)
    }

    fn learn(&self, found: Result<T, toll_mysql::Error>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(value) => *known = Known { value: Some(value), error: None, waits_for_lock: false },
            Err(error) if error.code() == ER_LOCK_WAIT_TIMEOUT => known.waits_for_lock = true,
            Err(error) => known.error = Some(error.to_string()),
        }
    }

    fn error(&self) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).error.clone()
    }

    fn value(&self) -> Option<T> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).value.clone()
    }
}

impl<T> Source<T> {
    fn open_for_us(&self, now_us: u64) -> u64 {
        match self.open_since_us.load(Ordering::Relaxed) {
            0 => 0,
            since_us => now_us.saturating_sub(since_us),
        }
    }
}

fn open(target: &Target) -> Result<Connection, toll_mysql::Error> {
    let mut connection = Connection::connect(target)?;
    connection.set_read_timeout(Some(STATEMENT_TIMEOUT))?;
    connection.exec_drop(LOCK_WAIT)?;
    Ok(connection)
}

fn read_status(connection: &mut Connection) -> Result<Status, toll_mysql::Error> {
    let names: Vec<String> = ERROR_COUNTERS.iter().map(|name| format!("'{name}'")).collect();
    let rows = connection.query(&format!(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_running', {})",
        names.join(", ")
    ))?;
    let mut status = Status::default();
    for (name, value) in rows.pairs() {
        let Ok(value) = value.parse() else { continue };
        if name.eq_ignore_ascii_case("Threads_running") {
            // Without this session.
            status.threads_running = Some(u64::saturating_sub(value, 1));
        } else {
            status.errors.insert(name.to_owned(), value);
        }
    }
    Ok(status)
}

/// Seconds behind its source, or behind the one of several that it is farthest behind. A replica that does not replicate lags by as
/// much as can be.
fn read_lag(connection: &mut Connection) -> Result<f64, toll_mysql::Error> {
    let (statement, column) = match connection.is_mariadb() {
        true => ("SHOW ALL SLAVES STATUS", "Seconds_Behind_Master"),
        false => ("SHOW REPLICA STATUS", "Seconds_Behind_Source"),
    };
    let rows = connection.query(statement)?;
    Ok(longest_lag(&rows, column))
}

fn longest_lag(rows: &Rows, column: &str) -> f64 {
    let at = rows.column(column);
    let lag_s = |row: &Vec<Option<String>>| row.get(at?)?.as_deref()?.parse().ok();
    let lags = rows.rows.iter().map(|row| lag_s(row).unwrap_or(f64::INFINITY));
    lags.reduce(f64::max).unwrap_or(f64::INFINITY)
}

/// The least free space of the paths' file systems: bytes, and percent of the whole.
fn least_space(paths: &[PathBuf]) -> (Option<u64>, Option<f64>) {
    let spaces: Vec<(u64, f64)> = paths.iter().filter_map(|path| disk::free_space(path).ok()).collect();
    let bytes = spaces.iter().map(|(bytes, _)| *bytes).min();
    (bytes, spaces.iter().map(|(_, pct)| *pct).reduce(f64::min))
}

/// Files of the server's host, which stay open.
#[derive(Debug)]
struct HostFiles {
    cpu_pressure: ProcFile,
    io_pressure: ProcFile,
    vmstat: ProcFile,
}

/// Totals since the host started; `None`: this kernel does not tell.
#[derive(Debug, Clone, Copy, Default)]
struct Stalled {
    cpu_us: Option<u64>,
    io_us: Option<u64>,
}

impl HostFiles {
    fn open() -> Self {
        let [cpu_pressure, io_pressure, vmstat] =
            ["/proc/pressure/cpu", "/proc/pressure/io", "/proc/vmstat"].map(ProcFile::open);
        Self { cpu_pressure, io_pressure, vmstat }
    }

    fn stalled(&mut self) -> Stalled {
        Stalled {
            cpu_us: parse_pressure(self.cpu_pressure.read_text(), "some"),
            io_us: parse_pressure(self.io_pressure.read_text(), "full"),
        }
    }

    /// Pages since the host started; `None`: this kernel does not tell.
    fn swapped_in(&mut self) -> Option<u64> {
        parse_swapped_in(self.vmstat.read_text())
    }
}

/// `total` of a line of /proc/pressure, microseconds. `avg10` would be too slow: it shows a third of a change after four seconds.
fn parse_pressure(text: &str, line: &str) -> Option<u64> {
    let found = text.lines().find(|found| found.split_whitespace().next() == Some(line))?;
    found.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

fn parse_swapped_in(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("pswpin ")?.trim().parse().ok())
}

fn flag_veto(path: &Path) -> Option<String> {
    path.exists().then(|| format!("the flag file {} is there", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=1.50 avg60=0.80 avg300=0.23 total=977286\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse_pressure(text, "some"), Some(977_286));
        assert_eq!(parse_pressure(text, "full"), Some(5));
        assert_eq!(parse_pressure("", "full"), None);
    }

    #[test]
    fn a_replica_is_as_far_behind_as_the_farthest_of_its_channels() {
        let rows = |lags: &[Option<&str>]| Rows {
            columns: vec!["Channel_Name".into(), "seconds_behind_source".into()],
            rows: lags.iter().map(|lag| vec![Some("c".into()), lag.map(str::to_owned)]).collect(),
            ..Rows::default()
        };
        for (lags, expected) in
            [(&[Some("0"), Some("17")][..], 17.0), (&[Some("3"), None], f64::INFINITY), (&[], f64::INFINITY)]
        {
            assert_eq!(longest_lag(&rows(lags), "Seconds_Behind_Source"), expected, "{lags:?}");
        }
    }

    #[test]
    fn a_flag_file_is_a_veto_while_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stop");
        assert_eq!(flag_veto(&path), None);
        std::fs::write(&path, "").unwrap();
        assert!(flag_veto(&path).unwrap().contains("stop"));
    }
}
