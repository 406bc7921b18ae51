//! Packets, segments and captures of two ends of a connection, and the events that a decoder finds in them.

use std::io::Write;
use std::net::SocketAddr;
use toll_wire::accounting::DecodeAccounting;
use toll_wire::decoder::{CaptureDecoder, Config};
use toll_wire::event::{CommandKind, Event, Sink};
use toll_wire::packet_builder::{AddressPair, IpHeader, TcpHeader, append_tcp};
use toll_wire::pcap::write::{append_pcap_record, encode_pcap_header};
use toll_wire::pcap::{Format, Frame, Link};

/// An event that outlives its decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedEvent {
    pub start_ns: u64,
    pub first_byte_ns: Option<u64>,
    pub query_ns: Option<u64>,
    pub kind: CommandKind,
    pub text: String,
    pub text_cut: u64,
    pub params: String,
    pub statement_id: Option<u32>,
    pub user: String,
    pub schema: String,
    pub port: u16,
    pub rows_sent: Option<u64>,
    pub rows_affected: Option<u64>,
    pub error: Option<(u16, String, String)>,
    pub tainted: bool,
}

#[derive(Debug, Default)]
pub struct EventCollector {
    pub list: Vec<DecodedEvent>,
    pub ledger: DecodeAccounting,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Sink for EventCollector {
    fn on_event(&mut self, event: &Event<'_>) {
        self.list.push(DecodedEvent {
            start_ns: event.start_ns,
            first_byte_ns: event.first_byte_ns,
            query_ns: event.query_ns,
            kind: event.kind,
            text: text(event.text),
            text_cut: event.text_cut,
            params: text(event.params),
            statement_id: event.statement_id,
            user: text(event.user),
            schema: text(event.db),
            port: event.port,
            rows_sent: event.rows_sent,
            rows_affected: event.rows_affected,
            error: event.error.map(|error| (error.number, text(error.state), text(error.message))),
            tainted: event.tainted,
        });
    }
}

impl EventCollector {
    pub fn decode(capture: &[u8]) -> Self {
        Self::decode_with(capture, &Config::default())
    }

    pub fn decode_with(capture: &[u8], config: &Config) -> Self {
        let format = Format::detect(capture).expect("the test made a capture");
        let mut decoder = CaptureDecoder::new(format, config);
        let mut events = EventCollector::default();
        decoder.feed(capture, &mut events).expect("the test made a whole capture");
        decoder.finish(&mut events);
        events.ledger = decoder.accounting();
        assert!(events.ledger.is_consistent(), "{:#?}", events.ledger);
        events
    }

    pub fn statement_texts(&self) -> Vec<&str> {
        self.list.iter().map(|event| event.text.as_str()).collect()
    }

    pub fn find_only(&self, text: &str) -> &DecodedEvent {
        let mut found = self.list.iter().filter(|event| event.text == text);
        let first = found.next().unwrap_or_else(|| panic!("no {text:?} in {:?}", self.statement_texts()));
        assert!(found.next().is_none(), "{text:?} more than once");
        first
    }
}

/// A captured frame: time and bytes (raw IPv4).
pub type CapturedFrame = (u64, Vec<u8>);

/// A TCP connection on which each message is one segment, a microsecond after the one before.
pub struct Conversation {
    frames: Vec<CapturedFrame>,
    now_ns: u64,
    client_port: u16,
    client_seq: u32,
    server_seq: u32,
}

const FIN_ACK: u8 = 0x11;
const PSH_ACK: u8 = 0x18;

impl Default for Conversation {
    fn default() -> Self {
        Self::new()
    }
}

impl Conversation {
    pub fn new() -> Self {
        Conversation::on_port(40_000)
    }

    pub fn on_port(client_port: u16) -> Self {
        // Sequence numbers wrap early on.
        Conversation {
            frames: Vec::new(),
            now_ns: 1_700_000_000_000_000_000,
            client_port,
            client_seq: u32::MAX - 40,
            server_seq: u32::MAX - 90,
        }
    }

