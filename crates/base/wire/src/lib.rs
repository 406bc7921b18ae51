//! What did the packets, logs and streams of a host say? Never reads a clock, file or socket.

// What `clippy.toml` beside Cargo.toml names.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod attribute;
pub mod decoder;
mod endpoints;
pub mod event;
pub mod filter;
pub mod fingerprint;
pub mod frame;
mod hashed;
pub mod ledger;
pub mod log;
mod mysql;
pub mod packet;
pub mod pcap;
pub mod profile;
pub mod protocol;
pub mod queries;
mod room;
mod side;
mod spoken;
mod stream;
pub mod streamed;
pub mod text_hash;
