//! Wrapper of the bpf(2) system call: maps, programs and hooks. Knows nothing of a program.

use super::error::TapError;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

// uapi/linux/bpf.h
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROGRAM_LOAD: libc::c_long = 5;
const INFO_BY_DESCRIPTOR: libc::c_long = 15;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const MAP_HASH: u32 = 1;
const MAP_ARRAY: u32 = 2;
/// Forgets what was not used for longest.
const MAP_LRU_HASH: u32 = 9;
const MAP_OF_MAPS: u32 = 12;
const MAP_RING: u32 = 27;
const MAP_MMAPABLE: u32 = 1 << 10;
const TYPE_PROBE: u32 = 2;
const TYPE_TRACEPOINT: u32 = 5;
const TYPE_RAW_TRACEPOINT: u32 = 17;
const TYPE_TRACING: u32 = 26;
const TYPED_TRACEPOINT: u32 = 23;

/// What the helpers that read memory ask for; true of both licences of this program.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";
/// Room for what the verifier says of a program that it refuses.
const LOG: usize = 1 << 20;

/// Attach point of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachType {
    /// At a tracepoint, by its number in the kernel's type information: its arguments have types.
    BtfTracepoint(u32),
    /// At a tracepoint of this name.
    RawTracepoint(&'static str),
    /// At the perf event of a tracepoint (`GROUP/NAME`); `perf_event.rs` switches it on.
    PerfTracepoint(&'static str),
    /// Where a process calls a function of its own; `perf_event.rs` switches it on.
    Uprobe,
}

/// The attributes of a command, as its part of `union bpf_attr`; the kernel takes what is missing for zero.
#[repr(C)]
#[derive(Default)]
struct CreateMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct UpdateMap {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct LoadProgram {
    kind: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_kind: u32,
    btf: u32,
    function_info_size: u32,
    function_info: u64,
    function_infos: u32,
    line_info_size: u32,
    line_info: u64,
    line_infos: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct OpenTracepoint {
    name: u64,
    program: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct InfoByDescriptor {
    descriptor: u32,
    length: u32,
    info: u64,
}

fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let at = std::ptr::from_mut(attributes);
    // SAFETY: the pointer is to the attributes of this command, of the length that is passed; what they point to lives
    // in the callers until this returns.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, at, size_of::<T>()) };
    i32::try_from(answer).ok().filter(|answer| *answer >= 0).ok_or_else(io::Error::last_os_error)
}

fn descriptor<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the command answers with a descriptor that is new, open, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn object_name(name: &str) -> [u8; 16] {
    let mut field = [0; 16];
    let length = name.len().min(15);
    field[..length].copy_from_slice(&name.as_bytes()[..length]);
    field
}

/// Values by number, which this process and the kernel both see.
#[derive(Debug)]
pub struct Array {
    pub fd: OwnedFd,
    mapping: Mapping,
    value_size: usize,
    entries: usize,
}

impl Array {
    /// `value_size`: a multiple of 8.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(name: &str, value_size: usize, entries: usize) -> io::Result<Self> {
        let fd = descriptor(
            MAP_CREATE,
            &mut CreateMap {
                kind: MAP_ARRAY,
                key_size: 4,
                value_size: value_size as u32,
                entries: entries as u32,
                flags: MAP_MMAPABLE,
                name: object_name(name),
                ..CreateMap::default()
            },
        )?;
        let length = (value_size * entries).next_multiple_of(page_size());
        let mapping = Mapping::new(&fd, length, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        Ok(Self { fd, mapping, value_size, entries })
    }

    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The eight bytes at `offset` of a value, both of which must be within.
    pub fn word(&self, entry: usize, offset: usize) -> &AtomicU64 {
        assert!(entry < self.entries && offset + 8 <= self.value_size, "the caller keeps within the map");
        self.mapping.word(entry * self.value_size + offset)
    }
}

/// Values by a key of eight bytes, for programs alone.
///
/// # Errors
/// The kernel refuses.
pub fn create_hash_map(
    name: &str,
    value_size: usize,
    entries: u32,
    keep_recent: bool,
) -> io::Result<OwnedFd> {
    let kind = if keep_recent { MAP_LRU_HASH } else { MAP_HASH };
    let (value_size, name) = (value_size as u32, object_name(name));
    descriptor(
        MAP_CREATE,
        &mut CreateMap { kind, key_size: 8, value_size, entries, name, ..CreateMap::default() },
    )
}

/// A ring of bytes that the kernel fills, `bytes` large: a power of two, of whole pages.
///
/// # Errors
/// The kernel refuses.
pub fn create_ring(bytes: usize) -> io::Result<OwnedFd> {
    let entries = bytes as u32;
    descriptor(
        MAP_CREATE,
        &mut CreateMap { kind: MAP_RING, entries, name: object_name("toll_ring"), ..CreateMap::default() },
    )
}

/// A map in which each of `cpus` finds one of `rings`, which they share out among them.
///
/// # Errors
/// The kernel refuses.
pub fn create_ring_array(rings: &[OwnedFd], cpus: usize) -> io::Result<OwnedFd> {
    let inner = rings.first().map_or(0, |ring| ring.as_raw_fd() as u32);
    let map = descriptor(
        MAP_CREATE,
        &mut CreateMap {
            kind: MAP_OF_MAPS,
            key_size: 4,
            value_size: 4,
            entries: cpus as u32,
            inner,
            name: object_name("toll_rings"),
            ..CreateMap::default()
        },
    )?;
    for (cpu, ring) in (0..cpus as u32).zip(rings.iter().cycle()) {
        let ring = ring.as_raw_fd();
        let (key, value) = (&raw const cpu as u64, &raw const ring as u64);
        let map = map.as_raw_fd() as u32;
        bpf(MAP_UPDATE, &mut UpdateMap { map, key, value, ..UpdateMap::default() })?;
    }
    Ok(map)
}

/// Loads a program: the kernel verifies and compiles it.
///
/// # Errors
/// Not permitted, or the program is refused: then with the verifier's last words.
pub fn load_program(name: &'static str, code: &[u64], hook: AttachType) -> Result<OwnedFd, TapError> {
    let (kind, attach_kind, attach_type) = match hook {
        AttachType::BtfTracepoint(number) => (TYPE_TRACING, TYPED_TRACEPOINT, number),
        AttachType::RawTracepoint(_) => (TYPE_RAW_TRACEPOINT, 0, 0),
        AttachType::PerfTracepoint(_) => (TYPE_TRACEPOINT, 0, 0),
        AttachType::Uprobe => (TYPE_PROBE, 0, 0),
    };
    let attributes = |log: &mut [u8]| LoadProgram {
        kind,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        name: object_name(name),
        attach_kind,
        attach_type,
        ..LoadProgram::default()
    };
    if let Ok(program) = descriptor(PROGRAM_LOAD, &mut attributes(&mut [])) {
        return Ok(program);
    }
    // Once more, to be told why: who is not permitted is told nothing.
    let mut log = vec![0; LOG];
    descriptor(PROGRAM_LOAD, &mut attributes(&mut log)).map_err(|source| match verifier_tail(&log) {
        why if why.is_empty() => TapError::from_kernel("load a program", source),
        why => TapError::Rejected { program: name, why, source },
    })
}

/// The last lines of what the verifier said, its statistics aside.
fn verifier_tail(log: &[u8]) -> String {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("processed ")).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// Switches a program on, until the descriptor is dropped (or this process ends, however it does).
///
/// # Errors
/// The kernel refuses, or has no such tracepoint.
pub fn attach_program(program: &OwnedFd, hook: AttachType) -> io::Result<OwnedFd> {
    let name = match hook {
        AttachType::RawTracepoint(name) => Some(CString::new(name)?),
        // Such a program knows where it belongs.
        AttachType::BtfTracepoint(_) | AttachType::PerfTracepoint(_) | AttachType::Uprobe => None,
    };
    let name = name.as_ref().map_or(0, |name| name.as_ptr() as u64);
    let program = program.as_raw_fd() as u32;
    descriptor(RAW_TRACEPOINT_OPEN, &mut OpenTracepoint { name, program, padding: 0 })
}

/// Number of runs that the kernel skipped because the program was already running on the same CPU.
///
/// # Errors
/// Not permitted any more.
pub fn missed_runs(program: &OwnedFd) -> io::Result<u64> {
    /// Where `recursion_misses` lies in `struct bpf_prog_info`, since Linux 5.12.
    const AT: usize = 208 / 8;
    let mut info = [0u64; AT + 1];
    let (descriptor, length) = (program.as_raw_fd() as u32, size_of_val(&info) as u32);
    bpf(INFO_BY_DESCRIPTOR, &mut InfoByDescriptor { descriptor, length, info: info.as_mut_ptr() as u64 })?;
    Ok(info[AT])
}

pub fn page_size() -> usize {
    // SAFETY: no pointers; the page size is always known.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Memory that is shared with the kernel.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// # Errors
    /// The kernel refuses.
    pub fn new(of: &OwnedFd, length: usize, protection: libc::c_int, offset: usize) -> io::Result<Self> {
        let (fd, offset) = (of.as_raw_fd(), offset as libc::off_t);
        // SAFETY: the kernel chooses a place that is free; nothing that exists is touched.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { at, length })
    }

    /// The eight bytes at `at`, a multiple of eight.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.length, "the caller keeps within the mapping");
        let place = self.pointer(at).cast::<AtomicU64>();
        // SAFETY: within the mapping (above), aligned like it, and the mapping outlives the borrow; whoever else writes
        // there does so in whole words.
        unsafe { place.as_ref() }
    }

    /// Bytes that nobody writes to while they are borrowed: the caller sees to that.
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at <= self.length && length <= self.length - at, "the caller keeps within the mapping");
        // SAFETY: within the mapping (above), and the kernel leaves a record alone until it is given back.
        unsafe { std::slice::from_raw_parts(self.pointer(at).as_ptr(), length) }
    }

    fn pointer(&self, at: usize) -> NonNull<u8> {
        // SAFETY: callers have checked that `at` lies within the mapping.
        unsafe { self.at.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and nobody borrows from it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}

/// A word that the kernel counts up.
pub fn read_counter(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_words_are_short_and_without_statistics() {
        let log = b"0: (b7) r0 = 0\n1: (bf) r1 = r2\nR2 !read_ok\nprocessed 2 insns (limit 1000000)\n\0\0";
        assert_eq!(verifier_tail(log), "0: (b7) r0 = 0; 1: (bf) r1 = r2; R2 !read_ok");
        assert_eq!(verifier_tail(b"\0"), "");
    }

    #[test]
    fn attributes_are_as_long_as_the_kernels_own() {
        assert_eq!((size_of::<CreateMap>(), size_of::<LoadProgram>()), (44, 112));
        assert_eq!(
            (std::mem::offset_of!(LoadProgram, attach_kind), std::mem::offset_of!(LoadProgram, attach_type)),
            (68, 108)
        );
        assert_eq!((size_of::<OpenTracepoint>(), size_of::<InfoByDescriptor>()), (16, 16));
        assert_eq!(size_of::<UpdateMap>(), 32);
    }
}
