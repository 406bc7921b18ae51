//! eBPF program at the socket tracepoints, which run after bytes were transferred.
//!
//! Their arguments give the socket and the number of bytes. The address of the bytes comes from the arguments
//! of the system call. A socket is identified by its cookie, which is never reused. So neither its opening
//! nor its closing has to be observed. At a perf event, where the kernel gives no cookie, inode number and
//! address identify it: inode numbers come round after 2^32.

use super::{
    BUFFER, DESCRIPTOR, ENTRY, ENTRY_HEAD, ENTRY_SOCKET, Frame, PEEK, ProgramContext, ProgramWriter, R0, R1,
    R2, R3, R4, R6, R7, R8, R9, REQUESTED_LENGTH,
};
use crate::sockets::asm::Size::{Eight, Four, Two};
use crate::sockets::asm::{Condition, Helper, Label, Op};
use crate::sockets::record::layout::{DATA, KEPT, SOCKET, TIME};
use crate::sockets::record::{CLIENT, CLOSED, PEER, SEEN_FIRST};

/// What is known of sockets, and who is a client's.
#[derive(Debug, Clone)]
pub struct SocketFilter {
    /// On which the server listens.
    pub ports: Vec<u16>,
    /// Where the name lies in the kernel's `struct unix_sock`; accepted sockets have that of the one that listens.
    pub unix_name: i32,
    /// Where the other end's IPv6 address lies in `struct sock_common`.
    pub v6_peer: i32,
    /// The map of calls of the TLS library, where that is looked at.
    pub tls_calls: Option<i32>,
    pub arguments: SocketArguments,
}

/// Where a program finds its arguments, and what identifies a socket.
#[derive(Debug, Clone, Copy)]
pub enum SocketArguments {
    /// At a tracepoint: arguments with types.
    Typed,
    /// At a perf event: fields of its record by their offsets, and that of the inode's number in `struct sock`.
    Event { socket: i16, result: i16, flags: i16, inode: i32 },
}

// `struct sock_common` begins with these, in all kernels that have programs.
const V4_PEER: i16 = 0;
const PEER_PORT: i16 = 12;
const OWN_PORT: i16 = 14;
const FAMILY: i16 = 16;
const BEGINNING: i32 = 24;

/// Where a cookie is looked up: the frame's place of a descriptor.
const COOKIE: i16 = DESCRIPTOR;
const SOCK: i16 = -64;
const THREAD: i16 = -72;
const HEAD_OF_SOCK: i16 = -96;
const NEW_ENTRY: i16 = -128;

