//! Bounded queue of chunks from the tap's thread to a writer thread. The tap never waits.
//!
//! A chunk holds whole items. A chunk is dropped and counted if the queue is full. Buffers are reused: after
//! the queue has been full once, nothing is allocated.

use super::output::OutputCounters;
use anyhow::{Context, anyhow, bail};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A chunk that is not full is handed on after this time.
const MAX_HOLD_NS: u64 = 500_000_000;
/// Room beyond a chunk's size for the item that fills it, so that buffers do not grow.
const SLACK: usize = 320 << 10;
/// At the end, a destination that has taken nothing for so long is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
const NEVER: u64 = u64::MAX;
/// A panic; its message is on standard error.
const NO_WRITER: &str = "the writer thread has failed";

/// Destination of chunks. Runs on a thread of its own.
pub trait ChunkSink: Send {
    /// Called once, before any chunk: what each file (or each stream) begins with.
    ///
    /// # Errors
    /// Nothing can be written there.
    fn begin(&mut self, header: &[u8]) -> anyhow::Result<()>;

    /// Writes `items` whole items, captured from `first_ns` to `last_ns` (Unix time).
    ///
    /// # Errors
    /// The destination failed; returned once. Items that it could not write are in [`lost_items`](Self::lost_items), also
    /// those of later chunks.
    fn write_chunk(&mut self, bytes: &[u8], items: u64, first_ns: u64, last_ns: u64) -> anyhow::Result<()>;

    /// Items lost at the destination: (on the disk, in the network).
    fn lost_items(&self) -> (u64, u64);

    /// Bytes written, if they differ from the bytes received.
    fn bytes_out(&self) -> Option<u64> {
        None
    }

    /// First and last capture time of the items lost here (Unix time, ns), if known.
    fn loss_interval(&self) -> Option<(u64, u64)> {
        None
    }

    /// Timeout of [`finish`](Self::finish) without visible progress.
    fn stall_timeout(&self) -> Duration {
        STALL_TIMEOUT
    }

    /// Ends the output. `tail`: the end of the last file (or of the stream).
    ///
    /// # Errors
    /// It could not be written.
    fn finish(&mut self, tail: &[u8]) -> anyhow::Result<()>;
}

/// A bounded queue of chunks to a thread of its own.
pub struct ChunkQueue {
    current: Chunk,
    full: SyncSender<Message>,
    free: Receiver<Chunk>,
    done: Receiver<()>,
    /// Buffers that exist, out of `bound` that may wait, one being filled and one being written.
    buffers: usize,
    max_waiting: usize,
    chunk_bytes: usize,
    stall_timeout: Duration,
    /// Since when the current chunk is known to wait.
    held_since_ns: Option<u64>,
    /// When the items that were handed on were seen.
    queued_interval: Option<(u64, u64)>,
    counters: OutputCounters,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    items: u64,
    first_ns: u64,
    last_ns: u64,
}

enum Message {
    Chunk(Chunk),
    End(Vec<u8>),
}

/// What the writer's thread tells.
struct Shared {
    /// Chunks that the destination has dealt with.
    written_chunks: AtomicU64,
    /// Items of these, and when the last of them was seen.
    items: AtomicU64,
    written_until_ns: AtomicU64,
    bytes: AtomicU64,
    lost_disk: AtomicU64,
    lost_network: AtomicU64,
    first_loss_ns: AtomicU64,
    last_loss_ns: AtomicU64,
    error: Mutex<Option<anyhow::Error>>,
}

impl ChunkQueue {
    /// `bound`: chunks that may wait. `header`: what each file (or each stream) begins with.
    ///
    /// # Errors
    /// The destination cannot begin, or there is no thread to be had.
    pub fn start(
        mut destination: Box<dyn ChunkSink>,
        header: &[u8],
        chunk_bytes: usize,
        bound: usize,
    ) -> anyhow::Result<Self> {
        destination.begin(header)?;
        let patience = destination.stall_timeout();
        let bound = bound.max(1);
        let (full, to_write) = sync_channel(bound);
        let (give_back, free) = sync_channel(bound + 2);
        let (ended, done) = sync_channel(1);
        let shared = Arc::new(Shared::new(header.len() as u64));
        let writer_shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("toll-writer".into())
            .spawn(move || {
                run_writer(&mut *destination, &to_write, &give_back, &writer_shared);
                let _ = ended.send(());
            })
            .context("cannot start a thread to write with")?;
        let current = Chunk::new(chunk_bytes);
        let account = OutputCounters::default();
        Ok(Self {
            current,
            full,
            free,
            done,
            buffers: 1,
            max_waiting: bound,
            chunk_bytes,
            stall_timeout: patience,
            held_since_ns: None,
            queued_interval: None,
            counters: account,
            shared,
        })
    }

