//! Errors of backups and stores, with advice.

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each says what was attempted, and where one is known the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the store {store} failed at {doing}: {cause}. The next backup reuses the pieces that were stored."
    )]
    Store { store: String, doing: String, cause: String },
    #[error("{0}")]
    Destination(String),
    #[error("interrupted")]
    Interrupted,
    #[error("the dump is incomplete: {0}")]
    Incomplete(String),
    // As long as it lies there, every backup relies on it.
    #[error(
        "piece {name} in the store is damaged ({reason}): remove {object} and run a new backup. It restores \
         the piece for all backups while its rows are in the database."
    )]
    Damaged { name: String, object: String, reason: String },
    #[error("the backup {id} is not trusted: {reason}. Nothing of it was used.")]
    Untrusted { id: String, reason: String },
    #[error("the backup {id} is damaged: {reason}")]
    Mismatch { id: String, reason: String },
    #[error("{0}")]
    Key(String),
    #[error("{0}")]
    Busy(String),
    #[error(
        "the manifest {name} is in format {found}, which this version of toll cannot read. Use a newer \
         version."
    )]
    Format { name: String, found: u32 },
    #[error("cannot write {what}: {cause}")]
    Write { what: &'static str, cause: std::io::Error },
    #[error("cannot read {what}: {cause}")]
    Read { what: String, cause: std::io::Error },
}
