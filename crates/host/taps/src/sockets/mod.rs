//! Socket tap: captures the bytes between clients and a server on its sockets, including Unix sockets.
//!
//! Programs in the kernel (`program.rs`) observe the server's own calls and write records (`record.rs`) into
//! rings (`ring.rs`). No packet and no symbol of the server is involved, and the server is not modified. All
//! of it is removed when this process ends, for any reason.

mod asm;
mod bpf;
mod btf;
mod descriptors;
mod elf;
mod error;
mod hooks;
mod program;
mod record;
mod ring;
mod tls;
mod uprobe;

pub use error::TapError;
pub use hooks::Hooks;
pub use record::{Record, What};

use crate::clock::now_ns;
use descriptors::Descriptors;
use hooks::{Program, Site, Switched, cpus};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use program::{ABI, LISTENING, LOST, PASSED};
use record::{Keep, PIECE};
use ring::Rings;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Options of the tap: server, sockets, and bytes to keep.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's process, as this host numbers it.
    pub server: u32,
    /// Its TCP ports that count; empty: all on which queries may come in. Unix sockets always do.
    pub ports: Vec<u16>,
    /// Bytes kept of one call by which it receives, up to 64 MiB; rounded up to 32 KiB.
    pub keep_client: usize,
    /// Bytes kept of one call by which it sends, up to 32 KiB.
    pub keep_server: usize,
    /// All rings together, 1 MiB to 1 GiB; rounded up to a power of two.
    pub buffer_bytes: usize,
    /// `None`: sockets, and system calls where these cannot be had.
    pub hooks: Option<Hooks>,
    /// The kernel's type information.
    pub btf: PathBuf,
}

impl Options {
    /// For this process, with what a capture of queries needs.
    pub fn of(server: u32) -> Self {
        Self {
            server,
            ports: Vec::new(),
            keep_client: 1 << 20,
            keep_server: 128,
            buffer_bytes: 64 << 20,
            hooks: None,
            btf: PathBuf::from("/sys/kernel/btf/vmlinux"),
        }
    }
}

/// Since the tap was opened: `passed` = handed on + `lost` + what is still in the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records written down by the kernel's side.
    pub passed: u64,
    /// Handed on by [`SocketTap::take`].
    pub taken: u64,
    /// The ring had no room for them.
    pub lost: u64,
    /// Runs that the kernel left out because another of the same program was under way on the CPU: calls of any process
    /// of the host, so that this is a bound for those of the server. They are in none of the other counts.
    pub left_out: u64,
}

/// Looks at a server's sockets for as long as it lives.
#[derive(Debug)]
pub struct SocketTap {
    server: u32,
    keep: Keep,
    follows: Vec<String>,
    rings: Rings,
    on: Switched,
    /// Becomes readable when the server ends.
    process: OwnedFd,
    ended: bool,
    /// Connections that were open before, yet to be told of.
    joined: Vec<(u64, Option<(IpAddr, u16)>)>,
    taken: u64,
    left_out: u64,
    rest: Duration,
    to_unix_ns: u64,
    clock_read_ns: u64,
}

const MOST_KEPT: usize = 64 << 20;
/// How long to leave the ring alone between two looks: the longer, the emptier it is found.
const LONGEST_REST: Duration = Duration::from_millis(20);
const SHORTEST_REST: Duration = Duration::from_millis(1);

