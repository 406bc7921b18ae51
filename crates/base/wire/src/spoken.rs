//! Assignment of socket calls to sessions, with the bytes missing before each call. Parses nothing.
//!
//! The kernel reports calls in order, so nothing is reordered here. Records that a tap dropped show in the
//! positions: a side continues at a later position than expected.

use crate::event::Sink;
use crate::hashed::AsHashed;
use crate::mysql::{Context, Session};
use crate::side::{Hole, Side};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// Sender of the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Said {
    /// The server received them.
    #[default]
    Client,
    /// The server sent them.
    Server,
}

/// Bytes of one call on a socket of the server, or a part of them. Without bytes: a new connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spoken<'a> {
    /// When the call returned, Unix ns.
    pub time_ns: u64,
    /// Unique for a connection's life.
    pub socket: u64,
    pub by: Said,
    /// Bytes that this side has said on this socket before these. Further than was heard: what lies between was lost.
    pub position: u64,
    /// Bytes that the other side had said by then: what of them was not heard was lost, and what it answers is unknown.
    pub after: u64,
    /// Bytes that it stands for.
    pub length: u64,
    /// The first of them.
    pub bytes: &'a [u8],
    /// The server has just accepted the connection.
    pub opened: bool,
    /// The connection is over.
    pub closed: bool,
    /// Said inside TLS, and read where it was in the clear.
    pub deciphered: bool,
    /// Address of the client; `None` on a Unix socket, or if an earlier call reported it.
    pub client: Option<(IpAddr, u16)>,
}

impl Spoken<'_> {
    pub(crate) fn hash(&self) -> u64 {
        // Sockets may be numbered one after the other; the golden ratio spreads them (Knuth, 6.4).
        let product = u128::from(self.socket) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    }
}

/// A socket, with its hash.
#[derive(Debug, Clone, Copy)]
struct Key {
    socket: u64,
    hash: u64,
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.socket == other.socket
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The sessions of all sockets.
pub(crate) struct Sockets {
    index: HashMap<Key, u32, AsHashed>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    most: usize,
    hand: usize,
}

#[derive(Default)]
struct Slot {
    key: Option<Key>,
    last_ns: u64,
    /// Where client and server go on, if nothing is lost; `None`: they have not been heard.
    next: [Option<u64>; 2],
    /// What is said inside TLS is heard: what else crosses the socket is the same, enciphered.
    deciphered: bool,
    session: Session,
}

/// The client takes its leave: nothing follows, whether the end of the connection is seen or not.
const QUIT: &[u8] = b"\x01\0\0\0\x01";

impl Sockets {
    /// `most` sockets; beyond that the one idle for longest is closed.
    pub(crate) fn new(most: usize) -> Self {
        Sockets { index: HashMap::default(), slots: Vec::new(), free: Vec::new(), most: most.max(1), hand: 0 }
    }

    pub(crate) fn spoken<S: Sink + ?Sized>(&mut self, said: &Spoken<'_>, context: &mut Context<'_, S>) {
        let key = Key { socket: said.socket, hash: said.hash() };
        let known = self.index.get(&key).copied();
        let slot = match known {
            Some(slot) if said.opened => {
                // Its end was not heard.
                self.close(slot, context);
                self.open(key, said, context)
            }
            Some(slot) => slot,
            // Nothing is known of what is over.
            None if said.closed && said.length == 0 => return,
            None => self.open(key, said, context),
        };
        let place = &mut self.slots[slot as usize];
        place.last_ns = said.time_ns;
        if said.length > 0 {
            place.hear(said, context);
        }
        if said.closed || said.by == Said::Client && said.bytes == QUIT {
            self.close(slot, context);
        }
    }

    fn open<S: Sink + ?Sized>(&mut self, key: Key, said: &Spoken<'_>, context: &mut Context<'_, S>) -> u32 {
        if self.index.len() >= self.most {
            self.evict(context);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.key = Some(key);
        match said.client {
            Some((host, port)) => place.session.open(host, port, context.ledger),
            None => place.session.open("", 0, context.ledger),
        }
        place.next = [None; 2];
        place.deciphered = false;
        if said.opened {
            place.next = [Some(0); 2];
            place.session.connecting(Side::Client, said.time_ns);
        }
        self.index.insert(key, slot);
        slot
    }

    /// Closes the longest idle of a few: exact order would cost a list update for each call.
    fn evict<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        let mut oldest: Option<(u64, usize)> = None;
        let mut looked_at = 0;
        while looked_at < self.index.len().min(16) {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &self.slots[self.hand];
            if slot.key.is_some() {
                looked_at += 1;
                if oldest.is_none_or(|(since, _)| slot.last_ns < since) {
                    oldest = Some((slot.last_ns, self.hand));
                }
            }
        }
        if let Some((_, slot)) = oldest {
            self.close(slot as u32, context);
        }
    }

    fn close<S: Sink + ?Sized>(&mut self, slot: u32, context: &mut Context<'_, S>) {
        let place = &mut self.slots[slot as usize];
        let Some(key) = place.key.take() else { return };
        place.session.close(context);
        self.index.remove(&key);
        self.free.push(slot);
    }

    pub(crate) fn finish<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        for slot in 0..self.slots.len() {
            self.close(slot as u32, context);
        }
    }
}

impl Slot {
    fn hear<S: Sink + ?Sized>(&mut self, said: &Spoken<'_>, context: &mut Context<'_, S>) {
        if self.next == [None; 2] && is_greeting(said) {
            // Its beginning was not seen, but nothing was said before.
            self.next = [Some(0); 2];
            self.session.connecting(Side::Client, said.time_ns);
        }
        let (side, own, other) = match said.by {
            Said::Client => (Side::Client, 0, 1),
            Said::Server => (Side::Server, 1, 0),
        };
        let session = &mut self.session;
        for (of, at, reached) in [(side.other(), other, said.after), (side, own, said.position)] {
            let next = &mut self.next[at];
            let lost = next.map_or(0, |next| reached.saturating_sub(next));
            *next = Some(next.map_or(reached, |next| next.max(reached)));
            if lost > 0 {
                session.hole(of, lost, Hole::Lost, said.time_ns, context);
            }
        }
        self.next[own] = Some(said.position + said.length);
        if said.deciphered {
            self.deciphered = true;
            session.deciphered(context);
        } else if self.deciphered {
            return;
        }
        if !said.bytes.is_empty() {
            session.bytes(side, said.bytes, said.time_ns, context);
        }
        let cut = said.length.saturating_sub(said.bytes.len() as u64);
        if cut > 0 {
            session.hole(side, cut, Hole::Cut, said.time_ns, context);
        }
        let frames = &mut context.ledger.frames;
        frames.read += 1;
        *if cut > 0 { &mut frames.truncated } else { &mut frames.parsed } += 1;
        context.ledger.bytes.frames += said.bytes.len() as u64;
    }
}

/// True if a connection begins with these bytes: the server's first, numbered 0, of protocol 10.
fn is_greeting(said: &Spoken<'_>) -> bool {
    said.by == Said::Server && said.position == 0 && matches!(said.bytes, [_, _, 0, 0, 0x0a, ..])
}
