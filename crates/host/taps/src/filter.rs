//! Classic BPF program that selects the packets to copy, and how much of each.
//!
//! It sees packets from their IP header on. Packets to a server's port are copied whole, packets from it only
//! up to the head of each answer. Acknowledgements without data are left out; packets that open or close a
//! connection never are. Also left out are IPv6 packets with extension headers and all fragments but the
//! first (only it has ports).

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGT,
    BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_MEM, BPF_MISC, BPF_MSH, BPF_RET, BPF_RSH, BPF_ST,
    BPF_SUB, BPF_TAX, BPF_TXA, BPF_W, BPF_X,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use thiserror::Error;

/// Bytes kept of a packet that is kept whole: libpcap's own bound.
pub const MAX_SNAP_LEN: u32 = 262_144;
/// More would not be reached by the jumps of one comparison.
pub const MAX_PORTS: usize = 64;

/// Of an answer that is a greeting or an error: the whole of it, as a rule. A greeting says what the server can do,
/// an error's text is at most 512 bytes.
const SNAP_GREETING_OR_ERROR: u32 = 560;
/// Of an OK or an end of file: what it counts, and what it says of the session.
const SNAP_OK: u32 = 128;
/// Of a result: how many columns it has. What follows are definitions and rows.
const SNAP_RESULT: u32 = 32;

/// Bytes of TCP payload kept of a server's packets; headers are always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseSnap {
    /// The useful part: greetings and errors whole, 128 bytes of OK packets, 32 of results.
    ByKind,
    /// So much of each packet.
    Bytes(u32),
}

/// IP version of the socket's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    V4,
    V6,
    /// Everything that passes a device, of which IP of either version is taken.
    Both,
    /// As `Both`, on every device: loopback shows a packet when it leaves and when it comes; only the latter is
    /// taken.
    BothOnAnyDevice,
}

/// Options of the filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketFilter {
    /// Of servers; 1 to [`MAX_PORTS`].
    pub ports: Vec<u16>,
    pub responses: ResponseSnap,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0} ports cannot be watched at once: name 1 to {MAX_PORTS}")]
pub struct TooManyPorts(pub usize);

/// One instruction, as the kernel takes it.
pub(crate) type Instruction = libc::sock_filter;

/// Where a jump leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Next,
    NotOutgoing,
    Typed,
    V6,
    NoLength4,
    NoLength6,
    Known4,
    Known6,
    Ports,
    ToServer,
    FromServer,
    HasData,
    GreetingOrError,
    Ok,
    KeepWhole,
    Drop,
}

/// A program whose jumps still name their aims.
#[derive(Default)]
struct FilterAssembler {
    /// Code, operand, and where to go on if a comparison holds and if it does not.
    code: Vec<(u32, u32, Label, Label)>,
    labels: Vec<(Label, usize)>,
}

// Offsets in headers.
const V4_LENGTH: u32 = 2;
const V4_FRAGMENT: u32 = 6;
const V4_PROTOCOL: u32 = 9;
const V6_LENGTH: u32 = 4;
const V6_NEXT: u32 = 6;
const V6_HEADER: u32 = 40;
const TCP: u32 = 6;
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
const DATA_OFFSET: u32 = 12;
const FLAGS: u32 = 13;
/// FIN, SYN, RST.
const FIN_SYN_RST: u32 = 0x07;
// Of a MySQL packet: its number, and the first byte behind its header.
const SEQUENCE: u32 = 3;
const FIRST_BYTE: u32 = 4;
// Words of scratch memory.
const LENGTH: u32 = 0;
const SEEN_FLAGS: u32 = 1;

impl PacketFilter {
    /// The program for a socket that is given `family`.
    ///
    /// # Errors
    /// No port, or too many.
    pub(crate) fn program(&self, family: IpFamily) -> Result<Vec<Instruction>, TooManyPorts> {
        let too_many = || TooManyPorts(self.ports.len());
        if self.ports.is_empty() || self.ports.len() > MAX_PORTS {
            return Err(too_many());
        }
        let mut to = FilterAssembler::default();
        if family == IpFamily::BothOnAnyDevice {
            to.skip_outgoing_on_loopback();
        }
        if matches!(family, IpFamily::Both | IpFamily::BothOnAnyDevice) {
            to.branch_on_ip_version();
        }
        if family != IpFamily::V6 {
            to.match_ipv4();
        }
        if family != IpFamily::V4 {
            to.match_ipv6();
        }
        to.match_ports(&self.ports);
        to.match_requests();
        to.match_responses(self.responses);
        to.bind(Label::KeepWhole);
        to.emit(BPF_RET | BPF_K, MAX_SNAP_LEN);
        to.bind(Label::Drop);
        to.emit(BPF_RET | BPF_K, 0);
        to.assemble().ok_or_else(too_many)
    }
}

