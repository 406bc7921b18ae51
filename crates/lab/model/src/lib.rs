//! Scenarios as written and plans as resolved. Never starts, changes or measures anything.

// What `clippy.toml` beside Cargo.toml names; tests read examples and runs.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod artefacts;
pub mod data;
pub mod placeholders;
pub mod plan;
pub mod rig;
pub mod scenario;
