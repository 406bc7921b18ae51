//! Packet input and output over a stream, with minimal copying.
//!
//! Each direction has one buffer for the life of the connection. Works on blocking and non-blocking streams.
//! Never interprets a packet.

use super::error::Error;
use super::frame_codec::FrameCodec;
use super::stream::Stream;
use std::io::{self, Read, Write};
use toll_wire::protocol::{FieldReader, MAX_PAYLOAD, put_packets};

/// One read's worth: a point select answers in 300 bytes, a range of 100 rows in 13 kB.
const READ_SIZE: usize = 32 * 1024;
/// A result that is materialised may be this large altogether; the hot path has no such limit.
pub const MAX_RESULT_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub struct PacketIo {
    stream: Stream,
    /// `input[start..end]` came from the server and is not consumed.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Packets of the command being sent.
    output: Vec<u8>,
    /// The same in compressed frames.
    framed: Vec<u8>,
    written: usize,
    frames: Option<Box<FrameCodec>>,
    /// Of the next packet we send within a command.
    sequence: u8,
}

impl PacketIo {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            input: vec![0; READ_SIZE],
            start: 0,
            end: 0,
            output: Vec::with_capacity(512),
            framed: Vec::new(),
            written: 0,
            frames: None,
            sequence: 0,
        }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// From here on both sides compress.
    pub fn enable_compression(&mut self, frames: FrameCodec) {
        self.frames = Some(Box::new(frames));
    }

    /// Goes on over TLS; what was buffered so far is dropped, since it came in clear.
    pub fn upgrade_to_tls(self, with: impl FnOnce(Stream) -> Result<Stream, Error>) -> Result<Self, Error> {
        let sequence = self.sequence;
        Ok(Self { sequence, ..Self::new(with(self.stream)?) })
    }

    /// Bytes received and not yet consumed.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    #[inline]
    pub fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once; `Ok(0)` is the end of the stream. Makes room by moving what is pending down.
    pub fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let Some(frames) = &mut self.frames else {
            if self.end == self.input.len() {
                self.input.resize(self.end + READ_SIZE, 0);
            }
            let n = retry_interrupted(|| self.stream.read(&mut self.input[self.end..]))?;
            self.end += n;
            return Ok(n);
        };
        self.input.truncate(self.end);
        let n = retry_interrupted(|| frames.read_frames(&mut self.stream, &mut self.input))?;
        self.end = self.input.len();
        Ok(n)
    }

    /// The packets of a new command are appended here, headers included; then [`Self::send`].
    #[inline]
    pub fn begin_command(&mut self) -> &mut Vec<u8> {
        self.output.clear();
        self.written = 0;
        &mut self.output
    }

    /// Hands the command to the kernel. `Ok(false)`: a non-blocking stream took only part of it;
    /// call [`Self::flush`] once it is writable.
    #[inline]
    pub fn send(&mut self) -> io::Result<bool> {
        if let Some(frames) = &mut self.frames {
            self.framed.clear();
            frames.reset_sequence();
            frames.encode_frames(&self.output, &mut self.framed)?;
        }
        self.flush()
    }

    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        let bytes = if self.frames.is_some() { &self.framed } else { &self.output };
        while self.written < bytes.len() {
            match self.stream.write(&bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        match self.stream.flush() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Sends a payload as the first packet of a new command (blocking).
    pub fn send_command(&mut self, payload: &[u8]) -> io::Result<()> {
        let output = self.begin_command();
        let sequence = put_packets(output, 0, payload);
        self.sequence = sequence;
        self.send_all()
    }

    /// Sends a payload as the answer to the packet read last (blocking).
    pub fn send_reply(&mut self, payload: &[u8]) -> io::Result<()> {
        let sequence = self.sequence;
        self.sequence = put_packets(self.begin_command(), sequence, payload);
        self.send_all()
    }

    fn send_all(&mut self) -> io::Result<()> {
        if self.send()? { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// Reads one whole payload (blocking), continuations joined, into `payload`. One of more than `limit` bytes is an
    /// error before it is read.
    pub fn read_payload(&mut self, payload: &mut Vec<u8>, limit: usize) -> io::Result<()> {
        payload.clear();
        loop {
            while self.end - self.start < 4 {
                self.fill_or_eof()?;
            }
            let mut header = FieldReader(self.pending());
            let word = header.u32().unwrap_or_default();
            let mut left = (word & 0xff_ffff) as usize;
            self.sequence = ((word >> 24) as u8).wrapping_add(1);
            self.consume(4);
            let last = left < MAX_PAYLOAD;
            if payload.len() + left > limit {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a packet is larger than {} KiB", limit >> 10),
                ));
            }
            while left > 0 {
                if self.pending().is_empty() {
                    self.fill_or_eof()?;
                }
                let piece = self.pending();
                let n = piece.len().min(left);
                payload.extend_from_slice(&piece[..n]);
                self.consume(n);
                left -= n;
            }
            if last {
                return Ok(());
            }
        }
    }

    fn fill_or_eof(&mut self) -> io::Result<()> {
        match self.fill() {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within the time allowed"))
            }
            Err(e) => Err(e),
        }
    }
}

#[inline]
fn retry_interrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
