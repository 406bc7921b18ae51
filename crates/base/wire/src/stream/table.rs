//! Connection table: lookup of a segment's connection, and expiry of connections. Never orders bytes.

use super::connection::{Connection, LINGER_NS};
use super::{Limits, SegmentOutcome, StreamListener};
use crate::direction::Direction;
use crate::frame::{SYN, Segment};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::Hash;

/// Frames between two looks for connections that are over.
const SWEEP_EVERY: u32 = 256;
/// Connections looked at each time.
const SWEEP_SLOTS: usize = 8;

/// All connections that are open.
pub(crate) struct ConnectionTable<K, R> {
    index: HashMap<K, u32, RandomState>,
    slots: Vec<Slot<K, R>>,
    free: Vec<u32>,
    limits: Limits,
    now_ns: u64,
    until_sweep: u32,
    clock_hand: usize,
}

struct Slot<K, R> {
    used: bool,
    connection: Connection<K, R>,
}

impl<K: Copy + Eq + Hash, R: Default> ConnectionTable<K, R> {
    pub(crate) fn new(limits: Limits) -> Self {
        ConnectionTable {
            index: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            limits,
            now_ns: 0,
            until_sweep: SWEEP_EVERY,
            clock_hand: 0,
        }
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.index.contains_key(key)
    }

    #[inline]
    pub(crate) fn handle_segment<C: StreamListener<K, R>>(
        &mut self,
        key: K,
        from: Direction,
        segment: &Segment<'_>,
        time_ns: u64,
        listener: &mut C,
    ) -> SegmentOutcome {
        self.now_ns = self.now_ns.max(time_ns);
        self.until_sweep -= 1;
        if self.until_sweep == 0 {
            self.sweep(listener);
        }
        let slot = match self.index.get(&key) {
            Some(&slot) => slot,
            // An acknowledgement alone says nothing of a connection that is not known.
            None if segment.payload_len == 0 && segment.flags & SYN == 0 => return SegmentOutcome::Parsed,
            None => self.open(key, listener),
        };
        self.slots[slot as usize].connection.handle_segment(from, segment, time_ns, &self.limits, listener)
    }

    fn open<C: StreamListener<K, R>>(&mut self, key: K, listener: &mut C) -> u32 {
        if self.index.len() >= self.limits.connections.max(1) {
            self.evict(listener);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot { used: false, connection: Connection::new(key) });
                (self.slots.len() - 1) as u32
            }
        };
        let place = &mut self.slots[slot as usize];
        place.used = true;
        place.connection.key = key;
        place.connection.open(listener);
        self.index.insert(key, slot);
        slot
    }

    /// Closes the longest idle of a few: exact order would cost a list update for each packet.
    fn evict<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        let mut oldest: Option<(u64, usize)> = None;
        let mut looked_at = 0;
        while looked_at < 16 {
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            let slot = &self.slots[self.clock_hand];
            if slot.used {
                looked_at += 1;
                let idle_since = slot.connection.last_ns();
                if oldest.is_none_or(|(since, _)| idle_since < since) {
                    oldest = Some((idle_since, self.clock_hand));
                }
            }
        }
        if let Some((_, slot)) = oldest {
            self.close(slot, listener);
        }
    }

    #[cold]
    fn sweep<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        self.until_sweep = SWEEP_EVERY;
        for _ in 0..SWEEP_SLOTS.min(self.slots.len()) {
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.clock_hand];
            if !slot.used {
                continue;
            }
            let idle_ns = self.now_ns.saturating_sub(slot.connection.last_ns());
            let allowed_ns = if slot.connection.is_closed() { LINGER_NS } else { self.limits.idle_ns };
            if idle_ns > allowed_ns {
                self.close(self.clock_hand, listener);
            } else if idle_ns > self.limits.reorder_ns {
                slot.connection.flush_held(listener);
            }
        }
    }

    fn close<C: StreamListener<K, R>>(&mut self, slot: usize, listener: &mut C) {
        let place = &mut self.slots[slot];
        place.connection.close(listener);
        place.used = false;
        self.index.remove(&place.connection.key);
        self.free.push(slot as u32);
    }

    pub(crate) fn finish<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].used {
                self.close(slot, listener);
            }
        }
    }
}
