//! State of a MySQL session: phase, user, and the parser in charge of its bytes. Reads no bytes itself.

use super::Context;
use super::command::CommandQueue;
use super::completion::Completion;
use super::compression::Compression;
use super::handshake::{Capabilities, Greeting};
use super::packet::PacketAssembler;
use super::statement::PreparedStatements;
use super::sync::{Desync, ResponseSync};
use crate::accounting::DecodeAccounting;
use crate::direction::{Direction, GapCause};
use crate::event::Sink;
use crate::fingerprint::BackslashMode;
use crate::protocol::status::SERVER_STATUS_NO_BACKSLASH_ESCAPES;
use std::fmt::Display;
use std::io::Write;

/// One connection's conversation.
#[derive(Default)]
pub(crate) struct Session {
    pub(super) phase: Phase,
    /// From the first SYN on.
    pub(super) seen_from_start: bool,
    /// The client's SYN was seen, which is when connecting began.
    pub(super) client_syn_seen: bool,
    /// Some payload passed.
    pub(super) has_payload: bool,
    /// A greeting or a command was understood.
    pub(super) is_recognised: bool,
    pub(super) greeting: Option<Greeting>,
    pub(super) capabilities: Option<Capabilities>,
    /// As agreed, or as the packets have shown: no EOF between column definitions and rows.
    pub(super) deprecates_eof: Option<bool>,
    /// As agreed, or as the packets have shown: attributes stand before the text of a query.
    pub(super) query_attributes: Option<bool>,
    pub(super) connecting_ns: u64,
    pub(super) connection_id: Option<u64>,
    pub(super) host: Vec<u8>,
    pub(super) port: u16,
    pub(super) user: Vec<u8>,
    pub(super) schema: Vec<u8>,
    /// As the last reply told.
    pub(super) backslashes: BackslashMode,
    pub(super) inbound: PacketAssembler,
    pub(super) outbound: PacketAssembler,
    pub(super) client_sends: ClientSends,
    pub(super) compression: Option<Box<Compression>>,
    /// Where the next command begins is not known.
    pub(super) client_desynced: bool,
    /// Where the next response begins is not known.
    pub(super) server_desync: Option<Desync>,
    pub(super) queue: CommandQueue,
    pub(super) statements: PreparedStatements,
    /// Synchronisation of commands and responses.
    pub(super) sync: ResponseSync,
    /// Its bytes come as the server reads and sends them.
    pub(super) is_seen_at_server: bool,
}

/// Bytes kept of a user's or schema's name: more than the 128 characters that a server allows.
const NAME_MAX: usize = 512;

/// The mode that a reply tells.
pub(super) fn backslash_mode(status: u16) -> BackslashMode {
    if status & SERVER_STATUS_NO_BACKSLASH_ESCAPES != 0 {
        BackslashMode::Plain
    } else {
        BackslashMode::Escapes
    }
}

/// Sets a name to the head of one that may be of any length.
pub(super) fn set_name(name: &mut Vec<u8>, to: &[u8]) {
    name.clear();
    name.extend_from_slice(&to[..to.len().min(NAME_MAX)]);
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Opening,
    Greeted,
    Authenticating,
    Commands,
    /// TLS.
    Encrypted,
    /// Not MySQL, a replication stream, or refused.
    Ignored,
}

/// Meaning of a client's packets.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientSends {
    #[default]
    Commands,
    /// LOAD DATA LOCAL INFILE.
    File,
    /// Steps of CHANGE_USER.
    Authentication,
}

impl Session {
    /// Begins a conversation with the client at `host` and `port`.
    pub(crate) fn open(&mut self, host: impl Display, port: u16, accounting: &mut DecodeAccounting) {
        self.host.clear();
        // Writing to a vector does not fail.
        let _ = write!(self.host, "{host}");
        self.port = port;
        accounting.sessions.seen += 1;
    }

    /// The bytes of the session that was opened come as the server's own calls read and send them.
    pub(crate) fn set_seen_at_server(&mut self) {
        self.is_seen_at_server = true;
    }

    /// A SYN or SYN-ACK passed.
    pub(crate) fn handle_syn(&mut self, from: Direction, time_ns: u64) {
        if !self.seen_from_start {
            self.seen_from_start = true;
            self.connecting_ns = time_ns;
            self.client_syn_seen = from == Direction::FromClient;
        }
    }

