//! How do bytes get from a reader to a decoder? In bounded pieces, and stoppable at any time.

use super::input::{Input, Type};
use super::ledger::Ledger;
use super::zone::Here;
use anyhow::bail;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use toll_wire::event::Sink;
use toll_wire::log::{AuditLog, ENTRY_MAX, GeneralLog, Log, SlowLog};

/// Bytes asked of a file at once; larger ones leave the processor's cache.
const PIECE: usize = 512 * 1024;
/// A decoder takes something of any buffer this full.
const BUFFER: usize = ENTRY_MAX + PIECE;
/// How long a stream may be silent before an interrupt is looked for.
const BEAT: Duration = Duration::from_millis(100);

pub struct Outcome {
    pub ledger: Ledger,
    pub interrupted: bool,
}

pub fn pump(input: Input, sink: &mut dyn Sink, stop: &AtomicBool) -> anyhow::Result<Outcome> {
    let mut log: Box<dyn Log> = match input.kind {
        Type::Slowlog => Box::new(SlowLog::new(Here::new())),
        Type::Genlog => Box::new(GeneralLog::new(Here::new())),
        Type::Auditlog => Box::new(AuditLog::new(Here::new())),
        Type::Pcap | Type::Tcpdump => bail!("captures are not decoded yet"),
    };
    let mut pieces: Box<dyn Pieces> =
        if input.may_wait { Box::new(Stream::of(input.reader)) } else { Box::new(File(input.reader)) };
    let interrupted = feed(&mut *pieces, &mut *log, sink, stop)?;
    Ok(Outcome { ledger: Ledger::of_log(log.ledger()), interrupted })
}

/// Where bytes come from.
trait Pieces {
    /// Adds what there is to `buffer`; `None`: nothing yet, `Some(0)`: the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;
}

/// Returns whether it was stopped before the end.
fn feed(
    pieces: &mut dyn Pieces,
    log: &mut dyn Log,
    sink: &mut dyn Sink,
    stop: &AtomicBool,
) -> io::Result<bool> {
    let mut buffer = vec![0; BUFFER];
    let (mut start, mut filled) = (0, 0);
    loop {
        let stopped = stop.load(Ordering::Relaxed);
        if !stopped && filled > buffer.len() - PIECE / 2 {
            buffer.copy_within(start..filled, 0);
            (start, filled) = (0, filled - start);
        }
        let read = if stopped { Some(0) } else { pieces.read(&mut buffer[filled..])? };
        let Some(read) = read else { continue };
        filled += read;
        start += log.take(&buffer[start..filled], read == 0, sink);
        if read == 0 {
            return Ok(stopped);
        }
        if start == filled {
            (start, filled) = (0, 0);
        }
    }
}

struct File(Box<dyn Read + Send>);

impl Pieces for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let room = buffer.len().min(PIECE);
        match self.0.read(&mut buffer[..room]) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A reader on a thread of its own: a pipe may be silent for hours, and an interrupt must not
/// wait for it.
struct Stream {
    pieces: Receiver<io::Result<Vec<u8>>>,
    rest: Vec<u8>,
    taken: usize,
}

impl Stream {
    fn of(mut reader: Box<dyn Read + Send>) -> Self {
        let (sender, pieces) = sync_channel(4);
        std::thread::spawn(move || {
            loop {
                let mut piece = vec![0; PIECE];
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

impl Pieces for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.taken == self.rest.len() {
            self.rest = match self.pieces.recv_timeout(BEAT) {
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
