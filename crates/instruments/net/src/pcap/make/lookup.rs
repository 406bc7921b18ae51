//! Synthetic UDP lookups of a host: names (DNS) and the time (NTP).

use super::packetiser::{Endpoint, Packetiser, Payload};
use std::net::{Ipv4Addr, SocketAddr};
use toll_stats::random::Rng;

/// Who answers for names and the time.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

/// Asks for a host's address (RFC 1035), and in half of all cases for one of IPv6, which it has not.
pub fn queue_dns_lookup(wire: &mut Packetiser, host: &str, number: u64, rng: &mut Rng) {
    let client = client_at_port(wire, 10_000 + (number % 20_000) as u16);
    let server = SocketAddr::from((ROUTER, 53));
    let types: &[u16] = if rng.below(2) == 0 { &[TYPE_A] } else { &[TYPE_A, TYPE_AAAA] };
    let SocketAddr::V4(address) = wire.server() else { return };
    for &r#type in types {
        let id = rng.next_u64() as u16;
        let mut question: Vec<u8> = Vec::new();
        for label in host.split('.') {
            question.push(label.len() as u8);
            question.extend(label.as_bytes());
        }
        question.push(0);
        question.extend(r#type.to_be_bytes());
        question.extend([0, 1]);
        let answers: u16 = u16::from(r#type == TYPE_A);
        let query = dns_message(id, 0x0100, 0, &question);
        let mut answered = dns_message(id, 0x8180, answers, &question);
        if answers > 0 {
            // The name above, type A, class IN, good for five minutes.
            answered.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0x01, 0x2c, 0, 4]);
            answered.extend(address.ip().octets());
        }
        wire.queue_datagram(Endpoint::Client, client, server, Payload::new(query));
        wire.queue_datagram(Endpoint::Server, client, server, Payload::new(answered));
    }
}

fn dns_message(id: u16, flags: u16, answers: u16, question: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for field in [id, flags, 1, answers, 0, 0] {
        message.extend(field.to_be_bytes());
    }
    message.extend(question);
    message
}

/// Asks for the time (RFC 5905): version 4, client and server.
pub fn queue_ntp_query(wire: &mut Packetiser) {
    let (client, server) = (client_at_port(wire, 123), SocketAddr::from((ROUTER, 123)));
    for (from, first) in [(Endpoint::Client, [0x23, 0, 6, 0xe8]), (Endpoint::Server, [0x24, 2, 6, 0xe8])] {
        let mut message = first.to_vec();
        message.resize(48, 0);
        wire.queue_datagram(from, client, server, Payload::new(message));
    }
}

fn client_at_port(wire: &Packetiser, port: u16) -> SocketAddr {
    SocketAddr::new(wire.client().ip(), port)
}
