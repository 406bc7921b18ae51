//! Which of two sides spoke, and why may words of theirs be missing? Never says who they are.

/// Who sent.
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
