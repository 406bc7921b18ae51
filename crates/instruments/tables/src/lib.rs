//! Query digests of many hosts as tables: append-only Parquet files that any engine reads, and manifests that name them.
//!
//! # Invariants
//! Never holds a literal of a statement. A file is whole or not there; a manifest names whole files alone, and each once.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod column;
mod column_reader;
mod compact;
mod fold;
mod lists;
mod manifest;
mod merge;
mod place;
mod prune;
mod row_set;
mod rows;
mod s3;
mod sorted;
mod split;
mod spool;
mod store;
mod writer;

pub use compact::{CompactOptions, Compacted, Grain, compact};
pub use fold::merge_digests;
pub use manifest::{
    ALL_DAYS, Manifest, ManifestFile, days_with_manifests, is_empty, live_files, read_manifests,
};
pub use merge::merge_texts;
pub use place::{
    Span, Table, folded_path, id_of_files, shard_of, shard_of_path, span_of_path, table_of_path,
};
pub use prune::prune;
pub use row_set::{ReplacedFiles, RowSet, WriteOptions, empty_file};
pub use rows::{CoverageRow, DigestRow, TextRow};
pub use s3::tls_config;
pub use split::SplittingSink;
pub use store::{Listed, Location, Lock, Store};
pub use writer::{Source, Stretch, TableWriter};

/// Version of the tables' columns and places, in each path.
pub const VERSION: u32 = 1;
