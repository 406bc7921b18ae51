//! Memory budget shared by streams and sessions. Holds no data itself.

/// Memory in use over all connections of a decoder, and its bound.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used_bytes: usize,
    limit_bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(total: usize) -> Self {
        MemoryBudget { used_bytes: 0, limit_bytes: total }
    }

    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.used_bytes += bytes;
    }

    pub(crate) fn release(&mut self, bytes: usize) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
    }

    /// Nothing more is to be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.used_bytes >= self.limit_bytes
    }

    /// More is kept than should be: something has to go.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used_bytes > self.limit_bytes
    }
}
