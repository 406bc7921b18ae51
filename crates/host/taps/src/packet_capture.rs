//! Choice of capture sockets, so that each packet is captured once at minimal cost.
//!
//! One socket captures everything: only such a socket sees outgoing packets, the server's answers. On
//! loopback it sees every packet twice, so the socket option that ignores outgoing packets is set. Otherwise
//! the head of every packet would be copied before any filter. Kernels before 4.20 lack that option. There,
//! one socket for IPv4 and one for IPv6 capture incoming packets. The kernel serves these after TCP. If the
//! CPU is preempted in between, an answer precedes its request (observed once in 250,000 packets).

use crate::block::{CapturedPacket, DamagedBlock, LinkType, WalkError};
use crate::device::{Device, DeviceError};
use crate::filter::{IpFamily, PacketFilter, TooManyPorts};
use crate::ring::{PacketDirection, Ring, RingError, RingShape};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// Bound to packets of every type.
const EVERYTHING: u16 = libc::ETH_P_ALL as u16;
/// Where the kernel cannot be told to leave departures out.
const ON_OLD_LOOPBACK: [(IpFamily, u16); MAX_RINGS] =
    [(IpFamily::V4, libc::ETH_P_IP as u16), (IpFamily::V6, libc::ETH_P_IPV6 as u16)];
const ON_DEVICES: [(IpFamily, u16); 1] = [(IpFamily::Both, EVERYTHING)];
const ON_ANY: [(IpFamily, u16); 1] = [(IpFamily::BothOnAnyDevice, EVERYTHING)];
const MAX_RINGS: usize = 2;

/// Devices to capture from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureDevice {
    Device(String),
    /// Every device of this network namespace, those too that come later.
    Any,
}

#[derive(Debug, Error)]
pub enum CaptureOpenError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{name} is down: ip link set {name} up")]
    Down { name: String },
    #[error(transparent)]
    Ports(#[from] TooManyPorts),
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// Why a capture cannot go on.
#[derive(Debug, Error)]
pub enum CaptureError<E> {
    #[error("the device {0} is gone")]
    Gone(String),
    #[error(transparent)]
    Damaged(DamagedBlock),
    #[error("cannot wait for packets: {0}")]
    Poll(io::Error),
    /// The callback refused further packets.
    #[error("{0}")]
    Refused(E),
}

/// Counters since the capture began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Everything that the filter let pass: taken, dropped, or still in the ring.
    pub passed: u64,
    /// Handed on.
    pub delivered: u64,
    /// The ring was full.
    pub dropped: u64,
}

/// Packets of one device, or of all.
#[derive(Debug)]
pub struct PacketCapture {
    rings: Vec<Ring>,
    link: LinkType,
    /// Absent: all devices.
    device: Option<Device>,
    passed: u64,
    dropped: u64,
    /// The device was taken down, and may be taken away.
    is_down: bool,
    /// When losses were found that no block dates, Unix time in ns.
    loss_noticed_ns: Option<(u64, u64)>,
}

impl PacketCapture {
    /// Begins to listen. `buffer_bytes`: of all rings together.
    ///
    /// # Errors
    /// No such device, or it is down; not permitted; no memory; too many ports.
    pub fn open(
        device: &CaptureDevice,
        filter: &PacketFilter,
        buffer_bytes: usize,
    ) -> Result<Self, CaptureOpenError> {
        let device = match device {
            CaptureDevice::Any => None,
            CaptureDevice::Device(name) => Some(Device::find(name)?),
        };
        if let Some(Device { name, is_up: false, .. }) = &device {
            return Err(CaptureOpenError::Down { name: name.clone() });
        }
        let index = device.as_ref().map_or(0, |device| device.index);
        let (families, link, shown) = match &device {
            Some(device) if device.is_loopback => (&ON_DEVICES[..], LinkType::Raw, PacketDirection::Incoming),
            Some(_) => (&ON_DEVICES[..], LinkType::Cooked, PacketDirection::All),
            None => (&ON_ANY[..], LinkType::Cooked, PacketDirection::All),
        };
        let open = |families: &[(IpFamily, u16)], shown| -> Result<Vec<Ring>, CaptureOpenError> {
            let shape = RingShape::for_bytes(buffer_bytes / families.len());
            let one = |&(family, protocol): &(IpFamily, u16)| {
                Ok(Ring::open(index, protocol, shown, &filter.program(family)?, shape)?)
            };
            families.iter().map(one).collect()
        };
        let rings = match open(families, shown) {
            Err(CaptureOpenError::Ring(RingError::CannotIgnoreOutgoing)) => {
                open(&ON_OLD_LOOPBACK, PacketDirection::All)?
            }
            rings => rings?,
        };
        Ok(Self { rings, link, device, passed: 0, dropped: 0, is_down: false, loss_noticed_ns: None })
    }

