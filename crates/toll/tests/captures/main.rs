//! Does a capture, in whatever form, hold what happened and nothing else?
//!
//! Real servers, clients and tcpdump. One that lacks root or a tool is skipped visibly.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
mod connectors;
mod forms;
mod loads;
mod loss;
mod made;
mod merged;
mod midway;
mod own;
mod printed;
mod profiled;
mod queries;
mod refused;
mod replay;
mod server;
mod sysbench;
mod tcpdump;
mod text;
mod window;
// The eyes of the decoder's own tests.
#[path = "../../../base/wire/tests/wire/mod.rs"]
mod wire;
