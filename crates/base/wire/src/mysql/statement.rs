//! Prepared statements of a connection, and the parameter values of each execution.
//!
//! Never guesses a type: a type that was not captured is reported as unknown.

use super::bounded_buffer::BufferBounds;
use super::command::Command;
use super::value::{self, SqlLiteral};
use crate::memory_budget::MemoryBudget;
use crate::protocol::FieldReader;
use std::collections::BTreeMap;

/// MariaDB: the statement that was prepared last, perhaps not yet answered.
pub(super) const LAST_PREPARED: u32 = u32::MAX;

/// EXECUTE of a client with query attributes: a count stands before them even if the statement has no
/// parameters of its own.
const PARAMETER_COUNT_AVAILABLE: u8 = 0x08;
/// BULK_EXECUTE: types stand before the values.
const SEND_TYPES: u16 = 64;

/// Kept of one parameter that SEND_LONG_DATA carries.
const MAX_LONG_DATA: usize = 64 << 10;
/// Memory that each such parameter takes beside its bytes.
const LONG_DATA_ENTRY: usize = 64;

/// Statements kept of a connection while the memory budget is exhausted.
const STATEMENTS_WHEN_FULL: usize = 16;

#[derive(Debug, Default)]
pub(super) struct PreparedStatements {
    /// Ids grow, so the first is the oldest.
    by_id: BTreeMap<u32, PreparedStatement>,
    last: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct PreparedStatement {
    text: Box<[u8]>,
    text_cut: u64,
    params: u16,
    /// As sent with an earlier EXECUTE.
    types: Vec<u16>,
    long_data: BTreeMap<u16, LongData>,
    /// Long data of another parameter was left out: the values of the next EXECUTE are not known.
    long_data_incomplete: bool,
}

#[derive(Debug, Default)]
struct LongData {
    bytes: Vec<u8>,
    cut_bytes: u64,
}

impl PreparedStatement {
    fn size(&self) -> usize {
        self.text.len() + self.types.len() * 2 + self.long_data_size() + 128
    }

    fn long_data_size(&self) -> usize {
        self.long_data.values().map(|data| data.bytes.len() + LONG_DATA_ENTRY).sum()
    }
}

impl PreparedStatements {
    pub fn clear(&mut self, budget: &mut MemoryBudget) {
        for statement in self.by_id.values() {
            budget.release(statement.size());
        }
        self.by_id.clear();
        self.last = None;
    }

    /// Remembers a statement that the server has accepted.
    pub fn add(&mut self, id: u32, params: u16, command: &Command, limit: usize, budget: &mut MemoryBudget) {
        self.remove(id, budget);
        let limit = if budget.is_full() { limit.min(STATEMENTS_WHEN_FULL) } else { limit };
        while self.by_id.len() >= limit.max(1)
            && let Some((&oldest, _)) = self.by_id.first_key_value()
        {
            self.remove(oldest, budget);
        }
        let whole = command.text();
        let kept = if budget.is_full() { &whole[..whole.len().min(256)] } else { whole };
        let text_cut = command.text_cut + (whole.len() - kept.len()) as u64;
        let statement =
            PreparedStatement { text: kept.into(), text_cut, params, ..PreparedStatement::default() };
        budget.reserve(statement.size());
        self.by_id.insert(id, statement);
        self.last = Some(id);
    }

    /// Commands were lost: among them may have been one that sent other types or long data, or a PREPARE.
    pub fn forget_types(&mut self, budget: &mut MemoryBudget) {
        self.last = None;
        for statement in self.by_id.values_mut() {
            budget.release(statement.size());
            statement.types.clear();
            statement.long_data.clear();
            statement.long_data_incomplete = false;
            budget.reserve(statement.size());
        }
    }

    /// What an id stands for is not known (any more).
    pub fn forget(&mut self, id: u32, budget: &mut MemoryBudget) {
        self.remove(id, budget);
        self.last = None;
    }

    pub fn remove(&mut self, id: u32, budget: &mut MemoryBudget) {
        if let Some(statement) = self.by_id.remove(&id) {
            budget.release(statement.size());
        }
    }

    /// RESET drops what SEND_LONG_DATA brought.
    pub fn reset(&mut self, id: u32, budget: &mut MemoryBudget) {
        if let Some(statement) = self.by_id.get_mut(&id) {
            release_long_data(statement, budget);
        }
    }

    fn resolve(&self, id: u32) -> u32 {
        if id == LAST_PREPARED { self.last.unwrap_or(id) } else { id }
    }

