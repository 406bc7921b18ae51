//! Decoders of packets, logs and streams to query events. Never reads a clock, file or socket.
//!
//! [`decoder`] alone puts the layers of a capture together, and alone knows both addresses and commands. `pcap` finds
//! frames, `frame` the segment in one and between whom it went. `stream` puts segments in order, knows a connection by a
//! key that it cannot look into, and hands bytes and gaps to `mysql`'s sessions, which hand events to a sink. Calls on a
//! server's sockets go to sessions through `spoken`. Below all are `side` (who spoke, why bytes are missing), `room` (the
//! memory that streams and sessions may take) and `protocol`. `tests/layers.rs` holds them apart.

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
