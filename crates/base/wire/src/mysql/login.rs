//! Login phase of a connection: greeting, login and result, or a session joined midway.
//!
//! Never reads packets of the command phase.

use super::command::CONNECT_TEXT;
use super::completion::Completion;
use super::handshake::{Capabilities, Greeting, Response};
use super::packet::{PacketEnd, PacketSelection};
use super::response::{ErrorPacket, OkPacket, ResponseState};
use super::session::{Phase, Session, backslash_mode, set_name};
use super::sync::Desync;
use super::{Context, client};
use crate::direction::Direction;
use crate::event::{CommandKind, Sink};
use crate::protocol::command::COM_CONNECT;

/// Kept of a packet of the handshake; plugins with certificates stay below.
const MAX_HANDSHAKE_PACKET: usize = 8192;

impl Session {
    /// Commands are expected, but where the next begins is not known.
    pub(super) fn join_midway<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        self.inbound.reset(&mut context.workspace.budget);
        self.outbound.reset(&mut context.workspace.budget);
        self.phase = Phase::Commands;
        self.seen_from_start = false;
        self.client_desynced = true;
        self.server_desync = Some(Desync::Orphaned);
    }

    #[cold]
    pub(super) fn handle_handshake_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        mut bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        self.has_payload = true;
        if self.phase == Phase::Opening
            && self.outbound.is_at_boundary()
            && !self.may_be_greeting(from, bytes)
        {
            if is_tls(bytes) {
                self.phase = Phase::Encrypted;
            } else if self.seen_from_start && from == Direction::FromServer {
                self.phase = Phase::Ignored;
            } else {
                self.join_midway(context);
                self.handle_plain_bytes(from, bytes, time_ns, context);
            }
            return;
        }
        while !bytes.is_empty() {
            if matches!(self.phase, Phase::Commands | Phase::Encrypted | Phase::Ignored) {
                return self.handle_framed_bytes(from, bytes, time_ns, context);
            }
            let assembly = match from {
                Direction::FromClient => &mut self.inbound,
                Direction::FromServer => &mut self.outbound,
            };
            let budget = &mut context.workspace.budget;
            let want = PacketSelection::All(MAX_HANDSHAKE_PACKET);
            let (ended, rest) = assembly.consume(bytes, want, time_ns, budget);
            bytes = rest;
            if ended == Some(PacketEnd::Kept) {
                let packet = std::mem::take(&mut assembly.payload);
                match from {
                    Direction::FromClient => self.handle_client_handshake(packet.bytes(), context),
                    Direction::FromServer => self.handle_server_handshake(packet.bytes(), time_ns, context),
                }
                let mut packet = packet;
                packet.clear(&mut context.workspace.budget);
            }
        }
    }

    /// True if the first bytes of a stream may be a greeting (or a refusal).
    fn may_be_greeting(&self, from: Direction, bytes: &[u8]) -> bool {
        if from == Direction::FromClient {
            return false;
        }
        match bytes {
            [low, high, 0, 0, kind @ (0x0a | 0xff), ..] => {
                let length = u16::from_le_bytes([*low, *high]);
                length < 1024 && (self.seen_from_start || *kind == 0x0a && length > 32)
            }
            _ => self.seen_from_start && bytes.len() < 5,
        }
    }

    fn handle_server_handshake<S: Sink + ?Sized>(
        &mut self,
        packet: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match (self.phase, packet.first()) {
            (_, Some(0xff)) => {
                self.handle_login_result(packet, time_ns, context);
                self.phase = Phase::Ignored;
            }
            (Phase::Opening, _) => match Greeting::parse(packet) {
                Some(greeting) => {
                    self.is_recognised = true;
                    if self.connecting_ns == 0 {
                        self.connecting_ns = time_ns;
                    }
                    self.seen_from_start = true;
                    self.connection_id = Some(u64::from(greeting.connection_id));
                    self.greeting = Some(greeting);
                    self.phase = Phase::Greeted;
                }
                None => self.phase = Phase::Ignored,
            },
            (Phase::Authenticating, Some(0)) => {
                self.handle_login_result(packet, time_ns, context);
                self.phase = Phase::Commands;
                if self.capabilities.is_some_and(Capabilities::compresses) {
                    self.compression = Some(Box::default());
                }
            }
            // Another step of authentication.
            _ => {}
        }
    }

    fn handle_client_handshake<S: Sink + ?Sized>(&mut self, packet: &[u8], context: &mut Context<'_, S>) {
        let Some(greeting) = self.greeting else {
            return self.join_midway(context);
        };
        if self.phase != Phase::Greeted {
            return;
        }
        match Response::parse(packet, &greeting) {
            Some(Response::StartTls) => self.phase = Phase::Encrypted,
            Some(Response::Login { user, schema, capabilities }) => {
                set_name(&mut self.user, user);
                set_name(&mut self.schema, schema);
                self.deprecates_eof = Some(capabilities.deprecates_eof());
                self.query_attributes = Some(capabilities.has_query_attributes());
                self.capabilities = Some(capabilities);
                self.phase = Phase::Authenticating;
            }
            None => self.join_midway(context),
        }
    }

    /// The server's verdict on a login.
    fn handle_login_result<S: Sink + ?Sized>(
        &mut self,
        packet: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let tracks = self.capabilities.is_some_and(Capabilities::tracks_session);
        self.begin_connect(time_ns, context);
        let budget = &mut context.workspace.budget;
        if let Some(command) = self.queue.oldest_mut() {
            command.last_ns = time_ns;
            if let Some(error) = ErrorPacket::parse(packet).filter(|_| packet.first() == Some(&0xff)) {
                command.record_error(&error, budget);
            } else if let Some(ok) = OkPacket::parse(packet, tracks) {
                command.warnings = Some(u32::from(ok.warnings));
                command.backslashes = Some(backslash_mode(ok.status));
            }
        }
        self.complete_oldest(Completion::Complete, context);
    }

    pub(super) fn begin_connect<S: Sink + ?Sized>(&mut self, time_ns: u64, context: &mut Context<'_, S>) {
        self.is_recognised = true;
        context.accounting.commands.seen += 1;
        let begun_ns = if self.connecting_ns == 0 { time_ns } else { self.connecting_ns };
        let command = self.queue.push(&mut context.workspace.budget);
        command.begin(COM_CONNECT, begun_ns, begun_ns, &mut context.workspace.budget);
        command.kind = CommandKind::Admin;
        command.fixed_text = Some(CONNECT_TEXT);
        command.tainted = !self.client_syn_seen;
        command.reply = ResponseState::OkOrError;
    }
}

/// A TLS record: type, version 3.x, and a length that may be.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x14..=0x17, 3, 0..=4, high, _, ..] if *high <= 0x48)
        && !client::looks_like_command(bytes)
}
