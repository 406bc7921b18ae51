//! Small query, sent like a user's, whose latency says how a server fares: which query, and when it is sent.
//!
//! # Invariants
//! Never writes to a server.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods))]

mod probe;
mod query;

pub use probe::{Probe, ProbeResult};
pub use query::ProbeQuery;
