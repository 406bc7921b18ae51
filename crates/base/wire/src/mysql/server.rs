//! Server side of a MySQL session: decoder of responses. Skips rows by length; never reads a value.

use super::Context;
use super::command::Command;
use super::completion::Completion;
use super::handshake::{Capabilities, parse_change_user};
use super::packet::{FULL, HEADER, PacketAssembler, PacketEnd, PacketSelection, parse_header};
use super::response::{ErrorPacket, OkPacket, PrepareResponse, ResponseState, parse_eof};
use super::session::{ClientSends, Session, backslash_mode, set_name};
use super::sync::Desync;
use crate::direction::GapCause;
use crate::event::{CommandKind, Sink};
use crate::fingerprint::BackslashMode;
use crate::protocol::status::{SERVER_MORE_RESULTS_EXISTS, SERVER_STATUS_CURSOR_EXISTS};
use crate::protocol::{FieldReader, command};

/// Kept of a packet that ends a result: an OK with session state, an error message.
const MAX_STATUS_PACKET: usize = 16 << 10;

impl Session {
    #[inline]
    pub(super) fn handle_server_bytes<S: Sink + ?Sized>(
        &mut self,
        mut bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        while !bytes.is_empty() {
            if self.server_desync.is_some() {
                return self.count_unread(bytes.len() as u64, time_ns);
            }
            let Some(front) = self.queue.oldest_mut() else {
                return self.handle_orphaned_response(context);
            };
            let before = bytes.len();
            front.last_ns = front.last_ns.max(time_ns);
            let passes = front.skippable_packets();
            if self.outbound.is_at_boundary() {
                if front.first_ns.is_none() {
                    front.first_ns = Some(time_ns);
                }
                let passed = if passes > 0 {
                    let (passed, rest) = skip_packets(bytes, passes, &mut self.outbound, time_ns);
                    bytes = rest;
                    passed
                } else {
                    0
                };
                if before != bytes.len() {
                    front.bytes_from_server += (before - bytes.len()) as u64;
                    if passed > 0 {
                        self.count_skipped_packets(passed, context);
                    }
                    continue;
                }
                if let Some(head) = bytes.first_chunk::<HEADER>() {
                    let (length, seq) = parse_header(*head);
                    let end = HEADER + length as usize;
                    if length != FULL && bytes.len() >= end {
                        front.bytes_from_server += end as u64;
                        let payload = &bytes[HEADER..end];
                        bytes = &bytes[end..];
                        self.handle_server_packet(payload, seq, u64::from(length), time_ns, context);
                        continue;
                    }
                }
            }
            let want = if passes > 0 {
                PacketSelection::ExceptRows(MAX_STATUS_PACKET)
            } else {
                PacketSelection::All(MAX_STATUS_PACKET)
            };
            let budget = &mut context.workspace.budget;
            let (ended, rest) = self.outbound.consume(bytes, want, time_ns, budget);
            front.bytes_from_server += (before - rest.len()) as u64;
            bytes = rest;
            self.handle_packet_end(ended, time_ns, context);
        }
    }

    fn handle_packet_end<S: Sink + ?Sized>(
        &mut self,
        ended: Option<PacketEnd>,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match ended {
            Some(PacketEnd::Skipped) => self.count_skipped_packets(1, context),
            Some(PacketEnd::Kept) => {
                let mut packet = std::mem::take(&mut self.outbound.payload);
                let (seq, length) = (self.outbound.first_seq, self.outbound.length);
                self.handle_server_packet(packet.bytes(), seq, length, time_ns, context);
                packet.clear(&mut context.workspace.budget);
                self.outbound.payload = packet;
            }
            None => {}
        }
    }

    /// Rows or definitions were passed over.
    #[inline]
    fn count_skipped_packets<S: Sink + ?Sized>(&mut self, count: u64, context: &mut Context<'_, S>) {
        let Some(front) = self.queue.oldest_mut() else { return };
        match &mut front.reply {
            ResponseState::Rows => front.rows += count,
            ResponseState::AfterColumns => {
                front.rows += count;
                front.reply = ResponseState::Rows;
            }
            ResponseState::Columns(left) => {
                *left -= count.min(*left);
                if *left == 0 {
                    front.reply = ResponseState::AfterColumns;
                }
            }
            ResponseState::Definitions { left, then } => {
                *left -= count.min(u64::from(*left)) as u16;
                if *left == 0 {
                    let then = *then;
                    self.end_definitions(then, context);
                }
            }
            _ => {}
        }
    }

