//! Memory budget shared by streams and sessions. Holds no data itself.

/// Memory in use over all connections of a decoder, and its bound.
#[derive(Debug)]
pub(crate) struct Room {
    used: usize,
    total: usize,
}

impl Room {
    pub(crate) fn new(total: usize) -> Self {
        Room { used: 0, total }
    }

    pub(crate) fn take(&mut self, bytes: usize) {
        self.used += bytes;
    }

    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Nothing more is to be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.total
    }

    /// More is kept than should be: something has to go.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used > self.total
    }
}
