//! What does it cost to watch, log, move or back up a busy MySQL or MariaDB host?
//!
//! The program as a library, so that tests and benches reach every room; `main.rs` only starts it.

pub mod analyse;
pub mod cli;
mod clock;
mod collector;
mod conduct;
pub mod digest;
pub mod host;
pub mod journal;
pub mod places;
mod plan;
mod recorder;
pub mod report;
mod run;
pub mod scenario;
pub mod server;
mod treatment;
mod workload;