/// `side`: who said what has moved. Arguments: socket, result, flags.
pub fn socket_program(scene: ProgramContext<'_>, side: u8, view: &SocketFilter) -> Option<Vec<u64>> {
    let abi = scene.abi;
    let mut writer = ProgramWriter::new(scene, 0);
    let out = writer.out;
    writer.asm.copy(R6, R1);
    writer.exit_unless_server();
    let asm = &mut writer.asm;
    let (socket, result, flags, int) = match view.arguments {
        SocketArguments::Typed => (0, 8, 16, Eight),
        SocketArguments::Event { socket, result, flags, .. } => (socket, result, flags, Four),
    };
    asm.load(int, R8, R6, result);
    asm.compute(Op::ShiftLeft, R8, 32);
    asm.compute(Op::SignedShiftRight, R8, 32);
    if side == CLIENT {
        // Nothing: the other end has closed.
        asm.jump_if(Condition::SignedLess, R8, 0, out);
        asm.load(int, R1, R6, flags);
        asm.jump_if(Condition::AnyBit, R1, PEEK, out);
    } else {
        asm.jump_if(Condition::SignedAtMost, R8, 0, out);
    }
    asm.load(Eight, R7, R6, socket);
    asm.store(Eight, Frame, SOCK, R7);
    asm.call(Helper::Task);
    asm.copy(R1, R0);
    asm.call(Helper::Registers);
    for (register, place) in [(abi.second, BUFFER), (abi.third, REQUESTED_LENGTH)] {
        asm.load(Eight, R1, R0, register);
        asm.store(Eight, Frame, place, R1);
    }
    asm.load(Four, R6, R0, abi.number);
    writer.identify_socket(view.arguments);
    let (meet, known) = (writer.asm.label(), writer.asm.label());
    writer.load_entry(meet);
    writer.asm.copy(R9, R0);
    if side == CLIENT {
        let moved = writer.asm.label();
        writer.asm.jump_if(Condition::NotEqual, R8, 0, moved);
        writer.emit_close();
        writer.asm.jump(out);
        writer.asm.bind(moved);
    }
    writer.asm.jump(known);
    writer.asm.bind(meet);
    writer.add_connection(view);
    writer.asm.bind(known);
    // Only these have buffer and length where they are looked for.
    let plain = writer.asm.label();
    let (socket_call, file_call) =
        if side == CLIENT { (abi.receive, abi.read) } else { (abi.send, abi.write) };
    writer.asm.jump_if(Condition::Equal, R6, socket_call, plain);
    writer.asm.jump_if(Condition::NotEqual, R6, file_call, out);
    if let Some(calls) = view.tls_calls {
        writer.note_tls_socket(calls, plain);
    }
    writer.asm.bind(plain);
    writer.record_data(side);
    writer.finish()
}

