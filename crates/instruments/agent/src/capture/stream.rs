//! Stream of a capture to another host, over an unreliable network.
//!
//! Each chunk becomes a numbered zstd frame. It is stored until the receiver acknowledges that it was
//! written. A thread of its own sends, reconnects and resends unacknowledged chunks. If the memory is full,
//! the newest chunk is dropped, counted and dated. Only the end of a capture waits for the network.

mod resend_buffer;
mod sender;

pub use crate::receive::SenderKey;

use super::chunk_queue::ChunkSink;
use crate::receive::{self, Link};
use anyhow::{Context, Result, ensure};
use resend_buffer::{Message, ResendBuffer};
use sender::ConnectError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toll_sys::count_format::format_count;
use toll_sys::slow_warning::SlowWarning;
use toll_sys::{clock, number_format, private_dir};
use toll_wire::stream_protocol::{self, Chunk, MAX_CHUNK, MAX_HEADER_OR_FOOTER, StreamContent, StreamId};
use zstd::bulk::Compressor;

/// Compressed bytes that wait for the other end, at most.
const BUFFER_BYTES: usize = 64 << 20;
/// zstd's fastest level but for those that hardly compress.
const LEVEL: i32 = 1;
/// At the end, an other end that has acknowledged nothing for so long is given up.
const ACK_TIMEOUT: Duration = Duration::from_secs(20);
/// However well it goes, the end takes no longer.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);
/// What a pcapng begins with, whatever the order of its bytes.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A destination on another host.
pub struct StreamSink {
    shared: Arc<Shared>,
    /// Made while it was found out whether it is this sender's receiver.
    link: Option<Link>,
    compressor: Compressor<'static>,
    frame: Vec<u8>,
    message: Vec<u8>,
}

/// Fill level of a stream's resend buffer.
#[derive(Clone)]
pub struct BufferFill(Arc<Shared>);

impl BufferFill {
    /// Bytes that wait for the other end, and how many there is room for.
    pub fn bytes(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.resend_buffer.bytes(), state.resend_buffer.capacity())
    }
}

/// What the writer's thread and those of the network share.
struct Shared {
    /// As the user wrote it.
    target: String,
    key: SenderKey,
    stream: StreamId,
    begun_ns: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    resend_buffer: ResendBuffer,
    /// What one item is.
    item_noun: &'static str,
    /// All that were not lost.
    items: u64,
    lost: u64,
    /// When what was lost was seen, Unix nanoseconds.
    loss_interval: Option<(u64, u64)>,
    /// The end was said; what the stream ends with.
    trailer: Option<Vec<u8>>,
    phase: StreamPhase,
    /// The connection that stands.
    link: Option<Arc<Link>>,
    /// Why it does not stand any more.
    connection_error: Option<anyhow::Error>,
    /// When the other end was last heard, and when it last took something.
    last_heard: Instant,
    last_acknowledged: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPhase {
    Running,
    /// The other end has everything.
    Complete,
    Abandoned,
}

impl StreamSink {
    /// Opens a stream to `host_port`. Captured data is buffered until a receiver listens there.
    ///
    /// # Errors
    /// There is no such host, or whoever listens there is another receiver.
    pub fn connect(host_port: &str, key: &SenderKey) -> Result<Self> {
        let link = match sender::connect(host_port, key) {
            Ok(link) => Some(link),
            Err(ConnectError::Unreachable(why)) => {
                tracing::warn!(
                    "no receiver at {host_port} yet ({why}): buffering up to {} MB",
                    number_format::format_megabytes(BUFFER_BYTES as f64)
                );
                None
            }
            Err(ConnectError::Permanent(error)) => {
                return Err(error).with_context(|| format!("cannot stream to {host_port}"));
            }
        };
        let begun_ns = clock::wall_us() * 1_000;
        let now = Instant::now();
        let state = State {
            resend_buffer: ResendBuffer::new(BUFFER_BYTES),
            item_noun: "item",
            items: 0,
            lost: 0,
            loss_interval: None,
            trailer: None,
            phase: StreamPhase::Running,
            link: None,
            connection_error: None,
            last_heard: now,
            last_acknowledged: now,
        };
        let shared = Shared {
            target: host_port.to_owned(),
            key: key.clone(),
            stream: private_dir::random_bytes().context("no name for the stream")?,
            begun_ns,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        let compressor = Compressor::new(LEVEL).context("cannot set up zstd")?;
        Ok(Self { shared: Arc::new(shared), link, compressor, frame: Vec::new(), message: Vec::new() })
    }

    /// Sets the capacity of the resend buffer, bytes. Call it before the start.
    #[must_use]
    pub fn with_buffer_bytes(self, bytes: usize) -> Self {
        self.shared.lock().resend_buffer = ResendBuffer::new(bytes);
        self
    }

    pub fn buffer_fill(&self) -> BufferFill {
        BufferFill(Arc::clone(&self.shared))
    }
}

impl ChunkSink for StreamSink {
    fn begin(&mut self, header: &[u8]) -> Result<()> {
        ensure!(
            header.len() <= MAX_HEADER_OR_FOOTER,
            "a stream begins with {MAX_HEADER_OR_FOOTER} bytes at most, and not {}: name fewer devices",
            header.len()
        );
        let holds = if header.starts_with(&PCAPNG) { StreamContent::Pcapng } else { StreamContent::Queries };
        self.shared.lock().item_noun = receive::item_noun(holds);
        let (shared, link, opening) = (Arc::clone(&self.shared), self.link.take(), header.to_vec());
        std::thread::Builder::new()
            .name("toll-stream".into())
            .spawn(move || sender::run_sender(&shared, holds, &opening, link))
            .context("cannot start a thread to stream with")?;
        Ok(())
    }

