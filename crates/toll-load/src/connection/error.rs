//! What can go wrong between us and a server, and under which MySQL code is it counted?

use std::collections::BTreeMap;
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
    #[error("cannot connect to {address} ({}): is the server running, and is this its address?", why(cause))]
    Connect { address: String, unix: bool, cause: io::Error },
    #[error("lost the server while {doing} ({}): its error log may say why", why(cause))]
    Lost { doing: &'static str, cause: io::Error },
    #[error(transparent)]
    Server(#[from] ServerError),
    /// One of [`crate::Target::session`]: the session would not be what was asked for.
    #[error("{statement:?}, which each session runs first, failed: {cause}")]
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
            Self::Connect { unix: true, .. } => 2002,
            Self::Connect { unix: false, .. } => 2003,
            Self::Lost { .. } => 2013,
            Self::Server(e) => e.code,
            Self::Session { cause, .. } => cause.code(),
            Self::Protocol { .. } => 2027,
            Self::Unsupported(_) => 2059,
            Self::Tls(_) => 2026,
        }
    }

    /// Can the connection still be used?
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Server(_))
    }

    /// Did the server say nothing in the time it was given, rather than go away? Then it hangs, or is
    /// stopped, and will not answer another connection either.
    pub fn is_silence(&self) -> bool {
        let (Self::Connect { cause, .. } | Self::Lost { cause, .. }) = self else { return false };
        matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    }

    pub(crate) fn protocol(doing: &'static str, detail: impl Into<String>) -> Self {
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

/// More codes than this are a crowd, of which the commonest are named.
const CODES_NAMED: usize = 5;

/// `1205 (12 times), 1213 (3)`: the commonest first.
pub fn codes_in_words(errors_by_code: &BTreeMap<u16, u64>) -> String {
    let mut codes: Vec<(u16, u64)> = errors_by_code.iter().map(|(code, n)| (*code, *n)).collect();
    codes.sort_by_key(|(code, n)| (std::cmp::Reverse(*n), *code));
    let times = |i: usize| if i == 0 { " times" } else { "" };
    let named = codes.iter().take(CODES_NAMED).enumerate();
    let mut words: Vec<String> = named.map(|(i, (code, n))| format!("{code} ({n}{})", times(i))).collect();
    if codes.len() > CODES_NAMED {
        words.push(format!("{} other codes", codes.len() - CODES_NAMED));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_named_with_the_commonest_first_and_few_of_many() {
        let words = |codes: &[(u16, u64)]| codes_in_words(&codes.iter().copied().collect());
        assert_eq!(words(&[(1205, 3), (1213, 12)]), "1213 (12 times), 1205 (3)");
        assert_eq!(words(&[]), "");
        let many: Vec<(u16, u64)> = (1..=8).map(|n| (1000 + n, u64::from(n))).collect();
        assert!(words(&many).ends_with("1004 (4), 3 other codes"), "{}", words(&many));
    }
}
