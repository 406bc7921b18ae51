//! State of a command while its response is pending. Never parses packets.

use super::bounded_buffer::{BoundedBuffer, BufferBounds, UNACCOUNTED_MAX};
use super::response::{ErrorPacket, ResponseState};
use crate::event::CommandKind;
use crate::fingerprint::BackslashMode;
use crate::memory_budget::MemoryBudget;
use crate::protocol::command::*;

/// What an administrator command is called; the words are those of pt-query-digest, which
/// people's notes and reviews hold.
pub(super) fn admin_text(code: u8) -> Option<&'static str> {
    Some(match code {
        COM_SLEEP => "administrator command: Sleep",
        COM_QUIT => "administrator command: Quit",
        COM_INIT_DB => "administrator command: Init_db",
        COM_FIELD_LIST => "administrator command: Field_list",
        COM_CREATE_DB => "administrator command: Create_db",
        COM_DROP_DB => "administrator command: Drop_db",
        COM_REFRESH => "administrator command: Refresh",
        COM_SHUTDOWN => "administrator command: Shutdown",
        COM_STATISTICS => "administrator command: Statistics",
        COM_PROCESS_INFO => "administrator command: Process_info",
        COM_CONNECT => CONNECT_TEXT,
        COM_PROCESS_KILL => "administrator command: Process_kill",
        COM_DEBUG => "administrator command: Debug",
        COM_PING => "administrator command: Ping",
        COM_TIME => "administrator command: Time",
        COM_DELAYED_INSERT => "administrator command: Delayed_insert",
        COM_CHANGE_USER => "administrator command: Change_user",
        COM_BINLOG_DUMP => "administrator command: Binlog_dump",
        COM_TABLE_DUMP => "administrator command: Table_dump",
        COM_CONNECT_OUT => "administrator command: Connect_out",
        COM_REGISTER_SLAVE => "administrator command: Register_slave",
        COM_SET_OPTION => "administrator command: Set_option",
        COM_STMT_FETCH => "administrator command: Stmt_fetch",
        COM_DAEMON => "administrator command: Daemon",
        COM_BINLOG_DUMP_GTID => "administrator command: Binlog_dump_gtid",
        COM_RESET_CONNECTION => "administrator command: Reset_connection",
        COM_CLONE => "administrator command: Clone",
        COM_SUBSCRIBE_GROUP_REPLICATION_STREAM => "administrator command: Subscribe_group_replication_stream",
        _ => return None,
    })
}

pub(super) const CONNECT_TEXT: &str = "administrator command: Connect";

/// True for a valid first byte of a client's packet.
pub(super) fn is_command(code: u8) -> bool {
    matches!(code, COM_QUERY | COM_STMT_PREPARE..=COM_STMT_RESET | COM_STMT_BULK_EXECUTE)
        || admin_text(code).is_some()
}

/// A command in flight. Slots are reused: `begin` resets what a former command left.
#[derive(Debug, Default)]
pub(super) struct Command {
    pub code: u8,
    pub kind: CommandKind,
    /// Text to report instead of the captured one.
    pub fixed_text: Option<&'static str>,
    /// Text, then what follows it: parameters, or an argument that is not reported.
    pub buffer: BoundedBuffer,
    pub text_len: usize,
    pub text_cut: u64,
    pub params_len: usize,
    pub statement_id: Option<u32>,
    /// First byte of the command, last byte of it.
    pub begun_ns: u64,
    pub sent_ns: u64,
    /// First byte of the response, latest byte of it.
    pub first_ns: Option<u64>,
    pub last_ns: u64,
    pub bytes_from_client: u64,
    pub bytes_from_server: u64,
    pub rows: u64,
    /// A result set was among the results.
    pub has_rows: bool,
    /// Rows passed by unseen: their number is not known.
    pub rows_unknown: bool,
    pub affected: Option<u64>,
    pub warnings: Option<u32>,
    pub status: Option<u16>,
    /// Of its results; unknown if they differ.
    pub backslashes: Option<BackslashMode>,
    pub error: Option<ErrorRecord>,
    pub tainted: bool,
    pub reply: ResponseState,
    /// Sequence number of its last packet.
    pub seq: u8,
    /// The first packet of the response was seen.
    pub response_started: bool,
    /// An EXECUTE of a statement whose PREPARE is not answered yet; `kept` holds its packet.
    pub deferred: bool,
}

/// An error packet; the message follows the other kept bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ErrorRecord {
    pub number: u16,
    pub state: [u8; 5],
    pub state_len: u8,
    pub message_at: usize,
}

impl Command {
    pub fn begin(&mut self, code: u8, begun_ns: u64, sent_ns: u64, budget: &mut MemoryBudget) {
        let mut kept = std::mem::take(&mut self.buffer);
        kept.clear(budget);
        *self = Command { code, buffer: kept, begun_ns, sent_ns, last_ns: sent_ns, ..Command::default() };
    }

    pub fn set_text(&mut self, text: &[u8], bounds: &mut BufferBounds<'_>) {
        self.text_cut += self.buffer.append(text, bounds.limit, bounds.budget);
        self.text_len = self.buffer.len();
    }

