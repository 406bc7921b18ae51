//! Receiver of streamed captures from many hosts at once.
//!
//! Each sender has a thread, each stream one or several files. A stream outlives its connections. Never
//! inspects a stream: it is written unchanged.

mod batch;
mod capture_ends;
mod connection;
mod destination;
mod file_names;
mod journal;
mod key;
mod key_file;
mod link;
mod log_limit;
mod strangers;
mod stream_writer;
mod streams;
mod summary;
mod tables;

pub use destination::{Rotation, StreamDestination};
pub use key::{ReceiverKey, SenderKey};
pub use link::{Link, MessageReader, ReadOutcome};
pub use summary::StreamSummary;
pub use tables::ReceivedTables;

use anyhow::{Context, Result, bail};
use log_limit::LogLimit;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use strangers::{StrangerPlace, Strangers};
use streams::StreamTable;
use tables::Digesting;
use toll_sys::cancel::CancelToken;
use toll_taps::WritePlaces;
use toll_wire::stream_protocol::StreamContent;

/// Connections of peers that have not shown yet who they are. They have places of their own: nobody takes one from a stream.
const MAX_STRANGERS: usize = 64;
/// A connection waits at most so long for the threads of others to end.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// Lines a minute about connections of strangers, and about those of streams.
const LOG_LINES: (u64, u64) = (10, 100);
/// How often it is looked whether to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is looked for files that are full by their age.
const CLOSE_INTERVAL: Duration = Duration::from_secs(1);
/// After the end was asked for, threads have so long to write what they have.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The one stream of a receiver that is asked to end may come to its own end for so long.
const STREAM_END_GRACE: Duration = Duration::from_secs(5);

/// Options of a receiver.
pub struct ReceiveOptions {
    /// Address and port.
    pub listen: String,
    pub key: ReceiverKey,
    pub destination: StreamDestination,
    /// Digest closed files of a directory to these, and remove them.
    pub tables: Option<ReceivedTables>,
    /// Streams at once.
    pub max_streams: usize,
    /// Ends with the first stream.
    pub once: bool,
    pub duration: Option<Duration>,
    pub cancel: CancelToken,
}

/// What all threads know.
struct Receiver {
    key: ReceiverKey,
    streams: StreamTable,
    strangers: Arc<Strangers>,
    stranger_log: LogLimit,
    stream_log: LogLimit,
    /// Threads, of streams and of strangers.
    connections: AtomicUsize,
    max_connections: usize,
    is_stopping: AtomicBool,
}

