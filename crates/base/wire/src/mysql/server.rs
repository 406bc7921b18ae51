//! Server side of a MySQL session: decoder of responses. Skips rows by length; never reads a value.

use super::Context;
use super::command::Command;
use super::ending::End;
use super::handshake::{Capabilities, change_user};
use super::packet::{Assembly, Ended, FULL, HEADER, Want, header};
use super::reply::{Error, Ok, Prepared, Reply, parse_eof};
use super::session::{Sends, Session};
use super::step::Adrift;
use crate::event::{CommandKind, Sink};
use crate::protocol::status::{SERVER_MORE_RESULTS_EXISTS, SERVER_STATUS_CURSOR_EXISTS};
use crate::protocol::{Fields, command};
use crate::side::Hole;

/// Kept of a packet that ends a result: an OK with session state, an error message.
const KEPT: usize = 16 << 10;

impl Session {
    #[inline]
    pub(super) fn server_bytes<S: Sink + ?Sized>(
        &mut self,
        mut bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        while !bytes.is_empty() {
            if self.server_adrift.is_some() {
                return self.pass_unread(bytes.len() as u64, time_ns);
            }
            let Some(front) = self.queue.front() else {
                return self.orphaned(context);
            };
            let before = bytes.len();
            front.last_ns = front.last_ns.max(time_ns);
            let passes = front.passes();
            if self.outbound.is_between() {
                if front.first_ns.is_none() {
                    front.first_ns = Some(time_ns);
                }
                let passed = if passes > 0 {
                    let (passed, rest) = pass_over(bytes, passes, &mut self.outbound, time_ns);
                    bytes = rest;
                    passed
                } else {
                    0
                };
                if before != bytes.len() {
                    front.bytes_from_server += (before - bytes.len()) as u64;
                    if passed > 0 {
                        self.passed(passed, context);
                    }
                    continue;
                }
                if let Some(head) = bytes.first_chunk::<HEADER>() {
                    let (length, seq) = header(*head);
                    let end = HEADER + length as usize;
                    if length != FULL && bytes.len() >= end {
                        front.bytes_from_server += end as u64;
                        let payload = &bytes[HEADER..end];
                        bytes = &bytes[end..];
                        self.server_packet(payload, seq, u64::from(length), time_ns, context);
                        continue;
                    }
                }
            }
            let want = if passes > 0 { Want::NotRows(KEPT) } else { Want::Packets(KEPT) };
            let room = &mut context.workspace.room;
            let (ended, rest) = self.outbound.take(bytes, want, time_ns, room);
            front.bytes_from_server += (before - rest.len()) as u64;
            bytes = rest;
            self.ended(ended, time_ns, context);
        }
    }

    fn ended<S: Sink + ?Sized>(&mut self, ended: Option<Ended>, time_ns: u64, context: &mut Context<'_, S>) {
        match ended {
            Some(Ended::PassedOver) => self.passed(1, context),
            Some(Ended::Kept) => {
                let mut packet = std::mem::take(&mut self.outbound.payload);
                let (seq, length) = (self.outbound.first_seq, self.outbound.length);
                self.server_packet(packet.bytes(), seq, length, time_ns, context);
                packet.clear(&mut context.workspace.room);
                self.outbound.payload = packet;
            }
            None => {}
        }
    }

    /// Rows or definitions were passed over.
    #[inline]
    fn passed<S: Sink + ?Sized>(&mut self, count: u64, context: &mut Context<'_, S>) {
        let Some(front) = self.queue.front() else { return };
        match &mut front.reply {
            Reply::Rows => front.rows += count,
            Reply::AfterColumns => {
                front.rows += count;
                front.reply = Reply::Rows;
            }
            Reply::Columns(left) => {
                *left -= count.min(*left);
                if *left == 0 {
                    front.reply = Reply::AfterColumns;
                }
            }
            Reply::Definitions { left, then } => {
                *left -= count.min(u64::from(*left)) as u16;
                if *left == 0 {
                    let then = *then;
                    self.definitions_end(then, context);
                }
            }
            _ => {}
        }
    }

