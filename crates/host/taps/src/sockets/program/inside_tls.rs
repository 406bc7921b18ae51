//! eBPF programs at the server's calls of its TLS library. They write the same records, of the plain text.
//!
//! Only the arguments of the call say which bytes it covers. Between entry and return they are stored under
//! the calling thread. The socket of a session is known when the library itself reads or writes there
//! (`at_socket.rs`).

use super::{
    BUFFER, DESCRIPTOR, Frame, ProgramContext, ProgramWriter, R0, R1, R2, R3, R4, R6, R8, R9,
    REQUESTED_LENGTH,
};
use crate::sockets::asm::Size::Eight;
use crate::sockets::asm::{Condition, Helper, Op};
use crate::sockets::record::DECRYPTED;

/// Bytes kept of a call under way: session, buffer, length, and the socket once it is known.
pub const CALL: usize = 32;
pub const CALL_SOCKET: i16 = 24;

const THREAD: i16 = -64;
const WAITING: i16 = -96;
const SESSION: i16 = -104;
/// Where a cookie is looked up: the frame's place of a descriptor.
const COOKIE: i16 = DESCRIPTOR;

/// SSL_read or SSL_write(session, buffer, length) begins. `calls`: the map from threads to what they are about.
pub fn tls_entry_program(scene: ProgramContext<'_>, calls: i32) -> Option<Vec<u64>> {
    let abi = scene.abi;
    let mut writer = ProgramWriter::new(scene, DECRYPTED);
    writer.asm.copy(R6, R1);
    writer.disable_preemption();
    let asm = &mut writer.asm;
    for (register, place) in [(abi.function_first, 0), (abi.second, 8), (abi.third, 16)] {
        asm.load(Eight, R2, R6, register);
        asm.store(Eight, Frame, WAITING + place, R2);
    }
    asm.store_constant(Eight, Frame, WAITING + CALL_SOCKET, 0);
    asm.call(Helper::ProcessAndThread);
    asm.store(Eight, Frame, THREAD, R0);
    asm.address(R2, Frame, i32::from(THREAD));
    asm.address(R3, Frame, i32::from(WAITING));
    asm.map(R1, calls);
    asm.set(R4, 0);
    asm.call(Helper::MapUpdate);
    writer.finish()
}

/// One of the two returns the number of bytes that it moved, or no positive number. `side`: whose bytes they are;
/// `sockets`: the map from sessions to sockets.
pub fn tls_exit_program(scene: ProgramContext<'_>, side: u8, calls: i32, sockets: i32) -> Option<Vec<u64>> {
    let abi = scene.abi;
    let mut writer = ProgramWriter::new(scene, DECRYPTED);
    let out = writer.out;
    writer.asm.copy(R6, R1);
    writer.disable_preemption();
    let asm = &mut writer.asm;
    asm.call(Helper::ProcessAndThread);
    asm.store(Eight, Frame, THREAD, R0);
    asm.address(R2, Frame, i32::from(THREAD));
    asm.map(R1, calls);
    asm.call(Helper::MapLookup);
    asm.jump_if(Condition::Equal, R0, 0, out);
    for (place, to) in [(0, SESSION), (8, BUFFER), (16, REQUESTED_LENGTH), (CALL_SOCKET, COOKIE)] {
        asm.load(Eight, R1, R0, place);
        if to == REQUESTED_LENGTH {
            // Of an int, the lower half alone.
            asm.compute(Op::ShiftLeft, R1, 32);
            asm.compute(Op::ShiftRight, R1, 32);
        }
        asm.store(Eight, Frame, to, R1);
    }
    asm.address(R2, Frame, i32::from(THREAD));
    asm.map(R1, calls);
    asm.call(Helper::MapDelete);
    // Another int.
    asm.load(Eight, R8, R6, abi.function_result);
    asm.compute(Op::ShiftLeft, R8, 32);
    asm.compute(Op::SignedShiftRight, R8, 32);
    let (remembered, linked) = (asm.label(), asm.label());
    asm.load(Eight, R1, Frame, COOKIE);
    asm.jump_if(Condition::Equal, R1, 0, remembered);
    // Also where it moved nothing yet: the next call may find all it wants in the library's own buffer.
    asm.address(R2, Frame, i32::from(SESSION));
    asm.address(R3, Frame, i32::from(COOKIE));
    asm.map(R1, sockets);
    asm.set(R4, 0);
    asm.call(Helper::MapUpdate);
    asm.jump(linked);
    asm.bind(remembered);
    asm.address(R2, Frame, i32::from(SESSION));
    asm.map(R1, sockets);
    asm.call(Helper::MapLookup);
    asm.jump_if(Condition::Equal, R0, 0, out);
    asm.load(Eight, R1, R0, 0);
    asm.store(Eight, Frame, COOKIE, R1);
    asm.bind(linked);
    asm.jump_if(Condition::SignedAtMost, R8, 0, out);
    writer.load_entry(out);
    writer.asm.copy(R9, R0);
    writer.record_data(side);
    writer.finish()
}