/// Receives until a signal. This thread and those that it starts lose all privileges for good. Returns the result of each stream, in the order in which they ended.
///
/// # Errors
/// It cannot listen there; with [`ReceiveOptions::once`], the stream is incomplete.
pub fn receive_streams(
    options: ReceiveOptions,
    ended: &mut dyn FnMut(&StreamSummary) -> Result<()>,
) -> Result<Vec<StreamSummary>> {
    let listener = TcpListener::bind(&options.listen)
        .with_context(|| format!("cannot listen on {}: write it as ADDRESS:PORT", options.listen))?;
    let address = listener.local_addr()?;
    // The threads that strangers speak to come after it.
    let trees = options.tables.iter().filter_map(|tables| tables.tables.tree()).collect();
    let places = WritePlaces { files: options.destination.places_written(), trees };
    toll_taps::drop_privileges(None, &places)?;
    let directory = match &options.destination {
        StreamDestination::Directory { path, .. } => Some(path.clone()),
        StreamDestination::File(_) | StreamDestination::Open(_) => None,
    };
    // Held to the end.
    let lock = directory.as_deref().map(journal::recover).transpose()?.flatten();
    let most = if options.once { 1 } else { options.max_streams };
    let receiver = Arc::new(Receiver {
        key: options.key,
        streams: StreamTable::new(options.destination, most, options.once, options.tables.is_some()),
        strangers: Strangers::new(MAX_STRANGERS),
        stranger_log: LogLimit::new(LOG_LINES.0),
        stream_log: LogLimit::new(LOG_LINES.1),
        connections: AtomicUsize::new(0),
        // Twice as many as have a place: a thread whose connection was closed ends a moment later.
        max_connections: (most + MAX_STRANGERS) * 2,
        is_stopping: AtomicBool::new(false),
    });
    match &receiver.key {
        ReceiverKey::Own(_, senders) => {
            tracing::info!("receiving at {address}, from {}", senders.names().join(", "));
        }
        ReceiverKey::Plain => {
            tracing::warn!("receiving at {address}, from anybody, and readable on the network (--plain)");
        }
    }
    let accepting = Arc::clone(&receiver);
    std::thread::Builder::new()
        .name("toll-accept".into())
        .spawn(move || accept_connections(&listener, &accepting))
        .context("cannot start a thread to listen with")?;

    let digesting = match (options.tables, directory) {
        (Some(_), Some(dir)) if lock.is_none() => {
            bail!(
                "another receiver writes to {}: with tables, each needs a directory of its own",
                dir.display()
            )
        }
        (Some(tables), Some(dir)) => {
            let receiver = Arc::clone(&receiver);
            Some(Digesting::start(dir, tables, move || receiver.streams.open_files())?)
        }
        _ => None,
    };
    let begun = Instant::now();
    let (mut accounts, mut asked_to_end) = (Vec::new(), None);
    let mut closed = begun;
    loop {
        receiver.streams.end_abandoned();
        // What a server said last, before it fell silent, is in no table as long as its file is open.
        if digesting.is_some() && closed.elapsed() >= CLOSE_INTERVAL {
            receiver.streams.close_old_files();
            closed = Instant::now();
        }
        report_ended(&receiver, &mut accounts, ended)?;
        [&receiver.stranger_log, &receiver.stream_log].into_iter().for_each(LogLimit::write_count_if_due);
        let is_late = options.duration.is_some_and(|duration| begun.elapsed() >= duration);
        if asked_to_end.is_none() && (is_late || options.cancel.is_cancelled()) {
            asked_to_end = Some(Instant::now());
            if options.once && receiver.streams.is_any_connected() {
                tracing::info!("the stream has {} s to come to its end", STREAM_END_GRACE.as_secs());
            }
        }
        // Whoever ends both ends of one stream at the same time wants all of it.
        let patience = if options.once && receiver.streams.is_any_connected() {
            STREAM_END_GRACE
        } else {
            Duration::ZERO
        };
        let is_over = asked_to_end.is_some_and(|since: Instant| since.elapsed() >= patience);
        if is_over || (options.once && !accounts.is_empty()) {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    receiver.is_stopping.store(true, Ordering::Relaxed);
    let stopped = Instant::now();
    while receiver.connections.load(Ordering::Acquire) > 0 && stopped.elapsed() < SHUTDOWN_TIMEOUT {
        std::thread::sleep(POLL_INTERVAL / 10);
    }
    receiver.streams.end_all();
    [&receiver.stranger_log, &receiver.stream_log].into_iter().for_each(LogLimit::write_count);
    report_ended(&receiver, &mut accounts, ended)?;
    if let Some(digesting) = digesting {
        digesting.finish();
    }
    match accounts.as_slice() {
        [only] if options.once && !only.whole => bail!("the stream is incomplete"),
        [] if options.once => bail!("no stream was received"),
        _ => Ok(accounts),
    }
}

fn report_ended(
    receiver: &Receiver,
    accounts: &mut Vec<StreamSummary>,
    ended: &mut dyn FnMut(&StreamSummary) -> Result<()>,
) -> Result<()> {
    for account in receiver.streams.take_ended_summaries() {
        ended(&account)?;
        accounts.push(account);
    }
    Ok(())
}

/// Never ends: it ends with the process.
fn accept_connections(listener: &TcpListener, receiver: &Arc<Receiver>) {
    for connection in listener.incoming() {
        match connection {
            Ok(tcp) => spawn_connection(tcp, receiver),
            // Too many open files, most likely: those that stand go on.
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

fn spawn_connection(tcp: TcpStream, receiver: &Arc<Receiver>) {
    if receiver.is_stopping.load(Ordering::Relaxed) {
        return;
    }
    // Here, in the order of arrival: threads begin in any, and the oldest stranger has to go first.
    let Ok(place) = receiver.strangers.admit(&tcp) else { return };
    if !await_room(receiver) {
        // Not even told why: that would take the time that there is none of.
        return;
    }
    receiver.connections.fetch_add(1, Ordering::AcqRel);
    let serving = Arc::clone(receiver);
    let started = std::thread::Builder::new().name("toll-receive".into()).spawn(move || {
        serve(tcp, place, &serving);
        serving.connections.fetch_sub(1, Ordering::AcqRel);
    });
    if started.is_err() {
        receiver.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for threads whose connections were closed, and which a busy host has not let end yet. False: none does.
fn await_room(receiver: &Receiver) -> bool {
    let deadline = Instant::now() + ROOM_WAIT;
    while receiver.connections.load(Ordering::Acquire) >= receiver.max_connections {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

fn serve(tcp: TcpStream, place: StrangerPlace, receiver: &Receiver) {
    let peer = tcp.peer_addr().map_or_else(|_| "somebody".to_owned(), |peer| peer.to_string());
    let mut place = Some(place);
    if let Err(error) = connection::serve_connection(tcp, receiver, || place = None) {
        let log = if place.is_some() { &receiver.stranger_log } else { &receiver.stream_log };
        log.warn(format_args!("{peer}: {error:#}"));
    }
}

/// What one item of a stream is.
pub fn item_noun(holds: StreamContent) -> &'static str {
    match holds {
        StreamContent::Pcapng => "packet",
        StreamContent::Queries => "event",
    }
}

/// What somebody else wrote, without what would move a terminal's cursor.
pub fn strip_control(text: &str) -> String {
    text.chars().take(300).filter(|c| !c.is_control()).collect()
}
