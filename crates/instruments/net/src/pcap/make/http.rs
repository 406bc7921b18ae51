//! Synthetic web traffic: pages and images, and the requests before them.

use super::lookup;
use super::traffic::{Script, Scripts, Sent};
use super::wire::{Message, Road, Speaker, Wire};
use std::net::{Ipv4Addr, SocketAddr};
use toll_stats::random::Rng;

pub struct Http;

/// Who browses.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 15);
/// Web servers, in the block that documentation uses (RFC 5737).
const SERVERS: u64 = 200;

impl Scripts for Http {
    const AT_ONCE: usize = 12;

    fn begin(&mut self, number: u64, _: Sent, dice: &mut Rng) -> (Wire, Box<dyn Script>) {
        // Some hosts of a page are known already, some have to be asked for.
        let wire = to_a_server(number, dice);
        (wire, Box::new(Page { number, requests: 1 + dice.below(6), is_open: false }))
    }
}

/// A connection to some web server.
pub fn to_a_server(number: u64, dice: &mut Rng) -> Wire {
    let server = Ipv4Addr::new(203, 0, 113, (1 + dice.below(SERVERS)) as u8);
    Wire::new(Road::Uplink, (CLIENT, client_port(number)).into(), SocketAddr::from((server, 80)), dice)
}

/// Linux's ephemeral ports, one after the other.
pub fn client_port(number: u64) -> u16 {
    32_768 + (number % 28_000) as u16
}

/// What goes before a connection, and its opening.
pub fn open(wire: &mut Wire, number: u64, dice: &mut Rng) {
    lookup::name(wire, &format!("www{number}.example.com"), number, dice);
    if dice.below(8) == 0 {
        lookup::time(wire);
    }
    wire.open();
}

/// One request, and an answer of so many bytes of a type that is declared.
pub fn ask(wire: &mut Wire, path: &str, r#type: &str, bytes: usize, dice: &mut Rng) {
    let cookie = 40 + dice.below(260) as usize;
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
         Accept: */*\r\nAccept-Language: en\r\nAccept-Encoding: identity\r\nConnection: keep-alive\r\n\
         Cookie: id={}\r\n\r\n",
        "0".repeat(cookie)
    );
    wire.say(Speaker::Client, Message::new(request.into_bytes()), true);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nServer: example\r\nContent-Type: {type}\r\nContent-Length: {bytes}\r\n\
         Cache-Control: max-age=3600\r\nConnection: keep-alive\r\n\r\n"
    );
    wire.say(Speaker::Server, Message::with_noise(answer.into_bytes(), bytes, dice), true);
}

/// A size: `median` in the middle, spread by factors of e^`spread` (log-normal, as web objects are), bounded.
pub fn size(median: f64, spread: f64, bounds: std::ops::RangeInclusive<f64>, dice: &mut Rng) -> usize {
    // Box and Muller.
    let normal = (-2.0 * dice.unit().ln()).sqrt() * (std::f64::consts::TAU * dice.unit()).cos();
    (median * (spread * normal).exp()).clamp(*bounds.start(), *bounds.end()) as usize
}

struct Page {
    number: u64,
    /// That are yet to be made.
    requests: u64,
    is_open: bool,
}

impl Script for Page {
    fn next(&mut self, wire: &mut Wire, dice: &mut Rng) -> bool {
        if !std::mem::replace(&mut self.is_open, true) {
            open(wire, self.number, dice);
            return true;
        }
        if self.requests == 0 {
            return false;
        }
        self.requests -= 1;
        // A page of some kilobytes, or an image.
        let (path, r#type) = if dice.below(3) == 0 {
            ("index.html", "text/html; charset=utf-8")
        } else {
            ("image.webp", "image/webp")
        };
        let bytes = size(7_000.0, 1.1, 200.0..=60_000.0, dice);
        ask(wire, path, r#type, bytes, dice);
        true
    }
}
