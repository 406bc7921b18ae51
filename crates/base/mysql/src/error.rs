//! Errors of server addresses and option files. Never contains a password.

/// An address or an option file that names no server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TargetError {
    #[error("{0:?} is not a server address: write mysql://user@host:port/schema or add ?socket=/path")]
    NotADsn(String),
    #[error("{value:?} in the server address is not a valid {what}")]
    InvalidPart { what: &'static str, value: String },
    #[error("cannot use the option file {path} ({reason}): check the value of --defaults-file")]
    Unreadable { path: String, reason: String },
    #[error("{path}, line {line}: {reason}")]
    InvalidOptionFile { path: String, line: usize, reason: String },
    #[error(
        "{path} has no section for clients: write a line [client], and below it user=..., password=..., and \
         socket=... or host=... and port=..."
    )]
    NoClientSection { path: String },
    #[error("{text} is no DSN (mysql://...) and so is taken for an option file: {cause}")]
    NotALogin { text: String, cause: Box<TargetError> },
    #[error(
        "the DSN holds a password, which other users of this host can see: put it into MYSQL_PWD or an option file"
    )]
    PublicPassword,
}
