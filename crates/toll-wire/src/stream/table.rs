//! Which connection does a segment belong to, and when is a connection forgotten? Never orders bytes.

use super::{
    Side,
    connection::{Connection, LINGER_NS},
};
use crate::decoder::{Limits, Outcome};
use crate::event::Sink;
use crate::frame::{Address, SYN, Segment};
use crate::ledger::Ledger;
use crate::mysql::{Context, Workspace};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The two ends of a connection, whichever of them sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub client: Address,
    pub server: Address,
    pub client_port: u16,
    pub server_port: u16,
}

impl Endpoints {
    pub(crate) fn new(client: Address, client_port: u16, server: Address, server_port: u16) -> Self {
        Endpoints { client, server, client_port, server_port }
    }

    /// Two multiplications fold what differs between connections; SipHash alone would cost a
    /// fifth of the time a packet may take.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        let ports = u64::from(self.client_port) << 16 | u64::from(self.server_port);
        let low = self.client.low ^ ports << 32;
        let first = fold(low ^ 0x9e37_79b9_7f4a_7c15, self.server.low ^ 0xd1b5_4a32_d192_ed03);
        fold(first ^ self.client.high, self.server.high ^ 0x8cb9_2ba7_2f3d_8dd7)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// A key whose hash was computed already.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    endpoints: Endpoints,
    hash: u64,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[derive(Default)]
struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        // `Key` writes one u64 and nothing else.
        debug_assert!(false);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Frames between two looks for connections that are over.
const SWEEP_EVERY: u32 = 256;
/// Connections looked at each time.
const SWEEP_SLOTS: usize = 8;

/// All connections that are open.
pub(crate) struct Streams {
    index: HashMap<Key, u32, BuildHasherDefault<Passed>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    limits: Limits,
    workspace: Workspace,
    now_ns: u64,
    until_sweep: u32,
    hand: usize,
}

struct Slot {
    key: Key,
    used: bool,
    connection: Connection,
}

impl Streams {
    pub(crate) fn new(limits: Limits) -> Self {
        Streams {
            index: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            limits,
            workspace: Workspace::default(),
            now_ns: 0,
            until_sweep: SWEEP_EVERY,
            hand: 0,
        }
    }

    pub(crate) fn knows(&self, endpoints: &Endpoints) -> bool {
        self.index.contains_key(&Key { endpoints: *endpoints, hash: endpoints.hash() })
    }

    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the pieces of one packet, and where they go")]
    pub(crate) fn segment<S: Sink + ?Sized>(
        &mut self,
        endpoints: Endpoints,
        hash: u64,
        from: Side,
        segment: &Segment<'_>,
        time_ns: u64,
        ledger: &mut Ledger,
        sink: &mut S,
    ) -> Outcome {
        self.now_ns = self.now_ns.max(time_ns);
        self.until_sweep -= 1;
        if self.until_sweep == 0 {
            self.sweep(ledger, sink);
        }
        let key = Key { endpoints, hash };
        let slot = match self.index.get(&key) {
            Some(&slot) => slot,
            // An acknowledgement alone says nothing of a connection that is not known.
            None if segment.payload_len == 0 && segment.flags & SYN == 0 => return Outcome::Parsed,
            None => self.open(key, ledger, sink),
        };
        let mut context =
            Context { sink, ledger, limits: &self.limits, workspace: &mut self.workspace, endpoints };
        self.slots[slot as usize].connection.segment(from, segment, time_ns, &mut context)
    }

    fn open<S: Sink + ?Sized>(&mut self, key: Key, ledger: &mut Ledger, sink: &mut S) -> u32 {
        if self.index.len() >= self.limits.connections.max(1) {
            self.evict(ledger, sink);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot { key, used: false, connection: Connection::default() });
                (self.slots.len() - 1) as u32
            }
        };
        let place = &mut self.slots[slot as usize];
        place.key = key;
        place.used = true;
        place.connection.open(&key.endpoints, ledger);
        self.index.insert(key, slot);
        slot
    }

    /// Closes the longest idle of a few: exact order would cost a list update for each packet.
    fn evict<S: Sink + ?Sized>(&mut self, ledger: &mut Ledger, sink: &mut S) {
        let mut oldest: Option<(u64, usize)> = None;
        let mut looked_at = 0;
        while looked_at < 16 {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &self.slots[self.hand];
            if slot.used {
                looked_at += 1;
                let idle_since = slot.connection.last_ns();
                if oldest.is_none_or(|(since, _)| idle_since < since) {
                    oldest = Some((idle_since, self.hand));
                }
            }
        }
        if let Some((_, slot)) = oldest {
            self.close(slot, ledger, sink);
        }
    }

    #[cold]
    fn sweep<S: Sink + ?Sized>(&mut self, ledger: &mut Ledger, sink: &mut S) {
        self.until_sweep = SWEEP_EVERY;
        for _ in 0..SWEEP_SLOTS.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if !slot.used {
                continue;
            }
            let idle_ns = self.now_ns.saturating_sub(slot.connection.last_ns());
            let allowed_ns = if slot.connection.is_closed() { LINGER_NS } else { self.limits.idle_ns };
            if idle_ns > allowed_ns {
                self.close(self.hand, ledger, sink);
            } else if idle_ns > self.limits.held_ns {
                let endpoints = slot.key.endpoints;
                let workspace = &mut self.workspace;
                slot.connection.give_up(&mut Context {
                    sink,
                    ledger,
                    limits: &self.limits,
                    workspace,
                    endpoints,
                });
            }
        }
    }

    fn close<S: Sink + ?Sized>(&mut self, slot: usize, ledger: &mut Ledger, sink: &mut S) {
        let place = &mut self.slots[slot];
        let endpoints = place.key.endpoints;
        let workspace = &mut self.workspace;
        place.connection.close(&mut Context { sink, ledger, limits: &self.limits, workspace, endpoints });
        place.used = false;
        self.index.remove(&place.key);
        self.free.push(slot as u32);
    }

    pub(crate) fn finish<S: Sink + ?Sized>(&mut self, ledger: &mut Ledger, sink: &mut S) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].used {
                self.close(slot, ledger, sink);
            }
        }
    }
}
