//! State of a MySQL session: phase, user, and the parser in charge of its bytes. Reads no bytes itself.

use super::Context;
use super::command::Queue;
use super::compression::Compression;
use super::ending::End;
use super::handshake::{Capabilities, Greeting};
use super::packet::Assembly;
use super::statement::Statements;
use super::step::{Adrift, Step};
use crate::event::Sink;
use crate::ledger::Ledger;
use crate::side::{Hole, Side};
use std::fmt::Display;
use std::io::Write;

/// One connection's conversation.
#[derive(Default)]
pub(crate) struct Session {
    pub(super) phase: Phase,
    /// From the first SYN on.
    pub(super) from_the_start: bool,
    /// The client's SYN was seen, which is when connecting began.
    pub(super) dialled: bool,
    /// Some payload passed.
    pub(super) spoke: bool,
    /// A greeting or a command was understood.
    pub(super) understood: bool,
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
    /// Synchronisation of commands and responses.
    pub(super) step: Step,
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
    Over,
}

/// Meaning of a client's packets.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sends {
    #[default]
    Commands,
    /// LOAD DATA LOCAL INFILE.
    File,
    /// Steps of CHANGE_USER.
    Authentication,
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

    /// What comes next was said inside TLS: the login, unless that was missed.
    pub(crate) fn deciphered<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        if self.phase == Phase::Encrypted {
            if self.greeting.is_some() {
                self.phase = Phase::Greeted;
            } else {
                self.join_midway(context);
            }
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
    pub(super) fn spoken<S: Sink + ?Sized>(
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
}