    pub fn text(&self) -> &[u8] {
        match self.fixed_text {
            Some(text) => text.as_bytes(),
            None => &self.buffer.bytes()[..self.text_len],
        }
    }

    pub fn after_text(&self) -> &[u8] {
        &self.buffer.bytes()[self.text_len..]
    }

    pub fn message(&self) -> &[u8] {
        self.error.map_or(&[], |error| &self.buffer.bytes()[error.message_at..])
    }
}

impl Command {
    pub(super) fn record_error(&mut self, error: &ErrorPacket<'_>, budget: &mut MemoryBudget) {
        // The protocol bounds messages at 512 characters.
        const MESSAGE: usize = 2048;
        let message_at = self.buffer.len();
        self.buffer.append(&error.message[..error.message.len().min(MESSAGE)], usize::MAX, budget);
        let mut failure = ErrorRecord { number: error.number, message_at, ..ErrorRecord::default() };
        if let Some(state) = error.state.first_chunk::<5>() {
            failure.state = *state;
            failure.state_len = 5;
        }
        self.error = Some(failure);
    }
}

/// Commands in flight, oldest first, in slots that stay where they are.
#[derive(Debug, Default)]
pub(super) struct CommandQueue {
    slots: Vec<Command>,
    head: usize,
    len: usize,
}

/// Slots whose memory is not accounted for: connections are bounded in number.
const UNACCOUNTED_SLOTS: usize = 16;
/// Memory of a slot whose statement is short.
const SLOT_BYTES: usize = size_of::<Command>() + UNACCOUNTED_MAX;

impl CommandQueue {
    /// True if there is no room for a further command.
    #[inline]
    pub fn is_full(&self, limit: usize, budget: &MemoryBudget) -> bool {
        self.len >= limit.max(1) || self.len >= UNACCOUNTED_SLOTS && budget.is_full()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn oldest_mut(&mut self) -> Option<&mut Command> {
        if self.len == 0 { None } else { Some(&mut self.slots[self.head]) }
    }

    #[inline]
    pub fn oldest(&self) -> Option<&Command> {
        if self.len == 0 { None } else { Some(&self.slots[self.head]) }
    }

    #[inline]
    pub fn newest_mut(&mut self) -> Option<&mut Command> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.head + self.len - 1;
        if at >= self.slots.len() {
            at -= self.slots.len();
        }
        Some(&mut self.slots[at])
    }

    /// Takes the newest back, leaving those before it where they are.
    pub fn pop_newest(&mut self, budget: &mut MemoryBudget) {
        if let Some(newest) = self.newest_mut() {
            newest.buffer.clear(budget);
            self.len -= 1;
        }
    }

    /// The newest that `wanted` accepts.
    pub fn find_newest(&self, mut wanted: impl FnMut(&Command) -> bool) -> Option<&Command> {
        (0..self.len)
            .rev()
            .map(|at| &self.slots[(self.head + at) % self.slots.len()])
            .find(|command| wanted(command))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Command> {
        let (head, len) = (self.head, self.len);
        let (before, after) = self.slots.split_at_mut(head);
        after.iter_mut().chain(before).take(len)
    }

    /// A slot behind the newest, with what its former command left in it.
    #[inline]
    pub fn push(&mut self, budget: &mut MemoryBudget) -> &mut Command {
        if self.len == self.slots.len() {
            if self.len >= UNACCOUNTED_SLOTS {
                budget.reserve(SLOT_BYTES);
            }
            // Unroll the ring, so that the new slot lies behind the newest.
            self.slots.rotate_left(self.head);
            self.head = 0;
            self.slots.push(Command::default());
        }
        let mut at = self.head + self.len;
        if at >= self.slots.len() {
            at -= self.slots.len();
        }
        self.len += 1;
        &mut self.slots[at]
    }

    #[inline]
    pub fn pop(&mut self, budget: &mut MemoryBudget) {
        if self.len == 0 {
            return;
        }
        self.slots[self.head].buffer.clear(budget);
        self.head += 1;
        if self.head == self.slots.len() {
            self.head = 0;
        }
        self.len -= 1;
        // A burst of pipelined commands is over: its slots are not needed for long.
        if self.len == 0 && self.slots.len() > UNACCOUNTED_SLOTS {
            budget.release((self.slots.len() - UNACCOUNTED_SLOTS) * SLOT_BYTES);
            self.slots.truncate(1);
            self.head = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelined_commands_count_against_the_memory_budget_and_give_it_back() {
        let mut budget = MemoryBudget::new(100 * SLOT_BYTES);
        let mut queue = CommandQueue::default();
        let mut pushed = 0;
        while !queue.is_full(4_096, &budget) {
            queue.push(&mut budget);
            pushed += 1;
        }
        assert_eq!(pushed, UNACCOUNTED_SLOTS + 100);
        while !queue.is_empty() {
            queue.pop(&mut budget);
        }
        assert!(!budget.is_full());
        budget.reserve(100 * SLOT_BYTES - 1);
        assert!(!budget.is_full(), "all of it was given back");
    }
}
