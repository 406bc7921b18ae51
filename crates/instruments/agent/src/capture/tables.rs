//! Tables that a capture writes its digests to.

use std::path::PathBuf;
use toll_tables::{Source, TableWriter};

/// Tables that digests are written to.
#[derive(Debug, Clone)]
pub struct TableOptions {
    pub root: PathBuf,
    /// Of this host, in the tables.
    pub cluster: String,
}

/// # Errors
/// Nothing can be written there.
pub fn open_tables(options: &TableOptions) -> anyhow::Result<TableWriter> {
    let host = toll_sys::read_trimmed("/proc/sys/kernel/hostname");
    TableWriter::open(options.root.clone(), Source { host, cluster: options.cluster.clone() })
}
