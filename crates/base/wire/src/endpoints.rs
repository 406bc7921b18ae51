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
    /// Of the rest, the same in every process: for shards. Senders can find many connections with the same.
    pub hash: u64,
}

impl Endpoints {
    #[inline]
    pub fn new(client: Address, client_port: u16, server: Address, server_port: u16) -> Self {
        // Two multiplications fold what differs between connections.
        let ports = u64::from(client_port) << 16 | u64::from(server_port);
        let low = client.low ^ ports << 32;
        let first = fold(low ^ 0x9e37_79b9_7f4a_7c15, server.low ^ 0xd1b5_4a32_d192_ed03);
        let hash = fold(first ^ client.high, server.high ^ 0x8cb9_2ba7_2f3d_8dd7);
        Endpoints { client, server, client_port, server_port, hash }
    }
}

impl Hash for Endpoints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ports = u64::from(self.client_port) << 16 | u64::from(self.server_port);
        for word in [self.client.high, self.client.low, self.server.high, self.server.low, ports] {
            state.write_u64(word);
        }
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::fast::RandomState;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn a_sender_with_a_network_of_its_own_does_not_find_connections_that_share_a_hash() {
        let server = Address { high: 0, low: 0x7f00_0001 };
        // From one IPv6 /64, each port with the address that evens it out.
        let crafted = |port: u16| {
            let client = Address { high: 0x2001_0db8 << 32, low: 0x1234 ^ u64::from(port) << 48 };
            Endpoints::new(client, port, server, 3306)
        };
        let connections: Vec<_> = (0..10_000).map(crafted).collect();
        let shards: HashSet<u64> = connections.iter().map(|ends| ends.hash).collect();
        assert_eq!(shards.len(), 1, "not what a sender would choose");
        let seeds = [RandomState::default(), RandomState::default()];
        for seed in &seeds {
            let hashes: HashSet<u64> = connections.iter().map(|ends| seed.hash_one(ends)).collect();
            assert_eq!(hashes.len(), connections.len());
        }
        assert_ne!(seeds[0].hash_one(connections[0]), seeds[1].hash_one(connections[0]));
    }
}
