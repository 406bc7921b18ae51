//! Events emitted for commands that ended, answered or not.

use super::Context;
use super::command::Command;
use super::session::Session;
use crate::event::{CommandKind, ErrorInfo, Event, Flags, Sink};
use crate::fingerprint::BackslashMode;
use crate::protocol::status::{SERVER_QUERY_NO_GOOD_INDEX_USED, SERVER_QUERY_NO_INDEX_USED};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    Complete,
    Unfinished,
}

impl Session {
    /// Hands the oldest command over and forgets it.
    pub(super) fn complete_oldest<S: Sink + ?Sized>(
        &mut self,
        end: Completion,
        context: &mut Context<'_, S>,
    ) {
        if self.sync.is_ambiguous()
            && let Some(command) = self.queue.oldest_mut()
        {
            command.discard_response();
        }
        self.sync.note_response_end();
        if let Some(command) = self.queue.oldest() {
            self.emit_event(command, end, context);
            if let Some(mode) = command.backslashes {
                self.backslashes = mode;
            }
            self.queue.pop(&mut context.workspace.budget);
        }
    }

    /// Hands over the newest command, which the server will not answer.
    pub(super) fn complete_newest<S: Sink + ?Sized>(&mut self, context: &mut Context<'_, S>) {
        if let Some(command) = self.queue.find_newest(|_| true) {
            self.emit_event(command, Completion::Complete, context);
            self.queue.pop_newest(&mut context.workspace.budget);
        }
    }

    /// The mode in which the server read the text: the same before and after, and not that of an earlier PREPARE.
    fn backslash_mode_of(&self, command: &Command) -> BackslashMode {
        let was_prepared = matches!(command.kind, CommandKind::Execute | CommandKind::Prepare);
        let changes = command.backslashes.is_some_and(|mode| mode != self.backslashes);
        if was_prepared || changes || command.tainted { BackslashMode::Unknown } else { self.backslashes }
    }

    fn emit_event<S: Sink + ?Sized>(&self, command: &Command, end: Completion, context: &mut Context<'_, S>) {
        let counts = &mut context.accounting.commands;
        *match end {
            _ if command.tainted => &mut counts.tainted,
            Completion::Complete => &mut counts.complete,
            Completion::Unfinished => &mut counts.unfinished,
        } += 1;
        let timed = command.begun_ns > 0 && !command.tainted;
        let answered = timed && end == Completion::Complete;
        let since_sent = |time_ns: u64| time_ns.saturating_sub(command.sent_ns);
        let flag = |bit: u16| command.status.map(|status| status & bit != 0);
        context.sink.on_event(&Event {
            start_ns: command.begun_ns,
            first_byte_ns: command.first_ns.filter(|_| timed).map(since_sent),
            query_ns: answered.then(|| since_sent(command.last_ns)),
            end_ns: answered.then_some(command.last_ns),
            lock_ns: None,
            kind: command.kind,
            text: command.text(),
            backslashes: self.backslash_mode_of(command),
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
            rows_sent: (end == Completion::Complete && !command.rows_unknown).then_some(command.rows),
            rows_examined: None,
            rows_affected: command.affected,
            warnings: command.warnings,
            error: command.error.as_ref().map(|error| ErrorInfo {
                number: error.number,
                state: &error.state[..usize::from(error.state_len)],
                message: command.message(),
            }),
            flags: Flags {
                no_index_used: flag(SERVER_QUERY_NO_INDEX_USED),
                no_good_index_used: flag(SERVER_QUERY_NO_GOOD_INDEX_USED),
                ..Flags::default()
            },
            tainted: command.tainted,
            attributes: &[],
        });
    }
}
