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
const FULL: usize = 1448;
const PSH: u8 = 0x08;
/// Bytes of a closing handshake, roughly.
const CLOSING: u64 = 3 * 70;
/// As Linux advertises it: 502 of 2^7 bytes.
const WINDOW: u16 = 502;
const NOISE: usize = 64 << 10;
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    Client,
    Server,
}

/// Where packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// A mirrored uplink: what comes from outside carries the tag of its VLAN, so that a full frame has
    /// 1518 bytes, the largest of Ethernet, and an acknowledgement from inside has 66.
    Uplink,
    /// No tags.
    Local,
}

/// VLAN of what comes from outside.
const VLAN: u16 = 100;

impl Road {
    fn vlan(self, from: Speaker) -> Option<u16> {
        (self == Road::Uplink && from == Speaker::Server).then_some(VLAN)
    }
}

/// Bytes that mean nothing; messages take stretches of them.
pub struct Noise(Vec<u8>);

impl Noise {
    pub fn new(dice: &mut Rng) -> Self {
        Noise((0..NOISE).map(|_| LETTERS[dice.below(64) as usize]).collect())
    }
}

/// What is said at once: a head, and noise behind it.
#[derive(Debug, Default)]
pub struct Message {
    head: Vec<u8>,
    noise_at: usize,
    noise: usize,
}

impl Message {
    pub fn new(head: Vec<u8>) -> Self {
        Message { head, noise_at: 0, noise: 0 }
    }

    /// Followed by `noise` bytes.
    pub fn with_noise(head: Vec<u8>, noise: usize, dice: &mut Rng) -> Self {
        Message { head, noise_at: dice.below(NOISE as u64) as usize, noise }
    }

    fn len(&self) -> usize {
        self.head.len() + self.noise
    }

    /// Puts the stretch from `at` on into `out`.
    fn copy(&self, noise: &Noise, at: usize, length: usize, out: &mut Vec<u8>) {
        let from_head = self.head.get(at..).unwrap_or_default();
        out.extend(&from_head[..from_head.len().min(length)]);
        let mut rest = length.saturating_sub(from_head.len());
        let mut place = (self.noise_at + at.saturating_sub(self.head.len())) % NOISE;
        while rest > 0 {
            let part = &noise.0[place..NOISE.min(place + rest)];
            out.extend(part);
            rest -= part.len();
            place = 0;
        }
    }
}

/// A packet that waits.
enum Line {
    Segment {
        from: Speaker,
        flags: u8,
        seq: u32,
        ack: u32,
        message: Option<Rc<Message>>,
        at: usize,
        length: usize,
    },
    Datagram {
        from: Speaker,
        ends: AddressPair,
        message: Message,
    },
}

/// A conversation's two ends and what they have yet to say.
pub struct Wire {
    road: Road,
    client: SocketAddr,
    server: SocketAddr,
    /// Next sequence numbers: client's, server's.
    seqs: [u32; 2],
    /// Where the clocks of the time stamps began.
    clocks: [u32; 2],
    /// The stamp sent last.
    stamps: [u32; 2],
    ids: [u16; 2],
    lines: VecDeque<Line>,
    is_open: bool,
    waiting_bytes: u64,
    payload: Vec<u8>,
}

impl Wire {
    pub fn new(road: Road, client: SocketAddr, server: SocketAddr, dice: &mut Rng) -> Self {
        let mut two = || [dice.next_u64() as u32, dice.next_u64() as u32];
        let (seqs, clocks) = (two(), two());
        let ids = two().map(|id| id as u16);
        Wire {
            road,
            client,
            server,
            seqs,
            clocks,
            stamps: [0; 2],
            ids,
            lines: VecDeque::new(),
            is_open: false,
            waiting_bytes: 0,
            payload: Vec::new(),
        }
    }

    /// The opening handshake.
    pub fn open(&mut self) {
        self.is_open = true;
        self.control(Speaker::Client, SYN);
        self.control(Speaker::Server, SYN | ACK);
        self.control(Speaker::Client, ACK);
    }

