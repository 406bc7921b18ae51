//! Backup of a server, and restore of a backup to a server.
//!
//! Starts the dump, git and the client program, each under the journal. Pipes their bytes through
//! [`archive`], which splits, stores and checks them. Prints only that it waits for a store: results go to
//! the subcommand.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod archive;
mod cost;
mod create;
mod dump;
mod privileges;
mod program;
mod repository;
mod restore;
mod scratch_accounts;
mod server_identity;
mod source;
mod store_location;
mod verify;

pub use cost::StageCost;
pub use create::{BackupOptions, BackupSummary, create_backup, preview_backup};
pub use repository::Repository;
pub use restore::{BackupOrigin, RestoreSummary, RestoreTarget, preview_restore, restore};
pub use server_identity::ServerIdentity;
pub use source::Source;
pub use store_location::{KeyOptions, StoreLocation, open_store, prune_store, warn_future_backups};
pub use verify::{VerifySummary, check_stored, verify};
