//! Query digests of many hosts as tables: append-only Parquet files that any engine reads, and manifests that name them.
//!
//! # Invariants
//! Never holds a literal of a statement. A file is whole or not there; a manifest names whole files alone, and each once.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod column;
mod manifest;
mod place;
mod rows;
mod writer;

pub use manifest::{Manifest, ManifestFile};
pub use writer::{Source, Stretch, TableWriter};

/// Version of the tables' columns and places, in each path.
pub const VERSION: u32 = 1;
