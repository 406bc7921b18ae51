//! Interning of texts and connections as numbers within a block.
//!
//! Looks them up in the block itself; makes no copies and allocates nothing.

use crate::text_hash::hash_text;

/// Texts that are found again; a newer takes the place of an older one.
const TEXT_SLOTS: usize = 4096;
/// As many as a busy server has connections.
const PEER_SLOTS: usize = 1024;

/// A stretch of the block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockSpan {
    pub at: u32,
    pub len: u32,
}

impl BlockSpan {
    #[inline]
    pub fn slice_of(self, block: &[u8]) -> &[u8] {
        let at = self.at as usize;
        block.get(at..at + self.len as usize).unwrap_or_default()
    }
}

/// Peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerRef<'a> {
    pub user: &'a [u8],
    pub host: &'a [u8],
    pub db: &'a [u8],
    pub port: u16,
    pub connection_id: Option<u64>,
}

/// The same, as it lies in a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PeerSpans {
    pub user: BlockSpan,
    pub host: BlockSpan,
    pub db: BlockSpan,
    pub port: u16,
    pub connection_id: Option<u64>,
}

impl PeerSpans {
    #[inline]
    pub fn resolve_in(self, block: &[u8]) -> PeerRef<'_> {
        PeerRef {
            user: self.user.slice_of(block),
            host: self.host.slice_of(block),
            db: self.db.slice_of(block),
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
    value: T,
}

/// Texts and connections of a block that have a number.
pub(super) struct InternTable {
    texts: Vec<Slot<BlockSpan>>,
    peers: Vec<Slot<PeerSpans>>,
    round: u32,
    last_text: u32,
    last_peer: u32,
}

/// Where in a table something is, or goes.
#[derive(Clone, Copy)]
pub(super) struct SlotIndex(usize);

impl InternTable {
    pub fn new() -> Self {
        Self {
            texts: vec![Slot::default(); TEXT_SLOTS],
            peers: vec![Slot::default(); PEER_SLOTS],
            round: 0,
            last_text: 0,
            last_peer: 0,
        }
    }

    /// A block begins: nothing of the one before has a number.
    pub fn begin_block(&mut self) {
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
    pub fn find_text(&self, text: &[u8], block: &[u8]) -> Result<u32, SlotIndex> {
        let place = hash_text(text, 0) as usize % TEXT_SLOTS;
        let slot = &self.texts[place];
        let is_it = slot.round == self.round && slot.value.slice_of(block) == text;
        if is_it { Ok(slot.number) } else { Err(SlotIndex(place)) }
    }

    /// Texts are numbered from 1 on, as they come.
    #[inline]
    pub fn insert_text(&mut self, place: SlotIndex, what: BlockSpan) {
        self.last_text += 1;
        self.texts[place.0] = Slot { round: self.round, number: self.last_text, value: what };
    }

    /// A text that is not looked for again has a number nevertheless.
    pub fn skip_text(&mut self) {
        self.last_text += 1;
    }

    /// The number of a connection's other end, or the place for it.
    #[inline]
    pub fn find_peer(&self, who: &PeerRef<'_>, block: &[u8]) -> Result<u32, SlotIndex> {
        let mixed =
            (u64::from(who.port) << 32 ^ who.connection_id.unwrap_or(0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed >> 48) as usize % PEER_SLOTS;
        let slot = &self.peers[place];
        let is_it = slot.round == self.round && slot.value.resolve_in(block) == *who;
        if is_it { Ok(slot.number) } else { Err(SlotIndex(place)) }
    }

    /// Numbered as texts are.
    #[inline]
    pub fn insert_peer(&mut self, place: SlotIndex, what: PeerSpans) {
        self.last_peer += 1;
        self.peers[place.0] = Slot { round: self.round, number: self.last_peer, value: what };
    }
}
