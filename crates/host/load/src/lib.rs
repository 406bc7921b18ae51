//! Load generator: keeps a MySQL or MariaDB server busy and times each request. Never evaluates a result.
//!
//! [`mix`] defines the statements, and [`engine`] sends them at the times of [`toll_stats::schedule`].
//! [`bins`] and [`summary`] are the output.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bins;
pub mod engine;
pub mod mix;
pub mod summary;
pub mod tables;
