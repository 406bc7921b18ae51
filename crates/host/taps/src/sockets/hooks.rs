//! Attachment of the programs to tracepoints, with fallbacks. Reads and moves no records.

use super::Options;
use super::bpf::{self, Array, Hook};
use super::btf::Btf;
use super::error::TapError;
use super::program::{
    self, Abi, CALL, COUNTS, ENTRY, ROOM, Scene, View, at_begin_of_tls, at_return_of_tls, at_socket,
};
use super::record::{CLIENT, Keep, SERVER};
use super::ring::Rings;
use super::tls::Library;
use super::uprobe::{self, Moment};
use std::os::fd::{AsRawFd, OwnedFd};
use std::{fmt, io};

/// Writes a program for a tap.
type Writing<'a> = dyn Fn(Scene<'_>) -> Option<Vec<u64>> + 'a;

/// Connections (and TLS sessions) that are known; the more, the more memory of the kernel.
const MOST_CONNECTIONS: u32 = 1 << 16;
/// More descriptors than a server of 100,000 connections has.
const MOST_DESCRIPTORS: usize = 1 << 18;
/// Threads that are in the TLS library at a time.
const MOST_THREADS: u32 = 1 << 14;

/// Tracepoints of the kernel programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hooks {
    /// At the tracepoints that every socket passes when bytes have moved; Linux 6.3 and type information.
    Sockets,
    /// At the tracepoints that every system call of the host passes.
    Calls,
}

impl fmt::Display for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hooks::Sockets => "tracepoints of sockets",
            Hooks::Calls => "tracepoints of all system calls",
        })
    }
}

/// A program in the kernel.
#[derive(Debug)]
pub struct Program {
    pub rooms: Array,
    pub fd: OwnedFd,
    /// On while this is.
    pub link: Option<OwnedFd>,
}

/// All that is switched on.
#[derive(Debug)]
pub struct Switched {
    pub hooks: Hooks,
    /// Why it is system calls, where sockets were tried.
    pub fallen_back: Option<String>,
    /// The TLS library that is captured, or the reason why none is.
    pub tls: Result<String, String>,
    /// What is kept of the server's descriptors, where connections go by these.
    pub descriptors: Option<Array>,
    pub programs: Vec<Program>,
}

/// What all programs of a tap are made of.
pub struct Site<'a> {
    pub abi: &'static Abi,
    pub server: u32,
    /// TCP ports on which it listens.
    pub ports: Vec<u16>,
    pub keep: Keep,
    pub rings: &'a Rings,
    pub options: &'a Options,
}

/// Maps that several programs share.
#[derive(Clone, Copy)]
struct Shared {
    entries: i32,
}

