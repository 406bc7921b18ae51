//! Capture agent and the receiver of its streams. Links no async runtime, object store or SQL client.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod backoff;
pub mod capture;
pub mod receive;
pub mod rotation;
pub mod table_options;
