//! Poller (epoll) over the connections of a worker, with a deadline.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rustix::event::epoll as precise;
use std::io;
use std::os::fd::AsFd;

/// Waits to the nanosecond where the kernel can (Linux 5.11), to the millisecond elsewhere.
pub struct Poller {
    epoll: Epoll,
    ready: Vec<(usize, bool)>,
    precise: Vec<precise::Event>,
    coarse: Option<Vec<EpollEvent>>,
}

impl Poller {
    pub fn new(connections: usize) -> io::Result<Self> {
        let capacity = connections.max(1);
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            ready: Vec::with_capacity(capacity),
            precise: Vec::with_capacity(capacity),
            coarse: None,
        })
    }

    /// Edge-triggered: a connection is reported once for each time that bytes arrive.
    pub fn add(&self, fd: impl AsFd, key: usize) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        Ok(self.epoll.add(fd, EpollEvent::new(flags, key as u64))?)
    }

    /// Also report when more can be written (`want`), or no longer.
    pub fn set_write_interest(&self, fd: impl AsFd, key: usize, want: bool) -> io::Result<()> {
        let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        flags.set(EpollFlags::EPOLLOUT, want);
        Ok(self.epoll.modify(fd, &mut EpollEvent::new(flags, key as u64))?)
    }

    /// Waits at most `wait_ns`. Returns the number of ready connections.
    #[inline]
    pub fn wait(&mut self, wait_ns: u64) -> io::Result<usize> {
        self.ready.clear();
        if self.coarse.is_none() {
            let timeout = rustix::time::Timespec {
                tv_sec: (wait_ns / 1_000_000_000) as i64,
                tv_nsec: (wait_ns % 1_000_000_000) as _,
            };
            self.precise.clear();
            let spare = rustix::buffer::spare_capacity(&mut self.precise);
            match precise::wait(&self.epoll.0, spare, Some(&timeout)) {
                Ok(_) => {
                    self.ready.extend(self.precise.iter().map(|e| {
                        let flags = e.flags;
                        (e.data.u64() as usize, flags.contains(precise::EventFlags::OUT))
                    }));
                    return Ok(self.ready.len());
                }
                Err(rustix::io::Errno::INTR) => return Ok(0),
                Err(rustix::io::Errno::NOSYS) => {
                    self.coarse = Some(vec![EpollEvent::empty(); self.precise.capacity()]);
                }
                Err(e) => return Err(e.into()),
            }
        }
        let Some(events) = &mut self.coarse else { return Ok(0) };
        let timeout = EpollTimeout::try_from(wait_ns.div_ceil(1_000_000)).unwrap_or(EpollTimeout::MAX);
        let found = match self.epoll.wait(events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            other => other?,
        };
        let of = |e: &EpollEvent| (e.data() as usize, e.events().contains(EpollFlags::EPOLLOUT));
        self.ready.extend(events[..found].iter().map(of));
        Ok(found)
    }

    /// Key of the nth connection found by the last wait, and whether it is writable.
    #[inline]
    pub fn ready(&self, nth: usize) -> (usize, bool) {
        self.ready[nth]
    }
}
