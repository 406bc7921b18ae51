//! Runs on a clock that counts instructions: the trial loop inside virtual machines, their rounds merged into one run.
//!
//! Every machine carries out whole rounds of all arms, so that boots are among the repeats. Never measures on the real
//! clock, and never judges: the analysis does.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod guest;
mod machines;
mod merge;
mod messages;
mod precision;
mod run;
mod sizing;

pub use guest::run_in_machine;
pub use run::{ExactRequest, run};
