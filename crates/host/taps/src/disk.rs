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
pub enum Way {
    /// Written out at once and dropped from the page cache by the kernel (RWF_DONTCACHE, Linux 6.14).
    DontCache,
    /// Past the page cache (O_DIRECT), in pieces of [`PIECE`] bytes.
    Direct,
    /// Through the page cache, with writeback and eviction behind the writer.
    Trailing,
    /// Not a file: a pipe, a device.
    Plain,
}

/// Written at once past the page cache.
const PIECE: usize = 1 << 20;
/// What disks and file systems want addresses and lengths to be multiples of: logical blocks have at most this size.
const ALIGNED: usize = 4096;
/// Behind the writer so much is being written out, and what is before that is let go.
const TRAIL: u64 = 8 << 20;

/// A file that only grows.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    way: Way,
    /// True after the first write: the file system supports the mode.
    is_tried: bool,
    /// Bytes of whole writes.
    length: u64,
    staged: Staged,
    trail: Trail,
}

impl DiskFile {
    /// Takes an empty file, or what is none. The way is settled by the first write.
    ///
    /// # Errors
    /// The file's status cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let way = if file.metadata()?.is_file() { Way::DontCache } else { Way::Plain };
        Ok(Self::by(file, way))
    }

    fn by(file: File, way: Way) -> Self {
        Self { file, way, is_tried: false, length: 0, staged: Staged::default(), trail: Trail::default() }
    }

    /// How it is written, as far as is known before the first write.
    pub fn way(&self) -> Way {
        self.way
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
        let written = self.try_to_write(bytes);
        match written {
            Ok(()) => {
                self.is_tried = true;
                self.length += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.take_back();
                Err(error)
            }
        }
    }

    fn try_to_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        loop {
            let written = match self.way {
                Way::DontCache => write_uncached(&self.file, bytes, self.length),
                Way::Direct => self.staged.write(&self.file, bytes),
                Way::Trailing => self.file.write_all_at(bytes, self.length).map(|()| {
                    self.trail.follow(&self.file, self.length + bytes.len() as u64);
                }),
                Way::Plain => self.file.write_all(bytes),
            };
            match written {
                Err(error) if !self.is_tried && is_unknown(&error) && self.way != Way::Plain => {
                    self.next_way()
                }
                written => return written,
            }
        }
    }

    /// This file system does not know the way that was tried.
    fn next_way(&mut self) {
        if self.way == Way::DontCache && self.goes_direct().is_ok() {
            self.way = Way::Direct;
            return;
        }
        // Fails only for a file that is not open.
        let _ = self.set_direct(false);
        self.way = Way::Trailing;
    }

    /// Tries it with a block, which the file does not keep.
    fn goes_direct(&mut self) -> io::Result<()> {
        // Without room set aside, what is staged might find none: then it would be neither written nor told of.
        fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, self.length.cast_signed(), PIECE as i64)?;
        self.set_direct(true)?;
        self.staged = Staged::new(self.length);
        let tried = self.file.write_all_at(self.staged.first(ALIGNED), self.length);
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
    fn take_back(&mut self) {
        match self.way {
            Way::Plain => {}
            Way::Direct => self.staged.back_to(self.length),
            Way::DontCache | Way::Trailing => {
                let _ = self.file.set_len(self.length);
            }
        }
    }

    /// Everything is written.
    ///
    /// # Errors
    /// The last of it could not be.
    pub fn finish(mut self) -> io::Result<()> {
        match self.way {
            Way::Direct => {
                // Whole blocks are written, and what is too much is cut off again.
                let written = self.staged.write_rest(&self.file);
                let length = if written.is_ok() { self.length } else { self.staged.written };
                self.file.set_len(length)?;
                written
            }
            Way::Trailing => {
                self.trail.end(&self.file, self.length);
                Ok(())
            }
            Way::DontCache => Ok(()),
            Way::Plain => self.file.flush(),
        }
    }
}

/// Not a fault of the disk: kernel or file system do not know what was asked.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS))
}

/// All of `bytes` at an offset, to be let go once they are on the disk.
fn write_uncached(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        // The kernel only reads what it writes.
        let vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let (fd, at) = (file.as_raw_fd(), offset.cast_signed());
        // SAFETY: one vector, to bytes that are borrowed for longer than the call.
        let written = unsafe { libc::pwritev2(fd, &raw const vector, 1, at, libc::RWF_DONTCACHE) };
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
struct Staged {
    /// With room to begin at an aligned address; empty until it is needed.
    room: Vec<u8>,
    begin: usize,
    filled: usize,
    /// Bytes that are in the file: whole pieces.
    written: u64,
    /// Up to here the disk has room.
    reserved: u64,
    /// A piece is in the file that was to be taken back.
    is_spoilt: bool,
}

impl Staged {
    fn new(written: u64) -> Self {
        let room = vec![0; PIECE + ALIGNED];
        let begin = room.as_ptr().align_offset(ALIGNED);
        Self { room, begin, filled: 0, written, reserved: written, is_spoilt: false }
    }

    fn first(&self, bytes: usize) -> &[u8] {
        &self.room[self.begin..self.begin + bytes]
    }

    fn write(&mut self, file: &File, mut bytes: &[u8]) -> io::Result<()> {
        if self.is_spoilt {
            return Err(io::Error::other("a write before this one failed halfway"));
        }
        self.reserve(file, bytes.len())?;
        while !bytes.is_empty() {
            let taken = (PIECE - self.filled).min(bytes.len());
            let at = self.begin + self.filled;
            self.room[at..at + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == PIECE {
                file.write_all_at(self.first(PIECE), self.written)?;
                self.written += PIECE as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    fn write_rest(&mut self, file: &File) -> io::Result<()> {
        let whole = self.filled.next_multiple_of(ALIGNED);
        self.room[self.begin + self.filled..self.begin + whole].fill(0);
        file.write_all_at(self.first(whole), self.written)
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
    fn back_to(&mut self, length: u64) {
        self.is_spoilt = self.written > length;
        self.filled =
            usize::try_from(length.saturating_sub(self.written)).map_or(0, |staged| staged.min(PIECE));
    }
}

/// How far behind the writer the page cache is empty again.
#[derive(Debug, Default)]
struct Trail {
    /// Handed to the disk up to here.
    begun: u64,
    /// On the disk and let go up to here.
    gone: u64,
}

impl Trail {
    /// What is asked here is good for the host, and nothing that was written depends on it: a refusal changes nothing.
    fn follow(&mut self, file: &File, length: u64) {
        while length - self.begun >= TRAIL {
            sync(file, self.begun, TRAIL, libc::SYNC_FILE_RANGE_WRITE);
            self.begun += TRAIL;
            if self.begun - self.gone > TRAIL {
                self.let_go(file, self.gone + TRAIL);
            }
        }
    }

    fn end(&mut self, file: &File, length: u64) {
        self.let_go(file, length);
    }

    fn let_go(&mut self, file: &File, to: u64) {
        let bytes = to.saturating_sub(self.gone);
        let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        sync(file, self.gone, bytes, wait);
        let (at, length) = (self.gone.cast_signed(), bytes.cast_signed());
        let _ = posix_fadvise(file, at, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        self.gone = to;
    }
}

fn sync(file: &File, at: u64, bytes: u64, how: libc::c_uint) {
    let (fd, at, bytes) = (file.as_raw_fd(), at.cast_signed(), bytes.cast_signed());
    // SAFETY: no pointers, and the descriptor is open.
    unsafe { libc::sync_file_range(fd, at, bytes, how) };
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
