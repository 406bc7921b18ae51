//! Interning of texts and connections as numbers within a block.
//!
//! Looks them up in the block itself; makes no copies and allocates nothing.

use crate::text_hash::hash;

/// Texts that are found again; a newer takes the place of an older one.
const TEXTS: usize = 4096;
/// As many as a busy server has connections.
const PEERS: usize = 1024;

/// A stretch of the block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    pub at: u32,
    pub len: u32,
}

impl Stretch {
    #[inline]
    pub fn of(self, block: &[u8]) -> &[u8] {
        let at = self.at as usize;
        block.get(at..at + self.len as usize).unwrap_or_default()
    }
}

/// Peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who<'a> {
    pub user: &'a [u8],
    pub host: &'a [u8],
    pub db: &'a [u8],
    pub port: u16,
    pub connection_id: Option<u64>,
}

/// The same, as it lies in a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peer {
    pub user: Stretch,
    pub host: Stretch,
    pub db: Stretch,
    pub port: u16,
    pub connection_id: Option<u64>,
}

impl Peer {
    #[inline]
    pub fn of(self, block: &[u8]) -> Who<'_> {
        Who {
            user: self.user.of(block),
            host: self.host.of(block),
            db: self.db.of(block),
            port: self.port,
            connection_id: self.connection_id,
        }
    }
}

/// Something that has a number in the block of that round; of another round it is nothing.
#[derive(Clone, Copy, Default)]
struct Slot<T> {
    round: u32,
    number: u32,
    what: T,
}

/// What a block has said so far.
pub(super) struct Interned {
    texts: Vec<Slot<Stretch>>,
    peers: Vec<Slot<Peer>>,
    round: u32,
    last_text: u32,
    last_peer: u32,
}

/// Where in a table something is, or goes.
#[derive(Clone, Copy)]
pub(super) struct Place(usize);

impl Interned {
    pub fn new() -> Self {
        Self {
            texts: vec![Slot::default(); TEXTS],
            peers: vec![Slot::default(); PEERS],
            round: 0,
            last_text: 0,
            last_peer: 0,
        }
    }

    /// A block begins: nothing of the one before has a number.
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            *self = Self::new();
            self.round = 1;
        }
        self.last_text = 0;
        self.last_peer = 0;
    }

    /// The number of a text, or the place for it.
    #[inline]
    pub fn text(&self, text: &[u8], block: &[u8]) -> Result<u32, Place> {
        let place = hash(text, 0) as usize % TEXTS;
        let slot = &self.texts[place];
        let is_it = slot.round == self.round && slot.what.of(block) == text;
        if is_it { Ok(slot.number) } else { Err(Place(place)) }
    }

    /// Texts are numbered from 1 on, as they come.
    #[inline]
    pub fn put_text(&mut self, place: Place, what: Stretch) {
        self.last_text += 1;
        self.texts[place.0] = Slot { round: self.round, number: self.last_text, what };
    }

    /// A text that is not looked for again has a number nevertheless.
    pub fn skip_text(&mut self) {
        self.last_text += 1;
    }

    /// The number of a connection's other end, or the place for it.
    #[inline]
    pub fn peer(&self, who: &Who<'_>, block: &[u8]) -> Result<u32, Place> {
        let mixed =
            (u64::from(who.port) << 32 ^ who.connection_id.unwrap_or(0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed >> 48) as usize % PEERS;
        let slot = &self.peers[place];
        let is_it = slot.round == self.round && slot.what.of(block) == *who;
        if is_it { Ok(slot.number) } else { Err(Place(place)) }
    }

    /// Numbered as texts are.
    #[inline]
    pub fn put_peer(&mut self, place: Place, what: Peer) {
        self.last_peer += 1;
        self.peers[place.0] = Slot { round: self.round, number: self.last_peer, what };
    }
}