impl ProgramWriter<'_> {
    /// r7: the socket. Its number into the frame.
    fn identify_socket(&mut self, arguments: SocketArguments) {
        let out = self.out;
        let asm = &mut self.asm;
        match arguments {
            SocketArguments::Typed => {
                asm.copy(R1, R7);
                asm.call(Helper::Cookie);
                asm.store(Eight, Frame, COOKIE, R0);
            }
            SocketArguments::Event { inode, .. } => {
                asm.address(R1, Frame, i32::from(COOKIE));
                asm.set(R2, 8);
                asm.address(R3, R7, inode);
                asm.call(Helper::ReadKernel);
                asm.jump_if(Condition::NotEqual, R0, 0, out);
                asm.load(Eight, R0, Frame, COOKIE);
                asm.copy(R1, R7);
                asm.compute(Op::ShiftLeft, R1, 32);
                asm.combine(Op::Or, R0, R1);
                asm.store(Eight, Frame, COOKIE, R0);
            }
        }
    }

    /// r9: the entry of a socket that was not known; jumps out where it is no client's.
    fn add_connection(&mut self, view: &SocketFilter) {
        let (out, entries) = (self.out, self.context.entries);
        let asm = &mut self.asm;
        // Its end is nothing worth beginning with.
        asm.jump_if(Condition::Equal, R8, 0, out);
        asm.address(R1, Frame, i32::from(HEAD_OF_SOCK));
        asm.set(R2, BEGINNING);
        asm.copy(R3, R7);
        asm.call(Helper::ReadKernel);
        asm.jump_if(Condition::NotEqual, R0, 0, out);
        let (unix, ours) = (asm.label(), asm.label());
        asm.load(Two, R1, Frame, HEAD_OF_SOCK + FAMILY);
        asm.jump_if(Condition::Equal, R1, libc::AF_UNIX, unix);
        let tcp = asm.label();
        asm.jump_if(Condition::Equal, R1, libc::AF_INET, tcp);
        asm.jump_if(Condition::NotEqual, R1, libc::AF_INET6, out);
        asm.bind(tcp);
        asm.load(Two, R1, Frame, HEAD_OF_SOCK + OWN_PORT);
        for &port in &view.ports {
            asm.jump_if(Condition::Equal, R1, i32::from(port), ours);
        }
        asm.jump(out);
        asm.bind(unix);
        asm.address(R1, Frame, i32::from(NEW_ENTRY));
        asm.set(R2, 8);
        asm.address(R3, R7, view.unix_name);
        asm.call(Helper::ReadKernel);
        asm.jump_if(Condition::NotEqual, R0, 0, out);
        asm.load(Eight, R1, Frame, NEW_ENTRY);
        asm.jump_if(Condition::Equal, R1, 0, out);
        asm.bind(ours);
        for field in (0..ENTRY as i16).step_by(8) {
            asm.store_constant(Eight, Frame, NEW_ENTRY + field, 0);
        }
        asm.load(Eight, R1, Frame, COOKIE);
        asm.store(Eight, Frame, NEW_ENTRY + ENTRY_SOCKET, R1);
        asm.address(R2, Frame, i32::from(COOKIE));
        asm.address(R3, Frame, i32::from(NEW_ENTRY));
        asm.map(R1, entries);
        asm.set(R4, 0);
        asm.call(Helper::MapUpdate);
        self.load_entry(out);
        self.asm.copy(R9, R0);
        self.emit_peer(view);
    }

    fn emit_peer(&mut self, view: &SocketFilter) {
        self.load_scratch();
        let asm = &mut self.asm;
        asm.call(Helper::Now);
        asm.store(Eight, R7, TIME, R0);
        asm.load(Eight, R1, Frame, COOKIE);
        asm.store(Eight, R7, SOCKET, R1);
        self.write_event_fields(SEEN_FIRST);
        let asm = &mut self.asm;
        asm.store_constant(Four, R7, KEPT, PEER as i32);
        // As in `struct sockaddr_in` and `struct sockaddr_in6`.
        asm.load(Two, R1, Frame, HEAD_OF_SOCK + FAMILY);
        asm.store(Two, R7, DATA, R1);
        asm.load(Two, R2, Frame, HEAD_OF_SOCK + PEER_PORT);
        asm.store(Two, R7, DATA + 2, R2);
        asm.load(Four, R2, Frame, HEAD_OF_SOCK + V4_PEER);
        asm.store(Four, R7, DATA + 4, R2);
        let v4 = asm.label();
        asm.jump_if(Condition::NotEqual, R1, libc::AF_INET6, v4);
        asm.address(R1, R7, i32::from(DATA) + 8);
        asm.set(R2, 16);
        asm.load(Eight, R3, Frame, SOCK);
        asm.compute(Op::Add, R3, view.v6_peer);
        asm.call(Helper::ReadKernel);
        asm.bind(v4);
        asm.set(R3, PEER as i32);
        self.emit_record();
    }

    /// The client has closed; r9: the entry.
    fn emit_close(&mut self) {
        self.load_scratch();
        let entries = self.context.entries;
        let asm = &mut self.asm;
        asm.call(Helper::Now);
        asm.store(Eight, R7, TIME, R0);
        asm.load(Eight, R1, Frame, COOKIE);
        asm.store(Eight, R7, SOCKET, R1);
        asm.store_constant(Eight, R9, ENTRY_HEAD, 0);
        asm.address(R2, Frame, i32::from(COOKIE));
        asm.map(R1, entries);
        asm.call(Helper::MapDelete);
        self.write_event_fields(CLOSED);
        self.asm.store_constant(Four, R7, KEPT, 0);
        self.asm.set(R3, 0);
        self.emit_record();
    }

    /// Where the library is under way in this thread, these bytes are enciphered: it is told on which socket it is.
    fn note_tls_socket(&mut self, calls: i32, plain: Label) {
        let out = self.out;
        let asm = &mut self.asm;
        asm.call(Helper::ProcessAndThread);
        asm.store(Eight, Frame, THREAD, R0);
        asm.address(R2, Frame, i32::from(THREAD));
        asm.map(R1, calls);
        asm.call(Helper::MapLookup);
        asm.jump_if(Condition::Equal, R0, 0, plain);
        asm.load(Eight, R1, Frame, COOKIE);
        asm.store(Eight, R0, super::inside_tls::CALL_SOCKET, R1);
        asm.jump(out);
    }
}