    fn definitions_end<S: Sink + ?Sized>(&mut self, then: u16, context: &mut Context<'_, S>) {
        let deprecates_eof = self.deprecates_eof;
        let Some(front) = self.queue.front() else { return };
        match (deprecates_eof, then) {
            (Some(true), 0) => self.end_front(End::Complete, context),
            (Some(true), left) => front.reply = Reply::Definitions { left, then: 0 },
            _ => front.reply = Reply::DefinitionsEnd { then },
        }
    }

    #[inline]
    fn server_packet<S: Sink + ?Sized>(
        &mut self,
        payload: &[u8],
        seq: u8,
        length: u64,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let Some(front) = self.queue.front() else { return };
        let reply = front.reply;
        // Rows can be empty; what answers a command cannot.
        let first = match (payload.first(), reply) {
            (Some(&first), _) => first,
            (None, Reply::Line) => 0,
            (None, _) => return self.out_of_step(context),
        };
        if matches!(reply, Reply::Start | Reply::Prepare | Reply::Verdict | Reply::Line) && !front.answered {
            front.answered = true;
            // The numbers within compressed frames follow those of the frames.
            if seq != front.seq.wrapping_add(1) && self.compression.is_none() {
                return self.out_of_step(context);
            }
        }
        if first == 0xff && reply != Reply::Line {
            return self.error(payload, context);
        }
        match reply {
            Reply::Start if first == 0 => self.ok(payload, context),
            Reply::Start if first == 0xfb => {
                front.reply = Reply::Infile;
                self.sends = Sends::File;
            }
            Reply::Start if first != 0xfe => self.columns(payload, context),
            Reply::Columns(_) | Reply::AfterColumns | Reply::Rows | Reply::Start if first == 0xfe => {
                if length < 7 { self.eof(payload, context) } else { self.ok(payload, context) }
            }
            Reply::FieldList | Reply::Line => self.end_front(End::Complete, context),
            Reply::Verdict => match first {
                0xfe if length < 7 => self.eof(payload, context),
                0 | 0xfe => self.ok(payload, context),
                _ => self.out_of_step(context),
            },
            // AuthSwitch and further data go back and forth until an OK.
            Reply::Authentication => {
                if first == 0 {
                    self.ok(payload, context);
                }
            }
            Reply::Prepare => self.prepared(payload, context),
            Reply::Definitions { .. } => self.out_of_step(context),
            Reply::DefinitionsEnd { then } => {
                if first == 0xfe && length < 7 {
                    self.deprecates_eof = Some(false);
                    match then {
                        0 => self.end_front(End::Complete, context),
                        left => front.reply = Reply::Definitions { left, then: 0 },
                    }
                } else if then > 0 {
                    self.deprecates_eof = Some(true);
                    front.reply = Reply::Definitions { left: then, then: 0 };
                    self.passed(1, context);
                } else {
                    // The next command's response: no EOF is to come.
                    self.deprecates_eof = Some(true);
                    self.end_front(End::Complete, context);
                    match self.queue.front() {
                        Some(next) => {
                            next.first_ns = Some(time_ns);
                            next.last_ns = time_ns;
                            self.server_packet(payload, seq, length, time_ns, context);
                        }
                        None => self.orphaned(context),
                    }
                }
            }
            Reply::Replication => {
                self.end_front(End::Complete, context);
                self.end_of_commands();
            }
            Reply::Start | Reply::Columns(_) | Reply::AfterColumns | Reply::Rows | Reply::Infile => {
                self.out_of_step(context);
            }
        }
    }