    fn end_definitions<S: Sink + ?Sized>(&mut self, then: u16, context: &mut Context<'_, S>) {
        let deprecates_eof = self.deprecates_eof;
        let Some(front) = self.queue.oldest_mut() else { return };
        match (deprecates_eof, then) {
            (Some(true), 0) => self.complete_oldest(Completion::Complete, context),
            (Some(true), left) => front.reply = ResponseState::Definitions { left, then: 0 },
            _ => front.reply = ResponseState::DefinitionsEnd { then },
        }
    }

    #[inline]
    fn handle_server_packet<S: Sink + ?Sized>(
        &mut self,
        payload: &[u8],
        seq: u8,
        length: u64,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let Some(front) = self.queue.oldest_mut() else { return };
        let reply = front.reply;
        // Rows can be empty; what answers a command cannot.
        let first = match (payload.first(), reply) {
            (Some(&first), _) => first,
            (None, ResponseState::SinglePacket) => 0,
            (None, _) => return self.handle_unexpected_packet(context),
        };
        if matches!(
            reply,
            ResponseState::Start
                | ResponseState::Prepare
                | ResponseState::OkOrError
                | ResponseState::SinglePacket
        ) && !front.response_started
        {
            front.response_started = true;
            // The numbers within compressed frames follow those of the frames.
            if seq != front.seq.wrapping_add(1) && self.compression.is_none() {
                return self.handle_unexpected_packet(context);
            }
        }
        if first == 0xff && reply != ResponseState::SinglePacket {
            return self.handle_error(payload, context);
        }
        match reply {
            ResponseState::Start if first == 0 => self.handle_ok(payload, context),
            ResponseState::Start if first == 0xfb => {
                front.reply = ResponseState::LocalInfile;
                self.client_sends = ClientSends::File;
            }
            ResponseState::Start if first != 0xfe => self.handle_column_count(payload, context),
            ResponseState::Columns(_)
            | ResponseState::AfterColumns
            | ResponseState::Rows
            | ResponseState::Start
                if first == 0xfe =>
            {
                if length < 7 {
                    self.handle_eof(payload, context)
                } else {
                    self.handle_ok(payload, context)
                }
            }
            ResponseState::FieldList | ResponseState::SinglePacket => {
                self.complete_oldest(Completion::Complete, context)
            }
            ResponseState::OkOrError => match first {
                0xfe if length < 7 => self.handle_eof(payload, context),
                0 | 0xfe => self.handle_ok(payload, context),
                _ => self.handle_unexpected_packet(context),
            },
            // AuthSwitch and further data go back and forth until an OK.
            ResponseState::Authentication => {
                if first == 0 {
                    self.handle_ok(payload, context);
                }
            }
            ResponseState::Prepare => self.handle_prepare_response(payload, context),
            ResponseState::Definitions { .. } => self.handle_unexpected_packet(context),
            ResponseState::DefinitionsEnd { then } => {
                if first == 0xfe && length < 7 {
                    self.deprecates_eof = Some(false);
                    match then {
                        0 => self.complete_oldest(Completion::Complete, context),
                        left => front.reply = ResponseState::Definitions { left, then: 0 },
                    }
                } else if then > 0 {
                    self.deprecates_eof = Some(true);
                    front.reply = ResponseState::Definitions { left: then, then: 0 };
                    self.count_skipped_packets(1, context);
                } else {
                    // The next command's response: no EOF is to come.
                    self.deprecates_eof = Some(true);
                    self.complete_oldest(Completion::Complete, context);
                    match self.queue.oldest_mut() {
                        Some(next) => {
                            next.first_ns = Some(time_ns);
                            next.last_ns = time_ns;
                            self.handle_server_packet(payload, seq, length, time_ns, context);
                        }
                        None => self.handle_orphaned_response(context),
                    }
                }
            }
            ResponseState::Replication => {
                self.complete_oldest(Completion::Complete, context);
                self.ignore_rest();
            }
            ResponseState::Start
            | ResponseState::Columns(_)
            | ResponseState::AfterColumns
            | ResponseState::Rows
            | ResponseState::LocalInfile => {
                self.handle_unexpected_packet(context);
            }
        }
    }