    /// SEND_LONG_DATA; `payload` without its command byte.
    pub fn append_long_data(&mut self, payload: &[u8], payload_cut: u64, budget: &mut MemoryBudget) {
        let mut fields = FieldReader(payload);
        let (Some(id), Some(param)) = (fields.u32(), fields.u16()) else { return };
        let id = self.resolve(id);
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        if param >= statement.params {
            return;
        }
        if !statement.long_data.contains_key(&param) {
            if budget.is_full() {
                statement.long_data_incomplete = true;
                return;
            }
            budget.reserve(LONG_DATA_ENTRY);
        }
        let data = statement.long_data.entry(param).or_default();
        let limit = if budget.is_full() { 256 } else { MAX_LONG_DATA };
        let kept = fields.0.len().min(limit.saturating_sub(data.bytes.len()));
        data.bytes.extend_from_slice(&fields.0[..kept]);
        data.cut_bytes += (fields.0.len() - kept) as u64 + payload_cut;
        budget.reserve(kept);
    }

    /// Puts text and parameters of an EXECUTE into its command; `payload` with the command byte.
    pub fn render_execute(
        &mut self,
        payload: &[u8],
        attributes: Option<bool>,
        command: &mut Command,
        bounds: &mut BufferBounds<'_>,
    ) {
        let mut fields = FieldReader(payload.get(1..).unwrap_or_default());
        let Some(id) = fields.u32() else {
            return render_unknown_statement(command, 0, bounds);
        };
        let id = self.resolve(id);
        command.statement_id = Some(id);
        let Some(statement) = self.by_id.get_mut(&id) else {
            return render_unknown_statement(command, id, bounds);
        };
        command.text_cut = statement.text_cut + bounds.append(command, &statement.text);
        command.text_len = command.buffer.len();
        let flags = fields.u8().unwrap_or_default();
        let _iterations = fields.u32();
        let known = statement.types.len();
        statement.render_values(fields, flags, attributes, command, bounds);
        if bounds.budget.is_full() {
            statement.types = Vec::new();
        }
        reserve_types(known, statement.types.len(), bounds.budget);
        command.params_len = command.buffer.len() - command.text_len;
        release_long_data(statement, bounds.budget);
    }

    /// The same for a BULK_EXECUTE: one list of values in parentheses for each row.
    pub fn render_bulk_execute(
        &mut self,
        payload: &[u8],
        command: &mut Command,
        bounds: &mut BufferBounds<'_>,
    ) {
        let mut fields = FieldReader(payload.get(1..).unwrap_or_default());
        let Some(id) = fields.u32() else {
            return render_unknown_statement(command, 0, bounds);
        };
        let id = self.resolve(id);
        command.statement_id = Some(id);
        let Some(statement) = self.by_id.get_mut(&id) else {
            return render_unknown_statement(command, id, bounds);
        };
        command.text_cut = statement.text_cut + bounds.append(command, &statement.text);
        command.text_len = command.buffer.len();
        let flags = fields.u16().unwrap_or_default();
        if flags & SEND_TYPES != 0 {
            let known = statement.types.len();
            statement.types = (0..statement.params).map_while(|_| fields.u16()).collect();
            reserve_types(known, statement.types.len(), bounds.budget);
        }
        if statement.types.len() == usize::from(statement.params) && statement.params > 0 {
            render_bulk_rows(&statement.types, fields, command, bounds);
        }
        command.params_len = command.buffer.len() - command.text_len;
    }
}

/// What is given back with the statement was taken.
fn reserve_types(before: usize, after: usize, budget: &mut MemoryBudget) {
    budget.release(before * 2);
    budget.reserve(after * 2);
}

fn release_long_data(statement: &mut PreparedStatement, budget: &mut MemoryBudget) {
    budget.release(statement.long_data_size());
    statement.long_data.clear();
    statement.long_data_incomplete = false;
}

fn render_bulk_rows(
    types: &[u16],
    mut fields: FieldReader<'_>,
    command: &mut Command,
    bounds: &mut BufferBounds<'_>,
) {
    let mut first_row = true;
    while !fields.is_empty() {
        bounds.append(command, if first_row { b"(" } else { b", (" });
        first_row = false;
        for (at, &kind) in types.iter().enumerate() {
            if at > 0 {
                bounds.append(command, b", ");
            }
            let written = match fields.u8() {
                Some(0) => bounds.append_value(command, kind, &mut fields),
                Some(1) => Some(bounds.append(command, b"NULL")),
                Some(2) => Some(bounds.append(command, b"DEFAULT")),
                // "Ignore": the column keeps what it has.
                Some(3) => Some(bounds.append(command, b"IGNORE")),
                _ => None,
            };
            if written.is_none() {
                bounds.append(command, b"...");
                return;
            }
        }
        bounds.append(command, b")");
    }
}

/// The statement was prepared before the capture began, or its PREPARE was lost.
fn render_unknown_statement(command: &mut Command, id: u32, bounds: &mut BufferBounds<'_>) {
    let mut text = SqlLiteral::default();
    text.push_text(b"EXECUTE ");
    text.push_number(u64::from(id));
    text.push_text(b" (text not seen)");
    bounds.append(command, text.bytes());
    command.text_len = command.buffer.len();
}

impl BufferBounds<'_> {
    fn append(&mut self, command: &mut Command, bytes: &[u8]) -> u64 {
        command.buffer.append(bytes, self.limit, self.budget)
    }

