//! Bounded buffer for bytes of a packet or statement. Refuses bytes beyond its bound.

use crate::room::Room;

/// Buffers up to this size are kept for reuse and not accounted for: connections are bounded in number.
const SMALL: usize = 2048;

/// A buffer whose size counts against the room of its decoder.
#[derive(Debug, Default)]
pub(crate) struct Kept(Vec<u8>);

/// Where bytes are kept, and how many of one command may be.
pub(super) struct Scene<'a> {
    pub room: &'a mut Room,
    pub limit: usize,
}

impl Kept {
    /// Appends as much as `limit` (of this buffer) and the room allow; returns how many bytes were
    /// left out.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8], limit: usize, room: &mut Room) -> u64 {
        let fits = if self.0.len() + bytes.len() <= self.0.capacity().min(limit) {
            bytes.len()
        } else {
            self.grow(bytes.len(), limit, room)
        };
        self.0.extend_from_slice(&bytes[..fits]);
        (bytes.len() - fits) as u64
    }

    #[cold]
    fn grow(&mut self, wanted: usize, limit: usize, room: &mut Room) -> usize {
        let before = self.accounted();
        let limit = if room.is_full() { limit.min(SMALL) } else { limit };
        let fits = wanted.min(limit.saturating_sub(self.0.len()));
        self.0.reserve(fits);
        room.take(self.accounted() - before);
        fits
    }

    fn accounted(&self) -> usize {
        if self.0.capacity() > SMALL { self.0.capacity() } else { 0 }
    }

    /// Empties the buffer; memory beyond the usual is returned.
    #[inline]
    pub(crate) fn clear(&mut self, room: &mut Room) {
        self.0.clear();
        if self.0.capacity() > SMALL {
            room.give_back(self.0.capacity());
            self.0 = Vec::new();
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
