//! The program toll as a library, so that tests and benches can reach every module.
//!
//! toll measures what it costs to watch, log, move or back up a busy MySQL or MariaDB host. `main.rs` only
//! starts it.

// A closed terminal must not end a run (`toll_commands::console`), no child may inherit a secret (`child_process.rs`), and no
// signal may reach a stranger: what the workspace's `clippy.toml` names.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cli;
