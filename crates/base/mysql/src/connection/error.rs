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
}

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
            Self::Unsupported(_) => 2059,
            Self::Tls(_) => 2026,
        }
    }

    /// True if the connection is no longer usable.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Server(_))
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
