//! Packet reader of a capture with one packet of lookahead, in bounded pieces.

use anyhow::{Context, bail};
use std::io::{ErrorKind, Read};
use std::path::Path;
use toll_input::{DecompressedInput, Progress};
use toll_wire::pcap::{Format, Frame, Interface, ParseStep, RecordParser};

/// Bytes that are read at once, and kept of each input; a longer record makes it grow up to its length.
const PIECE: usize = 128 << 10;

pub struct CaptureReader {
    name: String,
    reader: Box<dyn Read + Send>,
    records: RecordParser,
    buffer: Vec<u8>,
    /// What of the buffer is yet to be read.
    start: usize,
    end: usize,
    /// Where in the input `start` is.
    offset: u64,
    /// Bytes of the next packet's record.
    next: usize,
    /// It ends within a record.
    is_truncated: bool,
    /// Why it could not be read to its end.
    pub damage: Option<String>,
}

impl CaptureReader {
    pub fn open(path: &Path, progress: &Progress) -> anyhow::Result<Self> {
        let DecompressedInput { name, head, reader, .. } = DecompressedInput::open(path, progress)?;
        let records = match Format::detect(&head) {
            Some(format) => {
                RecordParser::new(format).context("it is text of tcpdump: give what tcpdump -w writes")?
            }
            None if head.is_empty() => bail!("it is empty: not even the header of a capture is there"),
            None => bail!("it is neither pcap nor pcapng"),
        };
        let buffer = vec![0; PIECE];
        Ok(Self {
            name,
            reader,
            records,
            buffer,
            start: 0,
            end: 0,
            offset: 0,
            next: 0,
            is_truncated: false,
            damage: None,
        })
    }

    /// Goes to the next packet and returns its time, Unix ns. `None`: there is none that can be read.
    pub fn read_next(&mut self) -> anyhow::Result<Option<u64>> {
        self.consume(self.next);
        self.next = 0;
        loop {
            match self.records.next_record(&self.buffer[self.start..self.end]) {
                Ok(ParseStep::Frame { frame, used }) => {
                    self.next = used;
                    return Ok(Some(frame.time_ns));
                }
                Ok(ParseStep::Skip { used }) => self.consume(used),
                Ok(ParseStep::SkipAhead { used }) => {
                    if !self.skip(used)? {
                        return Ok(None);
                    }
                }
                Ok(ParseStep::Incomplete(need)) => {
                    if !self.fill(need)? {
                        self.is_truncated = self.end > self.start;
                        return Ok(None);
                    }
                }
                Err(what) => {
                    self.damage = Some(format!("{}: byte {} of the capture: {what}", self.name, self.offset));
                    return Ok(None);
                }
            }
        }
    }

    /// Hands over the packet that is next.
    pub fn take_packet(&mut self, each: impl FnOnce(&Frame<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self.records.next_record(&self.buffer[self.start..self.end]) {
            Ok(ParseStep::Frame { frame, .. }) => each(&frame),
            _ => bail!("{}: a packet reads differently the second time: a fault of toll's", self.name),
        }
    }

    /// On what the next packet was captured.
    pub fn interface(&self) -> Option<Interface<'_>> {
        self.records.interface()
    }

    /// A line about an input that ends within a record.
    pub fn truncation_warning(&self) -> Option<String> {
        self.is_truncated.then(|| format!("{} ends within a record, which is left out", self.name))
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Passes bytes that may lie beyond the buffer; false: the input ends before.
    fn skip(&mut self, mut bytes: u64) -> anyhow::Result<bool> {
        loop {
            let held = bytes.min((self.end - self.start) as u64);
            self.consume(held as usize);
            bytes -= held;
            if bytes == 0 {
                return Ok(true);
            }
            if !self.fill(1)? {
                self.is_truncated = true;
                return Ok(false);
            }
        }
    }

    /// Reads until `need` bytes are there; false: the input ends before, or cannot be read.
    fn fill(&mut self, need: usize) -> anyhow::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < need {
            self.buffer.resize(need, 0);
        }
        while self.end < need {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A file that is being compressed, or a disk that fails: what was read stands.
                Err(error) => {
                    let at = self.offset + self.end as u64;
                    self.damage = Some(format!("{}: after {at} bytes: {error}", self.name));
                    self.end = 0;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