    /// `None`: the type is unknown or the bytes end; nothing behind it can be placed.
    fn append_value(
        &mut self,
        command: &mut Command,
        kind: u16,
        fields: &mut FieldReader<'_>,
    ) -> Option<u64> {
        let mut rendered = SqlLiteral::default();
        let long = value::render_value(kind, fields, &mut rendered)?;
        match long {
            None => Some(self.append(command, rendered.bytes())),
            Some(bytes) => Some(self.append_quoted(command, bytes)),
        }
    }

    fn append_quoted(&mut self, command: &mut Command, bytes: &[u8]) -> u64 {
        let mut left_out = self.append(command, b"'");
        for piece in value::escape_pieces(bytes) {
            left_out += self.append(command, piece);
        }
        left_out + self.append(command, b"'")
    }
}

impl PreparedStatement {
    fn render_values(
        &mut self,
        mut fields: FieldReader<'_>,
        flags: u8,
        attributes: Option<bool>,
        command: &mut Command,
        bounds: &mut BufferBounds<'_>,
    ) {
        let mut count = usize::from(self.params);
        let attributes = attributes.unwrap_or(false);
        // Connector/Python leaves the flag out where it sends no attributes.
        if attributes && (count > 0 || flags & PARAMETER_COUNT_AVAILABLE != 0) {
            match fields.lenenc() {
                Some(sent) if (count as u64..=0xffff).contains(&sent) => count = sent as usize,
                _ => return,
            }
        }
        if count == 0 {
            return;
        }
        let Some(nulls) = fields.bytes(count.div_ceil(8)) else { return };
        let sends_types = fields.u8() == Some(1);
        if sends_types {
            self.types.clear();
            for at in 0..count {
                let Some(kind) = fields.u16() else { return };
                if attributes && fields.lenenc_bytes().is_none() {
                    return;
                }
                if at < usize::from(self.params) {
                    self.types.push(kind);
                }
            }
        }
        if self.long_data_incomplete {
            bounds.append(command, b"...");
            return;
        }
        for param in 0..self.params {
            let at = usize::from(param);
            if at > 0 {
                bounds.append(command, b", ");
            }
            if let Some(data) = self.long_data.get(&param) {
                bounds.append_quoted(command, &data.bytes);
                command.text_cut += data.cut_bytes;
                continue;
            }
            if nulls[at / 8] & 1 << (at % 8) != 0 {
                bounds.append(command, b"NULL");
                continue;
            }
            let written =
                self.types.get(at).and_then(|&kind| bounds.append_value(command, kind, &mut fields));
            if written.is_none() {
                bounds.append(command, b"...");
                return;
            }
        }
        // Attributes may follow, and mysql2 (Node.js) sends a byte too many for each NULL. Behind values
        // whose types were sent earlier, anything else means that the values were not these.
        if !sends_types && count == usize::from(self.params) && !fields.is_empty() {
            command.buffer.truncate(command.text_len);
            bounds.append(command, b"...");
        }
    }
}

/// The text of a QUERY behind its attributes; `None`: the packet ends within them.
pub(super) fn skip_attributes(payload: &[u8]) -> Option<&[u8]> {
    let mut fields = FieldReader(payload);
    let count = fields.lenenc()? as usize;
    let _sets = fields.lenenc()?;
    if count == 0 {
        return Some(fields.0);
    }
    if count > 0xffff {
        return None;
    }
    let nulls = fields.bytes(count.div_ceil(8))?;
    let mut types = Vec::with_capacity(count.min(64));
    if fields.u8()? == 1 {
        for _ in 0..count {
            types.push(fields.u16()?);
            fields.lenenc_bytes()?;
        }
    }
    let mut rendered = SqlLiteral::default();
    for (at, &kind) in types.iter().enumerate() {
        if nulls[at / 8] & 1 << (at % 8) == 0 {
            value::render_value(kind, &mut fields, &mut rendered)?;
            rendered.clear();
        }
    }
    Some(fields.0)
}
