//! What `toll capture` holds of what passed, what it says it has not, and files that everybody can read.
//!
//! Real packets on loopback and between network namespaces of a test's own; real servers, tcpdump and tshark. What
//! lacks root or a tool is skipped visibly.

mod beside;
mod devices;
mod kept;
mod live;
mod lost;
mod refused;
mod written;
