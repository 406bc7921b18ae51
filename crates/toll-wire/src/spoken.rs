//! What is said on a server's sockets, and by whom? Parses none of it.

use std::net::IpAddr;

/// Whose bytes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Client,
    Server,
}

/// Bytes of one call on a socket, the first of `length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spoken<'a> {
    /// Unix time, ns.
    pub time_ns: u64,
    /// Unique for a connection's life.
    pub socket: u64,
    pub by: Said,
    pub length: u64,
    pub bytes: &'a [u8],
    pub opened: bool,
    pub closed: bool,
    pub client: Option<(IpAddr, u16)>,
}
