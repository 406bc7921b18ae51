//! Transmitter of whole frames through a device, with as few system calls as possible.
//!
//! A packet socket with many frames for each call (sendmmsg), past the queue disciplines
//! (PACKET_QDISC_BYPASS). So delays occur here, where they are measured, and not in a queue.

use crate::device::Device;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use thiserror::Error;

/// Frames of one call at most: enough that its own cost no longer counts.
pub const BATCH: usize = 64;
/// Asked for; the kernel gives what it may. A full one makes a send wait, as a real device's ring does.
const SEND_BUFFER: libc::c_int = 8 << 20;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(
        "cannot open a packet socket (operation not permitted): run as root, or give the binary cap_net_raw"
    )]
    NotPermitted,
    #[error("cannot {what}: {source}")]
    Failed { what: &'static str, source: io::Error },
}

/// Sends frames on one device.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
    /// False: this kernel has no way past the queue discipline.
    pub bypasses_qdisc: bool,
}

impl Sender {
    /// # Errors
    /// Not permitted, or the device is gone.
    pub fn open(device: &Device) -> Result<Self, OpenError> {
        // Protocol 0: the socket receives nothing.
        // SAFETY: no pointers; the answer is checked before it is used.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EPERM) => OpenError::NotPermitted,
                source => OpenError::Failed { what: "open a packet socket", source },
            });
        }
        // SAFETY: the descriptor is new, open, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut sender = Self { socket, bypasses_qdisc: false };
        sender.bind(device)?;
        sender.bypasses_qdisc = sender.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1).is_ok();
        // Root may pass the host's bound, others get what it allows.
        if sender.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err() {
            let larger = |source| OpenError::Failed { what: "enlarge the send buffer", source };
            sender.set(libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER).map_err(larger)?;
        }
        Ok(sender)
    }

    fn bind(&self, device: &Device) -> Result<(), OpenError> {
        // SAFETY: all of its fields are integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = device.index as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer is to a sockaddr_ll that lives through the call, and the length is its own.
        let bound = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            let source = io::Error::last_os_error();
            return Err(OpenError::Failed { what: "bind a packet socket to the device", source });
        }
        Ok(())
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let at = (&raw const value).cast();
        // SAFETY: the pointer is to an integer that lives through the call, and the length is its own.
        let set = unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, at, length) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends the first frames, in order, `BATCH` at most; answers how many the kernel took, at least one.
    ///
    /// # Errors
    /// The kernel took none: ENOBUFS (the device's queue is full), ENETDOWN, ENXIO (the device is gone), EMSGSIZE
    /// (the first frame is longer than the device carries), EINTR.
    pub fn send<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        let mut count = 0;
        for (vector, frame) in vectors.iter_mut().zip(frames) {
            // The kernel only reads what it sends.
            *vector = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            count += 1;
        }
        // SAFETY: mmsghdr is made of integers and pointers, for which zero is a value.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (header, vector) in headers.iter_mut().zip(&mut vectors).take(count) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` headers each point to one vector, and that to a frame borrowed for longer than this
        // call; the kernel writes only to the headers' lengths.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), count as u32, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
