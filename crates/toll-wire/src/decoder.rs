//! How does a capture become events? Ties reader, frames, streams and sessions together; does no parsing itself.

use crate::event::Sink;
use crate::frame::{self, Address, Segment, Unfit};
use crate::ledger::Ledger;
use crate::log::{Utc, Zone};
use crate::pcap::{Format, Frame, InputError, Reader};
use crate::stream::{Endpoints, Side, Streams};
use std::net::IpAddr;

/// What to decode, and how much memory it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Server ports.
    pub ports: Vec<u16>,
    /// Server addresses; empty: any.
    pub servers: Vec<IpAddr>,
    /// Which part of the connections to decode.
    pub shard: Shard,
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Config { ports: vec![3306], servers: Vec::new(), shard: Shard::default(), limits: Limits::default() }
    }
}

/// One of `of` equal parts, by connection: decoders that see the same frames, each with its own
/// `index`, produce every event once between them, and ledgers that sum to the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub index: u32,
    /// At least 1.
    pub of: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Shard { index: 0, of: 1 }
    }
}

/// Bounds of memory. What does not fit is counted, never silently lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes kept of one statement; the rest is `Event::text_cut`.
    pub text: usize,
    /// Bytes kept over all connections: statements in flight and prepared, segments out of order.
    pub total: usize,
    /// Connections; beyond that the one idle for longest is closed.
    pub connections: usize,
    /// Commands in flight on one connection.
    pub pipeline: usize,
    /// Prepared statements of one connection; beyond that the oldest is forgotten.
    pub statements: usize,
    /// Segments that wait for one that is missing, on one connection.
    pub held_segments: usize,
    pub held_bytes: usize,
    /// Packet time after which a missing segment is given up, ns.
    pub held_ns: u64,
    /// Packet time without a packet after which a connection is closed, ns.
    pub idle_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            text: 1 << 20,
            total: 48 << 20,
            connections: 16_384,
            pipeline: 4096,
            statements: 16_382,
            held_segments: 256,
            held_bytes: 4 << 20,
            // Longer than a retransmission timer that has backed off a few times.
            held_ns: 10_000_000_000,
            // The server's default wait_timeout.
            idle_ns: 28_800_000_000_000,
        }
    }
}

/// Turns the frames of one capture into events. `Send`: one for each thread, see [`Shard`].
pub struct Decoder {
    ports: Ports,
    servers: Vec<Address>,
    shard: Shard,
    streams: Streams,
    ledger: Ledger,
}

impl Decoder {
    pub fn new(config: &Config) -> Self {
        Decoder {
            ports: Ports::new(&config.ports),
            servers: config.servers.iter().map(|&ip| Address::from(ip)).collect(),
            shard: Shard { index: config.shard.index, of: config.shard.of.max(1) },
            streams: Streams::new(config.limits),
            ledger: Ledger::default(),
        }
    }

    /// Takes the next frame; events that it completes go to `sink`.
    #[inline]
    pub fn frame<S: Sink + ?Sized>(&mut self, frame: &Frame<'_>, sink: &mut S) {
        let outcome = match frame::parse(frame) {
            Ok(segment) => match self.endpoints(&segment) {
                Some((endpoints, from)) => {
                    let hash = endpoints.hash();
                    if self.shard.of > 1 && shard_of(hash, self.shard.of) != self.shard.index {
                        return;
                    }
                    self.streams.segment(
                        endpoints,
                        hash,
                        from,
                        &segment,
                        frame.time_ns,
                        &mut self.ledger,
                        sink,
                    )
                }
                None => Outcome::NotOurs,
            },
            Err(Unfit::NotTcp) => Outcome::NotOurs,
            Err(Unfit::Unsupported) => Outcome::Unsupported,
            Err(Unfit::Truncated) => Outcome::Truncated,
            Err(Unfit::Malformed) => Outcome::Malformed,
        };
        let frames = &mut self.ledger.frames;
        match outcome {
            Outcome::Parsed => frames.parsed += 1,
            Outcome::Truncated => frames.truncated += 1,
            Outcome::Duplicate => frames.duplicate += 1,
            // What belongs to no connection is counted by the first shard alone.
            _ if self.shard.index != 0 => return,
            Outcome::NotOurs => frames.not_ours += 1,
            Outcome::Unsupported => frames.unsupported += 1,
            Outcome::Malformed => frames.malformed += 1,
        }
        frames.read += 1;
        self.ledger.bytes.frames += frame.bytes.len() as u64;
    }

