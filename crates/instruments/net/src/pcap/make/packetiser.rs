//! Packetiser of synthetic conversations: complete TCP connections, or datagrams.
//!
//! Knows neither content nor timing. Messages wait here until their time, and only then become bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use toll_stats::random::Rng;
use toll_wire::frame::{ACK, FIN, SYN};
use toll_wire::packet_builder::{self, AddressPair, ETHERTYPE_V4, IpHeader, TcpHeader};

/// Payload of a full segment: 1500 bytes less 20 of IP and 32 of TCP with its time stamps.
const MAX_SEGMENT_PAYLOAD: usize = 1448;
const PSH: u8 = 0x08;
/// Bytes of a closing handshake, roughly.
const CLOSE_HANDSHAKE_BYTES: u64 = 3 * 70;
/// As Linux advertises it: 502 of 2^7 bytes.
const WINDOW: u16 = 502;
const FILLER_BYTES: usize = 64 << 10;
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Client,
    Server,
}

/// Where packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// A mirrored uplink: what comes from outside carries the tag of its VLAN, so that a full frame has
    /// 1518 bytes, the largest of Ethernet, and an acknowledgement from inside has 66.
    Uplink,
    /// No tags.
    Local,
}

/// VLAN of what comes from outside.
const VLAN: u16 = 100;

impl LinkKind {
    fn vlan(self, from: Endpoint) -> Option<u16> {
        (self == LinkKind::Uplink && from == Endpoint::Server).then_some(VLAN)
    }
}

/// Bytes that mean nothing; messages take stretches of them.
pub struct Filler(Vec<u8>);

impl Filler {
    pub fn new(rng: &mut Rng) -> Self {
        Filler((0..FILLER_BYTES).map(|_| LETTERS[rng.below(64) as usize]).collect())
    }
}

/// What is said at once: a head, and noise behind it.
#[derive(Debug, Default)]
pub struct Payload {
    head: Vec<u8>,
    filler_at: usize,
    filler: usize,
}

impl Payload {
    pub fn new(head: Vec<u8>) -> Self {
        Payload { head, filler_at: 0, filler: 0 }
    }

    /// Followed by `noise` bytes.
    pub fn with_filler(head: Vec<u8>, noise: usize, rng: &mut Rng) -> Self {
        Payload { head, filler_at: rng.below(FILLER_BYTES as u64) as usize, filler: noise }
    }

    fn len(&self) -> usize {
        self.head.len() + self.filler
    }

    /// Puts the stretch from `at` on into `out`.
    fn copy(&self, noise: &Filler, at: usize, length: usize, out: &mut Vec<u8>) {
        let from_head = self.head.get(at..).unwrap_or_default();
        out.extend(&from_head[..from_head.len().min(length)]);
        let mut rest = length.saturating_sub(from_head.len());
        let mut place = (self.filler_at + at.saturating_sub(self.head.len())) % FILLER_BYTES;
        while rest > 0 {
            let part = &noise.0[place..FILLER_BYTES.min(place + rest)];
            out.extend(part);
            rest -= part.len();
            place = 0;
        }
    }
}

/// A packet that waits.
enum QueuedPacket {
    Segment {
        from: Endpoint,
        flags: u8,
        seq: u32,
        ack: u32,
        message: Option<Rc<Payload>>,
        at: usize,
        length: usize,
    },
    Datagram {
        from: Endpoint,
        ends: AddressPair,
        message: Payload,
    },
}

/// A conversation's two ends and what they have yet to say.
pub struct Packetiser {
    link: LinkKind,
    client: SocketAddr,
    server: SocketAddr,
    /// Next sequence numbers: client's, server's.
    seqs: [u32; 2],
    /// Where the clocks of the time stamps began.
    clocks: [u32; 2],
    /// The stamp sent last.
    stamps: [u32; 2],
    ids: [u16; 2],
    queue: VecDeque<QueuedPacket>,
    is_open: bool,
    waiting_bytes: u64,
    payload: Vec<u8>,
}

impl Packetiser {
    pub fn new(road: LinkKind, client: SocketAddr, server: SocketAddr, rng: &mut Rng) -> Self {
        let mut two = || [rng.next_u64() as u32, rng.next_u64() as u32];
        let (seqs, clocks) = (two(), two());
        let ids = two().map(|id| id as u16);
        Packetiser {
            link: road,
            client,
            server,
            seqs,
            clocks,
            stamps: [0; 2],
            ids,
            queue: VecDeque::new(),
            is_open: false,
            waiting_bytes: 0,
            payload: Vec::new(),
        }
    }

    /// The opening handshake.
    pub fn queue_open(&mut self) {
        self.is_open = true;
        self.queue_control(Endpoint::Client, SYN);
        self.queue_control(Endpoint::Server, SYN | ACK);
        self.queue_control(Endpoint::Client, ACK);
    }

    /// One says something; the other acknowledges every second full segment. `acknowledged`: and the last
    /// one, because it has nothing to say that would.
    pub fn queue_message(&mut self, from: Endpoint, message: Payload, acknowledged: bool) {
        let message = Rc::new(message);
        let other = match from {
            Endpoint::Client => Endpoint::Server,
            Endpoint::Server => Endpoint::Client,
        };
        let mut at = 0;
        for number in 1.. {
            let length = MAX_SEGMENT_PAYLOAD.min(message.len() - at);
            let is_last = at + length == message.len();
            let flags = if is_last { ACK | PSH } else { ACK };
            self.queue_segment(from, flags, Some((&message, at, length)));
            at += length;
            if (is_last && acknowledged) || (number % 2 == 0 && !is_last) {
                self.queue_control(other, ACK);
            }
            if is_last {
                return;
            }
        }
    }

