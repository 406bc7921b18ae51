//! Prepared statements of a connection, and the parameter values of each execution.
//!
//! Never guesses a type: a type that was not captured is reported as unknown.

use super::command::Command;
use super::kept::Scene;
use super::value::{self, Rendered};
use crate::protocol::Fields;
use crate::room::Room;
use std::collections::HashMap;

/// MariaDB: the statement that was prepared last, perhaps not yet answered.
pub(super) const LAST_PREPARED: u32 = u32::MAX;

/// EXECUTE of a client with query attributes: a count stands before them even if the statement has no
/// parameters of its own.
const PARAMETER_COUNT_AVAILABLE: u8 = 0x08;
/// BULK_EXECUTE: types stand before the values.
const SEND_TYPES: u16 = 64;

/// Kept of one parameter that SEND_LONG_DATA carries.
const LONG_DATA_KEPT: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Statements {
    by_id: HashMap<u32, Statement>,
    last: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Statement {
    text: Box<[u8]>,
    text_cut: u64,
    params: u16,
    /// As sent with an earlier EXECUTE.
    types: Vec<u16>,
    long_data: Vec<LongData>,
}

#[derive(Debug)]
struct LongData {
    param: u16,
    bytes: Vec<u8>,
    cut: u64,
}

impl Statement {
    fn size(&self) -> usize {
        self.text.len() + self.types.len() * 2 + self.long_data_size() + 128
    }

    fn long_data_size(&self) -> usize {
        self.long_data.iter().map(|data| data.bytes.len()).sum()
    }
}

impl Statements {
    pub fn clear(&mut self, room: &mut Room) {
        for statement in self.by_id.values() {
            room.give_back(statement.size());
        }
        self.by_id.clear();
        self.last = None;
    }

    /// Remembers a statement that the server has accepted.
    pub fn add(&mut self, id: u32, params: u16, command: &Command, limit: usize, room: &mut Room) {
        self.remove(id, room);
        if self.by_id.len() >= limit.max(1) {
            // Ids grow, so the smallest is the oldest.
            if let Some(oldest) = self.by_id.keys().copied().min() {
                self.remove(oldest, room);
            }
        }
        let whole = command.text();
        let kept = if room.is_full() { &whole[..whole.len().min(256)] } else { whole };
        let text_cut = command.text_cut + (whole.len() - kept.len()) as u64;
        let statement = Statement { text: kept.into(), text_cut, params, ..Statement::default() };
        room.take(statement.size());
        self.by_id.insert(id, statement);
        self.last = Some(id);
    }

    /// Commands were lost: among them may have been one that sent other types or long data, or a PREPARE.
    pub fn forget_types(&mut self, room: &mut Room) {
        self.last = None;
        for statement in self.by_id.values_mut() {
            room.give_back(statement.size());
            statement.types.clear();
            statement.long_data.clear();
            room.take(statement.size());
        }
    }

    /// What an id stands for is not known (any more).
    pub fn forget(&mut self, id: u32, room: &mut Room) {
        self.remove(id, room);
        self.last = None;
    }

    pub fn remove(&mut self, id: u32, room: &mut Room) {
        if let Some(statement) = self.by_id.remove(&id) {
            room.give_back(statement.size());
        }
    }

    /// RESET drops what SEND_LONG_DATA brought.
    pub fn reset(&mut self, id: u32, room: &mut Room) {
        if let Some(statement) = self.by_id.get_mut(&id) {
            room.give_back(statement.long_data_size());
            statement.long_data.clear();
        }
    }

    fn resolve(&self, id: u32) -> u32 {
        if id == LAST_PREPARED { self.last.unwrap_or(id) } else { id }
    }

    /// SEND_LONG_DATA; `payload` without its command byte.
    pub fn long_data(&mut self, payload: &[u8], payload_cut: u64, room: &mut Room) {
        let mut fields = Fields(payload);
        let (Some(id), Some(param)) = (fields.u32(), fields.u16()) else { return };
        let id = self.resolve(id);
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        if param >= statement.params {
            return;
        }
        let at = match statement.long_data.iter().position(|data| data.param == param) {
            Some(at) => at,
            None => {
                statement.long_data.push(LongData { param, bytes: Vec::new(), cut: 0 });
                statement.long_data.len() - 1
            }
        };
        let data = &mut statement.long_data[at];
        let limit = if room.is_full() { 256 } else { LONG_DATA_KEPT };
        let kept = fields.0.len().min(limit.saturating_sub(data.bytes.len()));
        data.bytes.extend_from_slice(&fields.0[..kept]);
        data.cut += (fields.0.len() - kept) as u64 + payload_cut;
        room.take(kept);
    }

    /// Puts text and parameters of an EXECUTE into its command; `payload` with the command byte.
    pub fn execute(
        &mut self,
        payload: &[u8],
        attributes: Option<bool>,
        command: &mut Command,
        scene: &mut Scene<'_>,
    ) {
        let mut fields = Fields(payload.get(1..).unwrap_or_default());
        let Some(id) = fields.u32() else {
            return unseen(command, 0, scene);
        };
        let id = self.resolve(id);
        command.statement_id = Some(id);
        let Some(statement) = self.by_id.get_mut(&id) else {
            return unseen(command, id, scene);
        };
        command.text_cut = statement.text_cut + scene.keep(command, &statement.text);
        command.text_len = command.kept.len();
        let flags = fields.u8().unwrap_or_default();
        let _iterations = fields.u32();
        let known = statement.types.len();
        statement.values(fields, flags, attributes, command, scene);
        room_for_types(known, statement.types.len(), scene.room);
        command.params_len = command.kept.len() - command.text_len;
        room_for_long_data(statement, scene.room);
    }

    /// The same for a BULK_EXECUTE: one list of values in parentheses for each row.
    pub fn bulk_execute(&mut self, payload: &[u8], command: &mut Command, scene: &mut Scene<'_>) {
        let mut fields = Fields(payload.get(1..).unwrap_or_default());
        let Some(id) = fields.u32() else {
            return unseen(command, 0, scene);
        };
        let id = self.resolve(id);
        command.statement_id = Some(id);
        let Some(statement) = self.by_id.get_mut(&id) else {
            return unseen(command, id, scene);
        };
        command.text_cut = statement.text_cut + scene.keep(command, &statement.text);
        command.text_len = command.kept.len();
        let flags = fields.u16().unwrap_or_default();
        if flags & SEND_TYPES != 0 {
            let known = statement.types.len();
            statement.types = (0..statement.params).map_while(|_| fields.u16()).collect();
            room_for_types(known, statement.types.len(), scene.room);
        }
        if statement.types.len() == usize::from(statement.params) && statement.params > 0 {
            bulk_rows(&statement.types, fields, command, scene);
        }
        command.params_len = command.kept.len() - command.text_len;
    }
}

/// What is given back with the statement was taken.
fn room_for_types(before: usize, after: usize, room: &mut Room) {
    room.give_back(before * 2);
    room.take(after * 2);
}

fn room_for_long_data(statement: &mut Statement, room: &mut Room) {
    if !statement.long_data.is_empty() {
        room.give_back(statement.long_data_size());
        statement.long_data.clear();
    }
}

fn bulk_rows(types: &[u16], mut fields: Fields<'_>, command: &mut Command, scene: &mut Scene<'_>) {
    let mut first_row = true;
    while !fields.is_empty() {
        scene.keep(command, if first_row { b"(" } else { b", (" });
        first_row = false;
        for (at, &kind) in types.iter().enumerate() {
            if at > 0 {
                scene.keep(command, b", ");
            }
            let written = match fields.u8() {
                Some(0) => scene.value(command, kind, &mut fields),
                Some(1) => Some(scene.keep(command, b"NULL")),
                Some(2) => Some(scene.keep(command, b"DEFAULT")),
                // "Ignore": the column keeps what it has.
                Some(3) => Some(scene.keep(command, b"IGNORE")),
                _ => None,
            };
            if written.is_none() {
                scene.keep(command, b"...");
                return;
            }
        }
        scene.keep(command, b")");
    }
}

/// The statement was prepared before the capture began, or its PREPARE was lost.
fn unseen(command: &mut Command, id: u32, scene: &mut Scene<'_>) {
    let mut text = Rendered::default();
    text.text(b"EXECUTE ");
    text.number(u64::from(id));
    text.text(b" (text not seen)");
    scene.keep(command, text.bytes());
    command.text_len = command.kept.len();
}

impl Scene<'_> {
    fn keep(&mut self, command: &mut Command, bytes: &[u8]) -> u64 {
        command.kept.append(bytes, self.limit, self.room)
    }

    /// `None`: the type is unknown or the bytes end; nothing behind it can be placed.
    fn value(&mut self, command: &mut Command, kind: u16, fields: &mut Fields<'_>) -> Option<u64> {
        let mut rendered = Rendered::default();
        let long = value::render(kind, fields, &mut rendered)?;
        match long {
            None => Some(self.keep(command, rendered.bytes())),
            Some(bytes) => Some(self.quoted(command, bytes)),
        }
    }

    fn quoted(&mut self, command: &mut Command, bytes: &[u8]) -> u64 {
        let mut left_out = self.keep(command, b"'");
        for piece in value::escaped(bytes) {
            left_out += self.keep(command, piece);
        }
        left_out + self.keep(command, b"'")
    }
}

