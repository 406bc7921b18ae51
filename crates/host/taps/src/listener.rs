//! Choice of capture sockets, so that each packet is captured once at minimal cost.
//!
//! One socket captures everything: only such a socket sees outgoing packets, the server's answers. On
//! loopback it sees every packet twice, so the socket option that ignores outgoing packets is set. Otherwise
//! the head of every packet would be copied before any filter. Kernels before 4.20 lack that option. There,
//! one socket for IPv4 and one for IPv6 capture incoming packets. The kernel serves these after TCP. If the
//! CPU is preempted in between, an answer precedes its request (observed once in 250,000 packets).

use crate::block::{Captured, Damaged, Link, Stopped};
use crate::device::{Device, DeviceError};
use crate::filter::{Family, Filter, TooManyPorts};
use crate::ring::{Ring, RingError, Shape, Shown};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// Bound to packets of every type.
const EVERYTHING: u16 = libc::ETH_P_ALL as u16;
/// Where the kernel cannot be told to leave departures out.
const ON_OLD_LOOPBACK: [(Family, u16); MOST_RINGS] =
    [(Family::V4, libc::ETH_P_IP as u16), (Family::V6, libc::ETH_P_IPV6 as u16)];
const ON_DEVICES: [(Family, u16); 1] = [(Family::Both, EVERYTHING)];
const ON_ANY: [(Family, u16); 1] = [(Family::BothOnAny, EVERYTHING)];
const MOST_RINGS: usize = 2;

/// Devices to capture from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    Device(String),
    /// Every device of this network namespace, those too that come later.
    Any,
}

#[derive(Debug, Error)]
pub enum ListenError {
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
pub enum TakeError<E> {
    #[error("the device {0} is gone")]
    Gone(String),
    #[error(transparent)]
    Damaged(Damaged),
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
    pub taken: u64,
    /// The ring was full.
    pub dropped: u64,
}

/// Packets of one device, or of all.
#[derive(Debug)]
pub struct Listener {
    rings: Vec<Ring>,
    link: Link,
    /// Absent: all devices.
    device: Option<Device>,
    passed: u64,
    dropped: u64,
    /// The device was taken down, and may be taken away.
    is_down: bool,
    /// When losses were found that no block dates, Unix time in ns.
    found_ns: Option<(u64, u64)>,
}

impl Listener {
    /// Begins to listen. `buffer_bytes`: of all rings together.
    ///
    /// # Errors
    /// No such device, or it is down; not permitted; no memory; too many ports.
    pub fn open(place: &Where, filter: &Filter, buffer_bytes: usize) -> Result<Self, ListenError> {
        let device = match place {
            Where::Any => None,
            Where::Device(name) => Some(Device::named(name)?),
        };
        if let Some(Device { name, is_up: false, .. }) = &device {
            return Err(ListenError::Down { name: name.clone() });
        }
        let index = device.as_ref().map_or(0, |device| device.index);
        let (families, link, shown) = match &device {
            Some(device) if device.is_loopback => (&ON_DEVICES[..], Link::Raw, Shown::Arrivals),
            Some(_) => (&ON_DEVICES[..], Link::Cooked, Shown::All),
            None => (&ON_ANY[..], Link::Cooked, Shown::All),
        };
        let open = |families: &[(Family, u16)], shown| -> Result<Vec<Ring>, ListenError> {
            let shape = Shape::of(buffer_bytes / families.len());
            let one = |&(family, protocol): &(Family, u16)| {
                Ok(Ring::open(index, protocol, shown, &filter.program(family)?, shape)?)
            };
            families.iter().map(one).collect()
        };
        let rings = match open(families, shown) {
            Err(ListenError::Ring(RingError::ShowsAll)) => open(&ON_OLD_LOOPBACK, Shown::All)?,
            rings => rings?,
        };
        Ok(Self { rings, link, device, passed: 0, dropped: 0, is_down: false, found_ns: None })
    }

