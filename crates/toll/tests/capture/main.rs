//! Does `toll capture` hold what passed, say what it has not, and leave files that everybody can read?
//!
//! Real packets on loopback and between network namespaces of a test's own; real servers, tcpdump and tshark. What
//! lacks root or a tool is skipped visibly.

#![allow(clippy::unwrap_used)] // a test that cannot go on says where

mod beside;
mod devices;
mod kept;
mod live;
mod lost;
mod refused;
mod written;

// A server with a load of known statements, and tcpdump beside it, as the tests of captures have them.
#[allow(dead_code, reason = "those tests ask more of it")]
#[path = "../captures/printed.rs"]
mod printed;
#[allow(dead_code, reason = "those tests ask more of it")]
#[path = "../captures/server.rs"]
mod server;
#[allow(dead_code, reason = "those tests ask more of it")]
#[path = "../captures/tcpdump.rs"]
mod tcpdump;
