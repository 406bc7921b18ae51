//! Query digests from a server's own counters (`performance_schema`): for hosts where nothing of toll's may run.
//!
//! # Invariants
//! Never changes the server. Never holds a literal: the server's digests have none. Each query is in the rows of one reading.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod counters;
mod reader;
mod rebin;
mod statement;

pub use reader::{CounterReader, SOURCE};
