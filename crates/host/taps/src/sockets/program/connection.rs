//! eBPF programs for accepted connections and closed descriptors.

use super::{
    BUFFER, DESCRIPTOR, ENTRY_CLIENT, ENTRY_HEAD, ENTRY_SERVER, ENTRY_SOCKET, Frame, LISTENING, LOST_BEFORE,
    PASSED_BEFORE, ProgramWriter, R0, R1, R2, R3, R7, R8, R9,
};
use crate::sockets::asm::Size::{Eight, Four};
use crate::sockets::asm::{Condition, Helper, Op};
use crate::sockets::record::layout::{AFTER, AT, DATA, KEPT, KIND, LENGTH, POSITION, SOCKET, TIME};
use crate::sockets::record::{CLOSED, OPENED, PEER};

impl ProgramWriter<'_> {
    pub(super) fn record_accept(&mut self) {
        let out = self.out;
        self.load_entry(out);
        self.asm.load(Eight, R1, R0, ENTRY_SOCKET);
        self.asm.jump_if(Condition::NotEqual, R1, LISTENING as i32, out);
        self.asm.store(Eight, Frame, DESCRIPTOR, R8);
        self.load_scratch();
        let beyond = self.asm.label();
        self.load_entry(beyond);
        let asm = &mut self.asm;
        asm.copy(R9, R0);
        asm.call(Helper::Now);
        asm.store(Eight, R7, TIME, R0);
        // The time in 1,024 ns and the descriptor: no other connection has both.
        asm.compute(Op::ShiftRight, R0, 10);
        asm.compute(Op::ShiftLeft, R0, 20);
        asm.load(Eight, R1, Frame, DESCRIPTOR);
        asm.combine(Op::Or, R0, R1);
        asm.store(Eight, R9, ENTRY_SOCKET, R0);
        for field in [ENTRY_HEAD, ENTRY_CLIENT, ENTRY_SERVER] {
            asm.store_constant(Eight, R9, field, 0);
        }
        asm.store(Eight, R7, SOCKET, R0);
        self.write_event_fields(OPENED);
        let asm = &mut self.asm;
        let known = asm.label();
        asm.store_constant(Four, R7, KEPT, PEER as i32);
        asm.load(Eight, R3, Frame, BUFFER);
        asm.address(R1, R7, i32::from(DATA));
        asm.set(R2, PEER as i32);
        asm.call(Helper::ReadUser);
        asm.jump_if(Condition::Equal, R0, 0, known);
        asm.store_constant(Four, R7, KEPT, 0);
        asm.bind(known);
        asm.set(R3, PEER as i32);
        self.emit_record();
        let asm = &mut self.asm;
        asm.jump(out);
        // More descriptors than the table has places: the connection will not be seen.
        asm.bind(beyond);
        for count in [PASSED_BEFORE, LOST_BEFORE] {
            asm.load(Eight, R1, R7, count);
            asm.compute(Op::Add, R1, 1);
            asm.store(Eight, R7, count, R1);
        }
    }

    /// Before the descriptor is given back: another thread may be given the same one right afterwards.
    pub(super) fn record_close(&mut self) {
        let out = self.out;
        self.load_entry(out);
        let asm = &mut self.asm;
        asm.load(Eight, R8, R0, ENTRY_SOCKET);
        asm.jump_if(Condition::Equal, R8, 0, out);
        asm.store_constant(Eight, R0, ENTRY_SOCKET, 0);
        asm.store_constant(Eight, R0, ENTRY_HEAD, 0);
        asm.jump_if(Condition::Equal, R8, LISTENING as i32, out);
        self.load_scratch();
        let asm = &mut self.asm;
        asm.call(Helper::Now);
        asm.store(Eight, R7, TIME, R0);
        asm.store(Eight, R7, SOCKET, R8);
        self.write_event_fields(CLOSED);
        self.asm.store_constant(Four, R7, KEPT, 0);
        self.asm.set(R3, 0);
        self.emit_record();
    }

    /// The fields of a record about a connection, not about bytes.
    pub(super) fn write_event_fields(&mut self, kind: u8) {
        let asm = &mut self.asm;
        asm.store_constant(Eight, R7, POSITION, 0);
        asm.store_constant(Eight, R7, AFTER, 0);
        asm.store_constant(Four, R7, LENGTH, 0);
        asm.store_constant(Four, R7, AT, 0);
        asm.store_constant(Four, R7, KIND, i32::from(kind));
    }
}
