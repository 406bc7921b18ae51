//! Tables that digests are written to, of a capture or of a receiver.

use std::path::PathBuf;

/// Where tables lie, and what is the same in all their rows.
#[derive(Debug, Clone)]
pub struct TableOptions {
    pub root: PathBuf,
    /// Of the hosts, in the tables.
    pub cluster: String,
}
