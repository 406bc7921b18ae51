//! Assignment of socket calls to sessions, with the bytes missing before each call. Parses nothing.
//!
//! The kernel reports calls in order, so nothing is reordered here. Records that a tap dropped show in the
//! positions: a side continues at a later position than expected.

use crate::direction::{Direction, GapCause};
use crate::event::Sink;
use crate::mysql::{Context, Session};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::net::IpAddr;

/// Sender of the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallDirection {
    /// The server received them.
    #[default]
    FromClient,
    /// The server sent them.
    FromServer,
}

/// Bytes of one call on a socket of the server, or a part of them. Without bytes: a new connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketChunk<'a> {
    /// When the call returned, Unix ns.
    pub time_ns: u64,
    /// Unique for a connection's life.
    pub socket: u64,
    pub direction: CallDirection,
    /// Stream offset of these bytes in this direction. Beyond the expected offset: the bytes between were lost.
    pub stream_offset: u64,
    /// Stream offset of the other direction at that time. Bytes missing up to it were lost, and so were the
    /// commands in them.
    pub peer_offset: u64,
    /// Length of the call, bytes; `bytes` may hold fewer.
    pub full_len: u64,
    /// The first of them.
    pub bytes: &'a [u8],
    /// The server has just accepted the connection.
    pub opened: bool,
    /// The connection is over.
    pub closed: bool,
    /// Payload of a TLS connection, read before encryption or after decryption.
    pub decrypted: bool,
    /// Address of the client; `None` on a Unix socket, or if an earlier call reported it.
    pub client: Option<(IpAddr, u16)>,
}

/// The sessions of all sockets.
pub(crate) struct SocketSessions {
    index: HashMap<u64, u32, RandomState>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    max_sessions: usize,
    clock_hand: usize,
}

#[derive(Default)]
struct Slot {
    socket: Option<u64>,
    last_ns: u64,
    /// Expected next offset by direction. `None`: no bytes yet.
    next_offsets: [Option<u64>; 2],
    /// The plain text of the TLS connection is captured. Other bytes of the socket are the same data, encrypted.
    decrypted: bool,
    session: Session,
}

/// COM_QUIT packet: no bytes follow it.
const QUIT_PACKET: &[u8] = b"\x01\0\0\0\x01";

impl SocketSessions {
    /// `most` sockets; beyond that the one idle for longest is closed.
    pub(crate) fn new(most: usize) -> Self {
        SocketSessions {
            index: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            max_sessions: most.max(1),
            clock_hand: 0,
        }
    }

    pub(crate) fn handle_chunk<S: Sink + ?Sized>(
        &mut self,
        chunk: &SocketChunk<'_>,
        context: &mut Context<'_, S>,
    ) {
        let known = self.index.get(&chunk.socket).copied();
        let slot = match known {
            Some(slot) if chunk.opened => {
                // The end of the former connection was not captured.
                self.close(slot, context);
                self.open(chunk, context)
            }
            Some(slot) => slot,
            // Nothing is known of what is over.
            None if chunk.closed && chunk.full_len == 0 => return,
            None => self.open(chunk, context),
        };
        let place = &mut self.slots[slot as usize];
        place.last_ns = chunk.time_ns;
        if chunk.full_len > 0 {
            place.handle_chunk(chunk, context);
        }
        if chunk.closed || chunk.direction == CallDirection::FromClient && chunk.bytes == QUIT_PACKET {
            self.close(slot, context);
        }
    }

    fn open<S: Sink + ?Sized>(&mut self, chunk: &SocketChunk<'_>, context: &mut Context<'_, S>) -> u32 {
        if self.index.len() >= self.max_sessions {
            self.evict(context);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.socket = Some(chunk.socket);
        match chunk.client {
            Some((host, port)) => place.session.open(host, port, context.accounting),
            None => place.session.open("", 0, context.accounting),
        }
        place.session.set_seen_at_server();
        place.next_offsets = [None; 2];
        place.decrypted = false;
        if chunk.opened {
            place.next_offsets = [Some(0); 2];
            place.session.handle_syn(Direction::FromClient, chunk.time_ns);
        }
        self.index.insert(chunk.socket, slot);
        slot
    }

    /// Closes the longest idle of a few: exact order would cost a list update for each call.
    fn evict<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        let mut oldest: Option<(u64, usize)> = None;
        let mut looked_at = 0;
        while looked_at < self.index.len().min(16) {
            self.clock_hand = (self.clock_hand + 1) % self.slots.len();
            let slot = &self.slots[self.clock_hand];
            if slot.socket.is_some() {
                looked_at += 1;
                if oldest.is_none_or(|(since, _)| slot.last_ns < since) {
                    oldest = Some((slot.last_ns, self.clock_hand));
                }
            }
        }
        if let Some((_, slot)) = oldest {
            self.close(slot as u32, context);
        }
    }

    fn close<S: Sink + ?Sized>(&mut self, slot: u32, context: &mut Context<'_, S>) {
        let place = &mut self.slots[slot as usize];
        let Some(socket) = place.socket.take() else { return };
        place.session.close(context);
        self.index.remove(&socket);
        self.free.push(slot);
    }

    pub(crate) fn finish<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        for slot in 0..self.slots.len() {
            self.close(slot as u32, context);
        }
    }
}

impl Slot {
    fn handle_chunk<S: Sink + ?Sized>(&mut self, chunk: &SocketChunk<'_>, context: &mut Context<'_, S>) {
        if self.next_offsets == [None; 2] && is_greeting(chunk) {
            // The accept was not captured, but no bytes came before the greeting.
            self.next_offsets = [Some(0); 2];
            self.session.handle_syn(Direction::FromClient, chunk.time_ns);
        }
        let (side, own, other) = match chunk.direction {
            CallDirection::FromClient => (Direction::FromClient, 0, 1),
            CallDirection::FromServer => (Direction::FromServer, 1, 0),
        };
        let session = &mut self.session;
        for (of, at, reached) in
            [(side.reverse(), other, chunk.peer_offset), (side, own, chunk.stream_offset)]
        {
            let next = &mut self.next_offsets[at];
            let lost = next.map_or(0, |next| reached.saturating_sub(next));
            *next = Some(next.map_or(reached, |next| next.max(reached)));
            if lost > 0 {
                session.handle_gap(of, lost, GapCause::Lost, chunk.time_ns, context);
            }
        }
        self.next_offsets[own] = Some(chunk.stream_offset + chunk.full_len);
        if chunk.decrypted {
            self.decrypted = true;
            session.begin_decrypted(context);
        } else if self.decrypted {
            return;
        }
        if side == Direction::FromClient {
            session.handle_server_read(context);
        }
        if !chunk.bytes.is_empty() {
            session.handle_bytes(side, chunk.bytes, chunk.time_ns, context);
        }
        let cut = chunk.full_len.saturating_sub(chunk.bytes.len() as u64);
        if cut > 0 {
            session.handle_gap(side, cut, GapCause::Truncated, chunk.time_ns, context);
        }
        let frames = &mut context.accounting.frames;
        frames.read += 1;
        *if cut > 0 { &mut frames.truncated } else { &mut frames.parsed } += 1;
        context.accounting.bytes.frames += chunk.bytes.len() as u64;
    }
}

/// True if a connection begins with these bytes: the server's first, numbered 0, of protocol 10.
fn is_greeting(chunk: &SocketChunk<'_>) -> bool {
    chunk.direction == CallDirection::FromServer
        && chunk.stream_offset == 0
        && matches!(chunk.bytes, [_, _, 0, 0, 0x0a, ..])
}
