//! Synthetic packets of one length for benchmarks: datagrams at equal intervals, over many flows.

use super::PacketSource;
use super::traffic::TrafficVolume;
use std::net::Ipv4Addr;
use toll_stats::random::Rng;
use toll_wire::packet_builder::{self, AddressPair, ETHERTYPE_V4, IpHeader};

/// Conversations that take turns: as many as hash functions need to spread them.
const FLOWS: u64 = 64;
/// Headers before a datagram's payload: Ethernet, IPv4, UDP.
const HEADERS: u16 = 14 + 20 + 8;

pub struct FixedSizePackets {
    payload: Vec<u8>,
    count: u64,
    next: u64,
    gap_ns: f64,
}

impl FixedSizePackets {
    pub fn new(span: TrafficVolume, seed: u64, size: u16) -> Self {
        let mut rng = Rng::new(seed, 5);
        let payload = (0..size.saturating_sub(HEADERS)).map(|_| rng.below(256) as u8).collect();
        let count = ((span.bytes() / f64::from(size)).round() as u64).max(1);
        Self { payload, count, next: 0, gap_ns: span.seconds * 1e9 / count as f64 }
    }
}

impl PacketSource for FixedSizePackets {
    fn next_packet(&mut self, frame: &mut Vec<u8>) -> Option<u64> {
        let number = self.next;
        if number == self.count {
            return None;
        }
        self.next += 1;
        let flow = (number % FLOWS) as u8;
        frame.clear();
        packet_builder::append_ethernet(frame, [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], None, ETHERTYPE_V4);
        let source = (Ipv4Addr::new(192, 0, 2, 1 + flow), 40_000 + u16::from(flow)).into();
        let ends = AddressPair { source, destination: (Ipv4Addr::new(198, 51, 100, 1 + flow), 9).into() };
        packet_builder::append_udp(
            frame,
            &IpHeader { addresses: ends, ttl: 64, id: number as u16 },
            &self.payload,
        );
        Some((number as f64 * self.gap_ns) as u64)
    }
}
