//! Attachment of the programs to tracepoints, with fallbacks. Reads and moves no records.

use super::SocketTapOptions;
use super::bpf::{self, Array, AttachType};
use super::btf::Btf;
use super::error::TapError;
use super::kernel_version;
use super::perf_event::{self, ProbePoint};
use super::program::{
    self, CALL, COUNTS, ENTRY, PreemptionControl, ProgramContext, SCRATCH_BYTES, SocketArguments,
    SocketFilter, at_begin_of_tls, at_return_of_tls, socket_program,
};
use super::record::{CLIENT, SERVER, SnapLengths};
use super::ring::Rings;
use super::tls::TlsLibrary;
use crate::architecture::Abi;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{fmt, io};

/// Writes a program for a tap.
type ProgramBuilder<'a> = dyn Fn(ProgramContext<'_>) -> Option<Vec<u64>> + 'a;

/// Connections (and TLS sessions) that are known; the more, the more memory of the kernel.
const MAX_CONNECTIONS: u32 = 1 << 16;
/// More descriptors than a server of 100,000 connections has.
const MAX_DESCRIPTORS: usize = 1 << 18;
/// Threads that are in the TLS library at a time.
const MAX_THREADS: u32 = 1 << 14;
/// Since then a program at a tracepoint can be preempted, and the kernel skips it for all threads that run on the CPU
/// meanwhile. Programs at perf events still run with preemption disabled. Source: `DECLARE_TRACE` of
/// include/linux/tracepoint.h, `DECLARE_EVENT_CLASS` of include/trace/perf.h.
const PREEMPTS_TRACEPOINTS: [u32; 3] = [7, 0, 0];

/// Tracepoints of the kernel programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// At the tracepoints that every socket passes when bytes have moved; Linux 6.3 and type information.
    Sockets,
    /// At the perf events of the same tracepoints, where nothing preempts a program; Linux 6.18 and tracefs.
    SocketEvents,
    /// At the tracepoints that every system call of the host passes.
    SystemCalls,
}

impl fmt::Display for HookKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HookKind::Sockets => "tracepoints of sockets",
            HookKind::SocketEvents => "tracepoints of sockets (perf events)",
            HookKind::SystemCalls => "tracepoints of all system calls",
        })
    }
}

/// A program in the kernel.
#[derive(Debug)]
pub struct LoadedProgram {
    pub scratch: Array,
    pub fd: OwnedFd,
    /// On while this is.
    pub link: Option<OwnedFd>,
}

/// All that is switched on.
#[derive(Debug)]
pub struct AttachedHooks {
    pub hooks: HookKind,
    /// Why it is system calls, where sockets were tried.
    pub fallback_reason: Option<String>,
    /// The TLS library that is captured, or the reason why none is.
    pub tls_library: Result<String, String>,
    /// What is kept of the server's descriptors, where connections go by these.
    pub descriptors: Option<Array>,
    pub programs: Vec<LoadedProgram>,
}

/// What all programs of a tap are made of.
pub struct HookSetup<'a> {
    pub abi: &'static Abi,
    pub server: u32,
    /// TCP ports on which it listens.
    pub ports: Vec<u16>,
    pub keep: SnapLengths,
    pub rings: &'a Rings,
    pub options: &'a SocketTapOptions,
}

/// What several programs share.
#[derive(Clone, Copy)]
struct Shared {
    /// The map of connections.
    entries: i32,
    preemption: Option<PreemptionControl>,
}