    /// Bytes before the IP header of the packets returned.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Hands on what has arrived, waiting no longer than `wait` for it; a signal ends the wait. Packets are in
    /// the kernel's order; between two rings (IPv4 and IPv6 on the loopback of a kernel before 4.20) times may go back by a fifth of a
    /// second.
    ///
    /// # Errors
    /// The device is gone, or `each` refuses.
    pub fn take<E>(
        &mut self,
        wait: Duration,
        mut each: impl FnMut(&Captured<'_>) -> Result<(), E>,
    ) -> Result<(), TakeError<E>> {
        if !self.take_what_is_there(&mut each)? {
            self.wait::<E>(wait)?;
            self.take_what_is_there(&mut each)?;
        }
        Ok(())
    }

    /// True: something was there.
    fn take_what_is_there<E>(
        &mut self,
        each: &mut impl FnMut(&Captured<'_>) -> Result<(), E>,
    ) -> Result<bool, TakeError<E>> {
        let mut found = false;
        for ring in &mut self.rings {
            let before = ring.taken;
            ring.take(self.link, each).map_err(|stopped| match stopped {
                Stopped::Damaged(damaged) => TakeError::Damaged(damaged),
                Stopped::Refused(refused) => TakeError::Refused(refused),
            })?;
            found |= ring.taken != before;
        }
        Ok(found)
    }

    fn wait<E>(&mut self, wait: Duration) -> Result<(), TakeError<E>> {
        // The kernel passes over what is below zero.
        let mut watched = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MOST_RINGS];
        for (watched, ring) in watched.iter_mut().zip(&self.rings) {
            watched.fd = ring.as_fd().as_raw_fd();
        }
        let ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: pointer and length are those of an array that lives through the call.
        let ready = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            let is_signal = error.kind() == io::ErrorKind::Interrupted;
            return if is_signal { Ok(()) } else { Err(TakeError::Poll(error)) };
        }
        for (ring, watched) in self.rings.iter().zip(&watched) {
            if watched.revents & (libc::POLLERR | libc::POLLNVAL | libc::POLLHUP) != 0 {
                match ring.error() {
                    Some(error) if error.raw_os_error() == Some(libc::ENETDOWN) => self.is_down = true,
                    Some(error) => return Err(TakeError::Poll(error)),
                    None => {}
                }
            }
        }
        if self.is_down { self.look_for_the_device() } else { Ok(()) }
    }

    /// A device that was taken down may come back, and packets with it; one that was taken away does not, whoever bears
    /// its name then.
    fn look_for_the_device<E>(&mut self) -> Result<(), TakeError<E>> {
        let Some(known) = &self.device else {
            self.is_down = false;
            return Ok(());
        };
        match Device::named(&known.name) {
            Ok(device) if device.index == known.index => {
                self.is_down = !device.is_up;
                Ok(())
            }
            _ => Err(TakeError::Gone(known.name.clone())),
        }
    }

    /// Lets nothing more in; what has come is still handed on by [`take`](Self::take).
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
    pub fn counts(&mut self) -> io::Result<PacketCounts> {
        let mut dropped = 0;
        for ring in &self.rings {
            let counted = ring.count()?;
            self.passed += counted.passed;
            dropped += counted.dropped;
        }
        self.dropped += dropped;
        if dropped > 0 {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let now_ns = now.as_nanos() as u64;
            self.found_ns = Some((self.found_ns.map_or(now_ns, |(first, _)| first), now_ns));
        }
        let taken = self.rings.iter().map(|ring| ring.taken).sum();
        Ok(PacketCounts { passed: self.passed, taken, dropped: self.dropped })
    }

    /// Between which moments packets were dropped, Unix time in ns: by the blocks that the kernel marked, else by when
    /// the counters were read.
    pub fn lost_between(&self) -> Option<(u64, u64)> {
        let marked = self.rings.iter().filter_map(|ring| ring.lossy_ns);
        marked.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).or(self.found_ns)
    }
}
