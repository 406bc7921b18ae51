//! Tests of `toll capture`: captured packets, reported losses, and files that common tools can read.
//!
//! Real packets on loopback and between network namespaces of a test's own; real servers, tcpdump and tshark.
//! Tests that lack root or a tool are skipped visibly.

mod beside;
mod devices;
mod kept;
mod live;
mod lost;
mod refused;
mod written;
