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
}

impl Endpoints {
    #[inline]
    pub fn new(client: Address, client_port: u16, server: Address, server_port: u16) -> Self {
        Endpoints { client, server, client_port, server_port }
    }
}

impl Hash for Endpoints {
    /// Of whole addresses: the hasher mixes both halves in one multiplication. Every packet asks for a hash.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let whole = |address: Address| u128::from(address.high) << 64 | u128::from(address.low);
        state.write_u128(whole(self.client));
        state.write_u128(whole(self.server));
        state.write_u64(u64::from(self.client_port) << 16 | u64::from(self.server_port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::Shard;
    use foldhash::fast::RandomState;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn a_sender_with_a_network_of_its_own_does_not_find_connections_that_share_a_hash() {
        let server = Address { high: 0, low: 0x7f00_0001 };
        // From one IPv6 /64, each port with the address that evens it out in a hash without a seed.
        let crafted = |port: u16| {
            let client = Address { high: 0x2001_0db8 << 32, low: 0x1234 ^ u64::from(port) << 48 };
            Endpoints::new(client, port, server, 3306)
        };
        let connections: Vec<_> = (0..10_000).map(crafted).collect();
        for shard in Shard::split(4) {
            let share = connections.iter().filter(|ends| shard.contains(ends)).count();
            assert!((2_000..3_000).contains(&share), "{share} of {}", connections.len());
        }
        let seeds = [RandomState::default(), RandomState::default()];
        for seed in &seeds {
            let hashes: HashSet<u64> = connections.iter().map(|ends| seed.hash_one(ends)).collect();
            assert_eq!(hashes.len(), connections.len());
        }
        assert_ne!(seeds[0].hash_one(connections[0]), seeds[1].hash_one(connections[0]));
    }
}
