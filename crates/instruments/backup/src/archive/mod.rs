//! Backup archive: verified storage and restore of a dump.
//!
//! Data flow: [`sections`] splits the dump's stream by table. [`ContentSplitter`] counts and hashes each file, and
//! [`chunker`] splits it into pieces at line ends. An implementation of [`FileSink`] stores them: [`Uploader`] as
//! objects in a [`Store`](toll_store::Store), [`git`] as blobs. Finally a [`Manifest`] lists the content of the backup; without
//! it there is no backup. [`restore`] reverses the process, and verifies every byte before it returns it.
//!
//! Synchronous: the async runtime and the store's client are in `toll-store`. Never starts a program and
//! never speaks SQL.

// Libraries answer; they do not print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod activity_marker;
pub mod chunker;
mod content;
mod content_hash;
pub mod git;
mod manifest;
mod piece_codec;
pub mod prune;
mod reread;
pub mod restore;
pub mod sections;
mod signature;
mod upload;

pub use activity_marker::{ActivityMarker, MarkerOwner};
pub use content::{ContentSplitter, FileName, FileSink, FileSummary};
pub use content_hash::ContentHash;
pub(crate) use manifest::manifest_limit;
pub use manifest::{
    BackupEntry, Backups, DumpProgram, FORMAT, InvalidBackup, Manifest, SourceServer, StoredFile,
    StoredPiece, Totals,
};
pub use piece_codec::{PieceDecoder, PieceEncoder, codec_with_passphrase};
pub use reread::REREAD_ONE_OF;
pub use signature::{SignKey, VerifyKey};
pub use upload::{UploadProgress, UploadSummary, Uploader};
