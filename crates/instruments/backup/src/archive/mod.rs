//! How does a dump become a backup that can be trusted?
//!
//! The way of the bytes: [`sections`] splits the dump's stream by table, [`Content`] counts and hashes each
//! file, [`cut`] cuts it into pieces at line ends, and whoever keeps them ([`Keep`]) puts them away: [`Upload`]
//! as objects in a [`Store`], [`git`] as blobs. Last of all a [`Manifest`] says what the backup holds; without
//! it there is none. [`restore`] goes the way back, and checks every byte before it hands it on.
//!
//! Never starts a program and never speaks SQL: that is for the modules beside this one.

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
