//! Conversations of a capture and their shares of its traffic. Never reads beyond headers.

use super::TrafficSum;
use super::hyperloglog::HyperLogLog;
use crate::endpoints::Endpoints;
use crate::frame::{ACK, Address, FIN, Packet, RST, SYN};
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

/// Flows that are kept apart, in some 25 MB (and as much again while they are sorted). Packets of flows that
/// came later are counted together, and how many flows these are is estimated.
const MAX_FLOWS: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    pub sum: TrafficSum,
    /// Unix ns.
    pub first_ns: u64,
    pub last_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FlowKey {
    transport: Transport,
    ends: Endpoints,
}

impl FlowKey {
    /// For the estimate of how many there are: the same of one capture each time.
    fn distinct_hash(&self) -> u64 {
        foldhash::quality::FixedState::default().hash_one(self)
    }
}

#[derive(Debug, Clone, Copy)]
struct FlowEntry {
    sum: TrafficSum,
    first_ns: u64,
    last_ns: u64,
    /// The client is the key's second end.
    is_reversed: bool,
    begun: bool,
    ended: bool,
}

/// How many TCP flows began, and ended, within the capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowLifetimes {
    /// With a SYN.
    pub begun: u64,
    /// With a FIN or a RST.
    pub ended: u64,
}

#[derive(Debug)]
pub struct Flows {
    tracked: HashMap<FlowKey, FlowEntry, RandomState>,
    max: usize,
    tracked_traffic: TrafficSum,
    /// Packets of untracked flows (beyond the limit).
    pub untracked_traffic: TrafficSum,
    /// All flows; only once one had no room.
    distinct: Option<HyperLogLog>,
    /// TCP and UDP packets without ports: fragments, and those that a snap length cut before them.
    pub portless: u64,
}

impl Default for Flows {
    fn default() -> Self {
        Self::with_max(MAX_FLOWS)
    }
}

impl Flows {
    pub(super) fn with_max(max: usize) -> Self {
        Flows {
            tracked: HashMap::default(),
            max,
            tracked_traffic: TrafficSum::default(),
            untracked_traffic: TrafficSum::default(),
            distinct: None,
            portless: 0,
        }
    }

    #[inline]
    pub(super) fn add_packet(
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
        let key = FlowKey { transport, ends };
        let has_room = self.tracked.len() < self.max;
        let kept = match self.tracked.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if has_room => {
                let answers = flags & (SYN | ACK) == SYN | ACK;
                entry.insert(FlowEntry {
                    sum: TrafficSum::default(),
                    first_ns: time_ns,
                    last_ns: time_ns,
                    is_reversed: turned != answers,
                    begun: false,
                    ended: false,
                })
            }
            Entry::Vacant(_) => {
                self.count_untracked(&key, bytes);
                return;
            }
        };
        kept.sum.add(bytes);
        kept.first_ns = kept.first_ns.min(time_ns);
        kept.last_ns = kept.last_ns.max(time_ns);
        kept.begun |= flags & SYN != 0;
        kept.ended |= flags & (FIN | RST) != 0;
        self.tracked_traffic.add(bytes);
    }

    #[cold]
    fn count_untracked(&mut self, key: &FlowKey, bytes: u64) {
        self.untracked_traffic.add(bytes);
        let distinct = self.distinct.get_or_insert_with(|| {
            let mut distinct = HyperLogLog::default();
            self.tracked.keys().for_each(|key| distinct.add(key.distinct_hash()));
            distinct
        });
        distinct.add(key.distinct_hash());
    }

    /// Flows that were kept apart.
    pub fn tracked_flows(&self, transport: Transport) -> u64 {
        self.tracked.keys().filter(|key| key.transport == transport).count() as u64
    }

    /// All flows, within some 2%. `None`: those that were kept are all.
    pub fn estimated_flows(&self) -> Option<u64> {
        self.distinct.as_ref().map(|distinct| distinct.estimate().max(self.tracked.len() as u64 + 1))
    }

    /// Of the TCP flows that were kept.
    pub fn lifetimes(&self) -> FlowLifetimes {
        let mut lives = FlowLifetimes::default();
        for (key, kept) in &self.tracked {
            if key.transport == Transport::Tcp {
                lives.begun += u64::from(kept.begun);
                lives.ended += u64::from(kept.ended);
            }
        }
        lives
    }

    /// TCP and UDP packets, tracked or not.
    pub(super) fn packets(&self) -> u64 {
        self.tracked_traffic.packets + self.untracked_traffic.packets + self.portless
    }

    /// The `n` flows of most bytes among those that were kept, the most first; ties by their begin.
    pub fn largest(&self, n: usize) -> Vec<Flow> {
        let mut flows: Vec<Flow> = self.tracked.iter().map(|(key, kept)| describe_flow(key, kept)).collect();
        flows.sort_by_key(|flow| {
            let Flow { sum, first_ns, transport, client, server, .. } = flow;
            let ends = [*client, *server].map(|(address, port)| (address.high, address.low, port));
            (Reverse(sum.bytes), *first_ns, *transport, ends)
        });
        flows.truncate(n);
        flows
    }
}

fn describe_flow(key: &FlowKey, kept: &FlowEntry) -> Flow {
    let (a, b) = ((key.ends.client, key.ends.client_port), (key.ends.server, key.ends.server_port));
    let (client, server) = if kept.is_reversed { (b, a) } else { (a, b) };
    let FlowEntry { sum, first_ns, last_ns, .. } = *kept;
    Flow { transport: key.transport, client, server, sum, first_ns, last_ns }
}
