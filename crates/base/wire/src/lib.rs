//! Decoders of packets, logs and streams to query events. Never reads a clock, file or socket.
//!
//! [`decoder`] alone puts the layers of a capture together, and alone knows both addresses and commands. `pcap` finds
//! frames, `frame` the segment in one and between whom it went. `stream` puts segments in order, knows a connection by a
//! key that it cannot look into, and hands bytes and gaps to `mysql`'s sessions, which hand events to a sink. Calls on a
//! server's sockets go to sessions through `socket_session`. Below all are `direction` (sender, cause of a gap),
//! `memory_budget` (the memory that streams and sessions may take) and `protocol`. `tests/layers.rs` enforces these
//! layers.

// What `clippy.toml` beside Cargo.toml names.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod accounting;
pub mod attribute;
pub mod decoder;
pub mod detect;
mod direction;
mod endpoints;
pub mod event;
pub mod filter;
pub mod fingerprint;
pub mod first_event;
pub mod frame;
pub mod log;
mod memory_budget;
mod mysql;
pub mod packet_builder;
pub mod pcap;
pub mod profile;
pub mod protocol;
pub mod queries;
mod socket_session;
mod stream;
pub mod stream_protocol;
pub mod text_hash;
