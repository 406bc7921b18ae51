//! Command `poll`: digests of servers from their own counters, for hosts where nothing of toll's may run.
//!
//! A thread for each server, which waits most of the time. If a server cannot be reached, the next poll tries again: its counters
//! go on meanwhile.

use crate::{POLL_INTERVAL, now_us, to_us};
use anyhow::{Context, ensure};
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_counters::{CounterReader, SOURCE};
use toll_mysql::{Target, TargetError};
use toll_sys::count_format::format_count;
use toll_tables::{Location, TableWriter};

/// Time that a set of files covers.
const FLUSH_INTERVAL: Duration = Duration::from_mins(10);

/// A server as it is named on the command line.
#[derive(Debug, Clone)]
pub struct Server {
    target: Target,
}

impl FromStr for Server {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        Ok(Self { target: Target::from_login(text)? })
    }
}

/// Servers to poll, and the place of the tables.
pub struct Plan {
    pub servers: Vec<Server>,
    pub root: Location,
    pub cluster: String,
    pub every_us: i64,
    /// Unix time, microseconds.
    pub until_us: i64,
}

/// Rows of digests written, of how many servers.
pub struct Polled {
    pub rows: u64,
    pub servers: usize,
}

/// Polls until the end of its time, or `stop`.
///
/// # Errors
/// No server is reached at the beginning, or nothing can be written.
pub fn poll(plan: &Plan, stop: &AtomicBool) -> anyhow::Result<Polled> {
    plan.root.create()?;
    plan.root.open()?.check_writable()?;
    plan.servers
        .iter()
        .filter_map(|server| server.target.exposure_warning())
        .for_each(|text| print_status(&text));
    let mut readers = in_threads(plan.servers.iter().map(|server| move || open_reader(plan, server)))?;
    if readers.iter().all(Result::is_err) {
        return Err(readers.swap_remove(0).err().context("no server is named")?);
    }
    let reached = readers.iter().filter(|reader| reader.is_ok()).count();
    print_status(&format!("polling {} (Ctrl-C ends)", format_count(reached as u64, "server")));
    let beginning = readers.into_iter().zip(&plan.servers).map(|(reader, server)| {
        let reader = reader.inspect_err(|error| print_status(&format!("{error:#}; tried again"))).ok();
        move || poll_one(plan, server, reader, stop)
    });
    let mut polled = Polled { rows: 0, servers: 0 };
    for written in in_threads(beginning)? {
        if let Some(rows) = written? {
            polled = Polled { rows: polled.rows + rows, servers: polled.servers + 1 };
        }
    }
    Ok(polled)
}

/// Results of the closures, each run in a thread of its own, in their order.
fn in_threads<T: Send>(work: impl Iterator<Item = impl FnOnce() -> T + Send>) -> anyhow::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let begun: Vec<_> = work.map(|work| scope.spawn(work)).collect();
        let ended = begun
            .into_iter()
            .map(|thread| thread.join().ok().context("a thread has failed: a fault of toll's"));
        ended.collect()
    })
}

fn open_reader(plan: &Plan, server: &Server) -> anyhow::Result<CounterReader> {
    CounterReader::open(server.target.clone(), plan.cluster.clone(), now_us()?)
        .with_context(|| server.target.address.to_string())
}

/// Rows of digests written; `None`: it was never reached.
fn poll_one(
    plan: &Plan,
    server: &Server,
    mut reader: Option<CounterReader>,
    stop: &AtomicBool,
) -> anyhow::Result<Option<u64>> {
    let address = &server.target.address;
    let mut writer = None;
    let mut is_away = reader.is_none();
    let next_us = |now_us: i64| (now_us.div_euclid(plan.every_us) + 1).saturating_mul(plan.every_us);
    let mut due_us = next_us(now_us()?);
    loop {
        let now_us = now_us()?;
        let is_ending = now_us >= plan.until_us || stop.load(Ordering::Relaxed);
        // A clock that was set back does not make it wait.
        if now_us >= due_us || due_us - now_us > plan.every_us || is_ending {
            due_us = next_us(now_us);
            let read = match &mut reader {
                None => open_reader(plan, server).map(|opened| reader = Some(opened)),
                Some(reader) => {
                    poll_counters(plan, reader, &mut writer, now_us).with_context(|| address.to_string())
                }
            };
            if let Err(error) = &read
                && !is_away
            {
                print_status(&format!("{error:#}; tried again"));
            }
            is_away = read.is_err();
        }
        if is_ending {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let Some(mut writer) = writer else { return Ok(reader.map(|_| 0)) };
    writer
        .flush()
        .with_context(|| format!("{address}: the last {} stretches are in no table", writer.pending()))?;
    ensure!(writer.dropped() == 0, "{address}: {} stretches are in no table", writer.dropped());
    Ok(Some(writer.rows()))
}

fn poll_counters(
    plan: &Plan,
    reader: &mut CounterReader,
    writer: &mut Option<TableWriter>,
    now_us: i64,
) -> anyhow::Result<()> {
    // Opened first: rows that were read once are not read again.
    let writer = match writer {
        Some(writer) => writer,
        None => writer.insert(open_writer(plan, reader.host())?),
    };
    let Some(rows) = reader.read(now_us)? else {
        print_status(&format!(
            "{}: another server answers there, as after a failover: its queries count from now on, and those of the one before up \
             to its last reading",
            reader.host()
        ));
        return Ok(());
    };
    writer.add_rows(rows)
}

fn open_writer(plan: &Plan, host: &str) -> anyhow::Result<TableWriter> {
    let source = toll_tables::Source {
        host: host.to_owned(),
        cluster: plan.cluster.clone(),
        source: SOURCE,
        id: toll_sys::private_dir::random_bytes()?,
    };
    TableWriter::open(plan.root.open()?, source, FLUSH_INTERVAL)
}

fn print_status(text: &str) {
    let _unread = writeln!(std::io::stderr(), "toll-fleet: {text}");
}

/// The end of a poll of this length; of one without: never.
pub fn end_of(duration: Option<Duration>) -> anyhow::Result<i64> {
    let now_us = now_us()?;
    Ok(duration.map_or(i64::MAX, |duration| now_us.saturating_add(to_us(duration))))
}
