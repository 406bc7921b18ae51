//! What a run would do, for whoever has to agree to it: dry runs, loads on servers of others, plans of live runs, and the audit
//! of what was agreed.
//!
//! # Invariants
//! Never switches anything: it says what would be done, and `execution` does it.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod audit;
pub mod design;
pub mod dry_run;
pub mod load;
pub mod page;
pub mod prepare;
pub mod rights;
pub mod switches;
