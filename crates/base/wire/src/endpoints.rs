//! Address pair of a connection. Never decides which end is the server.

use crate::frame::Address;
use std::hash::{Hash, Hasher};

/// The two ends of a connection, whichever of them sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub client: Address,
    pub server: Address,
    pub client_port: u16,
    pub server_port: u16,
    /// Of the rest, for shards and streams alike.
    pub hash: u64,
}

impl Endpoints {
    #[inline]
    pub fn new(client: Address, client_port: u16, server: Address, server_port: u16) -> Self {
        // Two multiplications fold what differs between connections; SipHash alone would cost a
        // fifth of the time a packet may take.
        let ports = u64::from(client_port) << 16 | u64::from(server_port);
        let low = client.low ^ ports << 32;
        let first = fold(low ^ 0x9e37_79b9_7f4a_7c15, server.low ^ 0xd1b5_4a32_d192_ed03);
        let hash = fold(first ^ client.high, server.high ^ 0x8cb9_2ba7_2f3d_8dd7);
        Endpoints { client, server, client_port, server_port, hash }
    }
}

impl Hash for Endpoints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}
