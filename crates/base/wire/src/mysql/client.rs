//! Client side of a MySQL session: decoder of commands. Never reads responses.

use super::Context;
use super::bounded_buffer::BufferBounds;
use super::command::{Command, admin_text, is_command};
use super::completion::Completion;
use super::compression;
use super::handshake::Capabilities;
use super::packet::{FULL, HEADER, PacketEnd, PacketSelection, parse_header};
use super::response::ResponseState;
use super::session::{ClientSends, Session};
use super::statement::{LAST_PREPARED, skip_attributes};
use crate::direction::{Direction, GapCause};
use crate::event::{CommandKind, Sink};
use crate::protocol::command;

/// Kept of a packet beyond the text: command byte, statement id, flags, attributes.
const TEXT_OVERHEAD: usize = 4096;

/// A packet of a client, whole or as far as it was seen.
struct ClientPacket<'a> {
    payload: &'a [u8],
    /// Payload that is not in `payload`.
    cut: u64,
    seq: u8,
    /// The same of the packet that ends it.
    last_seq: u8,
    /// On the wire, with headers.
    wire_len: u64,
    begun_ns: u64,
    sent_ns: u64,
    tainted: bool,
}

impl Session {
    #[inline]
    pub(super) fn handle_client_bytes<S: Sink + ?Sized>(
        &mut self,
        mut bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        if self.client_desynced && !self.resynchronise(bytes, time_ns, context) {
            return;
        }
        while !bytes.is_empty() {
            if self.inbound.is_at_boundary()
                && let Some(head) = bytes.first_chunk::<HEADER>()
            {
                let (length, seq) = parse_header(*head);
                let end = HEADER + length as usize;
                if length != FULL && bytes.len() >= end {
                    let payload = &bytes[HEADER..end];
                    bytes = &bytes[end..];
                    let wire_len = end as u64;
                    let packet = ClientPacket {
                        payload,
                        cut: 0,
                        seq,
                        last_seq: seq,
                        wire_len,
                        begun_ns: time_ns,
                        sent_ns: time_ns,
                        tainted: false,
                    };
                    self.handle_client_packet(&packet, context);
                    if self.client_desynced {
                        return;
                    }
                    continue;
                }
            }
            let limits = context.limits;
            let kept = if self.client_sends == ClientSends::Commands {
                limits.text.saturating_add(TEXT_OVERHEAD)
            } else {
                0
            };
            let budget = &mut context.workspace.budget;
            let (ended, rest) = self.inbound.consume(bytes, PacketSelection::All(kept), time_ns, budget);
            bytes = rest;
            if ended == Some(PacketEnd::Kept) {
                self.handle_assembled_packet(time_ns, false, context);
                if self.client_desynced {
                    return;
                }
            }
        }
    }

    /// Looks at what was put together; `broken`: its end is missing.
    fn handle_assembled_packet<S: Sink + ?Sized>(
        &mut self,
        time_ns: u64,
        broken: bool,
        context: &mut Context<'_, S>,
    ) {
        let assembly = &mut self.inbound;
        let mut payload = std::mem::take(&mut assembly.payload);
        let missing = if broken { assembly.remaining_bytes() } else { 0 };
        let packet = ClientPacket {
            payload: payload.bytes(),
            cut: assembly.missing_bytes + missing,
            seq: assembly.first_seq,
            last_seq: assembly.last_seq,
            wire_len: assembly.length + HEADER as u64 * (1 + assembly.length / u64::from(FULL)) - missing,
            begun_ns: assembly.begun_ns,
            sent_ns: time_ns,
            tainted: assembly.has_gap || broken,
        };
        assembly.has_gap = false;
        let tainted = packet.tainted;
        self.handle_client_packet(&packet, context);
        if tainted {
            // What was read of an EXECUTE may have been read in the wrong place.
            self.statements.forget_types(&mut context.workspace.budget);
        }
        payload.clear(&mut context.workspace.budget);
        self.inbound.payload = payload;
    }

