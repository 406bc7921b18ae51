//! Which bytes did each side of a connection send, in which order? Never looks into them.

mod connection;
mod table;

pub(crate) use table::{Endpoints, Streams};

/// Who sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// Why bytes of a stream are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hole {
    /// A snap length cut them: when they passed is known.
    Cut,
    /// They were never captured: nothing about them is known.
    Lost,
}
