//! Receive ring (TPACKET_V3) of a packet socket, without a copy or a system call for each packet.
//!
//! The kernel fills blocks and hands them over: a full one at once, others after a timeout. Never requests
//! socket timestamps (SO_TIMESTAMP), which would stamp every packet of the host.

use crate::block::{self, BlockSummary, CapturedPacket, LinkType, STATUS_AT, WalkError};
use crate::filter::{self, Instruction};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use thiserror::Error;

/// linux/if_packet.h
const IGNORE_OUTGOING: libc::c_int = 23;
/// After this time the kernel hands over a block that is not full, ms.
const RETIRE_MS: u32 = 200;
/// Blocks handed on by one call at most, so that its caller gets to do other things too.
const MAX_BLOCKS_PER_CALL: usize = 16;

#[derive(Debug, Error)]
pub enum RingError {
    #[error(
        "cannot open a packet socket (operation not permitted): run as root, or give the binary the right to, \
         setcap cap_net_raw+ep {}",
        binary()
    )]
    NotPermitted,
    #[error(
        "cannot make a ring of {mib} MiB for packets: {source}; ask for a smaller --buffer, or free memory"
    )]
    OutOfMemory { mib: usize, source: io::Error },
    /// This kernel cannot leave departures out.
    #[error("this kernel shows what leaves a device too: Linux 4.20 can leave it out")]
    CannotIgnoreOutgoing,
    #[error("cannot {what}: {source}")]
    Failed { what: &'static str, source: io::Error },
}

fn binary() -> String {
    std::env::current_exe().map_or_else(|_| "$(command -v toll)".into(), |path| path.display().to_string())
}

/// Counters of the kernel since the last read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RingCounts {
    /// Packets that passed the filter, dropped ones included.
    pub passed: u64,
    pub dropped: u64,
}

/// What of a device's packets a socket for everything is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketDirection {
    All,
    /// Not what leaves it.
    Incoming,
}

/// Size of the ring and of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingShape {
    pub block_bytes: usize,
    pub blocks: usize,
}

impl RingShape {
    /// A block holds the largest packet that is not cut into segments (64 KiB) with room to spare, and a ring eight
    /// blocks at least: fewer would be handed over and filled in turns.
    pub fn for_bytes(bytes: usize) -> Self {
        const LEAST: usize = 128 << 10;
        const MOST: usize = 1 << 20;
        let block_bytes = (bytes / 8).clamp(LEAST, MOST);
        // A multiple of the page size, a power of two as the kernel's allocator likes it.
        let block_bytes = 1 << block_bytes.ilog2();
        Self { block_bytes, blocks: (bytes / block_bytes).max(4) }
    }

    fn bytes(self) -> usize {
        self.block_bytes * self.blocks
    }
}

/// A packet socket and the ring that it shares with the kernel.
#[derive(Debug)]
pub(crate) struct Ring {
    socket: OwnedFd,
    memory: Memory,
    shape: RingShape,
    next: usize,
    /// Handed on.
    pub delivered: u64,
    /// When blocks were filled that lack packets, Unix time in ns.
    pub loss_ns: Option<(u64, u64)>,
}

