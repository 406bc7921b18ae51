//! Decoder from a capture to query events. Connects reader, frames, streams and sessions; does no parsing
//! itself.

use crate::accounting::DecodeAccounting;
use crate::direction::{Direction, GapCause};
use crate::endpoints::Endpoints;
use crate::event::Sink;
use crate::frame::{self, Address, AddressedSegment, FrameError};
use crate::log::{Utc, Zone};
use crate::memory_budget::MemoryBudget;
use crate::mysql::{self, Context, Session, Workspace};
use crate::pcap::{Format, Frame, InputError, Reader};
use crate::socket_session::SocketSessions;
pub use crate::socket_session::{CallDirection, SocketChunk};
use crate::stream::{self, ConnectionTable, SegmentOutcome, StreamListener};
use foldhash::fast::{FixedState, RandomState};
use std::hash::{BuildHasher, Hash};
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
/// `index`, produce every event once between them, and accounting that sums to the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub index: u32,
    /// At least 1.
    pub of: u32,
    /// The same in all parts, and unknown to senders: they cannot have all connections fall into one part.
    seed: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Shard { index: 0, of: 1, seed: 0 }
    }
}

impl Shard {
    /// All parts of a whole.
    pub fn split(of: u32) -> impl Iterator<Item = Self> {
        let seed = RandomState::default().hash_one(of);
        (0..of).map(move |index| Self { index, of, seed })
    }

    /// True if a connection falls into this part; multiplying spreads without a division.
    #[inline]
    pub(crate) fn contains(self, connection: impl Hash) -> bool {
        let part = |hash: u64| ((u64::from((hash >> 32) as u32) * u64::from(self.of)) >> 32) as u32;
        self.of <= 1 || part(FixedState::with_seed(self.seed).hash_one(connection)) == self.index
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
    pub reorder_segments: usize,
    pub reorder_bytes: usize,
    /// Packet time after which a missing segment is given up, ns.
    pub reorder_ns: u64,
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
            reorder_segments: 256,
            reorder_bytes: 4 << 20,
            // Longer than a retransmission timer that has backed off a few times.
            reorder_ns: 10_000_000_000,
            // The server's default wait_timeout.
            idle_ns: 28_800_000_000_000,
        }
    }
}

impl Limits {
    fn stream_limits(&self) -> stream::Limits {
        stream::Limits {
            connections: self.connections,
            reorder_segments: self.reorder_segments,
            reorder_bytes: self.reorder_bytes,
            reorder_ns: self.reorder_ns,
            idle_ns: self.idle_ns,
        }
    }

    fn session_limits(&self) -> mysql::Limits {
        mysql::Limits { text: self.text, pipeline: self.pipeline, statements: self.statements }
    }
}

/// Turns the frames of one capture, or the calls on a server's sockets, into events. `Send`: one for each thread, see [`Shard`].
pub struct Decoder {
    ports: Ports,
    servers: Vec<Address>,
    shard: Shard,
    streams: ConnectionTable<Endpoints, Session>,
    sockets: SocketSessions,
    limits: mysql::Limits,
    workspace: Workspace,
    accounting: DecodeAccounting,
}

impl Decoder {
    pub fn new(config: &Config) -> Self {
        Decoder {
            ports: Ports::new(&config.ports),
            servers: config.servers.iter().map(|&ip| Address::from(ip)).collect(),
            shard: config.shard,
            streams: ConnectionTable::new(config.limits.stream_limits()),
            sockets: SocketSessions::new(config.limits.connections),
            limits: config.limits.session_limits(),
            workspace: Workspace::new(MemoryBudget::new(config.limits.total)),
            accounting: DecodeAccounting::default(),
        }
    }

    /// Takes the next frame; events that it completes go to `sink`.
    #[inline]
    pub fn decode_frame<S: Sink + ?Sized>(&mut self, frame: &Frame<'_>, sink: &mut S) {
        match frame::parse_segment(frame) {
            Ok(packet) => match self.identify_endpoints(&packet) {
                Some((endpoints, from)) => {
                    if !self.shard.contains(endpoints) {
                        return;
                    }
                    let (streams, mut context) = self.streams_and_context(sink);
                    let outcome =
                        streams.handle_segment(endpoints, from, &packet.segment, frame.time_ns, &mut context);
                    let frames = &mut self.accounting.frames;
                    match outcome {
                        SegmentOutcome::Parsed => frames.parsed += 1,
                        SegmentOutcome::Duplicate => frames.duplicate += 1,
                        SegmentOutcome::Truncated => frames.truncated += 1,
                    }
                }
                // What belongs to no connection is counted by the first shard alone.
                None if self.shard.index != 0 => return,
                None => self.accounting.frames.not_ours += 1,
            },
            Err(_) if self.shard.index != 0 => return,
            Err(FrameError::OtherProtocol) => self.accounting.frames.not_ours += 1,
            Err(FrameError::Unsupported) => self.accounting.frames.unsupported += 1,
            Err(FrameError::Truncated) => self.accounting.frames.truncated += 1,
            Err(FrameError::Malformed) => self.accounting.frames.malformed += 1,
        }
        self.accounting.frames.read += 1;
        self.accounting.bytes.frames += frame.bytes.len() as u64;
    }

