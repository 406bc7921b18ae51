//! Bounded queue of the requests of one signal, and the accounting of their records.
//!
//! When it is full, the oldest request is dropped: newer ones say more. Never waits for the network.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests that wait, and their bytes, at most: an hour of digests of a minute each.
const MAX_REQUESTS: usize = 64;
const MAX_BYTES: usize = 4 << 20;

/// One request, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportRequest {
    pub body: Vec<u8>,
    /// Data points or log records in it.
    pub records: u64,
}

/// What became of all records so far: data points and log records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct ExportCounters {
    /// The collector took them.
    pub exported: u64,
    /// The queue was full.
    pub dropped_queue: u64,
    /// The collector refused them for good.
    pub dropped_refused: u64,
    /// The capture ended before the collector took them.
    pub dropped_unsent: u64,
}

impl ExportCounters {
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_refused + self.dropped_unsent
    }

    pub fn add(&mut self, other: &Self) {
        self.exported += other.exported;
        self.dropped_queue += other.dropped_queue;
        self.dropped_refused += other.dropped_refused;
        self.dropped_unsent += other.dropped_unsent;
    }
}

/// Between the thread that makes requests and the one that sends them.
#[derive(Default)]
pub struct ExportQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<ExportRequest>,
    bytes: usize,
    /// Records of the request that is being sent.
    sending: u64,
    counters: ExportCounters,
    /// No more requests come.
    is_closed: bool,
    /// The sender has ended, or nobody waits for it any more.
    is_over: bool,
}

impl ExportQueue {
    /// Adds a request that is sent after all others.
    pub fn push(&self, request: ExportRequest) {
        let mut state = self.lock();
        state.bytes += request.body.len();
        state.waiting.push_back(request);
        state.drop_oldest();
        drop(state);
        self.changed.notify_all();
    }

    /// The oldest request, once there is one. `None`: the queue is closed, and none is left.
    pub fn take(&self) -> Option<ExportRequest> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(request) = state.waiting.pop_front() {
                state.bytes -= request.body.len();
                state.sending = request.records;
                return Some(request);
            }
            if state.is_closed {
                state.is_over = true;
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The request that was taken has arrived, but for `refused` of its records.
    pub fn finish_request(&self, refused: u64) {
        let mut state = self.lock();
        if !state.is_over {
            let sent = std::mem::take(&mut state.sending);
            let refused = refused.min(sent);
            state.counters.exported += sent - refused;
            state.counters.dropped_refused += refused;
        }
    }

    /// The request that was taken has not arrived, and is the next one again.
    pub fn put_back(&self, request: ExportRequest) {
        let mut state = self.lock();
        if !state.is_over {
            state.sending = 0;
            state.bytes += request.body.len();
            state.waiting.push_front(request);
            state.drop_oldest();
        }
    }

    /// Waits before the next attempt; false: the queue is closed, and a further attempt is one too many.
    pub fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        while !state.is_closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// No more requests come. Those that wait are tried once more.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for the sender's end until a moment. Then, or once the sender has given up, all that was not sent is dropped.
    pub fn abandon_at(&self, moment: Instant) {
        let mut state = self.lock();
        while !state.is_over {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_over = true;
        let waiting: u64 = state.waiting.drain(..).map(|request| request.records).sum();
        state.counters.dropped_unsent += waiting + std::mem::take(&mut state.sending);
        state.bytes = 0;
    }

    /// The sender ends: nothing more can be sent.
    pub fn give_up(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    pub fn counters(&self) -> ExportCounters {
        self.lock().counters
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_oldest(&mut self) {
        while self.waiting.len() > MAX_REQUESTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.waiting.pop_front() else { return };
            self.bytes -= oldest.body.len();
            self.counters.dropped_queue += oldest.records;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u8, bytes: usize) -> ExportRequest {
        ExportRequest { body: vec![number; bytes], records: 10 }
    }

    #[test]
    fn a_full_queue_drops_the_oldest_and_counts_its_records() {
        let queue = ExportQueue::default();
        for number in 0..=MAX_REQUESTS {
            queue.push(request(number as u8, 1));
        }
        let dropped = ExportCounters { dropped_queue: 10, ..ExportCounters::default() };
        assert_eq!(queue.counters(), dropped);
        assert_eq!(queue.take(), Some(request(1, 1)));
        // By bytes: this one has room, and all before it have none.
        queue.push(request(99, MAX_BYTES));
        assert_eq!(queue.counters().dropped_queue, 10 * MAX_REQUESTS as u64);
        // Neither has one that comes back.
        queue.put_back(request(1, 1));
        assert_eq!(queue.counters().dropped_queue, 10 * (MAX_REQUESTS as u64 + 1));
        assert_eq!(queue.take(), Some(request(99, MAX_BYTES)));
        queue.push(request(100, MAX_BYTES + 1));
        queue.close();
        assert_eq!(queue.take(), None);
        assert_eq!(queue.counters().dropped_queue, 10 * (MAX_REQUESTS as u64 + 2));
    }

    #[test]
    fn every_record_is_exported_or_dropped_with_a_reason() {
        let queue = ExportQueue::default();
        for number in 0..5 {
            queue.push(request(number, 1));
        }
        queue.take().unwrap();
        queue.finish_request(3);
        queue.take().unwrap();
        queue.finish_request(u64::MAX);
        let back = queue.take().unwrap();
        queue.put_back(back);
        assert_eq!(queue.take(), Some(request(2, 1)));
        queue.close();
        assert!(queue.is_closed() && !queue.pause(Duration::from_secs(3_600)));
        queue.abandon_at(Instant::now());
        let counters = queue.counters();
        let expected =
            ExportCounters { exported: 7, dropped_refused: 13, dropped_unsent: 30, dropped_queue: 0 };
        assert_eq!((counters, counters.dropped()), (expected, 43));
        // The answer to what was being sent comes too late to count.
        queue.finish_request(0);
        assert_eq!((queue.counters(), queue.take()), (expected, None));
    }

    #[test]
    fn a_sender_that_ended_is_not_waited_for() {
        let queue = ExportQueue::default();
        queue.close();
        assert_eq!(queue.take(), None);
        queue.abandon_at(Instant::now() + Duration::from_secs(3_600));
        let queue = ExportQueue::default();
        queue.push(request(1, 1));
        queue.give_up();
        queue.abandon_at(Instant::now() + Duration::from_secs(3_600));
        assert_eq!(queue.counters().dropped_unsent, 10);
    }
}