    #[inline]
    fn handle_client_packet<S: Sink + ?Sized>(
        &mut self,
        packet: &ClientPacket<'_>,
        context: &mut Context<'_, S>,
    ) {
        match self.client_sends {
            ClientSends::Commands => self.handle_command(packet, context),
            ClientSends::Authentication => {}
            ClientSends::File => {
                let ends_file = packet.payload.is_empty() && packet.cut == 0;
                let Some(front) = self.queue.oldest_mut() else { return };
                front.bytes_from_client += packet.wire_len;
                front.tainted |= packet.tainted;
                if ends_file {
                    self.client_sends = ClientSends::Commands;
                    front.reply = ResponseState::Start;
                    front.seq = packet.last_seq;
                }
            }
        }
    }

    #[inline]
    fn handle_command<S: Sink + ?Sized>(&mut self, packet: &ClientPacket<'_>, context: &mut Context<'_, S>) {
        let code = match packet.payload.first() {
            // Compressed packets may carry on the numbers of the frames around them.
            Some(&code) if (packet.seq == 0 || self.compression.is_some()) && is_command(code) => code,
            _ => return self.count_and_desync(context),
        };
        self.resolve_pending(context);
        if self.queue.is_full(context.limits.pipeline, &context.workspace.budget) {
            return self.count_and_desync(context);
        }
        self.mark_recognised();
        if code == command::COM_STMT_SEND_LONG_DATA {
            let budget = &mut context.workspace.budget;
            self.statements.append_long_data(&packet.payload[1..], packet.cut, budget);
            return;
        }
        context.accounting.commands.seen += 1;
        let budget = &mut context.workspace.budget;
        let command = self.queue.push(budget);
        command.begin(code, packet.begun_ns, packet.sent_ns, budget);
        command.seq = packet.last_seq;
        command.bytes_from_client = packet.wire_len;
        command.tainted = packet.tainted;
        command.text_cut = packet.cut;
        let limits = context.limits;
        let bounds = &mut BufferBounds { budget, limit: limits.text };
        let argument = &packet.payload[1..];
        match code {
            command::COM_QUERY => {
                let text = match self.query_attributes {
                    Some(false) => argument,
                    Some(true) => skip_attributes(argument).unwrap_or_default(),
                    None => skip_guessed_attributes(argument),
                };
                command.kind = CommandKind::Query;
                command.set_text(text, bounds);
            }
            command::COM_STMT_PREPARE => {
                command.kind = CommandKind::Prepare;
                command.set_text(argument, bounds);
            }
            command::COM_STMT_EXECUTE | command::COM_STMT_BULK_EXECUTE => {
                command.kind = CommandKind::Execute;
                command.text_cut = 0;
                // Refers to a PREPARE that is not answered yet.
                if argument.first_chunk() == Some(&LAST_PREPARED.to_le_bytes()) && self.has_pending_prepare()
                {
                    self.defer_binding(packet.payload, context);
                } else {
                    self.bind_parameters(packet.payload, context);
                }
            }
            command::COM_STMT_CLOSE | command::COM_STMT_RESET => {
                self.handle_statement_command(code, argument, context)
            }
            command::COM_INIT_DB | command::COM_CHANGE_USER => {
                command.kind = CommandKind::Admin;
                command.fixed_text = admin_text(code);
                // Their argument becomes the schema (and user) if the server agrees.
                command.buffer.append(packet.payload, limits.text, bounds.budget);
                if code == command::COM_CHANGE_USER {
                    self.client_sends = ClientSends::Authentication;
                }
            }
            _ => {
                command.kind = CommandKind::Admin;
                command.fixed_text = admin_text(code);
            }
        }
        match ResponseState::expected_for(code) {
            Some(reply) => {
                if !self.is_answered_in_turn() {
                    self.sync.note_command(self.queue.len());
                }
                if let Some(command) = self.queue.newest_mut() {
                    command.reply = reply;
                }
            }
            // Nothing will answer, so it ends here; what is still in flight ahead of it does not wait.
            None => self.complete_newest(context),
        }
    }

