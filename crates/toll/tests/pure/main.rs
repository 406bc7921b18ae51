//! Tests that need no server and measure no time: analysis, reports, logs, captures, streams on loopback, the
//! journal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod architecture;
mod captures;
mod claims;
mod digest;
mod exit_codes;
mod help;
mod journal;
mod list;
mod pages;
mod receive;
mod runs;

use toll_testkit::lab;
