//! File writer that bypasses or drains the page cache, for files that grow for hours.
//!
//! Nobody reads a capture again soon. In the page cache it would evict data that the server reads. With
//! enough dirty pages the kernel throttles every writer, the server too.

use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, PosixFadviseAdvice, fallocate, fcntl, posix_fadvise};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Write mode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Written out at once and dropped from the page cache by the kernel (RWF_DONTCACHE, Linux 6.14).
    DontCache,
    /// Past the page cache (O_DIRECT), in pieces of `PIECE` bytes.
    Direct,
    /// Through the page cache, with writeback and eviction behind the writer.
    WriteBehind,
    /// Not a file: a pipe, a device.
    Stream,
}

/// Written at once past the page cache.
const PIECE: usize = 1 << 20;
/// What disks and file systems want addresses and lengths to be multiples of: logical blocks have at most this size.
const ALIGNMENT: usize = 4096;
/// Behind the writer so much is being written out, and what is before that is let go.
const WRITE_BEHIND_BYTES: u64 = 8 << 20;

/// A file that only grows.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    mode: WriteMode,
    /// True after the first write: the file system supports the mode.
    mode_is_proven: bool,
    /// Bytes of whole writes.
    length: u64,
    buffer: AlignedBuffer,
    writeback: WritebackTrail,
}

impl DiskFile {
    /// Takes an empty file, or what is none.
    ///
    /// # Errors
    /// The file's status cannot be read, or its length not be set.
    pub fn new(file: File) -> io::Result<Self> {
        let is_file = file.metadata()?.is_file();
        let mut disk = Self::with_mode(file, if is_file { WriteMode::DontCache } else { WriteMode::Stream });
        if is_file {
            disk.find_mode()?;
        }
        Ok(disk)
    }

    /// Tries the first mode with a byte that the file does not keep, so that [`Self::mode`] is right before the first write.
    /// What else fails is for that write to report.
    fn find_mode(&mut self) -> io::Result<()> {
        let tried = write_uncached(&self.file, &[0], 0);
        self.file.set_len(0)?;
        if tried.is_err_and(|error| is_unsupported(&error)) {
            self.fall_back();
        }
        Ok(())
    }

    fn with_mode(file: File, way: WriteMode) -> Self {
        Self {
            file,
            mode: way,
            mode_is_proven: false,
            length: 0,
            buffer: AlignedBuffer::default(),
            writeback: WritebackTrail::default(),
        }
    }

    /// How it is written.
    pub fn mode(&self) -> WriteMode {
        self.mode
    }

    /// Bytes that were written by calls that succeeded.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends all of `bytes`, or nothing: after an error the file has the length that it had before, as far as the
    /// file system allows.
    ///
    /// # Errors
    /// Those of writing: no room, nobody reads the pipe any more.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Nothing is written by no call, which tells nothing of the way.
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.write_with_fallback(bytes);
        match written {
            Ok(()) => {
                self.mode_is_proven = true;
                self.length += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.roll_back();
                Err(error)
            }
        }
    }

    fn write_with_fallback(&mut self, bytes: &[u8]) -> io::Result<()> {
        loop {
            let written = match self.mode {
                WriteMode::DontCache => write_uncached(&self.file, bytes, self.length),
                WriteMode::Direct => self.buffer.write(&self.file, bytes),
                WriteMode::WriteBehind => self.file.write_all_at(bytes, self.length).map(|()| {
                    self.writeback.advance(&self.file, self.length + bytes.len() as u64);
                }),
                WriteMode::Stream => self.file.write_all(bytes),
            };
            match written {
                Err(error)
                    if !self.mode_is_proven && is_unsupported(&error) && self.mode != WriteMode::Stream =>
                {
                    self.fall_back()
                }
                written => return written,
            }
        }
    }

    /// This file system does not know the way that was tried.
    fn fall_back(&mut self) {
        if self.mode == WriteMode::DontCache && self.try_direct().is_ok() {
            self.mode = WriteMode::Direct;
            return;
        }
        // Fails only for a file that is not open.
        let _ = self.set_direct(false);
        self.mode = WriteMode::WriteBehind;
    }

    /// Tries it with a block, which the file does not keep.
    fn try_direct(&mut self) -> io::Result<()> {
        // Without room set aside, what is staged might find none: then it would be neither written nor told of.
        fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, self.length.cast_signed(), PIECE as i64)?;
        self.set_direct(true)?;
        self.buffer = AlignedBuffer::new(self.length);
        let tried = self.file.write_all_at(self.buffer.prefix(ALIGNMENT), self.length);
        self.file.set_len(self.length)?;
        tried
    }

    fn set_direct(&self, is_direct: bool) -> io::Result<()> {
        let mut flags = OFlag::from_bits_retain(fcntl(&self.file, FcntlArg::F_GETFL)?);
        flags.set(OFlag::O_DIRECT, is_direct);
        fcntl(&self.file, FcntlArg::F_SETFL(flags))?;
        Ok(())
    }

    /// Cuts what a failed write has left behind; a pipe keeps it.
    fn roll_back(&mut self) {
        match self.mode {
            WriteMode::Stream => {}
            WriteMode::Direct => self.buffer.truncate_to(self.length),
            WriteMode::DontCache | WriteMode::WriteBehind => {
                let _ = self.file.set_len(self.length);
            }
        }
    }

    /// Everything is written.
    ///
    /// # Errors
    /// The last of it could not be.
    pub fn finish(mut self) -> io::Result<()> {
        match self.mode {
            WriteMode::Direct => {
                // Whole blocks are written, and what is too much is cut off again.
                let written = self.buffer.write_rest(&self.file);
                let length = if written.is_ok() { self.length } else { self.buffer.written };
                self.file.set_len(length)?;
                written
            }
            WriteMode::WriteBehind => {
                self.writeback.end(&self.file, self.length);
                Ok(())
            }
            WriteMode::DontCache => Ok(()),
            WriteMode::Stream => self.file.flush(),
        }
    }
}