    fn handle_column_count<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let capabilities = self.capabilities;
        let Some(front) = self.queue.oldest_mut() else { return };
        match parse_column_count(payload, capabilities) {
            Some((count, definitions)) if count > 0 => {
                front.has_rows = true;
                front.reply =
                    if definitions { ResponseState::Columns(count) } else { ResponseState::AfterColumns };
            }
            _ => self.handle_unexpected_packet(context),
        }
    }

    fn handle_ok<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        // Mid-stream it is not known whether session state is sent; its flag then decides.
        let tracks = self.capabilities.is_none_or(Capabilities::tracks_session);
        let Some(ok) = OkPacket::parse(payload, tracks) else {
            return self.handle_unexpected_packet(context);
        };
        let Some(front) = self.queue.oldest_mut() else { return };
        // After rows the count of affected rows says nothing.
        if payload.first() == Some(&0) {
            front.affected = Some(front.affected.unwrap_or_default().saturating_add(ok.affected));
        }
        front.end_result(ok.warnings, ok.status);
        if ok.status & SERVER_MORE_RESULTS_EXISTS != 0 && front.reply != ResponseState::Authentication {
            front.reply = ResponseState::Start;
            return;
        }
        self.apply_success(ok.schema, context);
    }

    /// An EOF of the old form: after definitions, or after rows.
    fn handle_eof<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let Some(front) = self.queue.oldest_mut() else { return };
        let (warnings, status) = parse_eof(payload).unwrap_or_default();
        if front.reply == ResponseState::AfterColumns && status & SERVER_STATUS_CURSOR_EXISTS == 0 {
            self.deprecates_eof = Some(false);
            front.reply = ResponseState::Rows;
            return;
        }
        front.end_result(warnings, status);
        if status & SERVER_MORE_RESULTS_EXISTS != 0 {
            front.reply = ResponseState::Start;
            return;
        }
        self.apply_success(None, context);
    }

    fn handle_error<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let Some(error) = ErrorPacket::parse(payload) else {
            return self.handle_unexpected_packet(context);
        };
        let Some(front) = self.queue.oldest_mut() else { return };
        if error.number == ErrorPacket::PROGRESS {
            // The response proper is yet to come.
            front.response_started = false;
            front.seq = front.seq.wrapping_add(1);
            return;
        }
        front.record_error(&error, &mut context.workspace.budget);
        let prepare = front.code == command::COM_STMT_PREPARE;
        self.client_sends = ClientSends::Commands;
        self.outbound.reset(&mut context.workspace.budget);
        if prepare {
            self.bind_deferred(context);
        }
        self.complete_oldest(Completion::Complete, context);
    }

    fn handle_prepare_response<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let Some(prepared) = PrepareResponse::parse(payload).filter(|_| payload[0] == 0) else {
            return self.handle_unexpected_packet(context);
        };
        let limits = context.limits;
        let Some(front) = self.queue.oldest_mut() else { return };
        front.statement_id = Some(prepared.id);
        front.warnings = Some(u32::from(prepared.warnings));
        let budget = &mut context.workspace.budget;
        if front.tainted || self.sync.is_ambiguous() {
            // It may be the id of another text, or the text may have a gap.
            self.statements.forget(prepared.id, budget);
        } else {
            self.statements.add(prepared.id, prepared.params, front, limits.statements, budget);
        }
        self.bind_deferred(context);
        let Some(front) = self.queue.oldest_mut() else { return };
        let (params, columns) =
            if prepared.has_definitions { (prepared.params, prepared.columns) } else { (0, 0) };
        match (params, columns) {
            (0, 0) => self.complete_oldest(Completion::Complete, context),
            (0, left) => front.reply = ResponseState::Definitions { left, then: 0 },
            (left, then) => front.reply = ResponseState::Definitions { left, then },
        }
    }

    /// The oldest command succeeded.
    fn apply_success<S: Sink + ?Sized>(&mut self, schema: Option<&[u8]>, context: &mut Context<'_, S>) {
        let Some(front) = self.queue.oldest_mut() else { return };
        let named = |name: &[u8]| {
            let mut kept = Vec::new();
            set_name(&mut kept, name);
            kept
        };
        let mut change = None;
        match (front.code, front.kind) {
            (command::COM_QUERY, _) => change = parse_use(front.text()).map(named),
            (command::COM_INIT_DB, _) => change = front.buffer.bytes().get(1..).map(named),
            (command::COM_CHANGE_USER, _) => {
                let login = parse_change_user(front.buffer.bytes())
                    .map(|(user, schema)| (named(user), named(schema)));
                self.client_sends = ClientSends::Commands;
                self.statements.clear(&mut context.workspace.budget);
                self.complete_oldest(Completion::Complete, context);
                if let Some((user, schema)) = login {
                    self.user = user;
                    self.schema = schema;
                }
                return;
            }
            (command::COM_RESET_CONNECTION, CommandKind::Admin) => {
                self.statements.clear(&mut context.workspace.budget);
            }
            _ => {}
        }
        self.complete_oldest(Completion::Complete, context);
        if let Some(schema) = schema {
            set_name(&mut self.schema, schema);
        } else if let Some(schema) = change {
            self.schema = schema;
        }
    }

    /// Bytes of the server are missing.
    #[cold]
    pub(super) fn handle_server_gap<S: Sink + ?Sized>(
        &mut self,
        count: u64,
        why: GapCause,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let Some(front) = self.queue.oldest_mut() else {
            // A response passed unseen whose command was not seen either.
            self.server_desync.get_or_insert(Desync::Orphaned);
            return;
        };
        front.last_ns = front.last_ns.max(time_ns);
        front.bytes_from_server += count;
        front.tainted |= why == GapCause::Lost;
        if front.first_ns.is_none() {
            front.first_ns = Some(time_ns);
        }
        if self.server_desync.is_some() {
            return;
        }
        match self.outbound.skip_gap(count) {
            Some(ended) => self.handle_packet_end(ended, time_ns, context),
            None => self.desync_responses(if why == GapCause::Truncated {
                Desync::Truncated
            } else {
                Desync::Lost
            }),
        }
    }
}

