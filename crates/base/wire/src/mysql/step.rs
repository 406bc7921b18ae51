//! Synchronisation of commands and responses after lost packets. Reports which commands are ambiguous; parses
//! nothing.
//!
//! A response does not name its command: only their order connects them. One command missing in the capture
//! would shift all later responses. A client that waits for each response ends the ambiguity with its next
//! command. A pipelining client ends it when all its pending commands are answered. A client that never waits
//! for them stays ambiguous.

use super::Context;
use super::command::Command;
use super::ending::End;
use super::reply::Reply;
use super::session::{Sends, Session};
use crate::event::Sink;

/// Times that a client who sends ahead must have nothing under way before it is believed again.
const WARY: u8 = 3;

/// Why responses are not read until the client's next command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Adrift {
    /// A snap length cut a response: its time is known all the same.
    Cut,
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
pub(super) struct Step {
    pipelining: Pipelining,
    /// Commands, of those that begin with nothing under way, until a loss is got over.
    wary: u8,
    /// A response has ended since nothing was under way.
    answering: bool,
}

impl Step {
    /// A command that will be answered was sent; `in_flight` counts it too.
    #[inline]
    pub(super) fn sent(&mut self, in_flight: usize) {
        if in_flight < 2 {
            self.answering = false;
            return;
        }
        let seen = if self.answering { Pipelining::Streams } else { Pipelining::Bursts };
        self.pipelining = self.pipelining.max(seen);
    }

    /// The response to the oldest command has ended.
    #[inline]
    pub(super) fn answered(&mut self) {
        self.answering = true;
    }

    /// True if the oldest command may have received the response to another one.
    #[inline]
    pub(super) fn is_in_doubt(&self) -> bool {
        self.wary > 0 && self.pipelining != Pipelining::No
    }

    /// A command begins, and nothing is under way as far as is known.
    #[inline]
    fn rest(&mut self) {
        if self.pipelining != Pipelining::Streams {
            self.wary = self.wary.saturating_sub(1);
        }
    }
}

impl Command {
    /// What was read as its response may have been another's.
    #[cold]
    pub(super) fn distrust(&mut self) {
        self.tainted = true;
        self.rows_unseen = true;
        self.affected = None;
        self.warnings = None;
        self.status = None;
        self.error = None;
    }
}

impl Session {
    /// A new command begins: what could not be followed to its end has ended by now.
    #[inline]
    pub(super) fn settle<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        if self.server_adrift.is_some() {
            self.settle_adrift(context);
        } else if self.queue.is_empty() {
            self.step.rest();
        } else if self.may_have_ended() {
            // No EOF came, so the client asked for none.
            self.deprecates_eof = Some(true);
            self.end_front(End::Complete, context);
        }
    }

    /// Whether the one response under way ends with its definitions unless an EOF follows. Whoever
    /// saw the login, or an earlier response, knows without asking.
    #[inline]
    pub(super) fn may_have_ended(&mut self) -> bool {
        self.deprecates_eof.is_none()
            && self.queue.len() == 1
            && self.outbound.is_between()
            && self
                .queue
                .front()
                .is_some_and(|front| matches!(front.reply, Reply::DefinitionsEnd { then: 0 }))
    }

    #[cold]
    fn settle_adrift<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        while let Some(front) = self.queue.front() {
            let end = if front.first_ns.is_some() {
                End::Complete
            } else {
                // The client did not wait for a byte of the response.
                self.step.pipelining = self.step.pipelining.max(Pipelining::Bursts);
                End::Unfinished
            };
            self.end_front(end, context);
        }
        self.server_adrift = None;
        if let Some(compression) = self.compression.as_deref_mut().filter(|both| both.server.adrift) {
            compression.server.reset(&mut context.workspace.room);
        }
        self.outbound.reset(&mut context.workspace.room);
        // Responses to commands that were lost may still be on their way.
        self.step.wary = WARY;
    }

    pub(super) fn lose_client_step<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        context.ledger.commands.desynchronised += 1;
        self.lose_step(context);
    }

    /// Where commands and responses begin is not known any more.
    #[cold]
    pub(super) fn lose_step<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        self.inbound.reset(&mut context.workspace.room);
        self.outbound.reset(&mut context.workspace.room);
        self.statements.forget_types(&mut context.workspace.room);
        self.sends = Sends::Commands;
        self.client_adrift = true;
        self.lose_responses(Adrift::Lost);
    }

    /// Responses cannot be told apart until the client sends its next command.
    pub(super) fn lose_responses(&mut self, why: Adrift) {
        let alone = self.queue.len() == 1;
        for command in self.queue.iter_mut() {
            command.tainted |= why != Adrift::Cut || !alone;
            command.rows_unseen = true;
        }
        // A loss outweighs a cut.
        if self.server_adrift != Some(Adrift::Lost) {
            self.server_adrift = Some(why);
        }
    }

    /// Until the next command it is only known that the server still speaks.
    #[cold]
    pub(super) fn pass_unread(&mut self, count: u64, time_ns: u64) {
        if let Some(front) = self.queue.front() {
            front.last_ns = front.last_ns.max(time_ns);
            front.bytes_from_server += count;
            if front.first_ns.is_none() {
                front.first_ns = Some(time_ns);
            }
        }
    }

    #[cold]
    pub(super) fn orphaned<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        context.ledger.commands.orphaned_responses += 1;
        self.outbound.reset(&mut context.workspace.room);
        self.server_adrift = Some(Adrift::Orphaned);
    }

    #[cold]
    pub(super) fn out_of_step<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        context.ledger.commands.desynchronised += 1;
        self.outbound.reset(&mut context.workspace.room);
        self.lose_responses(Adrift::Lost);
    }
}
