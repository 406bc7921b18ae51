//! Synthetic MySQL sessions, from greeting to quit.
//!
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html>; classic result sets, protocol 4.1.

use super::http::client_port;
use super::packetiser::{Endpoint, LinkKind, Packetiser, Payload};
use super::traffic::{Conversation, ConversationSource, SentCounts};
use std::net::{Ipv4Addr, SocketAddr};
use toll_stats::random::Rng;
use toll_wire::protocol::capability::{
    CLIENT_CONNECT_WITH_DB, CLIENT_LONG_PASSWORD, CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION,
};
use toll_wire::protocol::command::{
    COM_PING, COM_QUERY, COM_QUIT, COM_STMT_CLOSE, COM_STMT_EXECUTE, COM_STMT_PREPARE,
};
use toll_wire::protocol::{put_lenenc, put_packets};

pub struct Mysql;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Application servers.
const CLIENTS: u64 = 6;
/// Rows of the table that is asked.
const ROWS: u64 = 100_000;

impl ConversationSource for Mysql {
    const MAX_CONCURRENT: usize = 8;

    fn start_conversation(
        &mut self,
        number: u64,
        _: SentCounts,
        rng: &mut Rng,
    ) -> (Packetiser, Box<dyn Conversation>) {
        let client = Ipv4Addr::new(10, 0, 0, (10 + rng.below(CLIENTS)) as u8);
        let ends = (SocketAddr::from((client, client_port(number))), SocketAddr::from((SERVER, 3306)));
        let wire = Packetiser::new(LinkKind::Local, ends.0, ends.1, rng);
        let session = Session {
            number: number as u32 + 1,
            is_open: false,
            prepared: None,
            commands: 10 + rng.below(200),
            has_quit: false,
        };
        (wire, Box::new(session))
    }
}

struct Session {
    /// Connection number as the server tells it.
    number: u32,
    is_open: bool,
    /// The statement that was prepared, and its number.
    prepared: Option<(Prepared, u32)>,
    /// That are yet to be sent.
    commands: u64,
    /// The client has said that it quits.
    has_quit: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prepared {
    Select,
    Update,
}

impl Prepared {
    fn text(self) -> &'static str {
        match self {
            Prepared::Select => "SELECT c FROM items WHERE id = ?",
            Prepared::Update => "UPDATE items SET c = ? WHERE id = ?",
        }
    }
}

const LONG: u8 = 3;
const VAR_STRING: u8 = 253;

impl Conversation for Session {
    fn queue_next(&mut self, wire: &mut Packetiser, rng: &mut Rng) -> bool {
        if !std::mem::replace(&mut self.is_open, true) {
            wire.queue_open();
            self.log_in(wire, rng);
            return true;
        }
        if self.commands == 0 {
            return false;
        }
        self.commands -= 1;
        match rng.below(100) {
            0..40 => self.statement(wire, rng),
            40..96 => self.prepared(wire, rng),
            96..98 => queue_command(wire, &[COM_PING], vec![(1, ok(0))]),
            _ => self.close_statement(wire),
        }
        true
    }

    fn queue_end(&mut self, wire: &mut Packetiser) {
        if !std::mem::replace(&mut self.has_quit, true) && self.is_open {
            wire.queue_message(Endpoint::Client, Payload::new(packet(0, &[COM_QUIT])), false);
        }
        wire.queue_close();
    }
}

impl Session {
    fn log_in(&self, wire: &mut Packetiser, rng: &mut Rng) {
        let mut letters = |n: usize| -> Vec<u8> { (0..n).map(|_| b'a' + rng.below(26) as u8).collect() };
        // Protocol 4.1, a schema, passwords of 20 bytes.
        let capabilities =
            CLIENT_LONG_PASSWORD | CLIENT_CONNECT_WITH_DB | CLIENT_PROTOCOL_41 | CLIENT_SECURE_CONNECTION;
        let [a, b, c, d] = capabilities.to_le_bytes();
        let mut greeting = b"\x0a8.0.36\0".to_vec();
        greeting.extend(self.number.to_le_bytes());
        greeting.extend(letters(8));
        greeting.extend([0, a, b, 45, 2, 0, c, d, 21]);
        greeting.extend([0; 10]);
        greeting.extend(letters(12));
        greeting.push(0);
        wire.queue_message(Endpoint::Server, Payload::new(packet(0, &greeting)), false);
        let mut login = capabilities.to_le_bytes().to_vec();
        login.extend([0, 0, 0, 1, 45]);
        login.extend([0; 23]);
        login.extend(b"app\0\x14");
        login.extend(letters(20));
        login.extend(b"shop\0");
        wire.queue_message(Endpoint::Client, Payload::new(packet(1, &login)), false);
        wire.queue_message(Endpoint::Server, Payload::new(packet(2, &ok(0))), false);
    }

    fn statement(&mut self, wire: &mut Packetiser, rng: &mut Rng) {
        let id = 1 + rng.below(ROWS);
        let (text, answer) = match rng.below(20) {
            0..10 => (format!("SELECT id, c FROM items WHERE id = {id}"), text_result(&[id], rng)),
            10..13 => {
                let ids: Vec<u64> = (id..id + 5 + rng.below(60)).collect();
                let text = format!(
                    "SELECT id, c FROM items WHERE id BETWEEN {id} AND {}",
                    id + ids.len() as u64 - 1
                );
                (text, text_result(&ids, rng))
            }
            13..17 => (format!("UPDATE items SET n = n + 1 WHERE id = {id}"), vec![(1, ok(1))]),
            17..19 => {
                let text = value(rng);
                (format!("INSERT INTO orders (item, note) VALUES ({id}, '{text}')"), vec![(1, ok(1))])
            }
            _ => (
                format!("SELECT price FROM items WHERE id = {id}"),
                vec![(1, b"\xff\x1e\x04#42S22Unknown column 'price' in 'field list'".to_vec())],
            ),
        };
        queue_command(wire, &[&[COM_QUERY], text.as_bytes()].concat(), answer);
    }