    fn write_chunk(&mut self, bytes: &[u8], items: u64, first_ns: u64, last_ns: u64) -> Result<()> {
        // Asked before anything is compressed for nothing.
        if bytes.len() > MAX_CHUNK || !self.shared.lock().resend_buffer.fits(bytes.len()) {
            self.shared.lock().record_loss(items, first_ns, last_ns);
            return Ok(());
        }
        self.frame.clear();
        self.frame.reserve(zstd::compress_bound(bytes.len()));
        self.compressor.compress_to_buffer(bytes, &mut self.frame).context("cannot compress a chunk")?;
        let mut state = self.shared.lock();
        let chunk = Chunk {
            number: state.resend_buffer.next_number(),
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
        state.resend_buffer.push(Message {
            bytes: Arc::from(self.message.as_slice()),
            items,
            first_ns,
            last_ns,
        });
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn lost_items(&self) -> (u64, u64) {
        (0, self.shared.lock().lost)
    }

    fn loss_interval(&self) -> Option<(u64, u64)> {
        self.shared.lock().loss_interval
    }

    fn stall_timeout(&self) -> Duration {
        // It sees to that itself.
        FINISH_TIMEOUT * 2
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
        state.trailer = Some(tail.to_vec());
        state.last_acknowledged = begun;
        shared.changed.notify_all();
        let waiting = format!(
            "waiting for {} to take the last {} MB: {} s without an answer, {} s at most; a second signal ends it",
            shared.target,
            number_format::format_megabytes(state.resend_buffer.bytes() as f64),
            ACK_TIMEOUT.as_secs(),
            FINISH_TIMEOUT.as_secs()
        );
        let _told = SlowWarning::start(Duration::from_secs(1), waiting);
        while state.phase == StreamPhase::Running {
            let quiet = ACK_TIMEOUT.saturating_sub(state.last_acknowledged.elapsed());
            let left = quiet.min(FINISH_TIMEOUT.saturating_sub(begun.elapsed()));
            if left.is_zero() {
                return Err(shared.abandon(state));
            }
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // What had no room on the way is in the account of what got lost, and no failure of the end.
        Ok(())
    }
}

impl Drop for StreamSink {
    fn drop(&mut self) {
        // Whoever sends for it ends; one that was finished has nothing left to send.
        let mut state = self.shared.lock();
        if state.phase == StreamPhase::Running {
            state.phase = StreamPhase::Abandoned;
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
    fn abandon(&self, mut state: MutexGuard<'_, State>) -> anyhow::Error {
        state.phase = StreamPhase::Abandoned;
        let left: Vec<Message> = state.resend_buffer.drain().collect();
        let chunks = left.len() as u64;
        for message in left {
            state.items -= message.items;
            state.record_loss(message.items, message.first_ns, message.last_ns);
        }
        let why = state.connection_error.as_ref().map(|error| format!(" ({error:#})")).unwrap_or_default();
        let lost = match chunks {
            0 if state.lost == 0 => "everything was received except the end of the stream".to_owned(),
            _ => {
                let lost = (state.describe_loss(), state.describe_loss_interval());
                format!(
                    "{} lost, including those of the last {}{}",
                    lost.0,
                    format_count(chunks, "chunk"),
                    lost.1
                )
            }
        };
        anyhow::anyhow!("{} did not acknowledge the end of the stream{why}: {lost}", self.target)
    }
}

impl State {
    fn record_loss(&mut self, items: u64, first_ns: u64, last_ns: u64) {
        self.lost += items;
        let (first, last) = self.loss_interval.unwrap_or((first_ns, last_ns));
        self.loss_interval = Some((first.min(first_ns), last.max(last_ns)));
    }

    fn describe_loss(&self) -> String {
        format_count(self.lost, self.item_noun)
    }

    fn describe_loss_interval(&self) -> String {
        let time = |ns: u64| jiff::Timestamp::from_nanosecond(ns.into()).map(|time| format!("{time:.3}"));
        match self.loss_interval.map(|(first, last)| (time(first), time(last))) {
            Some((Ok(first), Ok(last))) => format!(", seen from {first} to {last}"),
            _ => String::new(),
        }
    }
}
