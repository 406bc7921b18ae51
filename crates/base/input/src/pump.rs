//! Pump from a reader to a decoder, in bounded pieces and interruptible at any time.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use toll_wire::log::ENTRY_MAX;

/// Bytes asked of a file at once.
const CHUNK_SIZE: usize = 512 * 1024;
/// A decoder takes something of any buffer this full.
const BUFFER_SIZE: usize = ENTRY_MAX + CHUNK_SIZE;
/// Interval between checks for an interrupt while a stream is silent.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PumpResult {
    pub bytes: u64,
    /// True if reading stopped before the end.
    pub interrupted: bool,
}

/// Consumer of the bytes read: a decoder.
pub trait ByteConsumer {
    /// Consumes a part of `bytes` and returns its length. The rest is passed again. `end`: no more bytes
    /// follow.
    fn consume(&mut self, bytes: &[u8], end: bool) -> usize;

    /// True if no further bytes can be decoded.
    fn is_done(&self) -> bool;
}

/// Reads to the end, or until `stop`, and then signals the end to the decoder. `may_wait`: the reader is a
/// pipe, or does work of its own.
pub fn pump(
    reader: Box<dyn Read + Send>,
    may_wait: bool,
    decode: &mut dyn ByteConsumer,
    stop: &AtomicBool,
) -> io::Result<PumpResult> {
    let mut pieces: Box<dyn ChunkSource> =
        if may_wait { Box::new(ThreadedSource::spawn(reader)) } else { Box::new(FileSource(reader)) };
    let mut buffer = vec![0; BUFFER_SIZE];
    let (mut start, mut filled, mut bytes) = (0, 0, 0);
    loop {
        let stopped = stop.load(Ordering::Relaxed);
        if filled > buffer.len() - CHUNK_SIZE / 2 {
            buffer.copy_within(start..filled, 0);
            (start, filled) = (0, filled - start);
        }
        let read =
            if stopped || decode.is_done() { Some(0) } else { pieces.read_chunk(&mut buffer[filled..])? };
        let Some(read) = read else { continue };
        filled += read;
        bytes += read as u64;
        start += decode.consume(&buffer[start..filled], read == 0);
        if read == 0 {
            return Ok(PumpResult { bytes, interrupted: stopped });
        }
        if start == filled {
            (start, filled) = (0, 0);
        }
    }
}

/// Where bytes come from.
trait ChunkSource {
    /// Puts what there is into `buffer`; `None`: nothing yet, `Some(0)`: the end.
    fn read_chunk(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;
}

struct FileSource(Box<dyn Read + Send>);

impl ChunkSource for FileSource {
    fn read_chunk(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let room = buffer.len().min(CHUNK_SIZE);
        match self.0.read(&mut buffer[..room]) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A reader on a thread of its own: a pipe may be silent for hours, and an interrupt must not
/// wait for it.
struct ThreadedSource {
    pieces: Receiver<io::Result<Vec<u8>>>,
    rest: Vec<u8>,
    taken: usize,
}

impl ThreadedSource {
    fn spawn(mut reader: Box<dyn Read + Send>) -> Self {
        let (sender, pieces) = sync_channel(4);
        std::thread::spawn(move || {
            loop {
                let mut piece = vec![0; CHUNK_SIZE];
                let read = match reader.read(&mut piece) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read,
                };
                let is_last = !matches!(read, Ok(n) if n > 0);
                let read = read.map(|n| {
                    piece.truncate(n);
                    piece
                });
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        });
        Self { pieces, rest: Vec::new(), taken: 0 }
    }
}

impl ChunkSource for ThreadedSource {
    fn read_chunk(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.taken == self.rest.len() {
            self.rest = match self.pieces.recv_timeout(POLL_INTERVAL) {
                Ok(piece) => piece?,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Ok(Some(0)),
            };
            self.taken = 0;
        }
        let length = buffer.len().min(self.rest.len() - self.taken);
        buffer[..length].copy_from_slice(&self.rest[self.taken..self.taken + length]);
        self.taken += length;
        Ok(Some(length))
    }
}