/// Not a fault of the disk: kernel or file system do not know what was asked.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS))
}

/// All of `bytes` at an offset, to be let go once they are on the disk.
fn write_uncached(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        // The kernel only reads what it writes.
        let vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let (fd, at) = (file.as_raw_fd(), offset.cast_signed());
        let (vectors, at_high): (libc::c_ulong, libc::c_ulong) = (1, 0);
        // By number: the C library has it since 2.26 alone, and a portable program begins with an older one, too.
        // SAFETY: one vector, to bytes that are borrowed for longer than the call.
        let written = unsafe {
            libc::syscall(
                libc::SYS_pwritev2,
                fd,
                &raw const vector,
                vectors,
                at,
                at_high,
                libc::RWF_DONTCACHE,
            )
        };
        match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// What waits to be a piece that can be written past the page cache.
#[derive(Debug, Default)]
struct AlignedBuffer {
    /// With room to begin at an aligned address; empty until it is needed.
    memory: Vec<u8>,
    begin: usize,
    filled: usize,
    /// Bytes that are in the file: whole pieces.
    written: u64,
    /// Up to here the disk has room.
    reserved: u64,
    /// A piece is in the file that was to be taken back.
    is_corrupt: bool,
}

impl AlignedBuffer {
    fn new(written: u64) -> Self {
        let room = vec![0; PIECE + ALIGNMENT];
        let begin = room.as_ptr().align_offset(ALIGNMENT);
        Self { memory: room, begin, filled: 0, written, reserved: written, is_corrupt: false }
    }

    fn prefix(&self, bytes: usize) -> &[u8] {
        &self.memory[self.begin..self.begin + bytes]
    }

    fn write(&mut self, file: &File, mut bytes: &[u8]) -> io::Result<()> {
        if self.is_corrupt {
            return Err(io::Error::other("a write before this one failed halfway"));
        }
        self.reserve(file, bytes.len())?;
        while !bytes.is_empty() {
            let taken = (PIECE - self.filled).min(bytes.len());
            let at = self.begin + self.filled;
            self.memory[at..at + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == PIECE {
                file.write_all_at(self.prefix(PIECE), self.written)?;
                self.written += PIECE as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    fn write_rest(&mut self, file: &File) -> io::Result<()> {
        let whole = self.filled.next_multiple_of(ALIGNMENT);
        self.memory[self.begin + self.filled..self.begin + whole].fill(0);
        file.write_all_at(self.prefix(whole), self.written)
    }

    /// Room on the disk for everything up to the end of the last piece: what is staged was promised to be written.
    fn reserve(&mut self, file: &File, more: usize) -> io::Result<()> {
        let needed = self.written + (self.filled + more).next_multiple_of(PIECE) as u64;
        if needed > self.reserved {
            let (at, length) = (self.reserved.cast_signed(), (needed - self.reserved).cast_signed());
            match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, at, length) {
                Ok(()) => self.reserved = needed,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Forgets what was staged beyond a length. Where a piece with some of it is in the file already, which only a disk
    /// that fails brings about, nothing more is taken; it is cut off when the file is ended.
    fn truncate_to(&mut self, length: u64) {
        self.is_corrupt = self.written > length;
        self.filled =
            usize::try_from(length.saturating_sub(self.written)).map_or(0, |staged| staged.min(PIECE));
    }
}

/// How far behind the writer the page cache is empty again.
#[derive(Debug, Default)]
struct WritebackTrail {
    /// Handed to the disk up to here.
    begun: u64,
    /// On the disk and let go up to here.
    evicted: u64,
}

impl WritebackTrail {
    /// What is asked here is good for the host, and nothing that was written depends on it: a refusal changes nothing.
    fn advance(&mut self, file: &File, length: u64) {
        while length - self.begun >= WRITE_BEHIND_BYTES {
            sync_range(file, self.begun, WRITE_BEHIND_BYTES, libc::SYNC_FILE_RANGE_WRITE);
            self.begun += WRITE_BEHIND_BYTES;
            if self.begun - self.evicted > WRITE_BEHIND_BYTES {
                self.evict(file, self.evicted + WRITE_BEHIND_BYTES);
            }
        }
    }

    fn end(&mut self, file: &File, length: u64) {
        self.evict(file, length);
    }

    fn evict(&mut self, file: &File, to: u64) {
        let bytes = to.saturating_sub(self.evicted);
        let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        sync_range(file, self.evicted, bytes, wait);
        let (at, length) = (self.evicted.cast_signed(), bytes.cast_signed());
        let _ = posix_fadvise(file, at, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        self.evicted = to;
    }
}

fn sync_range(file: &File, at: u64, bytes: u64, how: libc::c_uint) {
    let (fd, at, bytes) = (file.as_raw_fd(), at.cast_signed(), bytes.cast_signed());
    // SAFETY: no pointers, and the descriptor is open.
    unsafe { libc::sync_file_range(fd, at, bytes, how) };
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