    fn columns<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let capabilities = self.capabilities;
        let Some(front) = self.queue.front() else { return };
        match column_count(payload, capabilities) {
            Some((count, definitions)) if count > 0 => {
                front.has_rows = true;
                front.reply = if definitions { Reply::Columns(count) } else { Reply::AfterColumns };
            }
            _ => self.out_of_step(context),
        }
    }

    fn ok<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        // Mid-stream it is not known whether session state is sent; its flag then decides.
        let tracks = self.capabilities.is_none_or(Capabilities::tracks_session);
        let Some(ok) = Ok::parse(payload, tracks) else {
            return self.out_of_step(context);
        };
        let Some(front) = self.queue.front() else { return };
        // After rows the count of affected rows says nothing.
        if payload.first() == Some(&0) {
            front.affected = Some(front.affected.unwrap_or_default().saturating_add(ok.affected));
        }
        front.result_ends(ok.warnings, ok.status);
        if ok.status & SERVER_MORE_RESULTS_EXISTS != 0 && front.reply != Reply::Authentication {
            front.reply = Reply::Start;
            return;
        }
        self.agreed(ok.schema, context);
    }

    /// An EOF of the old form: after definitions, or after rows.
    fn eof<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let Some(front) = self.queue.front() else { return };
        let (warnings, status) = parse_eof(payload).unwrap_or_default();
        if front.reply == Reply::AfterColumns && status & SERVER_STATUS_CURSOR_EXISTS == 0 {
            self.deprecates_eof = Some(false);
            front.reply = Reply::Rows;
            return;
        }
        front.result_ends(warnings, status);
        if status & SERVER_MORE_RESULTS_EXISTS != 0 {
            front.reply = Reply::Start;
            return;
        }
        self.agreed(None, context);
    }

    fn error<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let Some(error) = Error::parse(payload) else {
            return self.out_of_step(context);
        };
        let Some(front) = self.queue.front() else { return };
        if error.number == Error::PROGRESS {
            // The response proper is yet to come.
            front.answered = false;
            front.seq = front.seq.wrapping_add(1);
            return;
        }
        front.fail(&error, &mut context.workspace.room);
        let prepare = front.code == command::COM_STMT_PREPARE;
        self.sends = Sends::Commands;
        self.outbound.reset(&mut context.workspace.room);
        if prepare {
            self.bind_deferred(context);
        }
        self.end_front(End::Complete, context);
    }

    fn prepared<S: Sink + ?Sized>(&mut self, payload: &[u8], context: &mut Context<'_, S>) {
        let Some(prepared) = Prepared::parse(payload).filter(|_| payload[0] == 0) else {
            return self.out_of_step(context);
        };
        let limits = context.limits;
        let Some(front) = self.queue.front() else { return };
        front.statement_id = Some(prepared.id);
        front.warnings = Some(u32::from(prepared.warnings));
        let room = &mut context.workspace.room;
        if front.tainted || self.step.is_in_doubt() {
            // It may be the id of another text, or the text may have a gap.
            self.statements.forget(prepared.id, room);
        } else {
            self.statements.add(prepared.id, prepared.params, front, limits.statements, room);
        }
        self.bind_deferred(context);
        let Some(front) = self.queue.front() else { return };
        let (params, columns) =
            if prepared.has_definitions { (prepared.params, prepared.columns) } else { (0, 0) };
        match (params, columns) {
            (0, 0) => self.end_front(End::Complete, context),
            (0, left) => front.reply = Reply::Definitions { left, then: 0 },
            (left, then) => front.reply = Reply::Definitions { left, then },
        }
    }

    /// The server has done what the oldest command asked.
    fn agreed<S: Sink + ?Sized>(&mut self, schema: Option<&[u8]>, context: &mut Context<'_, S>) {
        let Some(front) = self.queue.front() else { return };
        let mut change = None;
        match (front.code, front.kind) {
            (command::COM_QUERY, _) => change = used_schema(front.text()).map(<[u8]>::to_vec),
            (command::COM_INIT_DB, _) => change = front.kept.bytes().get(1..).map(<[u8]>::to_vec),
            (command::COM_CHANGE_USER, _) => {
                let login =
                    change_user(front.kept.bytes()).map(|(user, schema)| (user.to_vec(), schema.to_vec()));
                self.sends = Sends::Commands;
                self.statements.clear(&mut context.workspace.room);
                self.end_front(End::Complete, context);
                if let Some((user, schema)) = login {
                    self.user = user;
                    self.schema = schema;
                }
                return;
            }
            (command::COM_RESET_CONNECTION, CommandKind::Admin) => {
                self.statements.clear(&mut context.workspace.room);
            }
            _ => {}
        }
        self.end_front(End::Complete, context);
        if let Some(schema) = schema {
            self.schema.clear();
            self.schema.extend_from_slice(schema);
        } else if let Some(schema) = change {
            self.schema = schema;
        }
    }

    /// Bytes of the server are missing.
    #[cold]
    pub(super) fn server_hole<S: Sink + ?Sized>(
        &mut self,
        count: u64,
        why: Hole,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let Some(front) = self.queue.front() else {
            // A response passed unseen whose command was not seen either.
            self.server_adrift.get_or_insert(Adrift::Orphaned);
            return;
        };
        front.last_ns = front.last_ns.max(time_ns);
        front.bytes_from_server += count;
        front.tainted |= why == Hole::Lost;
        if front.first_ns.is_none() {
            front.first_ns = Some(time_ns);
        }
        if self.server_adrift.is_some() {
            return;
        }
        match self.outbound.hole(count) {
            Some(ended) => self.ended(ended, time_ns, context),
            None => self.lose_responses(if why == Hole::Cut { Adrift::Cut } else { Adrift::Lost }),
        }
    }
}

