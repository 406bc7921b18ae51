//! eBPF programs that run at each socket call of the server. Built with [`Assembler`], loaded elsewhere.
//!
//! A call is inspected after its bytes were transferred. Calls of other processes, failed calls and other
//! descriptors end after a few instructions. The rest becomes one record (`record.rs`), truncated here. A
//! server reads the four header bytes of each command with a separate call. They are stored in the
//! connection's entry and go out with the bytes of the next call: a query is two records.
//!
//! This file holds the common parts and the programs at the tracepoints of all system calls. Those of sockets
//! are in `at_socket.rs`.

mod at_socket;
mod connection;
mod inside_tls;

pub use at_socket::{SocketArguments, SocketFilter, socket_program};
pub use inside_tls::{CALL, tls_entry_program as at_begin_of_tls, tls_exit_program as at_return_of_tls};

use super::asm::{Assembler, Condition, Helper, Label, Op, Reg, Size};
use super::record::layout::{AFTER, AT, DATA, HEAD, KEPT, KIND, LENGTH, POSITION, SOCKET, TIME};
use super::record::{CLIENT, PIECE, SERVER, SnapLengths};
use crate::architecture::Abi;
use Reg::{Frame, R0, R1, R2, R3, R4, R6, R7, R8, R9};
use Size::{Eight, Four};

// What is kept of a connection, by the socket's cookie or, at the tracepoints of all system calls, by descriptor.
/// The socket's number, 0 where it is none of a client's, [`LISTENING`] where clients come in.
const ENTRY_SOCKET: i16 = 0;
/// Four bytes that wait for the next call, and in the upper half a 1; or 0.
const ENTRY_HEAD: i16 = 8;
/// Bytes that each side has said.
const ENTRY_CLIENT: i16 = 16;
const ENTRY_SERVER: i16 = 24;
pub const ENTRY: usize = 32;
pub const LISTENING: u64 = u64::MAX;

/// Room of a CPU in which a program writes down a record: what it has counted, then the record.
pub const SCRATCH_BYTES: usize = (COUNTS + DATA as usize + PIECE).next_multiple_of(64);
pub const COUNTS: usize = 64;
/// Records written down, and those of them for which there was no room in the ring.
pub const PASSED: usize = 0;
pub const LOST: usize = 8;
/// The same, from where the record begins.
const PASSED_BEFORE: i16 = PASSED as i16 - COUNTS as i16;
const LOST_BEFORE: i16 = LOST as i16 - COUNTS as i16;
/// Somebody is at work in the room.
const IN_USE_BEFORE: i16 = 16 - COUNTS as i16;

/// MSG_PEEK: what it returns will be read once more.
const PEEK: i32 = libc::MSG_PEEK;
/// BPF_RB_NO_WAKEUP: whoever reads the ring looks by itself.
const NO_WAKEUP: i32 = 1;

// Places in the frame of a program.
const DESCRIPTOR: i16 = -8;
const BUFFER: i16 = -16;
const REQUESTED_LENGTH: i16 = -24;
const FLAGS: i16 = -32;
const FIRST: i16 = -40;
const KEPT_HERE: i16 = -48;
const CPU: i16 = -56;
const REGISTERS: i16 = -136;
const LONG: i16 = -144;

/// Where a register lies in the frame, once the parts of a system call are there one behind the other.
fn in_frame(abi: &Abi, register: i16) -> i16 {
    let [(begin, length), (next, _)] = abi.parts;
    if (begin..begin + length).contains(&register) {
        REGISTERS + register - begin
    } else {
        REGISTERS + length + register - next
    }
}

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketCall {
    Sent,
    Received,
    Accepted,
    Closed,
}

/// Functions that disable and enable preemption, by their numbers in the kernel's type information.
#[derive(Debug, Clone, Copy)]
pub struct PreemptionControl {
    pub disable: i32,
    pub enable: i32,
}