    /// Which end is the server, if the segment is of interest.
    #[inline]
    fn endpoints(&self, segment: &Segment<'_>) -> Option<(Endpoints, Side)> {
        let to_server = self.ports.contains(segment.destination_port) && self.serves(segment.destination);
        let from_server = self.ports.contains(segment.source_port) && self.serves(segment.source);
        let forth = || {
            Endpoints::new(segment.source, segment.source_port, segment.destination, segment.destination_port)
        };
        let back = || {
            Endpoints::new(segment.destination, segment.destination_port, segment.source, segment.source_port)
        };
        match (to_server, from_server) {
            (false, false) => None,
            (true, false) => Some((forth(), Side::Client)),
            (false, true) => Some((back(), Side::Server)),
            // Both ports are server ports: only the opening of a connection tells.
            (true, true) => {
                let opens = segment.flags & (frame::SYN | frame::ACK);
                let answers = opens == frame::SYN | frame::ACK || self.streams.knows(&back());
                if opens != frame::SYN && answers && !self.streams.knows(&forth()) {
                    Some((back(), Side::Server))
                } else {
                    Some((forth(), Side::Client))
                }
            }
        }
    }

    #[inline]
    fn serves(&self, address: Address) -> bool {
        self.servers.is_empty() || self.servers.contains(&address)
    }

    /// Gives up what is still awaited and hands over the commands that were in flight.
    pub fn finish<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        self.streams.finish(&mut self.ledger, sink);
    }

    /// Adds up only after [`finish`](Self::finish).
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }
}

/// Where a frame ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Parsed,
    Duplicate,
    Truncated,
    Unsupported,
    Malformed,
    NotOurs,
}

/// The part that a connection falls into; multiplying spreads without a division.
#[inline]
fn shard_of(hash: u64, of: u32) -> u32 {
    ((u64::from((hash >> 32) as u32) * u64::from(of)) >> 32) as u32
}

/// Reads a capture file or stream and decodes it.
pub struct CaptureDecoder {
    reader: Reader,
    decoder: Decoder,
}

impl CaptureDecoder {
    /// See [`Reader::new`].
    pub fn new(format: Format, config: &Config) -> Self {
        Self::in_zone(format, config, Box::new(Utc))
    }

    /// See [`Reader::in_zone`].
    pub fn in_zone(format: Format, config: &Config, zone: Box<dyn Zone + Send>) -> Self {
        CaptureDecoder { reader: Reader::in_zone(format, zone), decoder: Decoder::new(config) }
    }

    /// Takes the next bytes of the capture, however they are cut; large chunks (1 MiB) are read in place.
    ///
    /// # Errors
    /// The capture is damaged from here on: what was read stands, what follows is ignored.
    pub fn feed<S: Sink + ?Sized>(&mut self, chunk: &[u8], sink: &mut S) -> Result<(), InputError> {
        let decoder = &mut self.decoder;
        self.reader.feed(chunk, &mut |frame| decoder.frame(frame, sink))
    }

    /// See [`Decoder::finish`].
    pub fn finish<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        let decoder = &mut self.decoder;
        self.reader.finish(&mut |frame| decoder.frame(frame, sink));
        self.decoder.finish(sink);
    }

    pub fn ledger(&self) -> Ledger {
        self.decoder.ledger()
    }

    /// See [`Reader::unread_tail`].
    pub fn unread_tail(&self) -> u64 {
        self.reader.unread_tail()
    }

    /// See [`Reader::dropped_by_capture`].
    pub fn dropped_by_capture(&self) -> Option<u64> {
        self.reader.dropped_by_capture()
    }
}

/// A set of ports; one bit each, since every packet asks twice.
struct Ports(Box<[u64; 1024]>);

impl Ports {
    fn new(ports: &[u16]) -> Self {
        let mut bits = Box::new([0u64; 1024]);
        for &port in ports {
            bits[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        Ports(bits)
    }

    #[inline]
    fn contains(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6)] & 1 << (port & 63) != 0
    }
}