    /// A later connection on the same ports.
    pub fn starting_at(now_ns: u64, client_seq: u32, server_seq: u32) -> Self {
        Conversation { now_ns, client_seq, server_seq, ..Conversation::new() }
    }

    pub fn frames(&self) -> &[CapturedFrame] {
        &self.frames
    }

    pub fn open(&mut self) {
        self.push(true, 0x02, &[]);
        self.client_seq = self.client_seq.wrapping_add(1);
        self.push(false, 0x12, &[]);
        self.server_seq = self.server_seq.wrapping_add(1);
        self.push(true, 0x10, &[]);
    }

    /// Begins with a login as `app` on `shop`.
    pub fn logged_in() -> Self {
        let mut talk = Conversation::new();
        talk.log_in();
        talk
    }

    pub fn log_in(&mut self) {
        self.open();
        self.server(&greeting());
        self.client(&login("app", "shop"));
        self.server(&protocol_packet(2, &ok(0)));
    }

    pub fn client(&mut self, bytes: &[u8]) -> u64 {
        let time_ns = self.push(true, PSH_ACK, bytes);
        self.client_seq = self.client_seq.wrapping_add(bytes.len() as u32);
        time_ns
    }

    pub fn server(&mut self, bytes: &[u8]) -> u64 {
        let time_ns = self.push(false, PSH_ACK, bytes);
        self.server_seq = self.server_seq.wrapping_add(bytes.len() as u32);
        time_ns
    }

    /// Keeps so many bytes of the latest frame, as a snap length would.
    pub fn cut_last(&mut self, keep: usize) {
        let (_, frame) = self.frames.last_mut().expect("a frame was sent");
        frame.truncate(keep);
    }

    pub fn close(&mut self) {
        self.push(true, FIN_ACK, &[]);
        self.client_seq = self.client_seq.wrapping_add(1);
        self.push(false, FIN_ACK, &[]);
        self.server_seq = self.server_seq.wrapping_add(1);
        self.push(true, 0x10, &[]);
    }