impl SocketTap {
    /// Opens the ring, loads the programs, switches them on and finds the connections that are there already.
    ///
    /// # Errors
    /// Not permitted (with what is missing), not possible on this kernel or machine, or no such server.
    pub fn open(options: &Options) -> Result<Self, TapError> {
        let abi = ABI.as_ref().ok_or_else(|| {
            let machine = std::env::consts::ARCH;
            TapError::NotHere(format!(
                "sockets can be looked at on x86_64 and aarch64 alone, and this is {machine}"
            ))
        })?;
        of_the_whole_host()?;
        let process = open_process(options.server)?;
        let found = Descriptors::of(options.server, &options.ports)?;
        if found.listening.is_empty() {
            let others = match found.others.as_slice() {
                [] => String::new(),
                others => format!(" (but on {})", others.join(", ")),
            };
            return Err(TapError::DoesNotListen { pid: options.server, others });
        }
        // Kernels before 5.11 count maps against this; where it may not be raised they may still fit.
        let _ = nix::sys::resource::setrlimit(
            nix::sys::resource::Resource::RLIMIT_MEMLOCK,
            libc::RLIM_INFINITY,
            libc::RLIM_INFINITY,
        );
        let rings = Rings::new(options.buffer_bytes, cpus()).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => {
                TapError::NotHere("this kernel has no ring for programs: Linux 5.8 brought it".into())
            }
            _ => TapError::refused("make a ring that the kernel fills", error),
        })?;
        let keep = Keep {
            client: options.keep_client.clamp(1, MOST_KEPT).next_multiple_of(PIECE),
            server: options.keep_server.min(PIECE),
        };
        let site = Site { abi, server: options.server, ports: found.ports, keep, rings: &rings, options };
        let on = site.switch_on()?;
        let mut tap = Self {
            server: options.server,
            keep,
            follows: found.follows,
            rings,
            on,
            process,
            ended: false,
            joined: Vec::new(),
            taken: 0,
            left_out: 0,
            rest: SHORTEST_REST,
            to_unix_ns: 0,
            clock_read_ns: 0,
        };
        tap.read_clock();
        tap.join(&found.listening, &options.ports)?;
        Ok(tap)
    }

    pub fn hooks(&self) -> Hooks {
        self.on.hooks
    }

    /// Why it is system calls, where sockets would have been better.
    pub fn fallen_back(&self) -> Option<&str> {
        self.on.fallen_back.as_deref()
    }

    /// The library inside which TLS sessions are read, or why they are not.
    pub fn tls(&self) -> Result<&str, &str> {
        self.on.tls.as_deref().map_err(String::as_str)
    }

    /// The sockets on which connections come in that are looked at, in words.
    pub fn follows(&self) -> &[String] {
        &self.follows
    }

    /// Where connections go by descriptors: new ones count from now on, and so do those that are open.
    fn join(&mut self, listening: &[u32], ports: &[u16]) -> Result<(), TapError> {
        let Some(entries) = &self.on.descriptors else { return Ok(()) };
        let entry = |fd: u32| Some(fd as usize).filter(|fd| *fd < entries.entries());
        for fd in listening.iter().filter_map(|fd| entry(*fd)) {
            entries.word(fd, 0).store(LISTENING, Ordering::Release);
        }
        // Only now: whoever came in between is in this list, or was seen.
        for (fd, peer) in Descriptors::of(self.server, ports)?.clients {
            let Some(entry) = entry(fd) else { continue };
            let socket = now_ns() >> 10 << 20 | u64::from(fd);
            let word = entries.word(entry, 0);
            if word.compare_exchange(0, socket, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            if descriptors::is_socket(self.server, fd) {
                self.joined.push((socket, peer.map(|peer| (peer.ip(), peer.port()))));
            } else {
                // Closed in between, unseen.
                let _ = word.compare_exchange(socket, 0, Ordering::AcqRel, Ordering::Acquire);
            }
        }
        Ok(())
    }

    /// Hands on what has come, after leaving the ring alone for a while (`wait` at most, a signal ends it): the
    /// server is never interrupted to say that there is something. Batches are larger than at a call each.
    ///
    /// # Errors
    /// The server has ended (and everything it said was handed on), or what `each` answers.
    pub fn take<E: From<TapError>>(
        &mut self,
        wait: Duration,
        mut each: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.ended {
            return Err(TapError::Ended { pid: self.server }.into());
        }
        self.sleep(self.rest.min(wait));
        self.read_clock();
        for (socket, peer) in std::mem::take(&mut self.joined) {
            let (time_ns, what) = (self.clock_read_ns.wrapping_add(self.to_unix_ns), What::Met);
            let none = Record {
                time_ns,
                socket,
                what,
                position: 0,
                after: 0,
                length: 0,
                bytes: &[],
                deciphered: false,
                peer,
            };
            each(&none)?;
        }
        let (keep, to_unix_ns, taken) = (self.keep, self.to_unix_ns, &mut self.taken);
        let fullest = self.rings.drain(now_ns(), |bytes| {
            *taken += 1;
            Record::read(bytes, keep, to_unix_ns).map_or(Ok(()), |record| each(&record))
        })?;
        // Less than an eighth of a ring: twice as long may pass; more than a quarter: half as long.
        if fullest > self.rings.size() / 4 {
            self.rest = (self.rest / 2).max(SHORTEST_REST);
        } else if fullest < self.rings.size() / 8 {
            self.rest = (self.rest * 2).min(LONGEST_REST);
        }
        Ok(())
    }

    /// Sleeps, or hears that the server has ended: then what is in the ring now is the last.
    fn sleep(&mut self, rest: Duration) {
        let timeout =
            rest.as_millis().try_into().map_or(PollTimeout::MAX, |ms: u16| PollTimeout::from(ms.max(1)));
        let mut fds = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        self.ended = matches!(poll(&mut fds, timeout), Ok(count) if count > 0);
    }

    /// Records bear CLOCK_MONOTONIC; the wall clock may be set at any time.
    fn read_clock(&mut self) {
        const EVERY_NS: u64 = 1_000_000_000;
        let now = now_ns();
        if self.clock_read_ns == 0 || now - self.clock_read_ns > EVERY_NS {
            let unix = clock_gettime(ClockId::CLOCK_REALTIME)
                .map_or(now, |t| t.tv_sec().unsigned_abs() * EVERY_NS + t.tv_nsec().unsigned_abs());
            self.to_unix_ns = unix.wrapping_sub(now);
            self.clock_read_ns = now;
        }
    }

    /// Switches the programs off; what they have written until now can still be taken.
    pub fn close(&mut self) {
        for program in &mut self.on.programs {
            program.link = None;
        }
    }

    pub fn counters(&mut self) -> Counters {
        let mut counters = Counters { taken: self.taken, ..Counters::default() };
        let mut left_out = 0;
        for Program { rooms, fd, .. } in &self.on.programs {
            for cpu in 0..rooms.entries() {
                counters.passed += bpf::count(rooms.word(cpu, PASSED));
                counters.lost += bpf::count(rooms.word(cpu, LOST));
            }
            // Older kernels, or rights that were given up since: what was known stands.
            left_out += bpf::left_out(fd).unwrap_or(0);
        }
        self.left_out = self.left_out.max(left_out);
        Counters { left_out: self.left_out, ..counters }
    }
}

/// Programs in the kernel know processes by the numbers of the host, which a container does not see.
fn of_the_whole_host() -> Result<(), TapError> {
    /// PROC_PID_INIT_INO
    const WHOLE_HOST: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() != WHOLE_HOST => Err(TapError::NotHere(
            "sockets cannot be looked at from within a container that has its own process numbers: run it on the host"
                .into(),
        )),
        _ => Ok(()),
    }
}

fn open_process(pid: u32) -> Result<OwnedFd, TapError> {
    // SAFETY: no pointers; the answer is checked before it is used.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(fd) {
        // SAFETY: the descriptor is new, open, and nobody else's.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => {
                TapError::NoProcess(pid)
            }
            error => TapError::refused("watch the server's process", error),
        }),
    }
}
