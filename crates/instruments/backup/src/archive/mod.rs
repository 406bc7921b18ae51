//! Backup archive: verified storage and restore of a dump.
//!
//! Data flow: [`sections`] splits the dump's stream by table. [`Content`] counts and hashes each file, and
//! [`cut`] splits it into pieces at line ends. An implementation of [`Keep`] stores them: [`Upload`] as
//! objects in a [`Store`], [`git`] as blobs. Finally a [`Manifest`] lists the content of the backup; without
//! it there is no backup. [`restore`] reverses the process, and verifies every byte before it returns it.
//!
//! Synchronous: the async runtime and the store's client are in `toll-store`. Never starts a program and
//! never speaks SQL.

// Libraries answer; they do not print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod content;
pub mod cut;
pub mod git;
mod manifest;
mod name;
pub mod prune;
pub mod restore;
mod running;
mod seal;
pub mod sections;
mod upload;

pub use content::{Content, FileName, FileSeen, Keep};
pub use manifest::{Backups, Broken, FORMAT, FileKept, Listed, Manifest, PieceKept, Program, Source, Totals};
pub use name::Name;
pub use running::{Owner, Running};
pub use seal::{Opening, Sealing, with_passphrase};
pub use upload::{Progress, Upload, Uploaded};
