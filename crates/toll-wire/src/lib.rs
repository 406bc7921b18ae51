//! What did the packets and logs of a host say? Never reads a clock, file or socket.

pub mod decoder;
pub mod event;
pub mod frame;
pub mod ledger;
mod mysql;
pub mod pcap;
mod stream;