impl FilterAssembler {
    fn emit(&mut self, code: u32, k: u32) {
        self.code.push((code, k, Label::Next, Label::Next));
    }

    fn compare(&mut self, how: u32, k: u32, then: Label, otherwise: Label) {
        self.code.push((BPF_JMP | how, k, then, otherwise));
    }

    fn if_equal(&mut self, k: u32, then: Label, otherwise: Label) {
        self.compare(BPF_JEQ | BPF_K, k, then, otherwise);
    }

    fn jump(&mut self, to: Label) {
        self.code.push((BPF_JMP | BPF_JA, 0, to, to));
    }

    fn bind(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn load_byte(&mut self, at: u32) {
        self.emit(BPF_LD | BPF_B | BPF_ABS, at);
    }

    fn load_half(&mut self, at: u32) {
        self.emit(BPF_LD | BPF_H | BPF_ABS, at);
    }

    /// From where X points.
    fn load_byte_indirect(&mut self, at: u32) {
        self.emit(BPF_LD | BPF_B | BPF_IND, at);
    }

    fn load_half_indirect(&mut self, at: u32) {
        self.emit(BPF_LD | BPF_H | BPF_IND, at);
    }

    /// What the kernel knows of the packet beside its bytes.
    fn load_ancillary(&mut self, what: libc::c_int) {
        self.emit(BPF_LD | BPF_W | BPF_ABS, (libc::SKF_AD_OFF + what).cast_unsigned());
    }

    fn skip_outgoing_on_loopback(&mut self) {
        self.load_ancillary(libc::SKF_AD_PKTTYPE);
        self.if_equal(u32::from(libc::PACKET_OUTGOING), Label::Next, Label::NotOutgoing);
        self.load_ancillary(libc::SKF_AD_HATYPE);
        self.if_equal(u32::from(libc::ARPHRD_LOOPBACK), Label::Drop, Label::Next);
        self.bind(Label::NotOutgoing);
    }

    /// By the type in the link's header first: what is not IP may begin as IP does. A tag that still stands in the
    /// frame hides the type; IP's own header then tells.
    fn branch_on_ip_version(&mut self) {
        self.load_ancillary(libc::SKF_AD_PROTOCOL);
        for kind in [libc::ETH_P_IP, libc::ETH_P_IPV6, libc::ETH_P_8021Q, libc::ETH_P_8021AD] {
            self.if_equal(kind.cast_unsigned(), Label::Typed, Label::Next);
        }
        self.jump(Label::Drop);
        self.bind(Label::Typed);
        self.load_byte(0);
        self.emit(BPF_ALU | BPF_RSH | BPF_K, 4);
        self.if_equal(6, Label::V6, Label::Next);
        self.if_equal(4, Label::Next, Label::Drop);
    }

    /// Leaves the packet's length in scratch memory, its header's in X.
    fn match_ipv4(&mut self) {
        self.load_byte(V4_PROTOCOL);
        self.if_equal(TCP, Label::Next, Label::Drop);
        self.load_half(V4_FRAGMENT);
        self.compare(BPF_JSET | BPF_K, 0x1fff, Label::Drop, Label::Next);
        self.load_half(V4_LENGTH);
        self.if_equal(0, Label::NoLength4, Label::Known4);
        // Longer than 16 bits can say: what was not cut into segments yet.
        self.bind(Label::NoLength4);
        self.emit(BPF_LD | BPF_W | BPF_LEN, 0);
        self.bind(Label::Known4);
        self.emit(BPF_ST, LENGTH);
        self.emit(BPF_LDX | BPF_B | BPF_MSH, 0);
        self.jump(Label::Ports);
    }

    fn match_ipv6(&mut self) {
        self.bind(Label::V6);
        self.load_byte(V6_NEXT);
        self.if_equal(TCP, Label::Next, Label::Drop);
        self.load_half(V6_LENGTH);
        self.if_equal(0, Label::NoLength6, Label::Next);
        self.emit(BPF_ALU | BPF_ADD | BPF_K, V6_HEADER);
        self.jump(Label::Known6);
        self.bind(Label::NoLength6);
        self.emit(BPF_LD | BPF_W | BPF_LEN, 0);
        self.bind(Label::Known6);
        self.emit(BPF_ST, LENGTH);
        self.emit(BPF_LDX | BPF_W | BPF_IMM, V6_HEADER);
    }

    /// Where both ports are a server's, the destination decides: a query is worth more than an answer.
    fn match_ports(&mut self, ports: &[u16]) {
        self.bind(Label::Ports);
        for (at, found) in [(DESTINATION_PORT, Label::ToServer), (SOURCE_PORT, Label::FromServer)] {
            self.load_half_indirect(at);
            for &port in ports {
                self.if_equal(u32::from(port), found, Label::Next);
            }
        }
        self.jump(Label::Drop);
    }

    /// Moves X from TCP's header to its payload.
    fn skip_header(&mut self) {
        self.load_byte_indirect(DATA_OFFSET);
        self.emit(BPF_ALU | BPF_RSH | BPF_K, 2);
        self.emit(BPF_ALU | BPF_AND | BPF_K, 0x3c);
        self.emit(BPF_ALU | BPF_ADD | BPF_X, 0);
        self.emit(BPF_MISC | BPF_TAX, 0);
    }

    fn match_requests(&mut self) {
        self.bind(Label::ToServer);
        self.load_byte_indirect(FLAGS);
        self.compare(BPF_JSET | BPF_K, FIN_SYN_RST, Label::KeepWhole, Label::Next);
        self.skip_header();
        self.emit(BPF_LD | BPF_MEM, LENGTH);
        self.compare(BPF_JGT | BPF_X, 0, Label::KeepWhole, Label::Drop);
    }

    fn match_responses(&mut self, answers: ResponseSnap) {
        self.bind(Label::FromServer);
        self.load_byte_indirect(FLAGS);
        self.emit(BPF_ST, SEEN_FLAGS);
        self.skip_header();
        self.emit(BPF_LD | BPF_MEM, LENGTH);
        self.compare(BPF_JGT | BPF_X, 0, Label::HasData, Label::Next);
        self.emit(BPF_LD | BPF_MEM, SEEN_FLAGS);
        self.compare(BPF_JSET | BPF_K, FIN_SYN_RST, Label::KeepWhole, Label::Drop);
        self.bind(Label::HasData);
        match answers {
            ResponseSnap::Bytes(bytes) => self.return_snap(bytes.min(MAX_SNAP_LEN)),
            ResponseSnap::ByKind => self.return_snap_by_kind(),
        }
    }

    fn return_snap_by_kind(&mut self) {
        self.emit(BPF_ALU | BPF_SUB | BPF_X, 0);
        self.compare(BPF_JGT | BPF_K, FIRST_BYTE, Label::Next, Label::KeepWhole);
        self.load_byte_indirect(SEQUENCE);
        // Only a greeting is a server's first word; an answer follows on a command, number 0.
        self.if_equal(0, Label::GreetingOrError, Label::Next);
        self.load_byte_indirect(FIRST_BYTE);
        self.if_equal(0xff, Label::GreetingOrError, Label::Next);
        self.if_equal(0xfe, Label::Ok, Label::Next);
        self.if_equal(0, Label::Ok, Label::Next);
        self.return_snap(SNAP_RESULT);
        self.bind(Label::GreetingOrError);
        self.return_snap(SNAP_GREETING_OR_ERROR);
        self.bind(Label::Ok);
        self.return_snap(SNAP_OK);
    }

    /// Headers, and so many bytes behind them.
    fn return_snap(&mut self, bytes: u32) {
        self.emit(BPF_MISC | BPF_TXA, 0);
        self.emit(BPF_ALU | BPF_ADD | BPF_K, bytes);
        self.emit(BPF_RET | BPF_A, 0);
    }

    /// `None`: a jump is too far for its eight bits.
    fn assemble(&self) -> Option<Vec<Instruction>> {
        let distance = |from: usize, to: Label| {
            let place = |(label, at): &(Label, usize)| (*label == to).then_some(*at);
            match to {
                Label::Next => Some(0),
                _ => self.labels.iter().find_map(place)?.checked_sub(from + 1),
            }
        };
        let instruction = |(at, &(code, k, then, otherwise)): (usize, &(u32, u32, Label, Label))| {
            let code_16 = code as u16;
            if code == BPF_JMP | BPF_JA {
                return Some(Instruction { code: code_16, jt: 0, jf: 0, k: distance(at, then)? as u32 });
            }
            let jt = u8::try_from(distance(at, then)?).ok()?;
            let jf = u8::try_from(distance(at, otherwise)?).ok()?;
            Some(Instruction { code: code_16, jt, jf, k })
        };
        self.code.iter().enumerate().map(instruction).collect()
    }
}

/// Attaches the program to a socket, replacing an earlier one.
///
/// # Errors
/// The kernel takes no such program, or has no memory for it.
pub(crate) fn attach(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let mut program = program.to_vec();
    let described = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let at = (&raw const described).cast();
    // SAFETY: `described` tells where `program` is and how long; both live through the call, which copies them.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, length) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A program that lets nothing pass.
pub(crate) fn reject_all() -> [Instruction; 1] {
    [Instruction { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: 0 }]
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
