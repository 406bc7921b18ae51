//! How is a server backed up, and a backup turned into a server again?
//!
//! Starts the dump, git and the client program, each under the journal, and leads their bytes through
//! [`archive`], which splits, keeps and checks them. Prints nothing but that a store keeps it waiting:
//! what came of it goes to the command.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod archive;
mod cost;
mod dump;
mod output;
mod place;
mod privileges;
mod program;
mod repository;
mod restore;
mod source;
mod take;
mod verify;

pub use cost::Stage;
pub use output::NewFile;
pub use place::{Keys, Place, dated_ahead, opened, pruned};
pub use repository::Repository;
pub use restore::{Onto, Origin, Restored, restore};
pub use take::{Asked, Taken, take};
pub use verify::{Verified, check_stored, verify};
