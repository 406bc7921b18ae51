//! Stream of a capture to another host, over an unreliable network.
//!
//! Each chunk becomes a numbered zstd frame. It is stored until the receiver acknowledges that it was
//! written. A thread of its own sends, reconnects and resends unacknowledged chunks. If the memory is full,
//! the newest chunk is dropped, counted and dated. Only the end of a capture waits for the network.

mod kept;
mod sending;

pub use crate::receive::Key;

use super::chunks::Destination;
use crate::receive::{self, Link};
use anyhow::{Context, Result, ensure};
use kept::{Kept, Message};
use sending::Unreached;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toll_sys::count_format::format_count;
use toll_sys::slow_warning::SlowWarning;
use toll_sys::{clock, number_format};
use toll_wire::stream_protocol::{self, Chunk, MAX_CHUNK, MAX_HEADER_OR_FOOTER, StreamContent, StreamId};
use zstd::bulk::Compressor;

/// Compressed bytes that wait for the other end, at most.
const ROOM: usize = 64 << 20;
/// zstd's fastest level but for those that hardly compress.
const LEVEL: i32 = 1;
/// At the end, an other end that has acknowledged nothing for so long is given up.
const QUIET: Duration = Duration::from_secs(20);
/// However well it goes, the end takes no longer.
const FAREWELL: Duration = Duration::from_secs(120);
/// What a pcapng begins with, whatever the order of its bytes.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A destination on another host.
pub struct Stream {
    shared: Arc<Shared>,
    /// Made while it was found out whether both ends have one key.
    link: Option<Link>,
    compressor: Compressor<'static>,
    frame: Vec<u8>,
    message: Vec<u8>,
}

/// Fill level of a stream's resend buffer.
#[derive(Clone)]
pub struct Fill(Arc<Shared>);

impl Fill {
    /// Bytes that wait for the other end, and how many there is room for.
    pub fn bytes(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.kept.bytes(), state.kept.room())
    }
}

/// What the writer's thread and those of the network share.
struct Shared {
    /// As the user wrote it.
    target: String,
    key: Key,
    stream: StreamId,
    begun_ns: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    kept: Kept,
    /// What one item is.
    noun: &'static str,
    /// All that were not lost.
    items: u64,
    lost: u64,
    /// When what was lost was seen, Unix nanoseconds.
    lost_between: Option<(u64, u64)>,
    /// The end was said; what the stream ends with.
    closing: Option<Vec<u8>>,
    stage: Stage,
    /// The connection that stands.
    link: Option<Arc<Link>>,
    /// Why it does not stand any more.
    broken: Option<anyhow::Error>,
    /// When the other end was last heard, and when it last took something.
    heard: Instant,
    took: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// The other end has everything.
    Whole,
    GivenUp,
}

