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
mod kernel_version;
mod perf_event;
mod program;
mod record;
mod return_probes;
mod ring;
mod tls;

pub use descriptors::listens_on;
pub use error::TapError;
pub use hooks::HookKind;
pub use record::{Record, RecordKind};
pub use return_probes::check_return_probes;

use crate::architecture::OWN;
use crate::clock::now_ns;
use descriptors::Descriptors;
use hooks::{AttachedHooks, HookSetup, LoadedProgram, possible_cpus};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use program::{LISTENING, LOST, PASSED};
use record::{PIECE, SnapLengths};
use ring::Rings;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Options of the tap: server, sockets, and bytes to keep.
#[derive(Debug, Clone)]
pub struct SocketTapOptions {
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
    /// `None`: sockets in the way that loses nothing on this kernel, and system calls where these cannot be had.
    pub hooks: Option<HookKind>,
    /// The kernel's type information.
    pub btf: PathBuf,
    /// Says if this process may be given return probes, without which nothing inside TLS is read. By default
    /// [`check_return_probes`].
    pub check_return_probes: fn(u32) -> Result<(), String>,
}

impl SocketTapOptions {
    /// For this process, with what a capture of queries needs.
    pub fn for_server(server: u32) -> Self {
        Self {
            server,
            ports: Vec::new(),
            keep_client: 1 << 20,
            keep_server: 128,
            buffer_bytes: 64 << 20,
            hooks: None,
            btf: PathBuf::from("/sys/kernel/btf/vmlinux"),
            check_return_probes,
        }
    }
}

/// Since the tap was opened: `passed` = handed on + `lost` + what is still in the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Records written down by the kernel's side.
    pub passed: u64,
    /// Handed on by [`SocketTap::poll_records`].
    pub delivered: u64,
    /// The ring had no room for them.
    pub lost: u64,
    /// Runs that the kernel left out because another of the same program was under way on the CPU: calls of any process
    /// of the host, so that this is a bound for those of the server. They are in none of the other counts.
    pub missed_runs: u64,
}

/// Looks at a server's sockets for as long as it lives.
#[derive(Debug)]
pub struct SocketTap {
    server: u32,
    keep: SnapLengths,
    followed_sockets: Vec<String>,
    rings: Rings,
    hooks: AttachedHooks,
    /// Becomes readable when the server ends.
    process: OwnedFd,
    server_ended: bool,
    /// Connections that were open before, yet to be told of.
    existing_connections: Vec<(u64, Option<(IpAddr, u16)>)>,
    delivered: u64,
    missed_runs: u64,
    poll_pause: Duration,
    to_unix_ns: u64,
    clock_read_ns: u64,
}

const MAX_SNAP_LEN: usize = 64 << 20;
/// How long to leave the rings alone between two looks: the longer, the fuller they are found. What comes in the longest
/// pause of a busy server still fits into the CPU's caches.
const MIN_POLL_PAUSE: Duration = Duration::from_millis(1);
const MAX_POLL_PAUSE: Duration = Duration::from_millis(20);
/// Between two looks at the rings of a server that rests.
const REST_PAUSE: Duration = Duration::from_millis(100);
/// Most bytes in a ring of a server that rests.
const REST_BYTES: usize = 256 << 10;
/// A smaller ring rests for a shorter time: 40 MB/s of each of its CPUs fit into one of this size meanwhile.
const REST_RING_BYTES: usize = 16 << 20;

