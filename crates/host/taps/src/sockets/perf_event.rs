//! Attachment of a program through perf_event_open(2): to a library function (uprobe), or to a tracepoint. Knows
//! nothing of a program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `_IOW('$', 8, u32)` and `_IO('$', 0)` of uapi/linux/perf_event.h.
const SET_PROGRAM: libc::c_ulong = 0x4004_2408;
const ENABLE: libc::c_ulong = 0x2400;
/// The kernel's own number for such events, and the bit that asks for the return.
const KIND: &str = "/sys/bus/event_source/devices/uprobe/type";
const RETURN: &str = "/sys/bus/event_source/devices/uprobe/format/retprobe";

/// PERF_TYPE_TRACEPOINT, and where the kernel numbers its tracepoints.
const TRACEPOINT: u32 = 2;
const TRACEPOINTS: &str = "/sys/kernel/tracing/events";

/// Of a function, where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbePoint {
    Entry,
    Return,
}

/// The beginning of `struct perf_event_attr` as Linux 4.1 had it (PERF_ATTR_SIZE_VER5).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    unused: [u64; 5],
    path: u64,
    offset: u64,
    unused_too: [u64; 5],
}

/// Runs `program` whenever process `pid` calls what lies at `offset` of the file `path`; off when dropped.
///
/// # Errors
/// This kernel has none of these events, or does not permit it.
pub fn attach_uprobe(
    program: &OwnedFd,
    path: &Path,
    offset: u64,
    moment: ProbePoint,
    pid: u32,
) -> io::Result<OwnedFd> {
    let config = match moment {
        ProbePoint::Entry => 0,
        ProbePoint::Return => 1u64 << (read_number(RETURN, "config:")? & 63),
    };
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = Attributes {
        kind: read_number(KIND, "")?,
        config,
        path: path.as_ptr() as u64,
        offset,
        ..Attributes::default()
    };
    attach(program, attributes, pid as libc::pid_t, -1)
}

/// Runs `program` at a tracepoint (`GROUP/NAME`), on all CPUs, with preemption disabled; off when dropped.
///
/// # Errors
/// This kernel has no such tracepoint, or does not permit it.
pub fn attach_tracepoint(program: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let config = u64::from(read_number(&format!("{TRACEPOINTS}/{name}/id"), "")?);
    // Programs of one event run on every CPU.
    attach(program, Attributes { kind: TRACEPOINT, config, ..Attributes::default() }, -1, 0)
}

/// The number in a file of the kernel, behind `prefix`.
fn read_number(path: &str, prefix: &str) -> io::Result<u32> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {path}: {error}")))?;
    let number = text.trim().strip_prefix(prefix).and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{path} says {:?}", text.trim())))
}

/// `pid` and `cpu`: -1 for all. What `attributes` points to must outlive the call.
fn attach(
    program: &OwnedFd,
    attributes: Attributes,
    pid: libc::pid_t,
    cpu: libc::c_int,
) -> io::Result<OwnedFd> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
    let (no_group, close_on_exec) = (-1, 8);
    let at = &raw const attributes;
    // SAFETY: the attributes are of the length that they say, and they and the path in them outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, at, pid, cpu, no_group, close_on_exec) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor is new, open, and nobody else's.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    perf_ioctl(&event, SET_PROGRAM, program.as_raw_fd())?;
    perf_ioctl(&event, ENABLE, 0)?;
    Ok(event)
}

fn perf_ioctl(event: &OwnedFd, what: libc::c_ulong, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both requests take an integer, and the descriptor is open.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), what, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_laid_out_as_the_kernels_own() {
        assert_eq!(size_of::<Attributes>(), 112);
        assert_eq!(
            (std::mem::offset_of!(Attributes, path), std::mem::offset_of!(Attributes, offset)),
            (56, 64)
        );
    }
}