    /// The next bytes are plain text of a TLS connection: the login, unless it was missed.
    pub(crate) fn begin_decrypted<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        if self.phase == Phase::Encrypted {
            if self.greeting.is_some() {
                self.phase = Phase::Greeted;
            } else {
                self.join_midway(context);
            }
        }
    }

    #[inline]
    pub(crate) fn handle_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match from {
            Direction::FromClient => context.accounting.bytes.from_client += bytes.len() as u64,
            Direction::FromServer => context.accounting.bytes.from_server += bytes.len() as u64,
        }
        self.handle_framed_bytes(from, bytes, time_ns, context);
    }

    #[inline]
    pub(super) fn handle_framed_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        if self.compression.is_some() {
            self.handle_compressed_bytes(from, bytes, time_ns, context);
        } else {
            self.handle_plain_bytes(from, bytes, time_ns, context);
        }
    }

    #[inline]
    pub(super) fn handle_plain_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match (self.phase, from) {
            (Phase::Commands, Direction::FromClient) => self.handle_client_bytes(bytes, time_ns, context),
            (Phase::Commands, Direction::FromServer) => self.handle_server_bytes(bytes, time_ns, context),
            (Phase::Encrypted | Phase::Ignored, _) => {}
            _ => self.handle_handshake_bytes(from, bytes, time_ns, context),
        }
    }

    /// `count` bytes of a side's stream are missing here.
    pub(crate) fn handle_gap<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        count: u64,
        why: GapCause,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let bytes = &mut context.accounting.bytes;
        *match (why, from) {
            (GapCause::Truncated, Direction::FromClient) => &mut bytes.cut_from_client,
            (GapCause::Truncated, Direction::FromServer) => &mut bytes.cut_from_server,
            (GapCause::Lost, Direction::FromClient) => &mut bytes.lost_from_client,
            (GapCause::Lost, Direction::FromServer) => &mut bytes.lost_from_server,
        } += count;
        self.has_payload = true;
        // The mode may have been changed by what is missing.
        self.backslashes = BackslashMode::Unknown;
        let Some(frames) = self.frames_mut(from) else {
            return self.handle_plain_gap(from, count, why, time_ns, context);
        };
        if frames.desynced {
            if from == Direction::FromServer {
                self.count_unread(count, time_ns);
            }
            return;
        }
        let ended = frames.skip_gap(count);
        if why == GapCause::Lost {
            self.taint_oldest();
            // A command whose frames are still coming is not in the queue.
            self.inbound.has_gap |= from == Direction::FromClient;
        }
        match ended {
            Some(Some(_)) => self.handle_assembled_frame(from, time_ns, context),
            Some(None) => {}
            None => {
                if let Some(frames) = self.frames_mut(from) {
                    frames.reset(&mut context.workspace.budget);
                    frames.desynced = true;
                }
                match from {
                    Direction::FromClient => self.desync(context),
                    Direction::FromServer => {
                        self.count_unread(count, time_ns);
                        self.desync_responses(if why == GapCause::Truncated {
                            Desync::Truncated
                        } else {
                            Desync::Lost
                        })
                    }
                }
            }
        }
    }

    pub(super) fn handle_plain_gap<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        count: u64,
        why: GapCause,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match (self.phase, from) {
            (Phase::Encrypted | Phase::Ignored, _) => {}
            (Phase::Commands, Direction::FromClient) => self.handle_client_gap(count, why, time_ns, context),
            (Phase::Commands, Direction::FromServer) => self.handle_server_gap(count, why, time_ns, context),
            _ => self.join_midway(context),
        }
    }

    fn taint_oldest(&mut self) {
        if let Some(front) = self.queue.oldest_mut() {
            front.tainted = true;
        }
    }

    pub(super) fn mark_recognised(&mut self) {
        self.is_recognised = true;
    }

    /// A replication stream follows; there is nothing more to learn from this connection.
    pub(super) fn ignore_rest(&mut self) {
        self.phase = Phase::Ignored;
    }

    /// The connection is over, or the capture is.
    pub(crate) fn close<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        match self.phase {
            Phase::Greeted | Phase::Authenticating => self.begin_connect(0, context),
            Phase::Commands => self.flush_partial_command(context),
            _ => {}
        }
        while !self.queue.is_empty() {
            self.complete_oldest(Completion::Unfinished, context);
        }
        let sessions = &mut context.accounting.sessions;
        *match self.phase {
            _ if !self.has_payload => &mut sessions.silent,
            Phase::Encrypted => &mut sessions.encrypted,
            _ if !self.is_recognised => &mut sessions.not_understood,
            _ if self.compression.is_some() => &mut sessions.compressed,
            _ if self.greeting.is_none() && !self.seen_from_start => &mut sessions.joined_midway,
            _ => &mut sessions.plain,
        } += 1;
        self.reset(context);
    }

    /// Makes the record fit for another connection; small buffers stay.
    fn reset<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        let budget = &mut context.workspace.budget;
        self.inbound.reset(budget);
        self.outbound.reset(budget);
        self.statements.clear(budget);
        if let Some(compression) = &mut self.compression {
            compression.client.reset(budget);
            compression.server.reset(budget);
        }
        let former = std::mem::take(self);
        self.inbound = former.inbound;
        self.outbound = former.outbound;
        self.queue = former.queue;
        self.host = former.host;
    }
}