impl SocketTap {
    /// Opens the ring, loads the programs, switches them on and finds the connections that are there already.
    ///
    /// # Errors
    /// Not permitted (with what is missing), not possible on this kernel or machine, or no such server.
    pub fn open(options: &SocketTapOptions) -> Result<Self, TapError> {
        let own = OWN.as_ref().ok_or_else(|| {
            let machine = std::env::consts::ARCH;
            TapError::Unsupported(format!("the socket tap needs x86_64 or aarch64; this is {machine}"))
        })?;
        check_pid_namespace()?;
        let process = open_process(options.server)?;
        let found = Descriptors::of_process(options.server, &options.ports)?;
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
        let rings = Rings::new(options.buffer_bytes, possible_cpus()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EINVAL) => {
                    TapError::Unsupported("this kernel has no ring for programs: Linux 5.8 brought it".into())
                }
                _ => TapError::from_kernel("make a ring that the kernel fills", error),
            }
        })?;
        let keep = SnapLengths {
            client: options.keep_client.clamp(1, MAX_SNAP_LEN).next_multiple_of(PIECE),
            server: options.keep_server.min(PIECE),
        };
        let site = HookSetup {
            abi: &own.abi,
            server: options.server,
            ports: found.ports,
            keep,
            rings: &rings,
            options,
        };
        let on = site.attach()?;
        let mut tap = Self {
            server: options.server,
            keep,
            followed_sockets: found.followed,
            rings,
            hooks: on,
            process,
            server_ended: false,
            existing_connections: Vec::new(),
            delivered: 0,
            missed_runs: 0,
            poll_pause: MIN_POLL_PAUSE,
            to_unix_ns: 0,
            clock_read_ns: 0,
        };
        tap.read_clock();
        tap.add_existing_connections(&found.listening, &options.ports)?;
        Ok(tap)
    }

    pub fn hook_kind(&self) -> HookKind {
        self.hooks.hooks
    }

    /// Why it is system calls, where sockets would have been better.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.hooks.fallback_reason.as_deref()
    }

    /// The library inside which TLS sessions are read, or why they are not.
    pub fn tls_library(&self) -> Result<&str, &str> {
        self.hooks.tls_library.as_deref().map_err(String::as_str)
    }

    /// The sockets on which connections come in that are looked at, in words.
    pub fn followed_sockets(&self) -> &[String] {
        &self.followed_sockets
    }

    /// Where connections go by descriptors: new ones count from now on, and so do those that are open.
    fn add_existing_connections(&mut self, listening: &[u32], ports: &[u16]) -> Result<(), TapError> {
        let Some(entries) = &self.hooks.descriptors else { return Ok(()) };
        let entry = |fd: u32| Some(fd as usize).filter(|fd| *fd < entries.entries());
        for fd in listening.iter().filter_map(|fd| entry(*fd)) {
            entries.word(fd, 0).store(LISTENING, Ordering::Release);
        }
        // Only now: whoever came in between is in this list, or was seen.
        for (fd, peer) in Descriptors::of_process(self.server, ports)?.clients {
            let Some(entry) = entry(fd) else { continue };
            let socket = now_ns() >> 10 << 20 | u64::from(fd);
            let word = entries.word(entry, 0);
            if word.compare_exchange(0, socket, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            if descriptors::is_socket(self.server, fd) {
                self.existing_connections.push((socket, peer.map(|peer| (peer.ip(), peer.port()))));
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
    pub fn poll_records<E: From<TapError>>(
        &mut self,
        wait: Duration,
        mut each: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.server_ended {
            return Err(TapError::Ended { pid: self.server }.into());
        }
        self.wait_for_records(self.poll_pause.min(wait));
        self.read_clock();
        for (socket, peer) in std::mem::take(&mut self.existing_connections) {
            let (time_ns, what) = (self.clock_read_ns.wrapping_add(self.to_unix_ns), RecordKind::Existing);
            let none = Record {
                time_ns,
                socket,
                kind: what,
                position: 0,
                after: 0,
                length: 0,
                bytes: &[],
                decrypted: false,
                peer,
            };
            each(&none)?;
        }
        let (keep, to_unix_ns, taken) = (self.keep, self.to_unix_ns, &mut self.delivered);
        let fullest = self.rings.drain(now_ns(), |bytes| {
            *taken += 1;
            Record::read(bytes, keep, to_unix_ns).map_or(Ok(()), |record| each(&record))
        })?;
        self.poll_pause = next_pause(self.poll_pause, fullest, self.rings.size());
        Ok(())
    }

    /// Sleeps, or hears that the server has ended: then what is in the ring now is the last.
    fn wait_for_records(&mut self, rest: Duration) {
        let timeout =
            rest.as_millis().try_into().map_or(PollTimeout::MAX, |ms: u16| PollTimeout::from(ms.max(1)));
        let mut fds = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        self.server_ended = matches!(poll(&mut fds, timeout), Ok(count) if count > 0);
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
        for program in &mut self.hooks.programs {
            program.link = None;
        }
    }

    pub fn counters(&mut self) -> SocketCounters {
        let mut counters = SocketCounters { delivered: self.delivered, ..SocketCounters::default() };
        let mut left_out = 0;
        for LoadedProgram { scratch: rooms, fd, .. } in &self.hooks.programs {
            for cpu in 0..rooms.entries() {
                counters.passed += bpf::read_counter(rooms.word(cpu, PASSED));
                counters.lost += bpf::read_counter(rooms.word(cpu, LOST));
            }
            // Older kernels, or rights that were given up since: what was known stands.
            left_out += bpf::missed_runs(fd).unwrap_or(0);
        }
        self.missed_runs = self.missed_runs.max(left_out);
        SocketCounters { missed_runs: self.missed_runs, ..counters }
    }
}

/// How long to leave the rings alone, of which the fullest held so many bytes of its `size` after `pause`.
fn next_pause(pause: Duration, fullest: usize, size: usize) -> Duration {
    if fullest > size / 4 {
        (pause.min(MAX_POLL_PAUSE) / 2).max(MIN_POLL_PAUSE)
    } else if fullest > REST_BYTES.min(size / 8) {
        let longer = if fullest < size / 8 { pause * 2 } else { pause };
        longer.min(MAX_POLL_PAUSE)
    } else {
        let rest = REST_PAUSE.mul_f64((size as f64 / REST_RING_BYTES as f64).min(1.0));
        (pause * 2).min(rest.max(MAX_POLL_PAUSE))
    }
}

/// Programs in the kernel know processes by the numbers of the host, which a container does not see.
fn check_pid_namespace() -> Result<(), TapError> {
    /// PROC_PID_INIT_INO
    const WHOLE_HOST: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() != WHOLE_HOST => Err(TapError::Unsupported(
            "the socket tap does not work in a container with its own PID namespace. Run it on the host."
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
            error => TapError::from_kernel("watch the server's process", error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_a_server_that_rests_are_looked_at_ten_times_a_second_and_of_a_busy_one_often_enough() {
        let settle = |size: usize, held: usize| {
            (0..10).fold(MIN_POLL_PAUSE, |pause, _| next_pause(pause, held, size)).as_millis()
        };
        let mib = 1 << 20;
        assert_eq!([64 * mib, 16 * mib, 8 * mib, mib].map(|size| settle(size, 0)), [100, 100, 50, 20]);
        assert_eq!(settle(64 * mib, REST_BYTES), 100);
        assert_eq!(settle(64 * mib, mib), 20);
        assert_eq!(next_pause(REST_PAUSE, mib, 64 * mib), MAX_POLL_PAUSE);
        assert_eq!(next_pause(REST_PAUSE, 17 * mib, 64 * mib), MAX_POLL_PAUSE / 2);
        assert_eq!(settle(64 * mib, 17 * mib), 1);
        assert_eq!(next_pause(MAX_POLL_PAUSE / 4, 10 * mib, 64 * mib), MAX_POLL_PAUSE / 4);
    }
}
