//! Integration tests of the load generator on real servers.
//!
//! Every test starts from a private server in a temporary directory, reached over 127.0.0.1 and a socket
//! alone. A test whose server or tool is missing is visibly skipped.

// A test is allowed to fail by panicking, its tools included.
#![allow(clippy::unwrap_used)]

mod connection;
mod faults;
mod load;

mod session;
mod short;
mod system_mysql;
mod tables;
