//! Errors between client and server, with the MySQL error code of each.

use std::io;

/// An ERR packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("server error {code} ({state}): {message}")]
pub struct ServerError {
    pub code: u16,
    /// Five characters; `HY000` where the server sent none.
    pub state: String,
    pub message: String,
}

/// Each says its cause itself, so that a chain of errors names nothing twice.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to {address} ({}). Check the address, and that the server runs.", why(cause))]
    ConnectFailed { address: String, unix: bool, cause: io::Error },
    #[error("lost the connection while {doing} ({}): see the server's error log", why(cause))]
    ConnectionLost { doing: &'static str, cause: io::Error },
    #[error(transparent)]
    Server(#[from] ServerError),
    /// One of [`crate::Target::session`]: the session would not be what was asked for.
    #[error("session setup statement {statement:?} failed: {cause}")]
    Session { statement: String, cause: Box<Error> },
    /// The peer broke the protocol, or is no MySQL server.
    #[error("unexpected bytes from the server while {doing}: {detail}; is this a MySQL or MariaDB port?")]
    Protocol { doing: &'static str, detail: String },
    #[error("{0}")]
    Unsupported(String),
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// Not the one of [`crate::Target::identity`]: nothing was asked of it.
    #[error(
        "another server answers at {address} now ({found}, and {expected} before), as after a switchover: toll does nothing there. \
         What it changed at the first one is in the undo journal: `toll clean` with that server's own address"
    )]
    AnotherServer { address: String, expected: String, found: String },
}

/// With these the server takes its leave: it shuts down, the session was killed (MariaDB, MySQL), or was idle for too long (MySQL
/// since 8.0.24). Over TCP such a farewell is read as the answer to the next statement.
const ENDS_SESSION: [u16; 4] = [1053, 1927, 3169, 4031];

impl Error {
    /// The server's code, or the client library's code for the same mishap (2002, 2003, 2013, ...).
    pub fn code(&self) -> u16 {
        match self {
            Self::ConnectFailed { unix: true, .. } => 2002,
            Self::ConnectFailed { unix: false, .. } => 2003,
            Self::ConnectionLost { .. } => 2013,
            Self::Server(e) => e.code,
            Self::Session { cause, .. } => cause.code(),
            Self::Protocol { .. } => 2027,
            Self::Unsupported(_) | Self::AnotherServer { .. } => 2059,
            Self::Tls(_) => 2026,
        }
    }

    /// True if the connection is no longer usable.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Server(said) if !ENDS_SESSION.contains(&said.code))
    }

    /// True if the server sent nothing before the timeout, rather than closing the connection. It hangs or is
    /// stopped, and does not answer on another connection either.
    pub fn is_timeout(&self) -> bool {
        let (Self::ConnectFailed { cause, .. } | Self::ConnectionLost { cause, .. }) = self else {
            return false;
        };
        matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    }

    pub fn protocol(doing: &'static str, detail: impl Into<String>) -> Self {
        Self::Protocol { doing, detail: detail.into() }
    }
}

/// A socket's timeout comes as "Resource temporarily unavailable".
fn why(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".into(),
        _ => cause.to_string(),
    }
}
