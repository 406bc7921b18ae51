//! Synthetic call traffic: voice and video datagrams, small control datagrams, hardly any TCP.

use super::http::{CLIENT, client_port};
use super::traffic::{Script, Scripts, Sent};
use super::wire::{Message, Road, Speaker, Wire};
use std::net::{Ipv4Addr, SocketAddr};
use toll_stats::random::Rng;

pub struct Skype;

/// Headers before a datagram's payload: Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
/// The length that the paper finds most often.
const FULL: u64 = 1429;
/// Of a hundred datagrams, so many are full; so many steer the call (below 200 bytes); the rest lie between.
const FULL_PCT: u64 = 34;
const STEERING_PCT: u64 = 40;
/// Share of TCP among all packets.
const TCP_PCT: u64 = 2;

impl Scripts for Skype {
    const AT_ONCE: usize = 6;

    fn begin(&mut self, number: u64, sent: Sent, dice: &mut Rng) -> (Wire, Box<dyn Script>) {
        let peer = Ipv4Addr::new(198, 51, 100, (1 + dice.below(250)) as u8);
        let wire = |port: u16, to: u16, dice: &mut Rng| {
            Wire::new(Road::Local, (CLIENT, port).into(), SocketAddr::from((peer, to)), dice)
        };
        // Who calls asks the node that keeps the directory first, and now and then.
        if number == 0 || sent.tcp * 100 < (sent.tcp + sent.udp) * TCP_PCT {
            let wire = wire(client_port(number), 12_350, dice);
            return (wire, Box::new(Directory { questions: 4 + dice.below(8), is_open: false }));
        }
        let port = 40_000 + (number % 20_000) as u16;
        let wire = wire(port, 20_000 + dice.below(20_000) as u16, dice);
        (wire, Box::new(Call { datagrams: 500 + dice.below(2_000), id: dice.next_u64() as u16 }))
    }
}

struct Call {
    /// That are yet to be sent.
    datagrams: u64,
    id: u16,
}

impl Script for Call {
    fn next(&mut self, wire: &mut Wire, dice: &mut Rng) -> bool {
        if self.datagrams == 0 {
            return false;
        }
        self.datagrams -= 1;
        let length = match dice.below(100) {
            n if n < FULL_PCT => FULL,
            n if n < FULL_PCT + STEERING_PCT => 60 + dice.below(140),
            _ => 200 + dice.below(FULL - 200),
        };
        let from = if dice.below(2) == 0 { Speaker::Client } else { Speaker::Server };
        // A number, and what it is; the rest is enciphered. The number's first bits are those of no other
        // protocol that calls are made by (RTCP has 10, QUIC 01, DTLS more than fifteen).
        let mut head = (self.id & 0x0fff).to_be_bytes().to_vec();
        head.push(0x0d);
        self.id = self.id.wrapping_add(1);
        let noise = length as usize - HEADERS - head.len();
        let (client, server) = (wire.client(), wire.server());
        wire.datagram(from, client, server, Message::with_noise(head, noise, dice));
        true
    }
}

struct Directory {
    /// That are yet to be asked.
    questions: u64,
    is_open: bool,
}

impl Script for Directory {
    fn next(&mut self, wire: &mut Wire, dice: &mut Rng) -> bool {
        if !std::mem::replace(&mut self.is_open, true) {
            wire.open();
            return true;
        }
        if self.questions == 0 {
            return false;
        }
        self.questions -= 1;
        for from in [Speaker::Client, Speaker::Server] {
            let bytes = 20 + dice.below(100) as usize;
            wire.say(from, Message::with_noise(Vec::new(), bytes, dice), from == Speaker::Server);
        }
        true
    }
}