    /// One says something; the other acknowledges every second full segment. `acknowledged`: and the last
    /// one, because it has nothing to say that would.
    pub fn say(&mut self, from: Speaker, message: Message, acknowledged: bool) {
        let message = Rc::new(message);
        let other = match from {
            Speaker::Client => Speaker::Server,
            Speaker::Server => Speaker::Client,
        };
        let mut at = 0;
        for number in 1.. {
            let length = FULL.min(message.len() - at);
            let is_last = at + length == message.len();
            let flags = if is_last { ACK | PSH } else { ACK };
            self.segment(from, flags, Some((&message, at, length)));
            at += length;
            if (is_last && acknowledged) || (number % 2 == 0 && !is_last) {
                self.control(other, ACK);
            }
            if is_last {
                return;
            }
        }
    }

    /// The closing handshake, if there was an opening one.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.control(Speaker::Client, FIN | ACK);
            self.control(Speaker::Server, FIN | ACK);
            self.control(Speaker::Client, ACK);
        }
    }

    /// A datagram beside the connection, or of a conversation that has none.
    pub fn datagram(&mut self, from: Speaker, client: SocketAddr, server: SocketAddr, message: Message) {
        let ends = match from {
            Speaker::Client => AddressPair { source: client, destination: server },
            Speaker::Server => AddressPair { source: server, destination: client },
        };
        self.queue(Line::Datagram { from, ends, message });
    }

    pub fn client(&self) -> SocketAddr {
        self.client
    }

    pub fn server(&self) -> SocketAddr {
        self.server
    }

    fn control(&mut self, from: Speaker, flags: u8) {
        self.segment(from, flags, None);
    }

    fn segment(&mut self, from: Speaker, flags: u8, said: Option<(&Rc<Message>, usize, usize)>) {
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
        self.queue(Line::Segment { from, flags, seq, ack, message, at, length });
    }

    fn queue(&mut self, line: Line) {
        self.waiting_bytes += self.frame_len(&line);
        self.lines.push_back(line);
    }

    fn frame_len(&self, line: &Line) -> u64 {
        let (from, behind_ip) = match line {
            Line::Segment { from, flags, length, .. } => {
                (from, 20 + if flags & SYN != 0 { 20 } else { 12 } + length)
            }
            Line::Datagram { from, message, .. } => (from, 8 + message.len()),
        };
        let link = if self.road.vlan(*from).is_some() { 18 } else { 14 };
        (link + 20 + behind_ip) as u64
    }

    /// Bytes of all packets that are yet to come before the conversation is closed.
    pub fn bytes_to_end(&self) -> u64 {
        self.waiting_bytes + if self.is_open { CLOSING } else { 0 }
    }

    /// Puts the next packet into `frame`, at `now_ms` by the clocks of both ends. `None`: none waits. Else
    /// whether it is TCP.
    pub fn next(&mut self, now_ms: u32, noise: &Noise, frame: &mut Vec<u8>) -> Option<bool> {
        let line = self.lines.pop_front()?;
        self.waiting_bytes -= self.frame_len(&line);
        frame.clear();
        let from = match line {
            Line::Segment { from, .. } | Line::Datagram { from, .. } => from,
        };
        let (inside, outside) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (source, destination) = match from {
            Speaker::Client => (inside, outside),
            Speaker::Server => (outside, inside),
        };
        packet_builder::append_ethernet(frame, destination, source, self.road.vlan(from), ETHERTYPE_V4);
        // Ten routers lie between them, where there are any.
        let ttl = if self.road == Road::Uplink && from == Speaker::Server { 54 } else { 64 };
        let id = self.ids[from as usize];
        self.ids[from as usize] = id.wrapping_add(1);
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        let is_tcp = match line {
            Line::Segment { flags, seq, ack, message, at, length, .. } => {
                if let Some(message) = message {
                    message.copy(noise, at, length, &mut payload);
                }
                let ends = match from {
                    Speaker::Client => AddressPair { source: self.client, destination: self.server },
                    Speaker::Server => AddressPair { source: self.server, destination: self.client },
                };
                let options = self.options(from, flags, now_ms);
                let head = TcpHeader { seq, ack, flags, window: WINDOW, options: &options };
                packet_builder::append_tcp(frame, &IpHeader { addresses: ends, ttl, id }, &head, &payload);
                true
            }
            Line::Datagram { ends, message, .. } => {
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
    fn options(&mut self, from: Speaker, flags: u8, now_ms: u32) -> Vec<u8> {
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