impl Site<'_> {
    /// # Errors
    /// Not permitted, or not possible here; what is inside TLS is no reason for either.
    pub fn switch_on(&self) -> Result<Switched, TapError> {
        match self.options.hooks {
            Some(Hooks::Sockets) => self.at_sockets(),
            Some(Hooks::Calls) => self.at_calls(),
            None => match self.at_sockets() {
                Ok(on) => Ok(on),
                // Nor would the others be permitted.
                Err(error @ TapError::NotPermitted { .. }) => Err(error),
                Err(error) => match self.at_calls() {
                    Ok(on) => Ok(Switched { fallen_back: Some(error.to_string()), ..on }),
                    Err(also) => Err(TapError::NotHere(format!("{error}; and system calls: {also}"))),
                },
            },
        }
    }

    fn at_sockets(&self) -> Result<Switched, TapError> {
        let path = || self.options.btf.display().to_string();
        let bytes = std::fs::read(&self.options.btf).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                TapError::NotHere(format!("this kernel gives no type information: there is no {}", path()))
            }
            _ => TapError::Unreadable { path: path(), source },
        })?;
        let bad = |source| TapError::BadBtf { path: path(), source };
        let btf = Btf::new(&bytes).map_err(bad)?;
        let tracepoint = |name: &str| {
            let missing =
                || TapError::NotHere(format!("this kernel has no tracepoint {name}: Linux 6.3 brought it"));
            btf.tracepoint(name).map_err(bad)?.ok_or_else(missing)
        };
        let member = |of: &str, name: &str| {
            let missing = || TapError::NotHere(format!("this kernel's {of} has no member {name}"));
            Ok(btf.member(of, name).map_err(bad)?.ok_or_else(missing)? as i32)
        };
        let (received, sent) = (tracepoint("sock_recv_length")?, tracepoint("sock_send_length")?);
        // What was not used for longest goes.
        let entries = table("toll_sockets", ENTRY, MOST_CONNECTIONS, true)?;
        let shared = Shared { entries: entries.as_raw_fd() };
        let calls = table("toll_tls_calls", CALL, MOST_THREADS, false)?;
        let library = Library::of(self.server);
        let view = View {
            ports: self.ports.clone(),
            unix_name: member("unix_sock", "addr")?,
            v6_peer: member("sock_common", "skc_v6_daddr")?,
            tls_calls: library.is_ok().then_some(calls.as_raw_fd()),
        };
        let at = |side| {
            let view = &view;
            move |scene: Scene<'_>| at_socket(scene, side, view)
        };
        let mut programs = vec![
            self.program("toll_received", Hook::Typed(received), shared, at(CLIENT))?,
            self.program("toll_sent", Hook::Typed(sent), shared, at(SERVER))?,
        ];
        let tls = library.and_then(|library| {
            programs.extend(self.inside_tls(&library, &calls, shared).map_err(|error| error.to_string())?);
            Ok(library.name)
        });
        Ok(Switched { hooks: Hooks::Sockets, fallen_back: None, tls, descriptors: None, programs })
    }

    fn at_calls(&self) -> Result<Switched, TapError> {
        let descriptors = Array::new("toll_sockets", ENTRY, descriptors_of(self.server))
            .map_err(|error| TapError::refused("make a map", error))?;
        let shared = Shared { entries: descriptors.fd.as_raw_fd() };
        let programs = vec![
            self.program(
                "toll_call_begins",
                Hook::Tracepoint("sys_enter"),
                shared,
                program::at_begin_of_all,
            )?,
            self.program(
                "toll_call_returns",
                Hook::Tracepoint("sys_exit"),
                shared,
                program::at_return_of_all,
            )?,
        ];
        let tls = Err(format!("it takes {}", Hooks::Sockets));
        Ok(Switched { hooks: Hooks::Calls, fallen_back: None, tls, descriptors: Some(descriptors), programs })
    }

    /// By what the server calls in its TLS library.
    fn inside_tls(
        &self,
        library: &Library,
        calls: &OwnedFd,
        shared: Shared,
    ) -> Result<Vec<Program>, TapError> {
        let sockets = table("toll_tls_sockets", 8, MOST_CONNECTIONS, true)?;
        let (of_sockets, of_calls) = (sockets.as_raw_fd(), calls.as_raw_fd());
        let [read, write] = library.offsets;
        let begins = |scene: Scene<'_>| at_begin_of_tls(scene, of_calls);
        let received = |scene: Scene<'_>| at_return_of_tls(scene, CLIENT, of_calls, of_sockets);
        let sent = |scene: Scene<'_>| at_return_of_tls(scene, SERVER, of_calls, of_sockets);
        let programs: [(&'static str, u64, Moment, &Writing<'_>); 4] = [
            ("toll_tls_reads", read, Moment::Begin, &begins),
            ("toll_tls_writes", write, Moment::Begin, &begins),
            ("toll_tls_read", read, Moment::Return, &received),
            ("toll_tls_wrote", write, Moment::Return, &sent),
        ];
        let all = programs.into_iter().map(|(name, offset, moment, write)| {
            // Those at the beginning write no records.
            let room = if moment == Moment::Return { ROOM } else { COUNTS };
            let (rooms, fd) = self.load(name, Hook::Process, shared, room, write)?;
            let link = uprobe::attach(&fd, &library.path, offset, moment, self.server)
                .map_err(|error| TapError::refused("look at the server's TLS library", error))?;
            Ok(Program { rooms, fd, link: Some(link) })
        });
        all.collect()
    }

    fn program(
        &self,
        name: &'static str,
        hook: Hook,
        shared: Shared,
        write: impl Fn(Scene<'_>) -> Option<Vec<u64>>,
    ) -> Result<Program, TapError> {
        let (rooms, fd) = self.load(name, hook, shared, ROOM, write)?;
        let link = bpf::attach(&fd, hook).map_err(|error| TapError::refused("switch a program on", error))?;
        Ok(Program { rooms, fd, link: Some(link) })
    }

    fn load(
        &self,
        name: &'static str,
        hook: Hook,
        shared: Shared,
        room: usize,
        write: impl Fn(Scene<'_>) -> Option<Vec<u64>>,
    ) -> Result<(Array, OwnedFd), TapError> {
        let rooms =
            Array::new("toll_rooms", room, cpus()).map_err(|error| TapError::refused("make a map", error))?;
        let scene = Scene {
            abi: self.abi,
            server: self.server as i32,
            keep: self.keep,
            entries: shared.entries,
            rings: self.rings.by_cpu.as_raw_fd(),
            rooms: rooms.fd.as_raw_fd(),
        };
        let code = write(scene).ok_or_else(|| {
            TapError::NotHere(format!("the program {name} cannot be written for this machine"))
        })?;
        Ok((rooms, bpf::load(name, &code, hook)?))
    }
}

fn table(name: &str, value_size: usize, entries: u32, keep_recent: bool) -> Result<OwnedFd, TapError> {
    bpf::table(name, value_size, entries, keep_recent).map_err(|error| TapError::refused("make a map", error))
}

/// How long the server's table of descriptors may become.
fn descriptors_of(pid: u32) -> usize {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let most = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
    most.unwrap_or(MOST_DESCRIPTORS).clamp(1024, MOST_DESCRIPTORS)
}

/// Places for CPUs: numbers of CPUs may have holes.
pub fn cpus() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(1024, |last| last + 1)
}