    /// Text and parameters of the newest command, an EXECUTE.
    fn bind_parameters<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let limits = context.limits;
        let bounds = &mut BufferBounds { budget: &mut context.workspace.budget, limit: limits.text };
        let attributes = self.capabilities.map(Capabilities::has_query_attributes);
        if let Some(command) = self.queue.newest_mut() {
            if command.code == command::COM_STMT_BULK_EXECUTE {
                self.statements.render_bulk_execute(payload, command, bounds);
            } else {
                self.statements.render_execute(payload, attributes, command, bounds);
            }
        }
    }

    fn has_pending_prepare(&self) -> bool {
        self.queue.find_newest(|command| command.code == command::COM_STMT_PREPARE).is_some()
    }

    fn defer_binding<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let limits = context.limits;
        if let Some(command) = self.queue.newest_mut() {
            command.deferred = true;
            command.buffer.append(payload, limits.text, &mut context.workspace.budget);
        }
    }

    /// The statement is known now (or its PREPARE has failed): binds what waited for it.
    pub(super) fn bind_deferred<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        let limits = context.limits;
        let attributes = self.capabilities.map(Capabilities::has_query_attributes);
        let statements = &mut self.statements;
        let prepare = |command: &Command| command.code == command::COM_STMT_PREPARE;
        // Up to the next PREPARE, which those behind it refer to.
        for command in self.queue.iter_mut().skip(1).take_while(|command| !prepare(command)) {
            if !std::mem::take(&mut command.deferred) {
                continue;
            }
            let mut payload = std::mem::take(&mut command.buffer);
            let budget = &mut context.workspace.budget;
            let bounds = &mut BufferBounds { budget, limit: limits.text };
            if command.code == command::COM_STMT_BULK_EXECUTE {
                statements.render_bulk_execute(payload.bytes(), command, bounds);
            } else {
                statements.render_execute(payload.bytes(), attributes, command, bounds);
            }
            payload.clear(budget);
        }
    }

    fn handle_statement_command<S: Sink + ?Sized>(
        &mut self,
        code: u8,
        argument: &[u8],
        context: &mut Context<'_, S>,
    ) {
        let limits = context.limits;
        let budget = &mut context.workspace.budget;
        let id = argument.first_chunk().map(|id| u32::from_le_bytes(*id)).unwrap_or_default();
        let Some(command) = self.queue.newest_mut() else { return };
        command.statement_id = Some(id);
        let words: &[u8] = if code == command::COM_STMT_CLOSE {
            self.statements.remove(id, budget);
            command.kind = CommandKind::Close;
            b"DEALLOCATE PREPARE "
        } else {
            self.statements.reset(id, budget);
            command.kind = CommandKind::Reset;
            b"RESET "
        };
        let mut text = super::value::SqlLiteral::default();
        text.push_text(words);
        text.push_number(u64::from(id));
        command.set_text(text.bytes(), &mut BufferBounds { budget, limit: limits.text });
    }

    /// Bytes of the client are missing.
    #[cold]
    pub(super) fn handle_client_gap<S: Sink + ?Sized>(
        &mut self,
        count: u64,
        why: GapCause,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        if self.client_desynced {
            return;
        }
        match self.inbound.skip_gap(count) {
            Some(ended) => {
                self.inbound.has_gap |= why == GapCause::Lost;
                if ended == Some(PacketEnd::Kept) {
                    self.handle_assembled_packet(time_ns, false, context);
                }
            }
            None => {
                if !self.inbound.is_at_boundary()
                    && self.inbound.payload.len() > 0
                    && self.client_sends == ClientSends::Commands
                {
                    self.handle_assembled_packet(time_ns, true, context);
                }
                self.desync(context);
            }
        }
    }

    /// Whether a command can be recognised at the head of a segment; if so all goes on from here.
    #[cold]
    fn resynchronise<S: Sink + ?Sized>(
        &mut self,
        bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) -> bool {
        if !looks_like_command(bytes) {
            let compresses =
                self.compression.is_none() && compression::may_hold_command(bytes, looks_like_command);
            if compresses {
                self.compression = Some(Box::default());
                self.handle_compressed_bytes(Direction::FromClient, bytes, time_ns, context);
            }
            return false;
        }
        self.client_desynced = false;
        self.inbound.reset(&mut context.workspace.budget);
        true
    }

    /// The capture or the connection ends; a command may have arrived in part.
    pub(super) fn flush_partial_command<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        let begun = !self.client_desynced && !self.inbound.is_at_boundary() && self.inbound.payload.len() > 0;
        if begun && self.client_sends == ClientSends::Commands {
            let (holed, begun_ns) = (self.inbound.has_gap, self.inbound.begun_ns);
            self.handle_assembled_packet(begun_ns, true, context);
            if let Some(command) = self.queue.newest_mut() {
                command.tainted = holed;
            }
        }
        if self.may_have_ended() {
            self.complete_oldest(Completion::Complete, context);
        }
    }
}

