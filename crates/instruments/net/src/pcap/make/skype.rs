//! Synthetic call traffic: voice and video datagrams, small control datagrams, hardly any TCP.

use super::http::{CLIENT, client_port};
use super::packetiser::{Endpoint, LinkKind, Packetiser, Payload};
use super::traffic::{Conversation, ConversationSource, SentCounts};
use std::net::{Ipv4Addr, SocketAddr};
use toll_stats::random::Rng;

pub struct Skype;

/// Headers before a datagram's payload: Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
/// The length that the paper finds most often.
const FULL: u64 = 1429;
/// Of a hundred datagrams, so many are full; so many steer the call (below 200 bytes); the rest lie between.
const FULL_PCT: u64 = 34;
const CONTROL_PCT: u64 = 40;
/// Share of TCP among all packets.
const TCP_PCT: u64 = 2;

impl ConversationSource for Skype {
    const MAX_CONCURRENT: usize = 6;

    fn start_conversation(
        &mut self,
        number: u64,
        sent: SentCounts,
        rng: &mut Rng,
    ) -> (Packetiser, Box<dyn Conversation>) {
        let peer = Ipv4Addr::new(198, 51, 100, (1 + rng.below(250)) as u8);
        let wire = |port: u16, to: u16, rng: &mut Rng| {
            Packetiser::new(LinkKind::Local, (CLIENT, port).into(), SocketAddr::from((peer, to)), rng)
        };
        // Who calls asks the node that keeps the directory first, and now and then.
        if number == 0 || sent.tcp * 100 < (sent.tcp + sent.udp) * TCP_PCT {
            let wire = wire(client_port(number), 12_350, rng);
            return (wire, Box::new(DirectorySession { lookups: 4 + rng.below(8), is_open: false }));
        }
        let port = 40_000 + (number % 20_000) as u16;
        let wire = wire(port, 20_000 + rng.below(20_000) as u16, rng);
        (wire, Box::new(Call { datagrams: 500 + rng.below(2_000), id: rng.next_u64() as u16 }))
    }
}

struct Call {
    /// That are yet to be sent.
    datagrams: u64,
    id: u16,
}

impl Conversation for Call {
    fn queue_next(&mut self, wire: &mut Packetiser, rng: &mut Rng) -> bool {
        if self.datagrams == 0 {
            return false;
        }
        self.datagrams -= 1;
        let length = match rng.below(100) {
            n if n < FULL_PCT => FULL,
            n if n < FULL_PCT + CONTROL_PCT => 60 + rng.below(140),
            _ => 200 + rng.below(FULL - 200),
        };
        let from = if rng.below(2) == 0 { Endpoint::Client } else { Endpoint::Server };
        // A number, and what it is; the rest is enciphered. The number's first bits are those of no other
        // protocol that calls are made by (RTCP has 10, QUIC 01, DTLS more than fifteen).
        let mut head = (self.id & 0x0fff).to_be_bytes().to_vec();
        head.push(0x0d);
        self.id = self.id.wrapping_add(1);
        let noise = length as usize - HEADERS - head.len();
        let (client, server) = (wire.client(), wire.server());
        wire.queue_datagram(from, client, server, Payload::with_filler(head, noise, rng));
        true
    }
}

struct DirectorySession {
    /// That are yet to be asked.
    lookups: u64,
    is_open: bool,
}

impl Conversation for DirectorySession {
    fn queue_next(&mut self, wire: &mut Packetiser, rng: &mut Rng) -> bool {
        if !std::mem::replace(&mut self.is_open, true) {
            wire.queue_open();
            return true;
        }
        if self.lookups == 0 {
            return false;
        }
        self.lookups -= 1;
        for from in [Endpoint::Client, Endpoint::Server] {
            let bytes = 20 + rng.below(100) as usize;
            wire.queue_message(from, Payload::with_filler(Vec::new(), bytes, rng), from == Endpoint::Server);
        }
        true
    }
}