    /// The chunk being filled: append an item to it, then call [`finish_item`](Self::finish_item).
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.current.bytes
    }

    /// The buffer ends with a whole item, captured at `time_ns`. Hands the chunk on when it is full; when the
    /// queue is full too, the chunk is dropped, and its items are counted and dated.
    #[inline]
    pub fn finish_item(&mut self, time_ns: u64) {
        let chunk = &mut self.current;
        if chunk.items == 0 {
            chunk.first_ns = time_ns;
        }
        chunk.items += 1;
        chunk.last_ns = time_ns;
        if chunk.bytes.len() >= self.chunk_bytes {
            self.submit_chunk();
        }
    }

    /// Hands on a chunk that has waited long enough.
    pub fn flush(&mut self, now_ns: u64) {
        if self.current.items == 0 {
            self.held_since_ns = None;
            return;
        }
        // A clock that was set back begins anew.
        let since_ns = self.held_since_ns.map_or(now_ns, |since_ns| since_ns.min(now_ns));
        self.held_since_ns = Some(since_ns);
        if now_ns - since_ns >= MAX_HOLD_NS {
            self.submit_chunk();
        }
    }

    /// # Errors
    /// The destination failed; returned once.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Adds the accounting of the items so far.
    pub fn add_counters(&self, into: &mut OutputCounters) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        // Asked before losses are: what is dealt with in between counts as waiting still, not as written.
        let dealt_with = read(&self.shared.items);
        let given = self.counters.items + self.current.items;
        into.items += given;
        into.waiting += (given - self.counters.lost_queue).saturating_sub(dealt_with);
        into.lost_queue += self.counters.lost_queue;
        into.bytes_written += read(&self.shared.bytes);
        into.lost_disk += read(&self.shared.lost_disk);
        into.lost_network += read(&self.shared.lost_network);
        let own = self.counters.first_loss_ns.zip(self.counters.last_loss_ns);
        let first = read(&self.shared.first_loss_ns);
        let there = (first != NEVER).then(|| (first, read(&self.shared.last_loss_ns)));
        for (first, last) in own.into_iter().chain(there) {
            into.note_loss(first, last);
        }
    }

    /// Hands on everything, and waits until it is out, as long as the destination moves. `tail`: what the last file
    /// (or the stream) ends with.
    ///
    /// # Errors
    /// The destination could not take it, or takes nothing any more.
    pub fn finish(&mut self, tail: &[u8]) -> anyhow::Result<()> {
        if self.current.items > 0 {
            let last = std::mem::take(&mut self.current);
            self.counters.items += last.items;
            self.extend_queued_interval(last.first_ns, last.last_ns);
            self.send_or_time_out(Message::Chunk(last))?;
        }
        self.send_or_time_out(Message::End(tail.to_vec()))?;
        let mut patience = StallTimer::new(&self.shared, self.stall_timeout);
        loop {
            match self.done.recv_timeout(Duration::from_millis(50)) {
                Ok(()) => return self.check(),
                Err(RecvTimeoutError::Disconnected) => bail!(NO_WRITER),
                Err(RecvTimeoutError::Timeout) if patience.is_stalled(&self.shared) => {
                    return Err(self.abandon());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn send_or_time_out(&mut self, mut message: Message) -> anyhow::Result<()> {
        let mut patience = StallTimer::new(&self.shared, self.stall_timeout);
        loop {
            message = match self.full.try_send(message) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(message)) => message,
                Err(TrySendError::Disconnected(_)) => bail!(NO_WRITER),
            };
            if patience.is_stalled(&self.shared) {
                return Err(self.abandon());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the destination has not dealt with by now is lost in the queue.
    fn abandon(&mut self) -> anyhow::Error {
        let dealt_with = self.shared.items.load(Ordering::Acquire);
        let waiting = (self.counters.items - self.counters.lost_queue).saturating_sub(dealt_with);
        self.counters.lost_queue += waiting;
        if let Some((first_ns, last_ns)) = self.queued_interval.filter(|_| waiting > 0) {
            // Seen after what was dealt with last.
            let dealt_with_ns = self.shared.written_until_ns.load(Ordering::Acquire);
            self.counters.note_loss(first_ns.max(dealt_with_ns), last_ns);
        }
        anyhow!(
            "cannot write the capture: no progress for {} s, {waiting} packets in the queue",
            self.stall_timeout.as_secs()
        )
    }

    fn submit_chunk(&mut self) {
        self.held_since_ns = None;
        let Chunk { items, first_ns, last_ns, .. } = self.current;
        self.counters.items += items;
        self.extend_queued_interval(first_ns, last_ns);
        if !self.swap_buffer() {
            self.counters.lost_queue += items;
            self.counters.note_loss(first_ns, last_ns);
            self.current.clear();
        }
    }

    fn extend_queued_interval(&mut self, first_ns: u64, last_ns: u64) {
        let (first, last) = self.queued_interval.unwrap_or((first_ns, last_ns));
        self.queued_interval = Some((first, last.max(last_ns)));
    }

    /// False: there is none, or no room in the queue.
    fn swap_buffer(&mut self) -> bool {
        let next = match self.free.try_recv() {
            Ok(chunk) => chunk,
            Err(_) if self.buffers < self.max_waiting + 2 => {
                self.buffers += 1;
                Chunk::new(self.chunk_bytes)
            }
            Err(_) => return false,
        };
        let filled = std::mem::replace(&mut self.current, next);
        match self.full.try_send(Message::Chunk(filled)) {
            Ok(()) => true,
            Err(error) => {
                let message = match error {
                    TrySendError::Full(message) => message,
                    TrySendError::Disconnected(message) => {
                        self.shared.fail(anyhow!(NO_WRITER));
                        message
                    }
                };
                // The spare one is given up again, the filled one is reused.
                if let Message::Chunk(filled) = message {
                    self.current = filled;
                    self.buffers -= 1;
                }
                false
            }
        }
    }
}

impl Chunk {
    fn new(chunk_bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(chunk_bytes + SLACK), ..Self::default() }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.items = 0;
    }
}

impl Shared {
    fn new(bytes: u64) -> Self {
        Self {
            written_chunks: AtomicU64::new(0),
            items: AtomicU64::new(0),
            written_until_ns: AtomicU64::new(0),
            bytes: AtomicU64::new(bytes),
            lost_disk: AtomicU64::new(0),
            lost_network: AtomicU64::new(0),
            first_loss_ns: AtomicU64::new(NEVER),
            last_loss_ns: AtomicU64::new(0),
            error: Mutex::new(None),
        }
    }

    fn fail(&self, error: anyhow::Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// How long nothing has moved.
struct StallTimer {
    written_chunks: u64,
    since: Instant,
    timeout: Duration,
}

impl StallTimer {
    fn new(shared: &Shared, most: Duration) -> Self {
        Self {
            written_chunks: shared.written_chunks.load(Ordering::Acquire),
            since: Instant::now(),
            timeout: most,
        }
    }

    fn is_stalled(&mut self, shared: &Shared) -> bool {
        let now = Self::new(shared, self.timeout);
        if now.written_chunks != self.written_chunks {
            *self = now;
        }
        self.since.elapsed() >= self.timeout
    }
}

/// The writer's thread: until the end is said, or nobody is left to say it.
fn run_writer(
    destination: &mut dyn ChunkSink,
    full: &Receiver<Message>,
    give_back: &SyncSender<Chunk>,
    shared: &Shared,
) {
    let mut lost_before = 0;
    let (mut first_ns, mut last_ns) = (0, 0);
    let mut date = |lost: u64, first_ns: u64, last_ns: u64| {
        let newly = lost - lost_before;
        if newly > 0 {
            shared.first_loss_ns.fetch_min(first_ns, Ordering::AcqRel);
            shared.last_loss_ns.fetch_max(last_ns, Ordering::AcqRel);
        }
        lost_before = lost;
        newly
    };
    for message in full {
        let mut chunk = match message {
            Message::Chunk(chunk) => chunk,
            Message::End(tail) => {
                match destination.finish(&tail) {
                    Ok(()) => publish_bytes(destination, tail.len(), shared),
                    Err(error) => shared.fail(error),
                }
                let (first_ns, last_ns) = destination.loss_interval().unwrap_or((first_ns, last_ns));
                date(publish_losses(destination, shared), first_ns, last_ns);
                return;
            }
        };
        (first_ns, last_ns) = (chunk.first_ns, chunk.last_ns);
        if let Err(error) = destination.write_chunk(&chunk.bytes, chunk.items, first_ns, last_ns) {
            shared.fail(error);
        }
        if date(publish_losses(destination, shared), first_ns, last_ns) < chunk.items {
            publish_bytes(destination, chunk.bytes.len(), shared);
        }
        shared.written_until_ns.store(last_ns, Ordering::Release);
        shared.items.fetch_add(chunk.items, Ordering::AcqRel);
        shared.written_chunks.fetch_add(1, Ordering::AcqRel);
        chunk.clear();
        let _ = give_back.try_send(chunk);
    }
}

/// So many bytes more were taken.
fn publish_bytes(destination: &dyn ChunkSink, taken: usize, shared: &Shared) {
    match destination.bytes_out() {
        Some(bytes) => shared.bytes.store(bytes, Ordering::Release),
        None => _ = shared.bytes.fetch_add(taken as u64, Ordering::AcqRel),
    }
}

fn publish_losses(destination: &dyn ChunkSink, shared: &Shared) -> u64 {
    let (disk, network) = destination.lost_items();
    shared.lost_disk.store(disk, Ordering::Release);
    shared.lost_network.store(network, Ordering::Release);
    disk + network
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