impl Command {
    /// How many packets may be passed over unread from here on.
    #[inline]
    fn passes(&self) -> u64 {
        match self.reply {
            Reply::Rows | Reply::AfterColumns | Reply::FieldList => u64::MAX,
            Reply::Columns(left) => left,
            Reply::Definitions { left, .. } => u64::from(left),
            _ => 0,
        }
    }

    fn result_ends(&mut self, warnings: u16, status: u16) {
        self.warnings = Some(u32::from(warnings));
        // Any of several results may have gone without an index.
        self.status = Some(self.status.unwrap_or_default() | status);
    }
}

/// Passes over up to `most` packets that are rows or definitions; stops before anything else, and
/// before a header that is not whole. A packet that ends in a later segment is begun and not counted.
#[inline]
fn pass_over<'a>(bytes: &'a [u8], most: u64, assembly: &mut Assembly, time_ns: u64) -> (u64, &'a [u8]) {
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
                assembly.pass_over(length, seq, (rest.len() - HEADER) as u32, time_ns);
                return (passed, &[]);
            }
        }
        passed += 1;
    }
    (passed, rest)
}

/// Number of columns, and whether their definitions follow.
fn column_count(payload: &[u8], capabilities: Option<Capabilities>) -> Option<(u64, bool)> {
    let mut fields = Fields(payload);
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
fn used_schema(text: &[u8]) -> Option<&[u8]> {
    let (words, rest) = text.trim_ascii_start().split_at_checked(4)?;
    if !words[..3].eq_ignore_ascii_case(b"use") || !words[3].is_ascii_whitespace() {
        return None;
    }
    let name = rest.trim_ascii().trim_suffix_semicolon();
    let quoted = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`"));
    let name = quoted.unwrap_or(name);
    (!name.is_empty() && name.len() <= 256).then_some(name)
}

trait Statement {
    fn trim_suffix_semicolon(&self) -> &[u8];
}

impl Statement for [u8] {
    fn trim_suffix_semicolon(&self) -> &[u8] {
        self.strip_suffix(b";").unwrap_or(self).trim_ascii_end()
    }
}
