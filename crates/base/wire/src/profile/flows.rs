//! Conversations of a capture and their shares of its traffic. Never reads beyond headers.

use super::Sum;
use super::distinct::Distinct;
use crate::endpoints::Endpoints;
use crate::frame::{ACK, Address, FIN, Packet, RST, SYN};
use crate::hashed::AsHashed;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};

/// Flows that are kept apart, in some 25 MB (and as much again while they are sorted). Packets of flows that
/// came later are counted together, and how many flows these are is estimated.
const MAX: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    Tcp,
    Udp,
}

/// The conversation between two ports, both directions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    pub transport: Transport,
    /// Who sent its first packet; whom a SYN that it answers came from.
    pub client: (Address, u16),
    pub server: (Address, u16),
    pub sum: Sum,
    /// Unix ns.
    pub first_ns: u64,
    pub last_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    transport: Transport,
    ends: Endpoints,
}

impl Key {
    fn hash(&self) -> u64 {
        match self.transport {
            Transport::Tcp => self.ends.hash,
            Transport::Udp => !self.ends.hash,
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash());
    }
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    sum: Sum,
    first_ns: u64,
    last_ns: u64,
    /// The client is the key's second end.
    turned: bool,
    begun: bool,
    ended: bool,
}

/// How many TCP flows began, and ended, within the capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lives {
    /// With a SYN.
    pub begun: u64,
    /// With a FIN or a RST.
    pub ended: u64,
}

#[derive(Debug)]
pub struct Flows {
    kept: HashMap<Key, Kept, AsHashed>,
    max: usize,
    in_flows: Sum,
    /// Packets of flows that there was no room for.
    pub beyond: Sum,
    /// All flows; only once one had no room.
    distinct: Option<Distinct>,
    /// TCP and UDP packets without ports: fragments, and those that a snap length cut before them.
    pub portless: u64,
}

impl Default for Flows {
    fn default() -> Self {
        Self::keeping(MAX)
    }
}

impl Flows {
    pub(super) fn keeping(max: usize) -> Self {
        Flows {
            kept: HashMap::default(),
            max,
            in_flows: Sum::default(),
            beyond: Sum::default(),
            distinct: None,
            portless: 0,
        }
    }

    #[inline]
    pub(super) fn add(
        &mut self,
        transport: Transport,
        packet: &Packet<'_>,
        [source_port, destination_port]: [u16; 2],
        flags: u8,
        time_ns: u64,
        bytes: u64,
    ) {
        let order = |address: Address, port| (address.high, address.low, port);
        // Either direction makes the same key.
        let turned = order(packet.source, source_port) > order(packet.destination, destination_port);
        let ends = if turned {
            Endpoints::new(packet.destination, destination_port, packet.source, source_port)
        } else {
            Endpoints::new(packet.source, source_port, packet.destination, destination_port)
        };
        let key = Key { transport, ends };
        let room = self.kept.len() < self.max;
        let kept = match self.kept.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if room => {
                let answers = flags & (SYN | ACK) == SYN | ACK;
                entry.insert(Kept {
                    sum: Sum::default(),
                    first_ns: time_ns,
                    last_ns: time_ns,
                    turned: turned != answers,
                    begun: false,
                    ended: false,
                })
            }
            Entry::Vacant(_) => {
                self.no_room(&key, bytes);
                return;
            }
        };
        kept.sum.add(bytes);
        kept.first_ns = kept.first_ns.min(time_ns);
        kept.last_ns = kept.last_ns.max(time_ns);
        kept.begun |= flags & SYN != 0;
        kept.ended |= flags & (FIN | RST) != 0;
        self.in_flows.add(bytes);
    }

    #[cold]
    fn no_room(&mut self, key: &Key, bytes: u64) {
        self.beyond.add(bytes);
        let distinct = self.distinct.get_or_insert_with(|| {
            let mut distinct = Distinct::default();
            self.kept.keys().for_each(|key| distinct.add(key.hash()));
            distinct
        });
        distinct.add(key.hash());
    }

    /// Flows that were kept apart.
    pub fn kept(&self, transport: Transport) -> u64 {
        self.kept.keys().filter(|key| key.transport == transport).count() as u64
    }

    /// All flows, within some 2%. `None`: those that were kept are all.
    pub fn estimated(&self) -> Option<u64> {
        self.distinct.as_ref().map(|distinct| distinct.estimate().max(self.kept.len() as u64 + 1))
    }

    /// Of the TCP flows that were kept.
    pub fn lives(&self) -> Lives {
        let mut lives = Lives::default();
        for (key, kept) in &self.kept {
            if key.transport == Transport::Tcp {
                lives.begun += u64::from(kept.begun);
                lives.ended += u64::from(kept.ended);
            }
        }
        lives
    }

    /// TCP and UDP packets, whatever became of them here.
    pub(super) fn packets(&self) -> u64 {
        self.in_flows.packets + self.beyond.packets + self.portless
    }

    /// The `n` flows of most bytes among those that were kept, the most first; ties by their begin.
    pub fn top(&self, n: usize) -> Vec<Flow> {
        let mut flows: Vec<Flow> = self.kept.iter().map(|(key, kept)| flow(key, kept)).collect();
        flows.sort_by_key(|flow| {
            let Flow { sum, first_ns, transport, client, server, .. } = flow;
            let ends = [*client, *server].map(|(address, port)| (address.high, address.low, port));
            (Reverse(sum.bytes), *first_ns, *transport, ends)
        });
        flows.truncate(n);
        flows
    }
}

fn flow(key: &Key, kept: &Kept) -> Flow {
    let (a, b) = ((key.ends.client, key.ends.client_port), (key.ends.server, key.ends.server_port));
    let (client, server) = if kept.turned { (b, a) } else { (a, b) };
    let Kept { sum, first_ns, last_ns, .. } = *kept;
    Flow { transport: key.transport, client, server, sum, first_ns, last_ns }
}