    fn push(&mut self, from_client: bool, flags: u8, payload: &[u8]) -> u64 {
        self.now_ns += 1000;
        let client = SocketAddr::from(([10, 0, 0, 1], self.client_port));
        let server = SocketAddr::from(([10, 0, 0, 2], 3306));
        let (ends, seq, ack) = if from_client {
            (AddressPair { source: client, destination: server }, self.client_seq, self.server_seq)
        } else {
            (AddressPair { source: server, destination: client }, self.server_seq, self.client_seq)
        };
        let mut frame = Vec::new();
        let head = TcpHeader { seq, ack, flags, window: 0xffff, options: &[] };
        append_tcp(&mut frame, &IpHeader { addresses: ends, ttl: 64, id: 0 }, &head, payload);
        self.frames.push((self.now_ns, frame));
        self.now_ns
    }
}

/// A capture of raw IP with nanosecond times.
pub fn pcap(frames: &[CapturedFrame]) -> Vec<u8> {
    const RAW: u16 = 101;
    let mut capture = encode_pcap_header(RAW).to_vec();
    for (time_ns, bytes) in frames {
        // What was cut is missing from the bytes, not from the IP header.
        let wire_len = u32::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let frame = Frame { time_ns: *time_ns, link: Link::Raw, wire_len, bytes };
        append_pcap_record(&mut capture, &frame).expect("a time of this century");
    }
    capture
}

pub fn protocol_packet(seq: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = (payload.len() as u32).to_le_bytes()[..3].to_vec();
    packet.push(seq);
    packet.extend(payload);
    packet
}

pub const SESSION_TRACK: u32 = 1 << 23;
pub const DEPRECATE_EOF: u32 = 1 << 24;
pub const QUERY_ATTRIBUTES: u32 = 1 << 27;
/// Protocol 4.1, secure connection, schema at login; `CLIENT_MYSQL` marks a server of MySQL.
pub const DEFAULT_CAPABILITIES: u32 = 1 | 1 << 3 | 1 << 9 | 1 << 15;

pub fn greeting() -> Vec<u8> {
    greeting_with(DEFAULT_CAPABILITIES)
}

pub fn greeting_with(capabilities: u32) -> Vec<u8> {
    let [a, b, c, d] = capabilities.to_le_bytes();
    let mut payload = b"\x0a8.0.35-0ubuntu\0".to_vec();
    payload.extend(42u32.to_le_bytes());
    payload.extend(*b"saltsalt\0");
    payload.extend([a, b, 45, 2, 0, c, d, 21]);
    payload.extend([0; 10]);
    payload.extend(*b"moresaltmore\0");
    protocol_packet(0, &payload)
}

pub fn login(user: &str, schema: &str) -> Vec<u8> {
    login_with(DEFAULT_CAPABILITIES, user, schema)
}

pub fn login_with(capabilities: u32, user: &str, schema: &str) -> Vec<u8> {
    let mut payload = capabilities.to_le_bytes().to_vec();
    payload.extend([0, 0, 0, 1, 45]);
    payload.extend([0; 23]);
    payload.extend(user.as_bytes());
    payload.extend([0, 4, 1, 2, 3, 4]);
    payload.extend(schema.as_bytes());
    payload.push(0);
    protocol_packet(1, &payload)
}

pub fn ok(affected: u8) -> Vec<u8> {
    vec![0, affected, 0, 2, 0, 0, 0]
}

/// The head of a result set of one column, in the classic form, and its rows.
pub fn result(values: &[&str]) -> Vec<u8> {
    [column_packets(), row_packets(4, values)].concat()
}

/// Column count, definition and EOF: packets 1 to 3.
pub fn column_packets() -> Vec<u8> {
    [protocol_packet(1, &[1]), protocol_packet(2, &column_definition()), protocol_packet(3, EOF)].concat()
}

/// A column called `id`.
pub fn column_definition() -> Vec<u8> {
    b"\x03def\0\0\0\x02id\0\x0c\x3f\0\x0b\0\0\0\x03\0\0\0\0\0".to_vec()
}

/// The answer to a PREPARE, with classic EOFs after parameters and columns.
pub fn prepare_response(id: u8, params: u8, columns: u8) -> Vec<u8> {
    let mut bytes = protocol_packet(1, &[0, id, 0, 0, 0, columns, 0, params, 0, 0, 0, 0]);
    let mut seq = 2;
    for count in [params, columns] {
        for _ in 0..count {
            bytes.extend(protocol_packet(seq, &column_definition()));
            seq += 1;
        }
        if count > 0 {
            bytes.extend(protocol_packet(seq, EOF));
            seq += 1;
        }
    }
    bytes
}

fn compressed_frame(seq: u8, body: &[u8], length: usize) -> Vec<u8> {
    let mut frame = protocol_packet(seq, body);
    let length = (length as u32).to_le_bytes();
    frame.splice(4..4, length[..3].iter().copied());
    frame
}

pub fn stored_frame(seq: u8, content: &[u8]) -> Vec<u8> {
    compressed_frame(seq, content, 0)
}

pub fn zlib_frame(seq: u8, content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).expect("memory does not fail");
    compressed_frame(seq, &encoder.finish().expect("memory does not fail"), content.len())
}

pub fn zstd_frame(seq: u8, content: &[u8]) -> Vec<u8> {
    compressed_frame(seq, &zstd::encode_all(content, 3).expect("memory does not fail"), content.len())
}

pub const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];

/// Rows and the EOF after them.
pub fn row_packets(mut seq: u8, values: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        let mut row = vec![value.len() as u8];
        row.extend(value.as_bytes());
        bytes.extend(protocol_packet(seq, &row));
        seq = seq.wrapping_add(1);
    }
    bytes.extend(protocol_packet(seq, EOF));
    bytes
}
