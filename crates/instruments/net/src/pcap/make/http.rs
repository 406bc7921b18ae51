//! Synthetic web traffic: pages and images, and the requests before them.

use super::lookup;
use super::packetiser::{Endpoint, LinkKind, Packetiser, Payload};
use super::traffic::{Conversation, ConversationSource, SentCounts};
use std::net::{Ipv4Addr, SocketAddr};
use toll_stats::random::Rng;

pub struct Http;

/// Who browses.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 15);
/// Web servers, in the block that documentation uses (RFC 5737).
const SERVERS: u64 = 200;

impl ConversationSource for Http {
    const MAX_CONCURRENT: usize = 12;

    fn start_conversation(
        &mut self,
        number: u64,
        _: SentCounts,
        rng: &mut Rng,
    ) -> (Packetiser, Box<dyn Conversation>) {
        // Some hosts of a page are known already, some have to be asked for.
        let wire = new_connection(number, rng);
        (wire, Box::new(Page { number, requests: 1 + rng.below(6), is_open: false }))
    }
}

/// A connection to some web server.
pub fn new_connection(number: u64, rng: &mut Rng) -> Packetiser {
    let server = Ipv4Addr::new(203, 0, 113, (1 + rng.below(SERVERS)) as u8);
    Packetiser::new(
        LinkKind::Uplink,
        (CLIENT, client_port(number)).into(),
        SocketAddr::from((server, 80)),
        rng,
    )
}

/// Linux's ephemeral ports, one after the other.
pub fn client_port(number: u64) -> u16 {
    32_768 + (number % 28_000) as u16
}

/// What goes before a connection, and its opening.
pub fn open_connection(wire: &mut Packetiser, number: u64, rng: &mut Rng) {
    lookup::queue_dns_lookup(wire, &format!("www{number}.example.com"), number, rng);
    if rng.below(8) == 0 {
        lookup::queue_ntp_query(wire);
    }
    wire.queue_open();
}

/// One request, and an answer of so many bytes of a type that is declared.
pub fn queue_request(wire: &mut Packetiser, path: &str, r#type: &str, bytes: usize, rng: &mut Rng) {
    let cookie = 40 + rng.below(260) as usize;
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
         Accept: */*\r\nAccept-Language: en\r\nAccept-Encoding: identity\r\nConnection: keep-alive\r\n\
         Cookie: id={}\r\n\r\n",
        "0".repeat(cookie)
    );
    wire.queue_message(Endpoint::Client, Payload::new(request.into_bytes()), true);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nServer: example\r\nContent-Type: {type}\r\nContent-Length: {bytes}\r\n\
         Cache-Control: max-age=3600\r\nConnection: keep-alive\r\n\r\n"
    );
    wire.queue_message(Endpoint::Server, Payload::with_filler(answer.into_bytes(), bytes, rng), true);
}

/// A size: `median` in the middle, spread by factors of e^`spread` (log-normal, as web objects are), bounded.
pub fn draw_size(median: f64, spread: f64, bounds: std::ops::RangeInclusive<f64>, rng: &mut Rng) -> usize {
    // Box and Muller.
    let normal = (-2.0 * rng.unit().ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos();
    (median * (spread * normal).exp()).clamp(*bounds.start(), *bounds.end()) as usize
}

struct Page {
    number: u64,
    /// That are yet to be made.
    requests: u64,
    is_open: bool,
}

impl Conversation for Page {
    fn queue_next(&mut self, wire: &mut Packetiser, rng: &mut Rng) -> bool {
        if !std::mem::replace(&mut self.is_open, true) {
            open_connection(wire, self.number, rng);
            return true;
        }
        if self.requests == 0 {
            return false;
        }
        self.requests -= 1;
        // A page of some kilobytes, or an image.
        let (path, r#type) = if rng.below(3) == 0 {
            ("index.html", "text/html; charset=utf-8")
        } else {
            ("image.webp", "image/webp")
        };
        let bytes = draw_size(7_000.0, 1.1, 200.0..=60_000.0, rng);
        queue_request(wire, path, r#type, bytes, rng);
        true
    }
}