impl Stream {
    /// Opens a stream to `host_port`. Captured data is buffered until a receiver listens there.
    ///
    /// # Errors
    /// There is no such host, or whoever listens there has another key.
    pub fn connect(host_port: &str, key: &Key) -> Result<Self> {
        let link = match sending::reach(host_port, key) {
            Ok(link) => Some(link),
            Err(Unreached::Absent(why)) => {
                tracing::warn!(
                    "nobody receives at {host_port} yet ({why}): up to {} MB wait for somebody who does",
                    number_format::format_megabytes(ROOM as f64)
                );
                None
            }
            Err(Unreached::Wrong(error)) => {
                return Err(error).with_context(|| format!("cannot stream to {host_port}"));
            }
        };
        let begun_ns = clock::wall_us() * 1_000;
        let now = Instant::now();
        let state = State {
            kept: Kept::new(ROOM),
            noun: "item",
            items: 0,
            lost: 0,
            lost_between: None,
            closing: None,
            stage: Stage::Running,
            link: None,
            broken: None,
            heard: now,
            took: now,
        };
        let shared = Shared {
            target: host_port.to_owned(),
            key: key.clone(),
            stream: stream_id(begun_ns),
            begun_ns,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let compressor = Compressor::new(LEVEL).context("cannot set up zstd")?;
        Ok(Self { shared: Arc::new(shared), link, compressor, frame: Vec::new(), message: Vec::new() })
    }

    /// Sets the capacity of the resend buffer, bytes. Call it before the start.
    #[must_use]
    pub fn with_room(self, bytes: usize) -> Self {
        self.shared.lock().kept = Kept::new(bytes);
        self
    }

    pub fn fill(&self) -> Fill {
        Fill(Arc::clone(&self.shared))
    }
}

impl Destination for Stream {
    fn begin(&mut self, header: &[u8]) -> Result<()> {
        ensure!(
            header.len() <= MAX_HEADER_OR_FOOTER,
            "a stream begins with {MAX_HEADER_OR_FOOTER} bytes at most, and not {}: name fewer devices",
            header.len()
        );
        let holds = if header.starts_with(&PCAPNG) { StreamContent::Pcapng } else { StreamContent::Queries };
        self.shared.lock().noun = receive::noun(holds);
        let (shared, link, opening) = (Arc::clone(&self.shared), self.link.take(), header.to_vec());
        std::thread::Builder::new()
            .name("toll-stream".into())
            .spawn(move || sending::run(&shared, holds, &opening, link))
            .context("cannot start a thread to stream with")?;
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8], items: u64, first_ns: u64, last_ns: u64) -> Result<()> {
        // Asked before anything is compressed for nothing.
        if bytes.len() > MAX_CHUNK || !self.shared.lock().kept.has_room_for(bytes.len()) {
            self.shared.lock().lose(items, first_ns, last_ns);
            return Ok(());
        }
        self.frame.clear();
        self.frame.reserve(zstd::compress_bound(bytes.len()));
        self.compressor.compress_to_buffer(bytes, &mut self.frame).context("cannot compress a chunk")?;
        let mut state = self.shared.lock();
        let chunk = Chunk {
            number: state.kept.next(),
            items,
            first_ns,
            last_ns,
            lost: state.lost,
            plain_len: bytes.len() as u32,
            frame: &self.frame,
        };
        self.message.clear();
        stream_protocol::Message::Chunk(chunk).encode_into(&mut self.message);
        state.items += items;
        state.kept.push(Message { bytes: Arc::from(self.message.as_slice()), items, first_ns, last_ns });
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn lost(&self) -> (u64, u64) {
        (0, self.shared.lock().lost)
    }

    fn lost_between(&self) -> Option<(u64, u64)> {
        self.shared.lock().lost_between
    }

    fn patience(&self) -> Duration {
        // It sees to that itself.
        FAREWELL * 2
    }

    fn finish(&mut self, tail: &[u8]) -> Result<()> {
        ensure!(
            tail.len() <= MAX_HEADER_OR_FOOTER,
            "a stream ends with {MAX_HEADER_OR_FOOTER} bytes at most, and not {}",
            tail.len()
        );
        let shared = &self.shared;
        let begun = Instant::now();
        let mut state = shared.lock();
        state.closing = Some(tail.to_vec());
        state.took = begun;
        shared.changed.notify_all();
        let waiting = format!(
            "waiting for {} to take the last {} MB: {} s without an answer, {} s at most; a second signal ends it",
            shared.target,
            number_format::format_megabytes(state.kept.bytes() as f64),
            QUIET.as_secs(),
            FAREWELL.as_secs()
        );
        let _told = SlowWarning::start(Duration::from_secs(1), waiting);
        while state.stage == Stage::Running {
            let quiet = QUIET.saturating_sub(state.took.elapsed());
            let left = quiet.min(FAREWELL.saturating_sub(begun.elapsed()));
            if left.is_zero() {
                return Err(shared.give_up(state));
            }
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // What had no room on the way is in the account of what got lost, and no failure of the end.
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Whoever sends for it ends; one that was finished has nothing left to send.
        let mut state = self.shared.lock();
        if state.stage == Stage::Running {
            state.stage = Stage::GivenUp;
        }
        if let Some(link) = state.link.take() {
            link.close();
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// What a thread that panicked left is whole: each change of it is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the other end has not acknowledged by now counts as lost.
    fn give_up(&self, mut state: MutexGuard<'_, State>) -> anyhow::Error {
        state.stage = Stage::GivenUp;
        let left: Vec<Message> = state.kept.give_up().collect();
        let chunks = left.len() as u64;
        for message in left {
            state.items -= message.items;
            state.lose(message.items, message.first_ns, message.last_ns);
        }
        let why = state.broken.as_ref().map(|error| format!(" ({error:#})")).unwrap_or_default();
        let lost = match chunks {
            0 if state.lost == 0 => "all was taken, but for the end".to_owned(),
            _ => {
                let lost = (state.lost_in_words(), state.lost_when());
                format!(
                    "{} got lost, those of the last {} among them{}",
                    lost.0,
                    format_count(chunks, "chunk"),
                    lost.1
                )
            }
        };
        anyhow::anyhow!("{} did not take the end of the stream{why}: {lost}", self.target)
    }
}

impl State {
    fn lose(&mut self, items: u64, first_ns: u64, last_ns: u64) {
        self.lost += items;
        let (first, last) = self.lost_between.unwrap_or((first_ns, last_ns));
        self.lost_between = Some((first.min(first_ns), last.max(last_ns)));
    }

    fn lost_in_words(&self) -> String {
        format_count(self.lost, self.noun)
    }

    fn lost_when(&self) -> String {
        let time = |ns: u64| jiff::Timestamp::from_nanosecond(ns.into()).map(|time| format!("{time:.3}"));
        match self.lost_between.map(|(first, last)| (time(first), time(last))) {
            Some((Ok(first), Ok(last))) => format!(", seen from {first} to {last}"),
            _ => String::new(),
        }
    }
}

/// No other stream of any host has it: made of the host's boot, the process and the time.
fn stream_id(begun_ns: u64) -> StreamId {
    let boot = toll_sys::process::boot_id();
    let words = format!("{boot} {} {:?} {begun_ns}", std::process::id(), std::thread::current().id());
    let hash = Sha256::digest(words);
    std::array::from_fn(|at| hash[at])
}