    /// Carries out the statement that was prepared, or prepares one.
    fn prepared(&mut self, wire: &mut Packetiser, rng: &mut Rng) {
        let Some((statement, id)) = self.prepared else {
            let statement = if rng.below(3) == 0 { Prepared::Update } else { Prepared::Select };
            let id = 1 + rng.below(1_000) as u32;
            self.prepared = Some((statement, id));
            queue_command(
                wire,
                &[&[COM_STMT_PREPARE], statement.text().as_bytes()].concat(),
                prepare_response(statement, id),
            );
            return;
        };
        let row = 1 + rng.below(ROWS);
        let number = (row as u32).to_le_bytes();
        let mut command = vec![COM_STMT_EXECUTE];
        command.extend(id.to_le_bytes());
        // No cursor, once, no NULLs, types follow.
        command.extend([0, 1, 0, 0, 0, 0, 1]);
        let answer = match statement {
            Prepared::Select => {
                command.extend([LONG, 0]);
                command.extend(number);
                binary_row(rng)
            }
            Prepared::Update => {
                command.extend([VAR_STRING, 0, LONG, 0]);
                write_lenenc_text(&mut command, &value(rng));
                command.extend(number);
                vec![(1, ok(1))]
            }
        };
        queue_command(wire, &command, answer);
    }

    /// Which is not answered.
    fn close_statement(&mut self, wire: &mut Packetiser) {
        if let Some((_, id)) = self.prepared.take() {
            let command = [&[COM_STMT_CLOSE], &id.to_le_bytes()[..]].concat();
            wire.queue_message(Endpoint::Client, Payload::new(packet(0, &command)), false);
        }
    }
}

/// Packets with their sequence numbers.
type ResponsePackets = Vec<(u8, Vec<u8>)>;

fn queue_command(wire: &mut Packetiser, command: &[u8], answer: ResponsePackets) {
    wire.queue_message(Endpoint::Client, Payload::new(packet(0, command)), false);
    let bytes: Vec<u8> = answer.iter().flat_map(|(seq, payload)| packet(*seq, payload)).collect();
    wire.queue_message(Endpoint::Server, Payload::new(bytes), false);
}

fn packet(seq: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(payload.len() + 4);
    put_packets(&mut packet, seq, payload);
    packet
}

fn ok(affected: u8) -> Vec<u8> {
    vec![0, affected, 0, 2, 0, 0, 0]
}

fn eof_packet() -> Vec<u8> {
    vec![0xfe, 0, 0, 2, 0]
}

/// A text with its length before it.
fn write_lenenc_text(out: &mut Vec<u8>, text: &str) {
    put_lenenc(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn value(rng: &mut Rng) -> String {
    let length = 40 + rng.below(80);
    (0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
}

fn column_definition(name: &str, r#type: u8, length: u32) -> Vec<u8> {
    let mut definition = Vec::new();
    for part in ["def", "shop", "items", "items", name, name] {
        write_lenenc_text(&mut definition, part);
    }
    definition.extend([0x0c, 45, 0]);
    definition.extend(length.to_le_bytes());
    definition.extend([r#type, 0, 0, 0, 0, 0]);
    definition
}

fn number_packets(packets: Vec<Vec<u8>>) -> ResponsePackets {
    packets.into_iter().enumerate().map(|(at, payload)| ((at + 1) as u8, payload)).collect()
}

/// A result set of `id` and `c`, as text.
fn text_result(ids: &[u64], rng: &mut Rng) -> ResponsePackets {
    let mut packets = vec![
        vec![2],
        column_definition("id", LONG, 11),
        column_definition("c", VAR_STRING, 480),
        eof_packet(),
    ];
    for id in ids {
        let mut row = Vec::new();
        write_lenenc_text(&mut row, &id.to_string());
        write_lenenc_text(&mut row, &value(rng));
        packets.push(row);
    }
    packets.push(eof_packet());
    number_packets(packets)
}

/// A result set of `c` with one row, as a prepared statement gives it.
fn binary_row(rng: &mut Rng) -> ResponsePackets {
    let mut row = vec![0, 0];
    write_lenenc_text(&mut row, &value(rng));
    number_packets(vec![vec![1], column_definition("c", VAR_STRING, 480), eof_packet(), row, eof_packet()])
}

/// The answer to PREPARE: number, columns, parameters, and what they are.
fn prepare_response(statement: Prepared, id: u32) -> ResponsePackets {
    let (columns, parameters): (u8, u8) = match statement {
        Prepared::Select => (1, 1),
        Prepared::Update => (0, 2),
    };
    let mut head = vec![0];
    head.extend(id.to_le_bytes());
    head.extend([columns, 0, parameters, 0, 0, 0, 0]);
    let mut packets = vec![head];
    for _ in 0..parameters {
        packets.push(column_definition("?", VAR_STRING, 0));
    }
    packets.push(eof_packet());
    if columns > 0 {
        packets.extend([column_definition("c", VAR_STRING, 480), eof_packet()]);
    }
    number_packets(packets)
}
