//! Direction of a stream, and the reasons for a gap in it. Never decides which side is the server.

/// Sender of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// It opened the connection.
    FromClient,
    FromServer,
}

impl Direction {
    pub(crate) fn reverse(self) -> Direction {
        match self {
            Direction::FromClient => Direction::FromServer,
            Direction::FromServer => Direction::FromClient,
        }
    }
}

/// Why bytes are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GapCause {
    /// A snap length cut them: when they passed is known.
    Truncated,
    /// They were never captured: nothing about them is known.
    Lost,
}
