//! Breaker that takes a method off a production server before it does harm: conditions, what is watched, and the process that
//! guards.
//!
//! # Invariants
//! Never switches anything on. Never judges a method: that is the analysis's part, from all windows.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods))]

pub mod breaker;
pub mod control;
pub mod limits;
pub mod link;
pub mod messages;
pub mod metrics;
pub mod process;
pub mod watch;
