//! In which phase is a connection, and what is known of its user? Never touches packets of the command phase.

use super::command::{CONNECT_TEXT, Command, Queue};
use super::compression::Compression;
use super::handshake::{Capabilities, Greeting, Response};
use super::packet::{Assembly, Ended, Want};
use super::reply::{Error, NO_GOOD_INDEX, NO_INDEX, Ok, Reply};
use super::statement::Statements;
use super::step::{Adrift, Step};
use super::{Context, client};
use crate::event::{CommandKind, ErrorInfo, Event, Flags, Sink};
use crate::ledger::Ledger;
use crate::side::{Hole, Side};
use std::fmt::Display;
use std::io::Write;

/// Kept of a packet of the handshake; plugins with certificates stay below.
const HANDSHAKE_KEPT: usize = 8192;

/// One connection's conversation.
#[derive(Default)]
pub(crate) struct Session {
    phase: Phase,
    /// From the first SYN on.
    from_the_start: bool,
    /// The client's SYN was seen, which is when connecting began.
    dialled: bool,
    /// Some payload passed.
    spoke: bool,
    /// A greeting or a command was understood.
    understood: bool,
    greeting: Option<Greeting>,
    pub(super) capabilities: Option<Capabilities>,
    /// As agreed, or as the packets have shown: no EOF between column definitions and rows.
    pub(super) deprecates_eof: Option<bool>,
    /// As agreed, or as the packets have shown: attributes stand before the text of a query.
    pub(super) query_attributes: Option<bool>,
    connecting_ns: u64,
    connection_id: Option<u64>,
    host: Vec<u8>,
    port: u16,
    pub(super) user: Vec<u8>,
    pub(super) schema: Vec<u8>,
    pub(super) inbound: Assembly,
    pub(super) outbound: Assembly,
    pub(super) sends: Sends,
    pub(super) compression: Option<Box<Compression>>,
    /// Where the next command begins is not known.
    pub(super) client_adrift: bool,
    /// Where the next response begins is not known.
    pub(super) server_adrift: Option<Adrift>,
    pub(super) queue: Queue,
    pub(super) statements: Statements,
    /// Whether commands and responses are in step.
    pub(super) step: Step,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Opening,
    Greeted,
    Authenticating,
    Commands,
    /// TLS.
    Encrypted,
    /// Not MySQL, a replication stream, or refused.
    Over,
}

/// What a client's packets are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sends {
    #[default]
    Commands,
    /// LOAD DATA LOCAL INFILE.
    File,
    /// Steps of CHANGE_USER.
    Authentication,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    Unfinished,
}

impl Session {
    /// Begins a conversation with the client at `host` and `port`.
    pub(crate) fn open(&mut self, host: impl Display, port: u16, ledger: &mut Ledger) {
        self.host.clear();
        // Writing to a vector does not fail.
        let _ = write!(self.host, "{host}");
        self.port = port;
        ledger.sessions.seen += 1;
    }

    /// A SYN or SYN-ACK passed.
    pub(crate) fn connecting(&mut self, from: Side, time_ns: u64) {
        if !self.from_the_start {
            self.from_the_start = true;
            self.connecting_ns = time_ns;
            self.dialled = from == Side::Client;
        }
    }

