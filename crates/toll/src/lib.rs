//! What does it cost to watch, log, move or back up a busy MySQL or MariaDB host?
//!
//! The program as a library, so that tests and benches reach every room; `main.rs` only starts it.

pub mod analyse;
pub mod cli;
pub mod digest;
pub mod host;
pub mod journal;
pub mod places;
pub mod report;
pub mod server;