/// What all programs know as constants.
#[derive(Debug, Clone, Copy)]
pub struct ProgramContext<'a> {
    pub abi: &'a Abi,
    pub server: i32,
    pub keep: SnapLengths,
    /// Descriptors of the maps: what is kept of connections, and the rings by CPU.
    pub entries: i32,
    pub rings: i32,
    /// And of the one with a room for each CPU, this program's own: it may be interrupted by another.
    pub scratch: i32,
    /// Functions of the kernel; Linux 6.10.
    pub preemption: Option<PreemptionControl>,
}

/// A program, and where all its ways end.
struct ProgramWriter<'a> {
    asm: Assembler,
    out: Label,
    /// Where the ways end on which the room has to be given back.
    release_scratch: Option<Label>,
    context: ProgramContext<'a>,
    /// Bits that all its records bear in their kind.
    kind_flags: u8,
    /// The function that its end has to call.
    enable_preemption: Option<i32>,
}

impl<'a> ProgramWriter<'a> {
    fn new(scene: ProgramContext<'a>, mark: u8) -> Self {
        let mut asm = Assembler::default();
        let out = asm.label();
        Self { asm, out, release_scratch: None, context: scene, kind_flags: mark, enable_preemption: None }
    }

    fn finish(mut self) -> Option<Vec<u64>> {
        if let Some(leave) = self.release_scratch {
            self.asm.bind(leave);
            self.asm.store_constant(Eight, R7, IN_USE_BEFORE, 0);
        }
        self.asm.bind(self.out);
        if let Some(enable) = self.enable_preemption {
            self.asm.call_kernel(enable);
        }
        self.asm.exit();
        self.asm.finish()
    }
}

/// For the tracepoint at which every system call of the host returns: (registers, result).
pub fn system_call_exit_program(scene: ProgramContext<'_>) -> Option<Vec<u64>> {
    let abi = scene.abi;
    let mut writer = ProgramWriter::new(scene, 0);
    writer.asm.copy(R6, R1);
    writer.exit_unless_server();
    writer.asm.load(Eight, R8, R6, 8);
    writer.read_registers();
    writer.asm.load(Four, R6, Frame, in_frame(abi, abi.number));
    let calls = [
        (abi.send, SocketCall::Sent),
        (abi.receive, SocketCall::Received),
        (abi.accept, SocketCall::Accepted),
        (abi.accept4, SocketCall::Accepted),
    ];
    for (number, act) in calls {
        let next = writer.asm.label();
        writer.asm.jump_if(Condition::NotEqual, R6, number, next);
        writer.exit_if_failed(act);
        writer.record_call(act);
        // What was received ends in a loop, of which every way leads out.
        if act != SocketCall::Received {
            let out = writer.out;
            writer.asm.jump(out);
        }
        writer.asm.bind(next);
    }
    writer.finish()
}

/// For the tracepoint at which every system call of the host begins: (registers, number).
pub fn system_call_entry_program(scene: ProgramContext<'_>) -> Option<Vec<u64>> {
    let close = scene.abi.close;
    let mut writer = ProgramWriter::new(scene, 0);
    let out = writer.out;
    writer.asm.copy(R6, R1);
    writer.asm.load(Eight, R8, R6, 8);
    writer.asm.jump_if(Condition::NotEqual, R8, close, out);
    writer.exit_unless_server();
    writer.read_registers();
    writer.record_call(SocketCall::Closed);
    writer.finish()
}

