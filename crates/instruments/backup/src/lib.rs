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
mod dump;
mod place;
mod privileges;
mod program;
mod repository;
mod restore;
mod source;
mod take;
mod verify;

pub use cost::Stage;
pub use place::{Keys, Place, dated_ahead, opened, pruned};
pub use repository::Repository;
pub use restore::{Onto, Origin, Restored, restore};
pub use take::{Asked, Taken, take};
pub use verify::{Verified, check_stored, verify};
