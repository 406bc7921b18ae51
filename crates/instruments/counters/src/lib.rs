//! Query digests from a server's own counters (`performance_schema`): for hosts where nothing of toll's may run.
//!
//! # Invariants
//! Never changes the server: it reads. Never holds a literal: the server's digests have none. A query is counted in one
//! reading.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod counters;
mod reader;
mod spread;
mod statement;

pub use reader::{CounterReader, SOURCE};