    #[inline]
    pub(crate) fn bytes<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match from {
            Side::Client => context.ledger.bytes.from_client += bytes.len() as u64,
            Side::Server => context.ledger.bytes.from_server += bytes.len() as u64,
        }
        self.spoken(from, bytes, time_ns, context);
    }

    #[inline]
    fn spoken<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        if self.compression.is_some() {
            self.compressed_bytes(from, bytes, time_ns, context);
        } else {
            self.plain_bytes(from, bytes, time_ns, context);
        }
    }

    #[inline]
    pub(super) fn plain_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match (self.phase, from) {
            (Phase::Commands, Side::Client) => self.client_bytes(bytes, time_ns, context),
            (Phase::Commands, Side::Server) => self.server_bytes(bytes, time_ns, context),
            (Phase::Encrypted | Phase::Over, _) => {}
            _ => self.handshake_bytes(from, bytes, time_ns, context),
        }
    }

    /// `count` bytes of a side's stream are missing here.
    pub(crate) fn hole<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        count: u64,
        why: Hole,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let bytes = &mut context.ledger.bytes;
        *match (why, from) {
            (Hole::Cut, Side::Client) => &mut bytes.cut_from_client,
            (Hole::Cut, Side::Server) => &mut bytes.cut_from_server,
            (Hole::Lost, Side::Client) => &mut bytes.lost_from_client,
            (Hole::Lost, Side::Server) => &mut bytes.lost_from_server,
        } += count;
        self.spoke = true;
        let Some(frames) = self.frames(from) else {
            return self.plain_hole(from, count, why, time_ns, context);
        };
        if frames.adrift {
            if from == Side::Server {
                self.pass_unread(count, time_ns);
            }
            return;
        }
        let ended = frames.hole(count);
        if why == Hole::Lost {
            self.taint_front();
            // A command whose frames are still coming is not in the queue.
            self.inbound.holed |= from == Side::Client;
        }
        match ended {
            Some(Some(_)) => self.assembled_frame(from, time_ns, context),
            Some(None) => {}
            None => {
                if let Some(frames) = self.frames(from) {
                    frames.reset(&mut context.workspace.room);
                    frames.adrift = true;
                }
                match from {
                    Side::Client => self.lose_step(context),
                    Side::Server => {
                        self.pass_unread(count, time_ns);
                        self.lose_responses(if why == Hole::Cut { Adrift::Cut } else { Adrift::Lost })
                    }
                }
            }
        }
    }

    pub(super) fn plain_hole<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        count: u64,
        why: Hole,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match (self.phase, from) {
            (Phase::Encrypted | Phase::Over, _) => {}
            (Phase::Commands, Side::Client) => self.client_hole(count, why, time_ns, context),
            (Phase::Commands, Side::Server) => self.server_hole(count, why, time_ns, context),
            _ => self.join_midway(context),
        }
    }

    /// Commands are expected, but where the next begins is not known.
    fn join_midway<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        self.inbound.reset(&mut context.workspace.room);
        self.outbound.reset(&mut context.workspace.room);
        self.phase = Phase::Commands;
        self.from_the_start = false;
        self.client_adrift = true;
        self.server_adrift = Some(Adrift::Orphaned);
    }

    #[cold]
    fn handshake_bytes<S: Sink + ?Sized>(
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

    /// Whether the first bytes of a stream may be a greeting (or a refusal).
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

    fn begin_connect<S: Sink + ?Sized>(&mut self, time_ns: u64, context: &mut Context<'_, S>) {
        self.understood = true;
        context.ledger.commands.seen += 1;
        let begun_ns = if self.connecting_ns == 0 { time_ns } else { self.connecting_ns };
        let command = self.queue.push();
        command.begin(0x0b, begun_ns, begun_ns, &mut context.workspace.room);
        command.kind = CommandKind::Admin;
        command.fixed_text = Some(CONNECT_TEXT);
        command.tainted = !self.dialled;
        command.reply = Reply::Verdict;
    }

    fn taint_front(&mut self) {
        if let Some(front) = self.queue.front() {
            front.tainted = true;
        }
    }

    pub(super) fn understand(&mut self) {
        self.understood = true;
    }

    /// A replication stream follows; there is nothing more to learn from this connection.
    pub(super) fn end_of_commands(&mut self) {
        self.phase = Phase::Over;
    }

    /// The connection is over, or the capture is.
    pub(crate) fn close<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        match self.phase {
            Phase::Greeted | Phase::Authenticating => self.begin_connect(0, context),
            Phase::Commands => self.settle_before_close(context),
            _ => {}
        }
        while !self.queue.is_empty() {
            self.end_front(End::Unfinished, context);
        }
        let sessions = &mut context.ledger.sessions;
        *match self.phase {
            _ if !self.spoke => &mut sessions.silent,
            Phase::Encrypted => &mut sessions.encrypted,
            _ if !self.understood => &mut sessions.not_understood,
            _ if self.compression.is_some() => &mut sessions.compressed,
            _ if self.greeting.is_none() && !self.from_the_start => &mut sessions.joined_midway,
            _ => &mut sessions.plain,
        } += 1;
        self.forget(context);
    }

    /// Makes the record fit for another connection; small buffers stay.
    fn forget<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        let room = &mut context.workspace.room;
        self.inbound.reset(room);
        self.outbound.reset(room);
        self.statements.clear(room);
        if let Some(compression) = &mut self.compression {
            compression.client.reset(room);
            compression.server.reset(room);
        }
        let former = std::mem::take(self);
        self.inbound = former.inbound;
        self.outbound = former.outbound;
        self.queue = former.queue;
        self.host = former.host;
    }

    /// Hands the oldest command over and forgets it.
    pub(super) fn end_front<S: Sink + ?Sized>(&mut self, end: End, context: &mut Context<'_, S>) {
        if self.step.is_in_doubt()
            && let Some(command) = self.queue.front()
        {
            command.distrust();
        }
        self.step.answered();
        if let Some(command) = self.queue.oldest() {
            self.report(command, end, context);
            self.queue.pop(&mut context.workspace.room);
        }
    }

    /// Hands over the newest command, which the server will not answer.
    pub(super) fn end_newest<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        if let Some(command) = self.queue.newest(|_| true) {
            self.report(command, End::Complete, context);
            self.queue.pop_newest(&mut context.workspace.room);
        }
    }

    fn report<S: Sink + ?Sized>(&self, command: &Command, end: End, context: &mut Context<'_, S>) {
        let counts = &mut context.ledger.commands;
        *match end {
            _ if command.tainted => &mut counts.tainted,
            End::Complete => &mut counts.complete,
            End::Unfinished => &mut counts.unfinished,
        } += 1;
        let timed = command.begun_ns > 0 && !command.tainted;
        let answered = timed && end == End::Complete;
        let since_sent = |time_ns: u64| time_ns.saturating_sub(command.sent_ns);
        let flag = |bit: u16| command.status.map(|status| status & bit != 0);
        context.sink.event(&Event {
            start_ns: command.begun_ns,
            first_byte_ns: command.first_ns.filter(|_| timed).map(since_sent),
            query_ns: answered.then(|| since_sent(command.last_ns)),
            end_ns: answered.then_some(command.last_ns),
            lock_ns: None,
            kind: command.kind,
            text: command.text(),
            text_cut: command.text_cut,
            params: &command.after_text()[..command.params_len],
            statement_id: command.statement_id,
            user: &self.user,
            host: &self.host,
            port: self.port,
            db: &self.schema,
            connection_id: self.connection_id,
            bytes_from_client: command.bytes_from_client,
            bytes_from_server: command.bytes_from_server,
            rows_sent: (end == End::Complete && !command.rows_unseen).then_some(command.rows),
            rows_examined: None,
            rows_affected: command.affected,
            warnings: command.warnings,
            error: command.error.as_ref().map(|error| ErrorInfo {
                number: error.number,
                state: &error.state[..usize::from(error.state_len)],
                message: command.message(),
            }),
            flags: Flags {
                no_index_used: flag(NO_INDEX),
                no_good_index_used: flag(NO_GOOD_INDEX),
                ..Flags::default()
            },
            tainted: command.tainted,
            attributes: &[],
        });
    }
}

/// A TLS record: type, version 3.x, and a length that may be.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x14..=0x17, 3, 0..=4, high, _, ..] if *high <= 0x48) && !client::is_plausible(bytes)
}