impl ProgramWriter<'_> {
    /// For hooks where the kernel can preempt a program and run it for another thread, with the same room and, since
    /// Linux 6.13, the same frame. Comes before the first use of either; r1 to r5 are lost.
    fn disable_preemption(&mut self) {
        if let Some(PreemptionControl { disable, enable }) = self.context.preemption {
            self.asm.call_kernel(disable);
            self.enable_preemption = Some(enable);
        }
    }

    /// Ends where another process is at work.
    fn exit_unless_server(&mut self) {
        self.asm.call(Helper::ProcessAndThread);
        self.asm.compute(Op::ShiftRight, R0, 32);
        self.asm.jump_if(Condition::NotEqual, R0, self.context.server, self.out);
    }

    /// r8: what the call returned.
    fn exit_if_failed(&mut self, act: SocketCall) {
        match act {
            // Nothing moved, or an error.
            SocketCall::Sent | SocketCall::Received => {
                self.asm.jump_if(Condition::SignedAtMost, R8, 0, self.out)
            }
            SocketCall::Accepted => self.asm.jump_if(Condition::SignedLess, R8, 0, self.out),
            SocketCall::Closed => {}
        }
    }

    /// r6: the arguments of a tracepoint, of which the first points to registers of no known type.
    fn read_registers(&mut self) {
        let abi = self.context.abi;
        let asm = &mut self.asm;
        for (begin, length) in abi.parts.into_iter().filter(|(_, length)| *length > 0) {
            asm.load(Eight, R3, R6, 0);
            asm.compute(Op::Add, R3, i32::from(begin));
            asm.address(R1, Frame, i32::from(in_frame(abi, begin)));
            asm.set(R2, i32::from(length));
            asm.call(Helper::ReadKernel);
            asm.jump_if(Condition::NotEqual, R0, 0, self.out);
        }
        for (register, place) in [
            (abi.first, DESCRIPTOR),
            (abi.second, BUFFER),
            (abi.third, REQUESTED_LENGTH),
            (abi.fourth, FLAGS),
        ] {
            asm.load(Eight, R1, Frame, in_frame(abi, register));
            asm.store(Eight, Frame, place, R1);
        }
    }

    /// The arguments are in the frame, the result in r8.
    fn record_call(&mut self, act: SocketCall) {
        match act {
            SocketCall::Sent => self.record_data_by_descriptor(SERVER),
            SocketCall::Received => self.record_data_by_descriptor(CLIENT),
            SocketCall::Accepted => self.record_accept(),
            SocketCall::Closed => self.record_close(),
        }
    }

    /// r0: the entry of the descriptor (or cookie) in the frame; jumps to `none` where there is none.
    fn load_entry(&mut self, none: Label) {
        let asm = &mut self.asm;
        asm.address(R2, Frame, i32::from(DESCRIPTOR));
        asm.map(R1, self.context.entries);
        asm.call(Helper::MapLookup);
        asm.jump_if(Condition::Equal, R0, 0, none);
    }

    /// r7: where this CPU writes a record down.
    fn load_scratch(&mut self) {
        let asm = &mut self.asm;
        asm.call(Helper::Cpu);
        asm.store(Eight, Frame, CPU, R0);
        asm.address(R2, Frame, i32::from(CPU));
        asm.map(R1, self.context.scratch);
        asm.call(Helper::MapLookup);
        asm.jump_if(Condition::Equal, R0, 0, self.out);
        asm.address(R7, R0, COUNTS as i32);
    }

    /// The kernel never runs a program twice on a CPU at a time at a tracepoint, but does at a library's functions, where it
    /// can preempt one unless that has disabled it: the second finds no room, and its record is lost.
    fn claim_scratch(&mut self) {
        let out = self.out;
        let asm = &mut self.asm;
        let (free, leave) = (asm.label(), asm.label());
        asm.set(R1, 1);
        asm.exchange(R7, IN_USE_BEFORE, R1);
        asm.jump_if(Condition::Equal, R1, 0, free);
        for count in [PASSED_BEFORE, LOST_BEFORE] {
            asm.load(Eight, R1, R7, count);
            asm.compute(Op::Add, R1, 1);
            asm.store(Eight, R7, count, R1);
        }
        asm.jump(out);
        asm.bind(free);
        self.release_scratch = Some(leave);
    }

    /// By the descriptor in the frame.
    fn record_data_by_descriptor(&mut self, side: u8) {
        let out = self.out;
        if side == CLIENT {
            let asm = &mut self.asm;
            asm.load(Eight, R1, Frame, FLAGS);
            asm.jump_if(Condition::AnyBit, R1, PEEK, out);
        }
        self.load_entry(out);
        let asm = &mut self.asm;
        asm.copy(R9, R0);
        asm.load(Eight, R1, R9, ENTRY_SOCKET);
        asm.jump_if(Condition::Equal, R1, 0, out);
        self.record_data(side);
    }

    /// r8: bytes that were moved, r9: the entry of the connection; buffer and length asked for are in the frame.
    fn record_data(&mut self, side: u8) {
        let client = side == CLIENT;
        let asm = &mut self.asm;
        let (said, other) = if client { (ENTRY_CLIENT, ENTRY_SERVER) } else { (ENTRY_SERVER, ENTRY_CLIENT) };
        asm.load(Eight, R1, R9, said);
        asm.store(Eight, Frame, FIRST, R1);
        asm.combine(Op::Add, R1, R8);
        asm.store(Eight, R9, said, R1);
        if client {
            self.save_command_header();
        }
        self.load_scratch();
        if self.kind_flags != 0 {
            self.claim_scratch();
        }
        let out = self.release_scratch.unwrap_or(self.out);
        let asm = &mut self.asm;
        asm.load(Eight, R6, Frame, BUFFER);
        asm.call(Helper::Now);
        asm.store(Eight, R7, TIME, R0);
        asm.load(Eight, R1, R9, ENTRY_SOCKET);
        asm.store(Eight, R7, SOCKET, R1);
        asm.load(Eight, R1, Frame, FIRST);
        asm.store(Eight, R7, POSITION, R1);
        asm.load(Eight, R1, R9, other);
        asm.store(Eight, R7, AFTER, R1);
        asm.store(Four, R7, LENGTH, R8);
        let kind = i32::from(side | self.kind_flags);
        asm.store_constant(Four, R7, KIND, kind);
        if client {
            let none = asm.label();
            asm.load(Eight, R1, R9, ENTRY_HEAD);
            asm.jump_if(Condition::Equal, R1, 0, none);
            asm.store(Four, R7, HEAD, R1);
            asm.store_constant(Four, R7, KIND, kind | 4 << 8);
            asm.store_constant(Eight, R9, ENTRY_HEAD, 0);
            asm.bind(none);
        }
        // From here on r9: where in the call the piece begins.
        asm.set(R9, 0);
        if client {
            let again = self.asm.label();
            self.asm.bind(again);
            self.asm.jump_if(Condition::AtLeast, R9, self.context.keep.client as i32, out);
            self.emit_piece(PIECE as i32);
            self.asm.store_constant(Four, R7, KIND, kind);
            self.asm.compute(Op::Add, R9, PIECE as i32);
            self.asm.jump(again);
        } else {
            self.emit_piece(self.context.keep.server as i32);
        }
    }

    /// The four bytes before a command wait for the call that reads the rest. Those of an empty packet, which ends a file that
    /// a client sends, have no rest: the server answers first.
    fn save_command_header(&mut self) {
        let out = self.out;
        let asm = &mut self.asm;
        let (go_on, rest) = (asm.label(), asm.label());
        asm.load(Eight, R1, R9, ENTRY_HEAD);
        asm.jump_if(Condition::NotEqual, R1, 0, go_on);
        asm.jump_if(Condition::NotEqual, R8, 4, go_on);
        asm.load(Eight, R1, Frame, REQUESTED_LENGTH);
        asm.jump_if(Condition::NotEqual, R1, 4, go_on);
        asm.address(R1, R9, i32::from(ENTRY_HEAD));
        asm.set(R2, 4);
        asm.load(Eight, R3, Frame, BUFFER);
        asm.call(Helper::ReadUser);
        asm.jump_if(Condition::NotEqual, R0, 0, go_on);
        // The length is in the lower three bytes of four.
        asm.load(Four, R1, R9, ENTRY_HEAD);
        asm.compute(Op::ShiftLeft, R1, 40);
        asm.jump_if(Condition::NotEqual, R1, 0, rest);
        asm.store_constant(Four, R9, ENTRY_HEAD, 0);
        asm.jump(go_on);
        asm.bind(rest);
        asm.store_constant(Four, R9, ENTRY_HEAD + 4, 1);
        asm.jump(out);
        asm.bind(go_on);
    }

    /// One record of up to `most` bytes. r6: the server's buffer, r7: the room, r8: length of the call, r9: from where.
    fn emit_piece(&mut self, most: i32) {
        let out = self.release_scratch.unwrap_or(self.out);
        let asm = &mut self.asm;
        let (fits, readable) = (asm.label(), asm.label());
        asm.copy(R2, R8);
        asm.combine(Op::Sub, R2, R9);
        asm.jump_if(Condition::SignedAtMost, R2, 0, out);
        asm.jump_if(Condition::AtMost, R2, most, fits);
        asm.set(R2, most);
        asm.bind(fits);
        asm.store(Four, R7, AT, R9);
        asm.store(Four, R7, KEPT, R2);
        asm.store(Eight, Frame, KEPT_HERE, R2);
        asm.address(R1, R7, i32::from(DATA));
        asm.copy(R3, R6);
        asm.combine(Op::Add, R3, R9);
        asm.call(Helper::ReadUser);
        asm.jump_if(Condition::Equal, R0, 0, readable);
        // Swapped out since: the record says that the bytes are missing.
        asm.store_constant(Four, R7, KEPT, 0);
        asm.store_constant(Eight, Frame, KEPT_HERE, 0);
        asm.bind(readable);
        asm.load(Eight, R3, Frame, KEPT_HERE);
        self.emit_record();
    }

    /// The record in the room (r7), with r3 bytes after its head, into the ring of the CPU in the frame.
    fn emit_record(&mut self) {
        let rings = self.context.rings;
        let asm = &mut self.asm;
        let (done, lost) = (asm.label(), asm.label());
        asm.load(Eight, R1, R7, PASSED_BEFORE);
        asm.compute(Op::Add, R1, 1);
        asm.store(Eight, R7, PASSED_BEFORE, R1);
        asm.compute(Op::Add, R3, i32::from(DATA));
        asm.store(Eight, Frame, LONG, R3);
        asm.address(R2, Frame, i32::from(CPU));
        asm.map(R1, rings);
        asm.call(Helper::MapLookup);
        asm.jump_if(Condition::Equal, R0, 0, lost);
        asm.copy(R1, R0);
        asm.copy(R2, R7);
        asm.load(Eight, R3, Frame, LONG);
        asm.set(R4, NO_WAKEUP);
        asm.call(Helper::RingOutput);
        asm.jump_if(Condition::Equal, R0, 0, done);
        asm.bind(lost);
        asm.load(Eight, R1, R7, LOST_BEFORE);
        asm.compute(Op::Add, R1, 1);
        asm.store(Eight, R7, LOST_BEFORE, R1);
        asm.bind(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{AARCH64, Architecture, X86_64};

    #[test]
    fn the_registers_of_a_system_call_lie_apart_in_the_frame_and_below_what_else_is_there() {
        for Architecture { abi, .. } in [X86_64, AARCH64] {
            let registers =
                [(abi.first, 8), (abi.second, 8), (abi.third, 8), (abi.fourth, 8), (abi.number, 4)];
            let mut places = registers.map(|(register, size)| (in_frame(&abi, register), size));
            places.sort_unstable();
            assert!(places[0].0 >= REGISTERS, "{abi:?}: {places:?}");
            assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{abi:?}: {places:?}");
            let read: i16 = abi.parts.iter().map(|(_, length)| length).sum();
            assert!(places[4].0 + places[4].1 <= REGISTERS + read, "{abi:?}: {places:?}");
            assert!(REGISTERS + read <= CPU, "{abi:?}: {places:?}");
        }
    }
}
