//! Bounded buffer for bytes of a packet or statement. Refuses bytes beyond its bound.

use crate::memory_budget::MemoryBudget;

/// Buffers up to this size are kept for reuse and not accounted for: connections are bounded in number.
pub(super) const UNACCOUNTED_MAX: usize = 2048;

/// Buffer that counts against the memory budget of its decoder.
#[derive(Debug, Default)]
pub(crate) struct BoundedBuffer(Vec<u8>);

/// Where bytes are kept, and how many of one command may be.
pub(super) struct BufferBounds<'a> {
    pub budget: &'a mut MemoryBudget,
    pub limit: usize,
}

impl BoundedBuffer {
    /// Appends as much as `limit` (of this buffer) and the budget allow; returns how many bytes were
    /// left out.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8], limit: usize, budget: &mut MemoryBudget) -> u64 {
        let fits = if self.0.len() + bytes.len() <= self.0.capacity().min(limit) {
            bytes.len()
        } else {
            self.grow(bytes.len(), limit, budget)
        };
        self.0.extend_from_slice(&bytes[..fits]);
        (bytes.len() - fits) as u64
    }

    #[cold]
    fn grow(&mut self, wanted: usize, limit: usize, budget: &mut MemoryBudget) -> usize {
        let before = self.reserved_bytes();
        let limit = if budget.is_full() { limit.min(UNACCOUNTED_MAX) } else { limit };
        let fits = wanted.min(limit.saturating_sub(self.0.len()));
        self.0.reserve(fits);
        budget.reserve(self.reserved_bytes() - before);
        fits
    }

    fn reserved_bytes(&self) -> usize {
        if self.0.capacity() > UNACCOUNTED_MAX { self.0.capacity() } else { 0 }
    }

    /// Empties the buffer; memory beyond the usual is returned.
    #[inline]
    pub(crate) fn clear(&mut self, budget: &mut MemoryBudget) {
        self.0.clear();
        if self.0.capacity() > UNACCOUNTED_MAX {
            budget.release(self.0.capacity());
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