/// True if a segment begins with a command; packets of another kind and the middle of one do not look like
/// this.
pub(super) fn looks_like_command(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    loop {
        let Some((head, after)) = rest.split_first_chunk::<HEADER>() else { return false };
        let (length, seq) = parse_header(*head);
        let Some(&code) = after.first() else { return false };
        let length = length as usize;
        if seq != 0 || !is_command(code) || is_internal(code) || !length_fits(code, length) {
            return false;
        }
        if matches!(code, command::COM_QUERY | command::COM_STMT_PREPARE) && !looks_like_text(&after[1..]) {
            return false;
        }
        if after.len() < length {
            return matches!(
                code,
                command::COM_QUERY
                    | command::COM_STMT_PREPARE
                    | command::COM_STMT_EXECUTE
                    | command::COM_STMT_BULK_EXECUTE
                    | command::COM_STMT_SEND_LONG_DATA
            );
        }
        rest = &after[length..];
        if rest.is_empty() {
            return true;
        }
    }
}

/// Commands of the server's own (Sleep, Connect, Time, Delayed insert, Connect out, Daemon): no client
/// sends them, but the middle of an EXECUTE may look like them.
fn is_internal(code: u8) -> bool {
    matches!(
        code,
        command::COM_SLEEP
            | command::COM_CONNECT
            | command::COM_TIME
            | command::COM_DELAYED_INSERT
            | command::COM_CONNECT_OUT
            | command::COM_DAEMON
    )
}

fn length_fits(code: u8, length: usize) -> bool {
    match code {
        command::COM_QUIT
        | command::COM_STATISTICS
        | command::COM_PROCESS_INFO
        | command::COM_RESET_CONNECTION => length == 1,
        command::COM_DEBUG | command::COM_PING => length == 1,
        command::COM_STMT_CLOSE | command::COM_STMT_RESET => length == 5,
        command::COM_STMT_FETCH => length == 9,
        command::COM_SET_OPTION => length == 3,
        command::COM_QUERY | command::COM_STMT_PREPARE | command::COM_INIT_DB => length > 1,
        command::COM_STMT_EXECUTE => length >= 10,
        command::COM_STMT_SEND_LONG_DATA | command::COM_STMT_BULK_EXECUTE => length >= 7,
        _ => length >= 1,
    }
}

/// Text, or query attributes and text: no control characters at its head.
fn looks_like_text(bytes: &[u8]) -> bool {
    let text = skip_guessed_attributes(bytes);
    text.iter().take(16).all(|&byte| byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r'))
}

/// No SQL begins with these two bytes; a count of attributes and of sets (always 1) does.
fn skip_guessed_attributes(argument: &[u8]) -> &[u8] {
    match argument {
        [0..=8, 1, ..] => skip_attributes(argument).unwrap_or(argument),
        _ => argument,
    }
}
