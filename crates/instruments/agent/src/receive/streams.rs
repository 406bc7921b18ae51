//! Table of all streams at the receiver, with its limit.
//!
//! A stream is identified by the sender's name for it, while it is connected and for some time after its
//! connection broke. A completed stream stays in the table, so that its sender can query its state.

use super::StreamSummary;
use super::destination::StreamDestination;
use super::link::Link;
use super::stream_writer::ReceivedStream;
use anyhow::{Result, bail};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toll_sys::count_format::format_count;
use toll_wire::stream_protocol::{Hello, StreamContent, StreamId};

/// A stream without a connection is waited for so long.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(3_600);
/// One sender may have this part of the streams at once.
const SENDER_SHARE: usize = 4;
/// Streams that have ended, remembered: the newest.
const MAX_ENDED: usize = 1_000;

/// All streams of this receiver.
pub struct StreamTable {
    destination: StreamDestination,
    max_streams: usize,
    /// It ends with the first.
    once: bool,
    /// What is received becomes tables: packets cannot.
    only_queries: bool,
    entries: Mutex<StreamEntries>,
}

#[derive(Default)]
struct StreamEntries {
    streams: HashMap<StreamId, Arc<ReceivedStream>>,
    /// In the order in which they came.
    order: VecDeque<StreamId>,
}

/// A stream, and the connection that it comes over.
pub struct AttachedStream {
    pub incoming: Arc<ReceivedStream>,
    pub connection: u64,
    /// The chunk that is wanted first.
    pub next_chunk: u64,
}

impl StreamTable {
    pub fn new(destination: StreamDestination, most: usize, once: bool, only_queries: bool) -> Self {
        let entries = Mutex::new(StreamEntries::default());
        Self { destination, max_streams: most, once, only_queries, entries }
    }

    /// The stream that this connection brings, an old one or a new one.
    ///
    /// # Errors
    /// There is no room for another, or it is not what it says.
    pub fn admit(&self, hello: &Hello<'_>, link: &Arc<Link>) -> Result<AttachedStream> {
        let incoming = self.find_or_create(hello, link.sender())?;
        let (connection, next) = incoming.attach(hello, link)?;
        Ok(AttachedStream { incoming, connection, next_chunk: next })
    }

    /// Of the streams at once, a sender has a quarter at most: none keeps the others out.
    fn max_of_one_sender(&self) -> usize {
        (self.max_streams / SENDER_SHARE).max(1)
    }

    fn find_or_create(&self, hello: &Hello<'_>, sender: Option<&str>) -> Result<Arc<ReceivedStream>> {
        if self.only_queries && hello.content != StreamContent::Queries {
            bail!("this receiver writes tables of queries: start the capture with --stream-queries");
        }
        let mut known = self.lock();
        match known.streams.get(&hello.stream) {
            Some(incoming) if incoming.sender() != sender => {
                bail!("it has the name of another sender's stream")
            }
            Some(incoming) if incoming.was_abandoned() => {
                known.streams.remove(&hello.stream);
                known.order.retain(|id| *id != hello.stream);
            }
            Some(incoming) => return Ok(Arc::clone(incoming)),
            None => {}
        }
        if self.once && !known.streams.is_empty() {
            bail!("receiver is busy: --once accepts a single stream");
        }
        if !known.make_room(self.max_streams, |_| true) {
            let most = format_count(self.max_streams as u64, "stream");
            bail!("this receiver has its maximum of {most} at once (--streams)")
        }
        // Without keys nobody knows who sends.
        if sender.is_some()
            && !known.make_room(self.max_of_one_sender(), |incoming| incoming.sender() == sender)
        {
            let most = format_count(self.max_of_one_sender() as u64, "stream");
            bail!("a sender has at most {most} at once, a quarter of --streams")
        }
        known.evict_ended();
        let incoming = Arc::new(ReceivedStream::new(hello, sender, self.destination.clone())?);
        known.streams.insert(hello.stream, Arc::clone(&incoming));
        known.order.push_back(hello.stream);
        Ok(incoming)
    }

    /// Ends streams whose senders have not reconnected.
    pub fn end_abandoned(&self) {
        for incoming in self.all() {
            if incoming.disconnected_at().is_some_and(|left| left.elapsed() > RECONNECT_TIMEOUT) {
                incoming.abandon();
            }
        }
    }

    /// Closes the files that are full by their age, though nothing more has come.
    pub fn close_old_files(&self) {
        self.all().iter().for_each(|incoming| incoming.close_old_file());
    }

    /// True if a stream has a connection and has not ended.
    pub fn is_any_connected(&self) -> bool {
        self.all().iter().any(|incoming| !incoming.has_ended() && incoming.disconnected_at().is_none())
    }

    /// Files that are being written.
    pub fn open_files(&self) -> HashSet<PathBuf> {
        self.all().iter().filter_map(|incoming| incoming.open_file()).collect()
    }

    pub fn end_all(&self) {
        self.all().iter().for_each(|incoming| incoming.abandon());
    }

    /// Accounts of those that have ended since this was last asked.
    pub fn take_ended_summaries(&self) -> Vec<StreamSummary> {
        self.all().iter().filter_map(|incoming| incoming.take_summary()).collect()
    }

    /// In the order in which they came.
    fn all(&self) -> Vec<Arc<ReceivedStream>> {
        let known = self.lock();
        known.order.iter().filter_map(|id| known.streams.get(id).cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, StreamEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamEntries {
    /// Sees that fewer than `most` of these streams run: the one whose sender left longest ago makes room. False if none has
    /// left.
    fn make_room(&self, most: usize, is_one: impl Fn(&ReceivedStream) -> bool) -> bool {
        let running = || self.streams.values().filter(|incoming| !incoming.has_ended() && is_one(incoming));
        if running().count() < most {
            return true;
        }
        let left = running().filter_map(|incoming| Some((incoming.disconnected_at()?, incoming)));
        match left.min_by_key(|(left, _)| *left) {
            Some((_, incoming)) => {
                incoming.abandon();
                true
            }
            None => false,
        }
    }

    /// The oldest that have ended, where there are too many.
    fn evict_ended(&mut self) {
        while self.streams.len() >= MAX_ENDED {
            let ended = |id: &StreamId| self.streams.get(id).is_none_or(|incoming| incoming.has_ended());
            let Some(at) = self.order.iter().position(ended) else { return };
            if let Some(id) = self.order.remove(at) {
                self.streams.remove(&id);
            }
        }
    }
}
