//! Tables that digests are written to, of a capture or of a receiver.

use std::path::PathBuf;
use std::sync::Arc;
use toll_tables::{Location, Store};

/// Where tables lie, and what is the same in all their rows.
#[derive(Debug, Clone)]
pub struct TableOptions {
    pub root: Location,
    /// Of the hosts, in the tables.
    pub cluster: String,
}

impl TableOptions {
    /// Opens the place, a directory once it is made.
    ///
    /// # Errors
    /// It cannot be made, or there are no credentials for the bucket.
    pub fn open_store(&self) -> anyhow::Result<Arc<dyn Store>> {
        self.root.create()?;
        self.root.open()
    }

    /// The directory that is written to below; `None`: a bucket.
    pub fn tree(&self) -> Option<PathBuf> {
        self.root.directory().map(Into::into)
    }
}
