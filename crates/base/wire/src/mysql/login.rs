//! Login phase of a connection: greeting, login and result, or a session joined midway.
//!
//! Never reads packets of the command phase.

use super::command::CONNECT_TEXT;
use super::ending::End;
use super::handshake::{Capabilities, Greeting, Response};
use super::packet::{Ended, Want};
use super::reply::{Error, Ok, Reply};
use super::session::{Phase, Session};
use super::step::Adrift;
use super::{Context, client};
use crate::event::{CommandKind, Sink};
use crate::protocol::command::COM_CONNECT;
use crate::side::Side;

/// Kept of a packet of the handshake; plugins with certificates stay below.
const HANDSHAKE_KEPT: usize = 8192;

impl Session {
    /// Commands are expected, but where the next begins is not known.
    pub(super) fn join_midway<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        self.inbound.reset(&mut context.workspace.room);
        self.outbound.reset(&mut context.workspace.room);
        self.phase = Phase::Commands;
        self.from_the_start = false;
        self.client_adrift = true;
        self.server_adrift = Some(Adrift::Orphaned);
    }

    #[cold]
    pub(super) fn handshake_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        mut bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        self.spoke = true;
        if self.phase == Phase::Opening && self.outbound.is_between() && !self.opens(from, bytes) {
            if is_tls(bytes) {
                self.phase = Phase::Encrypted;
            } else if self.from_the_start && from == Side::Server {
                self.phase = Phase::Over;
            } else {
                self.join_midway(context);
                self.plain_bytes(from, bytes, time_ns, context);
            }
            return;
        }
        while !bytes.is_empty() {
            if matches!(self.phase, Phase::Commands | Phase::Encrypted | Phase::Over) {
                return self.spoken(from, bytes, time_ns, context);
            }
            let assembly = match from {
                Side::Client => &mut self.inbound,
                Side::Server => &mut self.outbound,
            };
            let room = &mut context.workspace.room;
            let want = Want::Packets(HANDSHAKE_KEPT);
            let (ended, rest) = assembly.take(bytes, want, time_ns, room);
            bytes = rest;
            if ended == Some(Ended::Kept) {
                let packet = std::mem::take(&mut assembly.payload);
                match from {
                    Side::Client => self.client_handshake(packet.bytes(), context),
                    Side::Server => self.server_handshake(packet.bytes(), time_ns, context),
                }
                let mut packet = packet;
                packet.clear(&mut context.workspace.room);
            }
        }
    }

    /// True if the first bytes of a stream may be a greeting (or a refusal).
    fn opens(&self, from: Side, bytes: &[u8]) -> bool {
        if from == Side::Client {
            return false;
        }
        match bytes {
            [low, high, 0, 0, kind @ (0x0a | 0xff), ..] => {
                let length = u16::from_le_bytes([*low, *high]);
                length < 1024 && (self.from_the_start || *kind == 0x0a && length > 32)
            }
            _ => self.from_the_start && bytes.len() < 5,
        }
    }

    fn server_handshake<S: Sink + ?Sized>(
        &mut self,
        packet: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match (self.phase, packet.first()) {
            (_, Some(0xff)) => {
                self.connected(packet, time_ns, context);
                self.phase = Phase::Over;
            }
            (Phase::Opening, _) => match Greeting::parse(packet) {
                Some(greeting) => {
                    self.understood = true;
                    if self.connecting_ns == 0 {
                        self.connecting_ns = time_ns;
                    }
                    self.from_the_start = true;
                    self.connection_id = Some(u64::from(greeting.connection_id));
                    self.greeting = Some(greeting);
                    self.phase = Phase::Greeted;
                }
                None => self.phase = Phase::Over,
            },
            (Phase::Authenticating, Some(0)) => {
                self.connected(packet, time_ns, context);
                self.phase = Phase::Commands;
                if self.capabilities.is_some_and(Capabilities::compresses) {
                    self.compression = Some(Box::default());
                }
            }
            // Another step of authentication.
            _ => {}
        }
    }

    fn client_handshake<S: Sink + ?Sized>(&mut self, packet: &[u8], context: &mut Context<'_, S>) {
        let Some(greeting) = self.greeting else {
            return self.join_midway(context);
        };
        if self.phase != Phase::Greeted {
            return;
        }
        match Response::parse(packet, &greeting) {
            Some(Response::StartTls) => self.phase = Phase::Encrypted,
            Some(Response::Login { user, schema, capabilities }) => {
                self.user = user.to_vec();
                self.schema = schema.to_vec();
                self.deprecates_eof = Some(capabilities.deprecates_eof());
                self.query_attributes = Some(capabilities.has_query_attributes());
                self.capabilities = Some(capabilities);
                self.phase = Phase::Authenticating;
            }
            None => self.join_midway(context),
        }
    }

    /// The server's verdict on a login.
    fn connected<S: Sink + ?Sized>(&mut self, packet: &[u8], time_ns: u64, context: &mut Context<'_, S>) {
        let tracks = self.capabilities.is_some_and(Capabilities::tracks_session);
        self.begin_connect(time_ns, context);
        let room = &mut context.workspace.room;
        if let Some(command) = self.queue.front() {
            command.last_ns = time_ns;
            if let Some(error) = Error::parse(packet).filter(|_| packet.first() == Some(&0xff)) {
                command.fail(&error, room);
            } else if let Some(ok) = Ok::parse(packet, tracks) {
                command.warnings = Some(u32::from(ok.warnings));
            }
        }
        self.end_front(End::Complete, context);
    }

    pub(super) fn begin_connect<S: Sink + ?Sized>(&mut self, time_ns: u64, context: &mut Context<'_, S>) {
        self.understood = true;
        context.ledger.commands.seen += 1;
        let begun_ns = if self.connecting_ns == 0 { time_ns } else { self.connecting_ns };
        let command = self.queue.push();
        command.begin(COM_CONNECT, begun_ns, begun_ns, &mut context.workspace.room);
        command.kind = CommandKind::Admin;
        command.fixed_text = Some(CONNECT_TEXT);
        command.tainted = !self.dialled;
        command.reply = Reply::Verdict;
    }
}

/// A TLS record: type, version 3.x, and a length that may be.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x14..=0x17, 3, 0..=4, high, _, ..] if *high <= 0x48) && !client::is_plausible(bytes)
}
