//! Table of all streams at the receiver, with its limit.
//!
//! A stream is identified by the sender's name for it, while it is connected and for some time after its
//! connection broke. A completed stream stays in the table, so that its sender can query its state.

use super::Account;
use super::incoming::Incoming;
use super::link::Link;
use super::place::Place;
use anyhow::{Result, bail};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toll_sys::count_format::format_count;
use toll_wire::stream_protocol::{Hello, StreamId};

/// A stream without a connection is waited for so long.
const WAITED_FOR: Duration = Duration::from_secs(3_600);
/// Streams that have ended, remembered: the newest.
const REMEMBERED: usize = 1_000;

/// All streams of this receiver.
pub struct Streams {
    place: Place,
    most: usize,
    /// It ends with the first.
    once: bool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    streams: HashMap<StreamId, Arc<Incoming>>,
    /// In the order in which they came.
    order: VecDeque<StreamId>,
}

/// A stream, and the connection that it comes over.
pub struct Attached {
    pub incoming: Arc<Incoming>,
    pub connection: u64,
    /// The chunk that is wanted first.
    pub next: u64,
}

impl Streams {
    pub fn new(place: Place, most: usize, once: bool) -> Self {
        Self { place, most, once, known: Mutex::new(Known::default()) }
    }

    /// The stream that this connection brings, an old one or a new one.
    ///
    /// # Errors
    /// There is no room for another, or it is not what it says.
    pub fn admit(&self, hello: &Hello<'_>, link: &Arc<Link>) -> Result<Attached> {
        let incoming = self.find(hello)?;
        let (connection, next) = incoming.attach(hello, link)?;
        Ok(Attached { incoming, connection, next })
    }

    fn find(&self, hello: &Hello<'_>) -> Result<Arc<Incoming>> {
        let mut known = self.lock();
        match known.streams.get(&hello.stream) {
            Some(incoming) if incoming.was_given_up() => {
                known.streams.remove(&hello.stream);
                known.order.retain(|id| *id != hello.stream);
            }
            Some(incoming) => return Ok(Arc::clone(incoming)),
            None => {}
        }
        if self.once && !known.streams.is_empty() {
            bail!("this receiver takes one stream, and has it (--once)");
        }
        let running = known.streams.values().filter(|incoming| !incoming.has_ended());
        if running.count() >= self.most {
            // Whoever left longest ago makes room, if anybody has left.
            let left = known.streams.values().filter_map(|incoming| Some((incoming.left()?, incoming)));
            match left.min_by_key(|(left, _)| *left) {
                Some((_, incoming)) => incoming.give_up(),
                None => {
                    let most = format_count(self.most as u64, "stream");
                    bail!("this receiver takes {most} at once, and has no room for another (--streams)")
                }
            }
        }
        known.forget_ended();
        let incoming = Arc::new(Incoming::new(hello, self.place.clone()));
        known.streams.insert(hello.stream, Arc::clone(&incoming));
        known.order.push_back(hello.stream);
        Ok(incoming)
    }

    /// Ends streams whose senders have not reconnected.
    pub fn end_abandoned(&self) {
        for incoming in self.all() {
            if incoming.left().is_some_and(|left| left.elapsed() > WAITED_FOR) {
                incoming.give_up();
            }
        }
    }

    /// True if a stream has a connection and has not ended.
    pub fn is_any_coming(&self) -> bool {
        self.all().iter().any(|incoming| !incoming.has_ended() && incoming.left().is_none())
    }

    pub fn end_all(&self) {
        self.all().iter().for_each(|incoming| incoming.give_up());
    }

    /// Accounts of those that have ended since this was last asked.
    pub fn take_ended(&self) -> Vec<Account> {
        self.all().iter().filter_map(|incoming| incoming.take_account()).collect()
    }

    /// In the order in which they came.
    fn all(&self) -> Vec<Arc<Incoming>> {
        let known = self.lock();
        known.order.iter().filter_map(|id| known.streams.get(id).cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The oldest that have ended, where there are too many.
    fn forget_ended(&mut self) {
        while self.streams.len() >= REMEMBERED {
            let ended = |id: &StreamId| self.streams.get(id).is_none_or(|incoming| incoming.has_ended());
            let Some(at) = self.order.iter().position(ended) else { return };
            if let Some(id) = self.order.remove(at) {
                self.streams.remove(&id);
            }
        }
    }
}
