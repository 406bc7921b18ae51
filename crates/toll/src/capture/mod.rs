//! How are the queries of a host collected at the least cost?
//!
//! A tap (packets, or the server's sockets) hands what it sees to an output, which hands bytes on in chunks to a
//! thread that writes them. Never measures what that costs: arms of scenarios do.

pub mod chunks;
pub mod metrics;
pub mod output;
pub mod stream;
pub mod tap;
