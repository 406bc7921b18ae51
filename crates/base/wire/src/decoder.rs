//! Decoder from a capture to query events. Connects reader, frames, streams and sessions; does no parsing
//! itself.

use crate::endpoints::Endpoints;
use crate::event::Sink;
use crate::frame::{self, Address, Addressed, Unfit};
use crate::ledger::Ledger;
use crate::log::{Utc, Zone};
use crate::mysql::{self, Context, Session, Workspace};
use crate::pcap::{Format, Frame, InputError, Reader};
use crate::room::Room;
use crate::side::{Hole, Side};
use crate::spoken::Sockets;
pub use crate::spoken::{Said, Spoken};
use crate::stream::{self, Listener, Outcome, Streams};
use std::net::IpAddr;

/// Traffic to decode, and memory limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Server ports.
    pub ports: Vec<u16>,
    /// Server addresses; empty: any.
    pub servers: Vec<IpAddr>,
    /// Share of the connections to decode.
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

impl Limits {
    fn of_streams(&self) -> stream::Limits {
        stream::Limits {
            connections: self.connections,
            held_segments: self.held_segments,
            held_bytes: self.held_bytes,
            held_ns: self.held_ns,
            idle_ns: self.idle_ns,
        }
    }

    fn of_sessions(&self) -> mysql::Limits {
        mysql::Limits { text: self.text, pipeline: self.pipeline, statements: self.statements }
    }
}

/// Turns the frames of one capture, or the calls on a server's sockets, into events. `Send`: one for each thread, see [`Shard`].
pub struct Decoder {
    ports: Ports,
    servers: Vec<Address>,
    shard: Shard,
    streams: Streams<Endpoints, Session>,
    sockets: Sockets,
    limits: mysql::Limits,
    workspace: Workspace,
    ledger: Ledger,
}

impl Decoder {
    pub fn new(config: &Config) -> Self {
        Decoder {
            ports: Ports::new(&config.ports),
            servers: config.servers.iter().map(|&ip| Address::from(ip)).collect(),
            shard: Shard { index: config.shard.index, of: config.shard.of.max(1) },
            streams: Streams::new(config.limits.of_streams()),
            sockets: Sockets::new(config.limits.connections),
            limits: config.limits.of_sessions(),
            workspace: Workspace::new(Room::new(config.limits.total)),
            ledger: Ledger::default(),
        }
    }

    /// Takes the next frame; events that it completes go to `sink`.
    #[inline]
    pub fn frame<S: Sink + ?Sized>(&mut self, frame: &Frame<'_>, sink: &mut S) {
        match frame::parse(frame) {
            Ok(packet) => match self.endpoints(&packet) {
                Some((endpoints, from)) => {
                    if self.shard.of > 1 && shard_of(endpoints.hash, self.shard.of) != self.shard.index {
                        return;
                    }
                    let (streams, mut context) = self.parts(sink);
                    let outcome =
                        streams.segment(endpoints, from, &packet.segment, frame.time_ns, &mut context);
                    let frames = &mut self.ledger.frames;
                    match outcome {
                        Outcome::Parsed => frames.parsed += 1,
                        Outcome::Duplicate => frames.duplicate += 1,
                        Outcome::Truncated => frames.truncated += 1,
                    }
                }
                // What belongs to no connection is counted by the first shard alone.
                None if self.shard.index != 0 => return,
                None => self.ledger.frames.not_ours += 1,
            },
            Err(_) if self.shard.index != 0 => return,
            Err(Unfit::Other) => self.ledger.frames.not_ours += 1,
            Err(Unfit::Unsupported) => self.ledger.frames.unsupported += 1,
            Err(Unfit::Truncated) => self.ledger.frames.truncated += 1,
            Err(Unfit::Malformed) => self.ledger.frames.malformed += 1,
        }
        self.ledger.frames.read += 1;
        self.ledger.bytes.frames += frame.bytes.len() as u64;
    }

    /// Takes what the next call on a socket of a server moved; events that it completes go to `sink`. Ports and
    /// addresses of the configuration do not count. The ledger counts such calls as frames.
    #[inline]
    pub fn spoken<S: Sink + ?Sized>(&mut self, said: &Spoken<'_>, sink: &mut S) {
        if self.shard.of > 1 && shard_of(said.hash(), self.shard.of) != self.shard.index {
            return;
        }
        let Decoder { sockets, limits, workspace, ledger, .. } = self;
        sockets.spoken(said, &mut Context { sink, ledger, limits, workspace });
    }

    /// The streams, and what their sessions need while they are read.
    #[inline]
    fn parts<'a, S: ?Sized>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut Streams<Endpoints, Session>, Context<'a, S>) {
        let Decoder { streams, limits, workspace, ledger, .. } = self;
        (streams, Context { sink, ledger, limits, workspace })
    }

    /// Which end is the server, if the segment is of interest.
    #[inline]
    fn endpoints(&self, packet: &Addressed<'_>) -> Option<(Endpoints, Side)> {
        let to_server = self.ports.contains(packet.destination_port) && self.serves(packet.destination);
        let from_server = self.ports.contains(packet.source_port) && self.serves(packet.source);
        let forth =
            || Endpoints::new(packet.source, packet.source_port, packet.destination, packet.destination_port);
        let back =
            || Endpoints::new(packet.destination, packet.destination_port, packet.source, packet.source_port);
        match (to_server, from_server) {
            (false, false) => None,
            (true, false) => Some((forth(), Side::Client)),
            (false, true) => Some((back(), Side::Server)),
            // Both ports are server ports: only the opening of a connection tells.
            (true, true) => {
                let opens = packet.segment.flags & (frame::SYN | frame::ACK);
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
        let Decoder { streams, sockets, limits, workspace, ledger, .. } = self;
        let mut context = Context { sink, ledger, limits, workspace };
        streams.finish(&mut context);
        sockets.finish(&mut context);
    }

    /// Adds up only after [`finish`](Self::finish).
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }
}

/// Sessions are what is kept of connections.
impl<S: Sink + ?Sized> Listener<Endpoints, Session> for Context<'_, S> {
    fn begin(&mut self, session: &mut Session, endpoints: &Endpoints) {
        session.open(endpoints.client, endpoints.client_port, self.ledger);
    }

    fn connecting(&mut self, session: &mut Session, from: Side, time_ns: u64) {
        session.connecting(from, time_ns);
    }

    #[inline]
    fn bytes(&mut self, session: &mut Session, from: Side, bytes: &[u8], time_ns: u64) {
        session.bytes(from, bytes, time_ns, self);
    }

    fn hole(&mut self, session: &mut Session, from: Side, count: u64, why: Hole, time_ns: u64) {
        session.hole(from, count, why, time_ns, self);
    }

    fn end(&mut self, session: &mut Session) {
        session.close(self);
    }

    fn room(&mut self) -> &mut Room {
        &mut self.workspace.room
    }
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
