//! Receiver of streamed captures from many hosts at once.
//!
//! Each sender has a thread, each stream one or several files. A stream outlives its connections. Never
//! inspects a stream: it is written unchanged.

mod account;
mod incoming;
mod key;
mod link;
mod peer;
mod place;
mod streams;

pub use account::Account;
pub use key::Key;
pub use link::{Heard, Hearing, Link};
pub use place::{Place, Rotation};

use anyhow::{Context, Result, bail};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use streams::Streams;
use toll_sys::cancel::CancelToken;
use toll_wire::stream_protocol::StreamContent;

/// Connections that may stand beside those of streams: of peers that have not said yet what they want.
const STRANGERS: usize = 32;
/// How often it is looked whether to end.
const LOOK: Duration = Duration::from_millis(100);
/// After the end was asked for, threads have so long to write what they have.
const WITHIN: Duration = Duration::from_secs(10);

/// The one stream of a receiver that is asked to end may come to its own end for so long.
const FOR_ITS_END: Duration = Duration::from_secs(5);

/// Options of a receiver.
pub struct Asked {
    /// Address and port.
    pub listen: String,
    pub key: Key,
    pub place: Place,
    /// Streams at once.
    pub streams: usize,
    /// Ends with the first stream.
    pub once: bool,
    pub duration: Option<Duration>,
    pub cancel: CancelToken,
}

/// What all threads know.
struct Receiver {
    key: Key,
    streams: Streams,
    connections: AtomicUsize,
    most_connections: usize,
    stops: AtomicBool,
}

/// Receives until a signal. Returns the result of each stream, in the order in which they ended.
///
/// # Errors
/// It cannot listen there; with [`Asked::once`], the stream did not come whole.
pub fn receive(asked: Asked, ended: &mut dyn FnMut(&Account) -> Result<()>) -> Result<Vec<Account>> {
    let listener = TcpListener::bind(&asked.listen)
        .with_context(|| format!("cannot listen on {}: write it as ADDRESS:PORT", asked.listen))?;
    let address = listener.local_addr()?;
    let most = if asked.once { 1 } else { asked.streams };
    let receiver = Arc::new(Receiver {
        key: asked.key,
        streams: Streams::new(asked.place, most, asked.once),
        connections: AtomicUsize::new(0),
        most_connections: most * 2 + STRANGERS,
        stops: AtomicBool::new(false),
    });
    match receiver.key.fingerprint() {
        Some(fingerprint) => tracing::info!("receiving at {address}, from holders of the key {fingerprint}"),
        None => tracing::warn!("receiving at {address}, from anybody, and readable on the network (--plain)"),
    }
    let accepting = Arc::clone(&receiver);
    std::thread::Builder::new()
        .name("toll-accept".into())
        .spawn(move || accept(&listener, &accepting))
        .context("cannot start a thread to listen with")?;

    let begun = Instant::now();
    let (mut accounts, mut asked_to_end) = (Vec::new(), None);
    loop {
        receiver.streams.end_abandoned();
        take_ended(&receiver, &mut accounts, ended)?;
        let is_late = asked.duration.is_some_and(|duration| begun.elapsed() >= duration);
        if asked_to_end.is_none() && (is_late || asked.cancel.is_cancelled()) {
            asked_to_end = Some(Instant::now());
            if asked.once && receiver.streams.is_any_coming() {
                tracing::info!("the stream has {} s to come to its end", FOR_ITS_END.as_secs());
            }
        }
        // Whoever ends both ends of one stream at the same time wants all of it.
        let patience =
            if asked.once && receiver.streams.is_any_coming() { FOR_ITS_END } else { Duration::ZERO };
        let is_over = asked_to_end.is_some_and(|since: Instant| since.elapsed() >= patience);
        if is_over || (asked.once && !accounts.is_empty()) {
            break;
        }
        std::thread::sleep(LOOK);
    }
    receiver.stops.store(true, Ordering::Relaxed);
    let stopped = Instant::now();
    while receiver.connections.load(Ordering::Acquire) > 0 && stopped.elapsed() < WITHIN {
        std::thread::sleep(LOOK / 10);
    }
    receiver.streams.end_all();
    take_ended(&receiver, &mut accounts, ended)?;
    match accounts.as_slice() {
        [only] if asked.once && !only.whole => bail!("the stream did not come whole"),
        [] if asked.once => bail!("no stream came"),
        _ => Ok(accounts),
    }
}

fn take_ended(
    receiver: &Receiver,
    accounts: &mut Vec<Account>,
    ended: &mut dyn FnMut(&Account) -> Result<()>,
) -> Result<()> {
    for account in receiver.streams.take_ended() {
        ended(&account)?;
        accounts.push(account);
    }
    Ok(())
}

/// Never ends: it ends with the process.
fn accept(listener: &TcpListener, receiver: &Arc<Receiver>) {
    for connection in listener.incoming() {
        match connection {
            Ok(tcp) => serve(tcp, receiver),
            // Too many open files, most likely: those that stand go on.
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn serve(tcp: TcpStream, receiver: &Arc<Receiver>) {
    if receiver.stops.load(Ordering::Relaxed) {
        return;
    }
    if receiver.connections.fetch_add(1, Ordering::AcqRel) >= receiver.most_connections {
        // Not even told why: that would take the time that there is none of.
        receiver.connections.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let serving = Arc::clone(receiver);
    let started = std::thread::Builder::new().name("toll-receive".into()).spawn(move || {
        let peer = tcp.peer_addr().map_or_else(|_| "somebody".to_owned(), |peer| peer.to_string());
        if let Err(error) = peer::serve(tcp, &serving) {
            tracing::warn!("{peer}: {error:#}");
        }
        serving.connections.fetch_sub(1, Ordering::AcqRel);
    });
    if started.is_err() {
        receiver.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What one item of a stream is.
pub fn noun(holds: StreamContent) -> &'static str {
    match holds {
        StreamContent::Pcapng => "packet",
        StreamContent::Queries => "event",
    }
}

/// What somebody else wrote, without what would move a terminal's cursor.
pub fn printable(text: &str) -> String {
    text.chars().take(300).filter(|c| !c.is_control()).collect()
}