impl Command {
    /// How many packets may be passed over unread from here on.
    #[inline]
    fn skippable_packets(&self) -> u64 {
        match self.reply {
            ResponseState::Rows | ResponseState::AfterColumns | ResponseState::FieldList => u64::MAX,
            ResponseState::Columns(left) => left,
            ResponseState::Definitions { left, .. } => u64::from(left),
            _ => 0,
        }
    }

    fn end_result(&mut self, warnings: u16, status: u16) {
        self.warnings = Some(u32::from(warnings));
        // Any of several results may have gone without an index.
        self.status = Some(self.status.unwrap_or_default() | status);
        let mode = backslash_mode(status);
        let changed = self.backslashes.is_some_and(|before| before != mode);
        self.backslashes = Some(if changed { BackslashMode::Unknown } else { mode });
    }
}

/// Passes over up to `most` packets that are rows or definitions; stops before anything else, and
/// before a header that is not whole. A packet that ends in a later segment is begun and not counted.
#[inline]
fn skip_packets<'a>(
    bytes: &'a [u8],
    most: u64,
    assembly: &mut PacketAssembler,
    time_ns: u64,
) -> (u64, &'a [u8]) {
    let mut rest = bytes;
    let mut passed = 0;
    while passed < most
        && let Some(&[a, b, c, seq, first]) = rest.first_chunk::<5>()
    {
        let length = u32::from_le_bytes([a, b, c, 0]);
        if first >= 0xfe || length == FULL || length == 0 {
            break;
        }
        let end = HEADER + length as usize;
        match rest.get(end..) {
            Some(after) => rest = after,
            None => {
                assembly.begin_skip(length, seq, (rest.len() - HEADER) as u32, time_ns);
                return (passed, &[]);
            }
        }
        passed += 1;
    }
    (passed, rest)
}

/// Number of columns, and whether their definitions follow.
fn parse_column_count(payload: &[u8], capabilities: Option<Capabilities>) -> Option<(u64, bool)> {
    let mut fields = FieldReader(payload);
    if capabilities.is_some_and(Capabilities::optional_metadata) {
        let follows = fields.u8()? != 0;
        return Some((fields.lenenc()?, follows));
    }
    let count = fields.lenenc()?;
    // Where the capability is not known, the byte itself tells: nobody else sends one.
    let may_lack = capabilities.is_none_or(Capabilities::caches_metadata);
    let follows = fields.u8().is_none_or(|follows| follows != 0 || !may_lack);
    Some((count, follows))
}

/// The schema of a USE statement.
fn parse_use(text: &[u8]) -> Option<&[u8]> {
    let (words, rest) = text.trim_ascii_start().split_at_checked(4)?;
    if !words[..3].eq_ignore_ascii_case(b"use") || !words[3].is_ascii_whitespace() {
        return None;
    }
    let name = rest.trim_ascii().trim_suffix_semicolon();
    let quoted = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`"));
    let name = quoted.unwrap_or(name);
    (!name.is_empty() && name.len() <= 256).then_some(name)
}

trait TrimSemicolon {
    fn trim_suffix_semicolon(&self) -> &[u8];
}

impl TrimSemicolon for [u8] {
    fn trim_suffix_semicolon(&self) -> &[u8] {
        self.strip_suffix(b";").unwrap_or(self).trim_ascii_end()
    }
}
