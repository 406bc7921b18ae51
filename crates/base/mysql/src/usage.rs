//! Account of what sessions take of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of all sessions of one target and of its clones, which share it.
#[derive(Debug, Clone, Default)]
pub struct Usage(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    queries: AtomicU64,
    connections: AtomicU64,
}

impl Usage {
    /// Texts sent so far; without those of callers that send by themselves (`Connection::packet_io`).
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.0.queries.load(Ordering::Relaxed)
    }

    /// Sessions that are open now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// One more session, until it is dropped.
    pub(crate) fn open_session(&self) -> OpenSession {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        OpenSession(self.clone())
    }
}

/// A session in the account.
#[derive(Debug)]
pub(crate) struct OpenSession(Usage);

impl OpenSession {
    pub(crate) fn add_query(&self) {
        self.0.0.queries.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
