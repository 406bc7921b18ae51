//! Direction of a stream, and the reasons for a gap in it. Never decides which side is the server.

/// Sender of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// It opened the connection.
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

/// Why bytes are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hole {
    /// A snap length cut them: when they passed is known.
    Cut,
    /// They were never captured: nothing about them is known.
    Lost,
}