impl Statement {
    fn values(
        &mut self,
        mut fields: Fields<'_>,
        flags: u8,
        attributes: Option<bool>,
        command: &mut Command,
        scene: &mut Scene<'_>,
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
        for at in 0..usize::from(self.params) {
            if at > 0 {
                scene.keep(command, b", ");
            }
            if let Some(data) = self.long_data.iter().find(|data| usize::from(data.param) == at) {
                scene.quoted(command, &data.bytes);
                command.text_cut += data.cut;
                continue;
            }
            if nulls[at / 8] & 1 << (at % 8) != 0 {
                scene.keep(command, b"NULL");
                continue;
            }
            let written = self.types.get(at).and_then(|&kind| scene.value(command, kind, &mut fields));
            if written.is_none() {
                scene.keep(command, b"...");
                return;
            }
        }
        // Attributes may follow, and mysql2 (Node.js) sends a byte too many for each NULL. Behind values
        // whose types were sent earlier, anything else means that the values were not these.
        if !sends_types && count == usize::from(self.params) && !fields.is_empty() {
            command.kept.truncate(command.text_len);
            scene.keep(command, b"...");
        }
    }
}

/// The text of a QUERY behind its attributes; `None`: the packet ends within them.
pub(super) fn after_attributes(payload: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(payload);
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
    let mut rendered = Rendered::default();
    for (at, &kind) in types.iter().enumerate() {
        if nulls[at / 8] & 1 << (at % 8) == 0 {
            value::render(kind, &mut fields, &mut rendered)?;
            rendered.clear();
        }
    }
    Some(fields.0)
}