    /// Takes what the next call on a socket of a server moved; events that it completes go to `sink`. Ports and
    /// addresses of the configuration do not count. The accounting counts such calls as frames.
    #[inline]
    pub fn decode_socket_chunk<S: Sink + ?Sized>(&mut self, chunk: &SocketChunk<'_>, sink: &mut S) {
        if !self.shard.contains(chunk.socket) {
            return;
        }
        let Decoder { sockets, limits, workspace, accounting: ledger, .. } = self;
        sockets.handle_chunk(chunk, &mut Context { sink, accounting: ledger, limits, workspace });
    }

    /// The streams, and what their sessions need while they are read.
    #[inline]
    fn streams_and_context<'a, S: ?Sized>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut ConnectionTable<Endpoints, Session>, Context<'a, S>) {
        let Decoder { streams, limits, workspace, accounting: ledger, .. } = self;
        (streams, Context { sink, accounting: ledger, limits, workspace })
    }

    /// Which end is the server, if the segment is of interest.
    #[inline]
    fn identify_endpoints(&self, packet: &AddressedSegment<'_>) -> Option<(Endpoints, Direction)> {
        let to_server = self.ports.contains(packet.destination_port) && self.is_server(packet.destination);
        let from_server = self.ports.contains(packet.source_port) && self.is_server(packet.source);
        let forth =
            || Endpoints::new(packet.source, packet.source_port, packet.destination, packet.destination_port);
        let back =
            || Endpoints::new(packet.destination, packet.destination_port, packet.source, packet.source_port);
        match (to_server, from_server) {
            (false, false) => None,
            (true, false) => Some((forth(), Direction::FromClient)),
            (false, true) => Some((back(), Direction::FromServer)),
            // Both ports are server ports: only the opening of a connection tells.
            (true, true) => {
                let opens = packet.segment.flags & (frame::SYN | frame::ACK);
                let answers = opens == frame::SYN | frame::ACK || self.streams.contains(&back());
                if opens != frame::SYN && answers && !self.streams.contains(&forth()) {
                    Some((back(), Direction::FromServer))
                } else {
                    Some((forth(), Direction::FromClient))
                }
            }
        }
    }

    #[inline]
    fn is_server(&self, address: Address) -> bool {
        self.servers.is_empty() || self.servers.contains(&address)
    }

    /// Gives up what is still awaited and hands over the commands that were in flight.
    pub fn finish<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        let Decoder { streams, sockets, limits, workspace, accounting: ledger, .. } = self;
        let mut context = Context { sink, accounting: ledger, limits, workspace };
        streams.finish(&mut context);
        sockets.finish(&mut context);
    }

    /// Adds up only after [`finish`](Self::finish).
    pub fn accounting(&self) -> DecodeAccounting {
        self.accounting
    }
}

/// Sessions are what is kept of connections.
impl<S: Sink + ?Sized> StreamListener<Endpoints, Session> for Context<'_, S> {
    fn on_begin(&mut self, session: &mut Session, endpoints: &Endpoints) {
        session.open(endpoints.client, endpoints.client_port, self.accounting);
    }

    fn on_syn(&mut self, session: &mut Session, from: Direction, time_ns: u64) {
        session.handle_syn(from, time_ns);
    }

    #[inline]
    fn on_bytes(&mut self, session: &mut Session, from: Direction, bytes: &[u8], time_ns: u64) {
        session.handle_bytes(from, bytes, time_ns, self);
    }

    fn on_gap(&mut self, session: &mut Session, from: Direction, count: u64, why: GapCause, time_ns: u64) {
        session.handle_gap(from, count, why, time_ns, self);
    }

    fn on_end(&mut self, session: &mut Session) {
        session.close(self);
    }

    fn budget(&mut self) -> &mut MemoryBudget {
        &mut self.workspace.budget
    }
}

/// Reads a capture file or stream and decodes it.
pub struct CaptureDecoder {
    reader: Reader,
    decoder: Decoder,
}

impl CaptureDecoder {
    /// See [`Reader::new`].
    pub fn new(format: Format, config: &Config) -> Self {
        Self::with_zone(format, config, Box::new(Utc))
    }

    /// See [`Reader::with_zone`].
    pub fn with_zone(format: Format, config: &Config, zone: Box<dyn Zone + Send>) -> Self {
        CaptureDecoder { reader: Reader::with_zone(format, zone), decoder: Decoder::new(config) }
    }

    /// Takes the next bytes of the capture, however they are cut; large chunks (1 MiB) are read in place.
    ///
    /// # Errors
    /// The capture is damaged from here on: what was read stays valid, the rest is ignored.
    pub fn feed<S: Sink + ?Sized>(&mut self, chunk: &[u8], sink: &mut S) -> Result<(), InputError> {
        let decoder = &mut self.decoder;
        self.reader.feed(chunk, &mut |frame| decoder.decode_frame(frame, sink))
    }

    /// See [`Decoder::finish`].
    pub fn finish<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        let decoder = &mut self.decoder;
        self.reader.finish(&mut |frame| decoder.decode_frame(frame, sink));
        self.decoder.finish(sink);
    }

    pub fn accounting(&self) -> DecodeAccounting {
        self.decoder.accounting()
    }

    /// See [`Reader::unread_tail_bytes`].
    pub fn unread_tail_bytes(&self) -> u64 {
        self.reader.unread_tail_bytes()
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