impl Ring {
    /// Listens to packets of `protocol` (of the link's header, host order) on a device, 0 for all devices. What comes
    /// before this returns is not seen, what comes later is filtered from the first packet on.
    ///
    /// # Errors
    /// Not permitted, no memory, no such device.
    pub fn open(
        device: u32,
        protocol: u16,
        shown: PacketDirection,
        program: &[Instruction],
        shape: RingShape,
    ) -> Result<Self, RingError> {
        // Protocol 0: nothing is received until it is bound. SOCK_DGRAM: packets begin with their IP header.
        // SAFETY: no pointers; the answer is checked before it is used.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EPERM) => RingError::NotPermitted,
                source => RingError::Failed { what: "open a packet socket", source },
            });
        }
        // SAFETY: the descriptor is new, open, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let failed = |what: &'static str| move |source| RingError::Failed { what, source };
        filter::attach(socket.as_fd(), program).map_err(failed("set the filter of a packet socket"))?;
        if shown == PacketDirection::Incoming {
            let yes: libc::c_int = 1;
            set(&socket, IGNORE_OUTGOING, &yes).map_err(|source| match source.raw_os_error() {
                Some(libc::ENOPROTOOPT) => RingError::CannotIgnoreOutgoing,
                _ => RingError::Failed { what: "leave out what leaves the device", source },
            })?;
        }
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&socket, libc::PACKET_VERSION, &version).map_err(failed("use rings of version 3 (Linux 3.2)"))?;
        let request = libc::tpacket_req3 {
            tp_block_size: shape.block_bytes as u32,
            tp_block_nr: shape.blocks as u32,
            // Of version 3 the kernel only checks that it divides a block.
            tp_frame_size: 2048,
            tp_frame_nr: (shape.bytes() / 2048) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let no_room = |source| RingError::OutOfMemory { mib: shape.bytes() >> 20, source };
        set(&socket, libc::PACKET_RX_RING, &request).map_err(no_room)?;
        let memory = Memory::shared_with(&socket, shape.bytes()).map_err(no_room)?;
        let ring = Self { socket, memory, shape, next: 0, delivered: 0, loss_ns: None };
        ring.bind(device, protocol).map_err(failed("listen on the device"))?;
        Ok(ring)
    }

    fn bind(&self, device: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: all of its fields are integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = device.cast_signed();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer is to a sockaddr_ll that lives through the call, and the length is its own.
        let bound = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets nothing more in.
    pub fn close(&self) -> io::Result<()> {
        filter::attach(self.socket.as_fd(), &filter::reject_all())
    }

    /// Hands on the packets of the blocks that the kernel has handed over; true: there may be more.
    ///
    /// # Errors
    /// See [`block::walk_packets`]; the block of the error is given back to the kernel all the same.
    pub fn drain<E>(
        &mut self,
        link: LinkType,
        each: &mut impl FnMut(&CapturedPacket<'_>) -> Result<(), E>,
    ) -> Result<bool, WalkError<E>> {
        for _ in 0..MAX_BLOCKS_PER_CALL.min(self.shape.blocks) {
            let at = self.next * self.shape.block_bytes;
            let status = self.memory.status(at).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                return Ok(false);
            }
            let mut taken = 0;
            let walked =
                block::walk_packets(self.memory.block(at, self.shape.block_bytes), link, &mut |captured| {
                    taken += 1;
                    each(captured)
                });
            self.delivered += taken;
            self.memory.status(at).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.shape.blocks;
            let walked = walked?;
            if status & libc::TP_STATUS_LOSING != 0 {
                self.note_loss(&walked);
            }
        }
        Ok(true)
    }

    fn note_loss(&mut self, walked: &BlockSummary) {
        let (first, last) = self.loss_ns.unwrap_or((walked.first_ns, walked.last_ns));
        self.loss_ns = Some((first.min(walked.first_ns), last.max(walked.last_ns)));
    }

    /// Asks the kernel, whose counters begin at zero again.
    pub fn read_counts(&self) -> io::Result<RingCounts> {
        let mut statistics = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        let at = (&raw mut statistics).cast();
        let option = libc::PACKET_STATISTICS;
        // SAFETY: both pointers are to variables that live through the call, and the length is that of the first.
        let got = unsafe {
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, option, at, &raw mut length)
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(RingCounts { passed: u64::from(statistics.tp_packets), dropped: u64::from(statistics.tp_drops) })
    }

    /// What is wrong with the socket, once.
    pub fn error(&self) -> Option<io::Error> {
        let mut number: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        let at = (&raw mut number).cast();
        let (fd, option) = (self.socket.as_raw_fd(), libc::SO_ERROR);
        // SAFETY: both pointers are to variables that live through the call, and the length is that of the first.
        let got = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, at, &raw mut length) };
        (got == 0 && number != 0).then(|| io::Error::from_raw_os_error(number))
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an option of packet sockets, of whatever type the kernel knows it by.
fn set<T: Copy>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let at = std::ptr::from_ref(value).cast();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer is to a value that lives through the call, and the length is its own; the kernel only reads.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, at, length) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Memory that is shared with the kernel, until it is dropped.
#[derive(Debug)]
struct Memory {
    begin: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    fn shared_with(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, socket.as_raw_fd());
        // SAFETY: no address is asked for, so no memory of this process can be hit; the answer is checked.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("memory at address 0"))?;
        Ok(Self { begin, bytes })
    }

    /// Of the block at this offset: whose it is.
    fn status(&self, block_at: usize) -> &AtomicU32 {
        let at = block_at + STATUS_AT;
        assert!(at + size_of::<u32>() <= self.bytes, "a block lies in its ring");
        // SAFETY: within the mapping, by the line before.
        let at = unsafe { self.begin.add(at) };
        // SAFETY: aligned, since blocks begin at pages; mapped as long as `self`; kernel and process both go through
        // atomic accesses where they may meet.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
    }

    /// To be asked for only of a block that is this process's.
    fn block(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        assert!(at + bytes <= self.bytes, "a block lies in its ring");
        // SAFETY: within the mapping, by the line before.
        let begin = unsafe { self.begin.add(at) };
        // SAFETY: mapped and initialised (the kernel gives zeroed pages) as long as `self`, which is borrowed meanwhile;
        // the kernel leaves a block alone that it has handed over.
        unsafe { std::slice::from_raw_parts_mut(begin.as_ptr(), bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing borrows it any more.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_any_size_has_several_blocks_that_hold_a_whole_packet() {
        for (bytes, block_bytes, blocks) in [
            (64 << 20, 1 << 20, 64),
            (32 << 20, 1 << 20, 32),
            (1 << 20, 128 << 10, 8),
            (5 << 20, 512 << 10, 10),
            (0, 128 << 10, 4),
        ] {
            assert_eq!(RingShape::for_bytes(bytes), RingShape { block_bytes, blocks }, "{bytes}");
        }
    }
}