impl HookSetup<'_> {
    /// # Errors
    /// Not permitted, or not possible here; what is inside TLS is no reason for either.
    pub fn attach(&self) -> Result<AttachedHooks, TapError> {
        if let Some(kind) = self.options.hooks {
            return self.attach_to(kind);
        }
        let mut reasons: Vec<String> = Vec::new();
        for &kind in kinds_to_try(&kernel_version::release()) {
            match self.attach_to(kind) {
                Ok(on) if reasons.is_empty() => return Ok(on),
                Ok(on) => return Ok(AttachedHooks { fallback_reason: Some(reasons.join("; ")), ..on }),
                // Nor would the others be permitted.
                Err(error @ TapError::NotPermitted { .. }) => return Err(error),
                Err(error) if kind == HookKind::SystemCalls => {
                    reasons.push(format!("and system calls: {error}"))
                }
                Err(error) => reasons.push(error.to_string()),
            }
            reasons.dedup();
        }
        Err(TapError::Unsupported(reasons.join("; ")))
    }

    fn attach_to(&self, kind: HookKind) -> Result<AttachedHooks, TapError> {
        match kind {
            HookKind::Sockets | HookKind::SocketEvents => self.attach_to_sockets(kind),
            HookKind::SystemCalls => self.attach_to_system_calls(),
        }
    }

    fn attach_to_sockets(&self, kind: HookKind) -> Result<AttachedHooks, TapError> {
        let path = || self.options.btf.display().to_string();
        let bytes = std::fs::read(&self.options.btf).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => TapError::Unsupported(format!(
                "this kernel gives no type information: there is no {}",
                path()
            )),
            _ => TapError::Unreadable { path: path(), source },
        })?;
        let bad = |source| TapError::BadBtf { path: path(), source };
        let btf = Btf::new(&bytes).map_err(bad)?;
        let tracepoint = |name: &str| {
            let missing = || {
                TapError::Unsupported(format!("this kernel has no tracepoint {name}: Linux 6.3 brought it"))
            };
            btf.tracepoint(name).map_err(bad)?.ok_or_else(missing)
        };
        let member = |of: &str, name: &str| {
            let missing = || TapError::Unsupported(format!("this kernel's {of} has no member {name}"));
            Ok(btf.member(of, name).map_err(bad)?.ok_or_else(missing)? as i32)
        };
        let (received, sent) = (tracepoint("sock_recv_length")?, tracepoint("sock_send_length")?);
        let (at_received, at_sent, arguments) = if kind == HookKind::SocketEvents {
            let field = |name| member("trace_event_raw_sock_msg_length", name).map(|offset| offset as i16);
            (
                AttachType::PerfTracepoint("sock/sock_recv_length"),
                AttachType::PerfTracepoint("sock/sock_send_length"),
                SocketArguments::Event {
                    socket: field("sk")?,
                    result: field("ret")?,
                    flags: field("flags")?,
                    inode: member("sock", "sk_ino")?,
                },
            )
        } else {
            (AttachType::BtfTracepoint(received), AttachType::BtfTracepoint(sent), SocketArguments::Typed)
        };
        // What was not used for longest goes.
        let entries = create_hash_map("toll_sockets", ENTRY, MAX_CONNECTIONS, true)?;
        let function = |name| Ok(btf.function(name).map_err(bad)?.map(|number| number as i32));
        let preemption = function("bpf_preempt_disable")?
            .zip(function("bpf_preempt_enable")?)
            .map(|(disable, enable)| PreemptionControl { disable, enable });
        let shared = Shared { entries: entries.as_raw_fd(), preemption };
        let calls = create_hash_map("toll_tls_calls", CALL, MAX_THREADS, false)?;
        let library = TlsLibrary::find(self.server)
            .and_then(|library| (self.options.check_return_probes)(self.server).map(|()| library));
        let view = SocketFilter {
            ports: self.ports.clone(),
            unix_name: member("unix_sock", "addr")?,
            v6_peer: member("sock_common", "skc_v6_daddr")?,
            tls_calls: library.is_ok().then_some(calls.as_raw_fd()),
            arguments,
        };
        let at = |side| {
            let view = &view;
            move |scene: ProgramContext<'_>| socket_program(scene, side, view)
        };
        // First what the server sends: a command that is seen, and its response is not, would look like one of a client that waits
        // for none.
        let mut programs = vec![
            self.load_and_attach("toll_sent", at_sent, shared, at(SERVER))?,
            self.load_and_attach("toll_received", at_received, shared, at(CLIENT))?,
        ];
        let tls = library.and_then(|library| {
            programs.extend(self.attach_to_tls(&library, &calls, shared).map_err(|error| error.to_string())?);
            Ok(library.name)
        });
        Ok(AttachedHooks {
            hooks: kind,
            fallback_reason: None,
            tls_library: tls,
            descriptors: None,
            programs,
        })
    }

    fn attach_to_system_calls(&self) -> Result<AttachedHooks, TapError> {
        let descriptors = Array::new("toll_sockets", ENTRY, max_descriptors(self.server))
            .map_err(|error| TapError::from_kernel("make a map", error))?;
        let shared = Shared { entries: descriptors.fd.as_raw_fd(), preemption: None };
        let programs = vec![
            self.load_and_attach(
                "toll_call_begins",
                AttachType::RawTracepoint("sys_enter"),
                shared,
                program::system_call_entry_program,
            )?,
            self.load_and_attach(
                "toll_call_returns",
                AttachType::RawTracepoint("sys_exit"),
                shared,
                program::system_call_exit_program,
            )?,
        ];
        let tls = Err(format!("it takes {}", HookKind::Sockets));
        Ok(AttachedHooks {
            hooks: HookKind::SystemCalls,
            fallback_reason: None,
            tls_library: tls,
            descriptors: Some(descriptors),
            programs,
        })
    }

    /// By what the server calls in its TLS library.
    fn attach_to_tls(
        &self,
        library: &TlsLibrary,
        calls: &OwnedFd,
        shared: Shared,
    ) -> Result<Vec<LoadedProgram>, TapError> {
        let sockets = create_hash_map("toll_tls_sockets", 8, MAX_CONNECTIONS, true)?;
        let (of_sockets, of_calls) = (sockets.as_raw_fd(), calls.as_raw_fd());
        let [read, write] = library.offsets;
        let begins = |scene: ProgramContext<'_>| at_begin_of_tls(scene, of_calls);
        let received = |scene: ProgramContext<'_>| at_return_of_tls(scene, CLIENT, of_calls, of_sockets);
        let sent = |scene: ProgramContext<'_>| at_return_of_tls(scene, SERVER, of_calls, of_sockets);
        let programs: [(&'static str, u64, ProbePoint, &ProgramBuilder<'_>); 4] = [
            ("toll_tls_reads", read, ProbePoint::Entry, &begins),
            ("toll_tls_writes", write, ProbePoint::Entry, &begins),
            ("toll_tls_read", read, ProbePoint::Return, &received),
            ("toll_tls_wrote", write, ProbePoint::Return, &sent),
        ];
        let all = programs.into_iter().map(|(name, offset, moment, write)| {
            // Those at the beginning write no records.
            let room = if moment == ProbePoint::Return { SCRATCH_BYTES } else { COUNTS };
            let (rooms, fd) = self.load_program(name, AttachType::Uprobe, shared, room, write)?;
            let link = perf_event::attach_uprobe(&fd, &library.path, offset, moment, self.server)
                .map_err(|error| TapError::from_kernel("look at the server's TLS library", error))?;
            Ok(LoadedProgram { scratch: rooms, fd, link: Some(link) })
        });
        all.collect()
    }

    fn load_and_attach(
        &self,
        name: &'static str,
        hook: AttachType,
        shared: Shared,
        write: impl Fn(ProgramContext<'_>) -> Option<Vec<u64>>,
    ) -> Result<LoadedProgram, TapError> {
        let (rooms, fd) = self.load_program(name, hook, shared, SCRATCH_BYTES, write)?;
        let what = "switch a program on";
        let link = match hook {
            // Who may not read its number may still be permitted the others.
            AttachType::PerfTracepoint(name) => perf_event::attach_tracepoint(&fd, name)
                .map_err(|source| TapError::Failed { what, source })?,
            _ => bpf::attach_program(&fd, hook).map_err(|error| TapError::from_kernel(what, error))?,
        };
        Ok(LoadedProgram { scratch: rooms, fd, link: Some(link) })
    }

    fn load_program(
        &self,
        name: &'static str,
        hook: AttachType,
        shared: Shared,
        room: usize,
        write: impl Fn(ProgramContext<'_>) -> Option<Vec<u64>>,
    ) -> Result<(Array, OwnedFd), TapError> {
        let rooms = Array::new("toll_rooms", room, possible_cpus())
            .map_err(|error| TapError::from_kernel("make a map", error))?;
        let scene = ProgramContext {
            abi: self.abi,
            server: self.server as i32,
            keep: self.keep,
            entries: shared.entries,
            rings: self.rings.by_cpu.as_raw_fd(),
            scratch: rooms.fd.as_raw_fd(),
            preemption: shared.preemption,
        };
        let code = write(scene).ok_or_else(|| {
            TapError::Unsupported(format!("the program {name} cannot be written for this machine"))
        })?;
        Ok((rooms, bpf::load_program(name, &code, hook)?))
    }
}

/// The best first.
fn kinds_to_try(release: &str) -> &'static [HookKind] {
    const ALL: [HookKind; 3] = [HookKind::SocketEvents, HookKind::Sockets, HookKind::SystemCalls];
    if kernel_version::parse(release) >= PREEMPTS_TRACEPOINTS { &ALL } else { &ALL[1..] }
}

fn create_hash_map(
    name: &str,
    value_size: usize,
    entries: u32,
    keep_recent: bool,
) -> Result<OwnedFd, TapError> {
    bpf::create_hash_map(name, value_size, entries, keep_recent)
        .map_err(|error| TapError::from_kernel("make a map", error))
}

/// How long the server's table of descriptors may become.
fn max_descriptors(pid: u32) -> usize {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let most = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
    most.unwrap_or(MAX_DESCRIPTORS).clamp(1024, MAX_DESCRIPTORS)
}

/// Places for CPUs: numbers of CPUs may have holes.
pub fn possible_cpus() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(1024, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_events_are_tried_first_where_tracepoints_can_be_preempted() {
        assert_eq!(kinds_to_try("6.19.14-amd64"), [HookKind::Sockets, HookKind::SystemCalls]);
        for release in ["7.0.0-rc1", "7.2.13+deb14-amd64"] {
            assert_eq!(
                kinds_to_try(release),
                [HookKind::SocketEvents, HookKind::Sockets, HookKind::SystemCalls]
            );
        }
    }
}