    /// Bytes before the IP header of the packets returned.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// Hands on what has arrived, waiting no longer than `wait` for it; a signal ends the wait. Packets are in
    /// the kernel's order; between two rings (IPv4 and IPv6 on the loopback of a kernel before 4.20) times may go back by a fifth of a
    /// second.
    ///
    /// # Errors
    /// The device is gone, or `each` refuses.
    pub fn poll_packets<E>(
        &mut self,
        wait: Duration,
        mut each: impl FnMut(&CapturedPacket<'_>) -> Result<(), E>,
    ) -> Result<(), CaptureError<E>> {
        if !self.drain_rings(&mut each)? {
            self.wait_readable::<E>(wait)?;
            self.drain_rings(&mut each)?;
        }
        Ok(())
    }

    /// True: something was there.
    fn drain_rings<E>(
        &mut self,
        each: &mut impl FnMut(&CapturedPacket<'_>) -> Result<(), E>,
    ) -> Result<bool, CaptureError<E>> {
        let mut found = false;
        for ring in &mut self.rings {
            let before = ring.delivered;
            ring.drain(self.link, each).map_err(|stopped| match stopped {
                WalkError::Damaged(damaged) => CaptureError::Damaged(damaged),
                WalkError::Refused(refused) => CaptureError::Refused(refused),
            })?;
            found |= ring.delivered != before;
        }
        Ok(found)
    }

    fn wait_readable<E>(&mut self, wait: Duration) -> Result<(), CaptureError<E>> {
        // The kernel passes over what is below zero.
        let mut watched = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MAX_RINGS];
        for (watched, ring) in watched.iter_mut().zip(&self.rings) {
            watched.fd = ring.as_fd().as_raw_fd();
        }
        let ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: pointer and length are those of an array that lives through the call.
        let ready = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            let is_signal = error.kind() == io::ErrorKind::Interrupted;
            return if is_signal { Ok(()) } else { Err(CaptureError::Poll(error)) };
        }
        for (ring, watched) in self.rings.iter().zip(&watched) {
            if watched.revents & (libc::POLLERR | libc::POLLNVAL | libc::POLLHUP) != 0 {
                match ring.error() {
                    Some(error) if error.raw_os_error() == Some(libc::ENETDOWN) => self.is_down = true,
                    Some(error) => return Err(CaptureError::Poll(error)),
                    None => {}
                }
            }
        }
        if self.is_down { self.recheck_device() } else { Ok(()) }
    }

    /// A device that was taken down may come back, and packets with it; one that was taken away does not, whoever bears
    /// its name then.
    fn recheck_device<E>(&mut self) -> Result<(), CaptureError<E>> {
        let Some(known) = &self.device else {
            self.is_down = false;
            return Ok(());
        };
        match Device::find(&known.name) {
            Ok(device) if device.index == known.index => {
                self.is_down = !device.is_up;
                Ok(())
            }
            _ => Err(CaptureError::Gone(known.name.clone())),
        }
    }

    /// Lets nothing more in; what has come is still handed on by [`poll_packets`](Self::poll_packets).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn close(&self) -> io::Result<()> {
        self.rings.iter().try_for_each(Ring::close)
    }

    /// Call it every second: the kernel's own counters have 32 bits.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn read_counts(&mut self) -> io::Result<PacketCounts> {
        let mut dropped = 0;
        for ring in &self.rings {
            let counted = ring.read_counts()?;
            self.passed += counted.passed;
            dropped += counted.dropped;
        }
        self.dropped += dropped;
        if dropped > 0 {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let now_ns = now.as_nanos() as u64;
            self.loss_noticed_ns = Some((self.loss_noticed_ns.map_or(now_ns, |(first, _)| first), now_ns));
        }
        let taken = self.rings.iter().map(|ring| ring.delivered).sum();
        Ok(PacketCounts { passed: self.passed, delivered: taken, dropped: self.dropped })
    }

    /// Between which moments packets were dropped, Unix time in ns: by the blocks that the kernel marked, else by when
    /// the counters were read.
    pub fn loss_interval(&self) -> Option<(u64, u64)> {
        let marked = self.rings.iter().filter_map(|ring| ring.loss_ns);
        marked.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).or(self.loss_noticed_ns)
    }
}
