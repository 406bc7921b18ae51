//! Resend buffer: chunks that the receiver has not acknowledged yet.
//!
//! Chunks are stored as they are sent, numbered without gaps, in bounded memory. Never waits: the caller
//! counts chunks that do not fit.

use std::collections::VecDeque;
use std::sync::Arc;

/// A chunk, as it goes over the network.
#[derive(Debug, Clone)]
pub struct Message {
    pub bytes: Arc<[u8]>,
    pub items: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// Chunks from the oldest that was not acknowledged to the newest.
#[derive(Debug)]
pub struct ResendBuffer {
    messages: VecDeque<Message>,
    /// Number of the first of them; of the next one where there is none.
    first: u64,
    /// How many of them went out on this connection.
    sent: usize,
    bytes: usize,
    capacity: usize,
}

impl ResendBuffer {
    /// `capacity`: bytes, at most.
    pub fn new(room: usize) -> Self {
        Self { messages: VecDeque::new(), first: 0, sent: 0, bytes: 0, capacity: room }
    }

    /// True if so many more bytes fit.
    pub fn fits(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.capacity
    }

    /// The number of the next chunk.
    pub fn next_number(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// The lowest number that can still be sent.
    pub fn first_number(&self) -> u64 {
        self.first
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Keeps the chunk with the number [`next_number`](Self::next_number).
    pub fn push(&mut self, message: Message) {
        self.bytes += message.bytes.len();
        self.messages.push_back(message);
    }

    /// Resumes at this chunk on a new connection. False: it was never sent, or is no longer stored.
    pub fn resume(&mut self, next: u64) -> bool {
        if !self.acknowledge(next) {
            return false;
        }
        self.sent = 0;
        next == self.first
    }

    /// The receiver has written all chunks below this. False: such chunks do not exist.
    pub fn acknowledge(&mut self, below: u64) -> bool {
        if below > self.next_number() {
            return false;
        }
        while self.first < below {
            if let Some(message) = self.messages.pop_front() {
                self.bytes -= message.bytes.len();
            }
            self.first += 1;
            self.sent = self.sent.saturating_sub(1);
        }
        true
    }

    /// The next chunk to send on this connection.
    pub fn take_unsent(&mut self) -> Option<Message> {
        let message = self.messages.get(self.sent)?.clone();
        self.sent += 1;
        Some(message)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Discards and returns all chunks.
    pub fn drain(&mut self) -> impl Iterator<Item = Message> + '_ {
        self.first = self.next_number();
        (self.sent, self.bytes) = (0, 0);
        self.messages.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(bytes: usize, items: u64) -> Message {
        Message { bytes: vec![0; bytes].into(), items, first_ns: 0, last_ns: 0 }
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again_on_the_next_connection() {
        let mut kept = ResendBuffer::new(100);
        for items in 0..4 {
            kept.push(message(20, items));
        }
        assert!(kept.fits(20) && !kept.fits(21));
        let sent = |kept: &mut ResendBuffer| {
            std::iter::from_fn(|| kept.take_unsent().map(|message| message.items)).collect::<Vec<_>>()
        };
        assert_eq!(sent(&mut kept), [0, 1, 2, 3]);
        assert!(kept.acknowledge(2));
        assert!(kept.fits(60));
        // It wrote one more than it could say.
        assert!(kept.resume(3));
        assert_eq!((kept.first_number(), kept.next_number(), kept.bytes()), (3, 4, 20));
        assert_eq!(sent(&mut kept), [3]);
        assert!(kept.acknowledge(4) && kept.is_empty());
        kept.push(message(1, 4));
        assert_eq!(sent(&mut kept), [4]);
        // Neither what was never sent nor what is gone can be asked for.
        assert!(!kept.acknowledge(6) && !kept.resume(6));
        assert!(!kept.resume(3));
        assert_eq!(kept.drain().map(|message| message.items).collect::<Vec<_>>(), [4]);
        assert_eq!((kept.first_number(), kept.bytes(), kept.is_empty()), (5, 0, true));
    }

    proptest! {
        #[test]
        fn its_bytes_and_numbers_are_those_of_what_is_kept(
            steps in prop::collection::vec((0..4u8, 0..40u64), 1..80),
        ) {
            let mut kept = ResendBuffer::new(1_000);
            let (mut made, mut acknowledged) = (0, 0);
            for (step, number) in steps {
                match step {
                    0 if kept.fits(number as usize) => {
                        kept.push(message(number as usize, made));
                        made += 1;
                    }
                    1 => {
                        let known = kept.acknowledge(number);
                        prop_assert_eq!(known, number <= made);
                        acknowledged = if known { acknowledged.max(number) } else { acknowledged };
                    }
                    2 => if let Some(message) = kept.take_unsent() {
                        prop_assert!((acknowledged..made).contains(&message.items));
                    },
                    _ => {
                        let taken = kept.resume(number);
                        prop_assert_eq!(taken, (acknowledged..=made).contains(&number));
                        acknowledged = if number <= made { acknowledged.max(number) } else { acknowledged };
                    }
                }
                prop_assert_eq!((kept.first_number(), kept.next_number()), (acknowledged, made));
                prop_assert_eq!(kept.bytes(), kept.messages.iter().map(|message| message.bytes.len()).sum::<usize>());
                prop_assert!(kept.bytes() <= kept.capacity());
            }
        }
    }
}
