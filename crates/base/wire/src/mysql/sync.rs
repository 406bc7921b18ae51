//! Synchronisation of commands and responses after lost packets. Reports which commands are ambiguous; parses
//! nothing.
//!
//! A response does not name its command: only their order connects them. One command missing in the capture
//! would shift all later responses. A client that waits for each response ends the ambiguity with its next
//! command. A pipelining client ends it when all its pending commands are answered. A client that never waits
//! for them stays ambiguous. Where the server's own calls are seen, no client sends ahead: the server reads a
//! command once it has answered those before.

use super::Context;
use super::command::Command;
use super::completion::Completion;
use super::response::ResponseState;
use super::session::{ClientSends, Phase, Session};
use crate::event::Sink;

/// Number of commands without others in flight after which a pipelining client counts as synchronised again.
const RESYNC_COMMANDS: u8 = 3;

/// Why responses are not read until the client's next command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Desync {
    /// A snap length cut a response: its time is known all the same.
    Truncated,
    /// Segments were not captured.
    Lost,
    /// A response came for which there is no command.
    Orphaned,
}

/// How far ahead of the responses a client sends, by what was seen of it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pipelining {
    /// It waits for each response.
    #[default]
    No,
    /// Several commands, then all of their responses.
    Bursts,
    /// A further command for each response: there may never be a moment with nothing under way.
    Streams,
}

#[derive(Debug, Default)]
pub(super) struct ResponseSync {
    pipelining: Pipelining,
    /// Commands, of those that begin with nothing under way, until a loss is got over.
    resync_left: u8,
    /// A response has ended since nothing was under way.
    is_answering: bool,
}

impl ResponseSync {
    /// A command that will be answered was sent; `in_flight` counts it too.
    #[inline]
    pub(super) fn note_command(&mut self, in_flight: usize) {
        if in_flight < 2 {
            self.is_answering = false;
            return;
        }
        let seen = if self.is_answering { Pipelining::Streams } else { Pipelining::Bursts };
        self.pipelining = self.pipelining.max(seen);
    }

    /// The response to the oldest command has ended.
    #[inline]
    pub(super) fn note_response_end(&mut self) {
        self.is_answering = true;
    }

    /// True if the oldest command may have received the response to another one.
    #[inline]
    pub(super) fn is_ambiguous(&self) -> bool {
        self.resync_left > 0 && self.pipelining != Pipelining::No
    }

    /// A command begins, and nothing is under way as far as is known.
    #[inline]
    fn note_idle(&mut self) {
        if self.pipelining != Pipelining::Streams {
            self.resync_left = self.resync_left.saturating_sub(1);
        }
    }
}

impl Command {
    /// Discards the response: it may belong to another command.
    #[cold]
    pub(super) fn discard_response(&mut self) {
        self.tainted = true;
        self.rows_unknown = true;
        self.affected = None;
        self.warnings = None;
        self.status = None;
        self.error = None;
    }
}

impl Session {
    /// A new command begins: what could not be followed to its end has ended by now.
    #[inline]
    pub(super) fn resolve_pending<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        if self.server_desync.is_some() {
            self.resolve_desync(context);
        } else if self.queue.is_empty() {
            self.sync.note_idle();
        } else if self.may_have_ended() {
            // No EOF came, so the client asked for none.
            self.deprecates_eof = Some(true);
            self.complete_oldest(Completion::Complete, context);
        }
    }

    /// The server takes a command only once it has answered those before. One that reads compressed frames may find several
    /// commands in one.
    #[inline]
    pub(super) fn is_answered_in_turn(&self) -> bool {
        self.is_seen_at_server && self.compression.is_none()
    }

    /// A call of the server reads on. What is under way has ended, if a command begins here: what was not seen of its
    /// response was not seen to be lost either, as when a tap begins.
    #[inline]
    pub(crate) fn handle_server_read<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        if self.phase == Phase::Commands
            && self.client_sends == ClientSends::Commands
            && self.server_desync.is_none()
            && !self.queue.is_empty()
            && self.is_answered_in_turn()
            && self.inbound.is_at_boundary()
            && !self.may_have_ended()
        {
            self.desync_responses(Desync::Truncated);
            self.resolve_desync(context);
        }
    }

    /// Whether the one response under way ends with its definitions unless an EOF follows. Whoever
    /// saw the login, or an earlier response, knows without asking.
    #[inline]
    pub(super) fn may_have_ended(&mut self) -> bool {
        self.deprecates_eof.is_none()
            && self.queue.len() == 1
            && self.outbound.is_at_boundary()
            && self
                .queue
                .oldest_mut()
                .is_some_and(|front| matches!(front.reply, ResponseState::DefinitionsEnd { then: 0 }))
    }

    #[cold]
    fn resolve_desync<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        while let Some(front) = self.queue.oldest_mut() {
            let end = if front.first_ns.is_some() {
                Completion::Complete
            } else {
                if !self.is_answered_in_turn() {
                    // The client did not wait for a byte of the response.
                    self.sync.pipelining = self.sync.pipelining.max(Pipelining::Bursts);
                }
                Completion::Unfinished
            };
            self.complete_oldest(end, context);
        }
        self.server_desync = None;
        if let Some(compression) = self.compression.as_deref_mut().filter(|both| both.server.desynced) {
            compression.server.reset(&mut context.workspace.budget);
        }
        self.outbound.reset(&mut context.workspace.budget);
        // Responses to commands that were lost may still be on their way.
        self.sync.resync_left = RESYNC_COMMANDS;
    }

    pub(super) fn count_and_desync<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        context.accounting.commands.desynchronised += 1;
        self.desync(context);
    }

    /// Where commands and responses begin is not known any more.
    #[cold]
    pub(super) fn desync<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        self.inbound.reset(&mut context.workspace.budget);
        self.outbound.reset(&mut context.workspace.budget);
        self.statements.forget_types(&mut context.workspace.budget);
        self.client_sends = ClientSends::Commands;
        self.client_desynced = true;
        self.desync_responses(Desync::Lost);
    }

    /// Responses are ambiguous until the next command of the client.
    pub(super) fn desync_responses(&mut self, why: Desync) {
        let alone = self.queue.len() == 1;
        for command in self.queue.iter_mut() {
            command.tainted |= why != Desync::Truncated || !alone;
            command.rows_unknown = true;
        }
        // A loss outweighs a cut.
        if self.server_desync != Some(Desync::Lost) {
            self.server_desync = Some(why);
        }
    }

    /// Counts bytes of the server that are skipped until the next command.
    #[cold]
    pub(super) fn count_unread(&mut self, count: u64, time_ns: u64) {
        if let Some(front) = self.queue.oldest_mut() {
            front.last_ns = front.last_ns.max(time_ns);
            front.bytes_from_server += count;
            if front.first_ns.is_none() {
                front.first_ns = Some(time_ns);
            }
        }
    }

    #[cold]
    pub(super) fn handle_orphaned_response<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        context.accounting.commands.orphaned_responses += 1;
        self.outbound.reset(&mut context.workspace.budget);
        self.server_desync = Some(Desync::Orphaned);
    }

    #[cold]
    pub(super) fn handle_unexpected_packet<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        context.accounting.commands.desynchronised += 1;
        self.outbound.reset(&mut context.workspace.budget);
        self.desync_responses(Desync::Lost);
    }
}