    /// The closing handshake, if there was an opening one.
    pub fn queue_close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.queue_control(Endpoint::Client, FIN | ACK);
            self.queue_control(Endpoint::Server, FIN | ACK);
            self.queue_control(Endpoint::Client, ACK);
        }
    }

    /// A datagram beside the connection, or of a conversation that has none.
    pub fn queue_datagram(
        &mut self,
        from: Endpoint,
        client: SocketAddr,
        server: SocketAddr,
        message: Payload,
    ) {
        let ends = match from {
            Endpoint::Client => AddressPair { source: client, destination: server },
            Endpoint::Server => AddressPair { source: server, destination: client },
        };
        self.push(QueuedPacket::Datagram { from, ends, message });
    }

    pub fn client(&self) -> SocketAddr {
        self.client
    }

    pub fn server(&self) -> SocketAddr {
        self.server
    }

    fn queue_control(&mut self, from: Endpoint, flags: u8) {
        self.queue_segment(from, flags, None);
    }

    fn queue_segment(&mut self, from: Endpoint, flags: u8, said: Option<(&Rc<Payload>, usize, usize)>) {
        let (mine, other) = (from as usize, 1 - from as usize);
        let seq = self.seqs[mine];
        let ack = if flags & ACK != 0 { self.seqs[other] } else { 0 };
        let (message, at, length) = match said {
            Some((message, at, length)) => (Some(Rc::clone(message)), at, length),
            None => (None, 0, 0),
        };
        // A SYN and a FIN count as a byte each.
        let counted = length as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.seqs[mine] = seq.wrapping_add(counted);
        self.push(QueuedPacket::Segment { from, flags, seq, ack, message, at, length });
    }

    fn push(&mut self, line: QueuedPacket) {
        self.waiting_bytes += self.frame_len(&line);
        self.queue.push_back(line);
    }

    fn frame_len(&self, line: &QueuedPacket) -> u64 {
        let (from, behind_ip) = match line {
            QueuedPacket::Segment { from, flags, length, .. } => {
                (from, 20 + if flags & SYN != 0 { 20 } else { 12 } + length)
            }
            QueuedPacket::Datagram { from, message, .. } => (from, 8 + message.len()),
        };
        let link = if self.link.vlan(*from).is_some() { 18 } else { 14 };
        (link + 20 + behind_ip) as u64
    }

    /// Bytes of all packets that are yet to come before the conversation is closed.
    pub fn bytes_left(&self) -> u64 {
        self.waiting_bytes + if self.is_open { CLOSE_HANDSHAKE_BYTES } else { 0 }
    }

    /// Puts the next packet into `frame`, at `now_ms` by the clocks of both ends. `None`: none waits. Else
    /// whether it is TCP.
    pub fn next_packet(&mut self, now_ms: u32, noise: &Filler, frame: &mut Vec<u8>) -> Option<bool> {
        let line = self.queue.pop_front()?;
        self.waiting_bytes -= self.frame_len(&line);
        frame.clear();
        let from = match line {
            QueuedPacket::Segment { from, .. } | QueuedPacket::Datagram { from, .. } => from,
        };
        let (inside, outside) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (source, destination) = match from {
            Endpoint::Client => (inside, outside),
            Endpoint::Server => (outside, inside),
        };
        packet_builder::append_ethernet(frame, destination, source, self.link.vlan(from), ETHERTYPE_V4);
        // Ten routers lie between them, where there are any.
        let ttl = if self.link == LinkKind::Uplink && from == Endpoint::Server { 54 } else { 64 };
        let id = self.ids[from as usize];
        self.ids[from as usize] = id.wrapping_add(1);
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        let is_tcp = match line {
            QueuedPacket::Segment { flags, seq, ack, message, at, length, .. } => {
                if let Some(message) = message {
                    message.copy(noise, at, length, &mut payload);
                }
                let ends = match from {
                    Endpoint::Client => AddressPair { source: self.client, destination: self.server },
                    Endpoint::Server => AddressPair { source: self.server, destination: self.client },
                };
                let options = self.tcp_options(from, flags, now_ms);
                let head = TcpHeader { seq, ack, flags, window: WINDOW, options: &options };
                packet_builder::append_tcp(frame, &IpHeader { addresses: ends, ttl, id }, &head, &payload);
                true
            }
            QueuedPacket::Datagram { ends, message, .. } => {
                message.copy(noise, 0, message.len(), &mut payload);
                packet_builder::append_udp(frame, &IpHeader { addresses: ends, ttl, id }, &payload);
                false
            }
        };
        self.payload = payload;
        Some(is_tcp)
    }

    /// Time stamps (RFC 7323), and with a SYN what is agreed on: 1460 bytes a segment, selective
    /// acknowledgements, windows in 2^7 bytes.
    fn tcp_options(&mut self, from: Endpoint, flags: u8, now_ms: u32) -> Vec<u8> {
        let mut options = match flags & SYN {
            0 => vec![1, 1, 8, 10],
            _ => vec![2, 4, 0x05, 0xb4, 4, 2, 8, 10],
        };
        let stamp = self.clocks[from as usize].wrapping_add(now_ms);
        self.stamps[from as usize] = stamp;
        let echoed = if flags & ACK != 0 { self.stamps[1 - from as usize] } else { 0 };
        options.extend(stamp.to_be_bytes());
        options.extend(echoed.to_be_bytes());
        if flags & SYN != 0 {
            options.extend([1, 3, 3, 7]);
        }
        options
    }
}
