//! Subcommands of both programs: `toll` has them beside its others, `toll-agent` (`main.rs`) has no others.
//!
//! # Invariants
//!
//! Never links an async runtime, an object store or an SQL client (`crates/toll/tests/pure/architecture.rs`).

// A closed terminal must not end a capture (`console.rs`), and no child may inherit a secret: what the workspace's
// `clippy.toml` names.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod capture;
pub mod console;
pub mod digest;
mod digest_tables;
pub mod exit_code;
pub mod help_groups;
pub mod json_format;
pub mod named;
pub mod reading_progress;
pub mod receive;
pub mod standard_output;
