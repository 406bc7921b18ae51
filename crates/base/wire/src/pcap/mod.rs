//! Capture file readers: frames with their timestamps. Never looks inside a frame, never reads a file.
//!
//! Push parsers: they accept chunks of any size and return whole frames. A frame borrows from the chunk
//! unless it crosses a chunk boundary.

mod classic;
mod ng;
mod text;
mod text_clock;
pub mod write;

use crate::log::{Utc, Zone};
use classic::ClassicParser;
use ng::NgParser;
use text::TextReader;
use thiserror::Error;

/// Maximum plausible frame size, bytes. libpcap's own bound is 262,144; jumbo TCP segments on
/// loopback and BIG TCP reach 512 KiB.
pub const MAX_FRAME: usize = 1 << 20;

/// One packet as it was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Unix time, ns. 0: the capture does not say.
    pub time_ns: u64,
    pub link: Link,
    /// Bytes that passed the interface; more than `bytes` holds where a snap length cut.
    pub wire_len: u32,
    pub bytes: &'a [u8],
}

/// Link type: the format of a frame's first bytes (<https://www.tcpdump.org/linktypes.html>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    Ethernet,
    /// What follows an outer 802.1Q type field: tag, type, payload.
    VlanTag,
    LinuxSll,
    LinuxSll2,
    /// IPv4 or IPv6, by the version nibble.
    Raw,
    /// Four bytes of address family, in either byte order, then IP.
    Null,
    Unsupported(u16),
}

impl Link {
    /// From the number that a file header or an interface block holds.
    pub fn from_number(number: u16) -> Self {
        match number {
            1 => Link::Ethernet,
            0 | 108 => Link::Null,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            113 => Link::LinuxSll,
            276 => Link::LinuxSll2,
            other => Link::Unsupported(other),
        }
    }
}

/// Format of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Pcap,
    PcapNg,
    /// Text output of `tcpdump -x`, `-xx`, `-X` or `-XX`.
    TcpdumpText,
}

impl Format {
    /// Recognises a capture by its first bytes: four are enough, but for text, which needs the
    /// first packet's dump (4 KiB are ample).
    pub fn detect(prefix: &[u8]) -> Option<Self> {
        let magic: [u8; 4] = prefix.get(..4)?.try_into().ok()?;
        if magic == [0x0a, 0x0d, 0x0d, 0x0a] {
            return Some(Format::PcapNg);
        }
        if classic::is_known_magic(magic) {
            return Some(Format::Pcap);
        }
        text::is_hex_dump(prefix).then_some(Format::TcpdumpText)
    }
}

/// Invalid input. Frames before `offset` are valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("byte {offset} of the capture: {what}")]
pub struct InputError {
    pub offset: u64,
    pub what: String,
}

/// Result of parsing the head of a slice.
#[derive(Debug)]
pub enum ParseStep<'a> {
    /// A frame, in a record of so many bytes.
    Frame { frame: Frame<'a>, used: usize },
    /// Something without a frame.
    Skip { used: usize },
    /// As `Skip`, but bytes to skip may lie beyond the slice.
    SkipAhead { used: u64 },
    /// This many bytes from the head are needed to say more.
    Incomplete(usize),
}

/// On what a packet was captured, as the file describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Its place in its section; 0 in a pcap.
    pub number: u32,
    /// <https://www.tcpdump.org/linktypes.html>.
    pub link: u16,
    /// Bytes kept of a packet at most; 0: all.
    pub snap_len: u32,
    /// Empty: the file does not say.
    pub name: &'a [u8],
}

/// Cuts the records of a pcap or pcapng file one by one, for callers that hold its bytes themselves.
#[derive(Debug)]
pub struct RecordParser(RecordFormat);

/// The formats whose records say how long they are.
#[derive(Debug)]
enum RecordFormat {
    Classic(ClassicParser),
    Ng(NgParser),
}

impl RecordParser {
    /// `None`: text has no records.
    pub fn new(format: Format) -> Option<Self> {
        match format {
            Format::Pcap => Some(RecordParser(RecordFormat::Classic(ClassicParser::default()))),
            Format::PcapNg => Some(RecordParser(RecordFormat::Ng(NgParser::default()))),
            Format::TcpdumpText => None,
        }
    }

    /// Parses the record at the start of `bytes`, which begin where the step before ended. A frame may be requested
    /// again.
    ///
    /// # Errors
    /// The bytes cannot be this format; there is no way to find the next record.
    #[inline]
    pub fn next_record<'a>(&mut self, bytes: &'a [u8]) -> Result<ParseStep<'a>, String> {
        match &mut self.0 {
            RecordFormat::Classic(parser) => parser.next_record(bytes),
            RecordFormat::Ng(parser) => parser.next_block(bytes),
        }
    }

    /// On what the frame was captured that was handed out last. `None`: there was none.
    pub fn interface(&self) -> Option<Interface<'_>> {
        match &self.0 {
            RecordFormat::Classic(parser) => parser.interface(),
            RecordFormat::Ng(parser) => parser.last_interface(),
        }
    }
}

/// Cuts a capture into frames as its bytes arrive.
pub struct Reader(Input);

enum Input {
    Records(Box<RecordReader>),
    Text(Box<TextReader>),
}

impl Reader {
    /// Dates in text are read as UTC.
    pub fn new(format: Format) -> Self {
        Self::with_zone(format, Box::new(Utc))
    }

    /// Dates in text are read in `zone`: tcpdump prints those of its own machine without saying so.
    pub fn with_zone(format: Format, zone: Box<dyn Zone + Send>) -> Self {
        Reader(match RecordParser::new(format) {
            Some(records) => Input::Records(Box::new(RecordReader::new(records))),
            None => Input::Text(Box::new(TextReader::new(zone))),
        })
    }

    /// Hands every frame that `chunk` completes to `each`.
    ///
    /// # Errors
    /// The bytes cannot be this format. The reader is then at its end: it has no way to find
    /// the next record, and ignores what follows. Text has no such end.
    pub fn feed(&mut self, chunk: &[u8], each: &mut impl FnMut(&Frame<'_>)) -> Result<(), InputError> {
        match &mut self.0 {
            Input::Records(reader) => reader.feed(chunk, each),
            Input::Text(text) => {
                text.feed(chunk, each);
                Ok(())
            }
        }
    }

    /// The input ends: hands over a frame whose end only the end of the input could tell.
    pub fn finish(&mut self, each: &mut impl FnMut(&Frame<'_>)) {
        if let Input::Text(text) = &mut self.0 {
            text.finish(each);
        }
    }

    /// Bytes of a record whose end never came: the capture was cut short. 0 for a clean end.
    pub fn unread_tail_bytes(&self) -> u64 {
        match &self.0 {
            Input::Records(reader) if !reader.failed => {
                reader.partial.len() as u64 + u64::from(reader.skip_bytes > 0)
            }
            _ => 0,
        }
    }

    /// Dropped packets that the capture program reports (pcapng only).
    pub fn dropped_by_capture(&self) -> Option<u64> {
        match &self.0 {
            Input::Records(reader) => match &reader.parser.0 {
                RecordFormat::Classic(_) => None,
                RecordFormat::Ng(parser) => parser.dropped(),
            },
            Input::Text(_) => None,
        }
    }
}

struct RecordReader {
    parser: RecordParser,
    /// The head of a record whose end has not arrived.
    partial: Vec<u8>,
    /// Length of `partial` at which the parser can go on.
    needed_bytes: usize,
    skip_bytes: u64,
    /// Bytes consumed, not counting `partial`.
    offset: u64,
    failed: bool,
}

impl RecordReader {
    fn new(parser: RecordParser) -> Self {
        RecordReader { parser, partial: Vec::new(), needed_bytes: 0, skip_bytes: 0, offset: 0, failed: false }
    }

    fn feed(&mut self, mut chunk: &[u8], each: &mut impl FnMut(&Frame<'_>)) -> Result<(), InputError> {
        if self.failed {
            return Ok(());
        }
        while !chunk.is_empty() {
            if self.skip_bytes > 0 {
                let taken = self.skip_bytes.min(chunk.len() as u64);
                self.skip_bytes -= taken;
                self.offset += taken;
                chunk = &chunk[taken as usize..];
                continue;
            }
            if self.partial.is_empty() {
                chunk = self.read_whole_records(chunk, each)?;
                continue;
            }
            let taken = (self.needed_bytes - self.partial.len()).min(chunk.len());
            self.partial.extend_from_slice(&chunk[..taken]);
            chunk = &chunk[taken..];
            if self.partial.len() == self.needed_bytes {
                self.read_partial_record(each)?;
            }
        }
        Ok(())
    }

    /// Reads records straight from `chunk`; what is left of it is empty, or to be skipped.
    fn read_whole_records<'a>(
        &mut self,
        mut chunk: &'a [u8],
        each: &mut impl FnMut(&Frame<'_>),
    ) -> Result<&'a [u8], InputError> {
        while !chunk.is_empty() {
            match self.parser.next_record(chunk) {
                Ok(ParseStep::Frame { frame, used }) => {
                    each(&frame);
                    self.offset += used as u64;
                    chunk = &chunk[used..];
                }
                Ok(ParseStep::Skip { used }) => {
                    self.offset += used as u64;
                    chunk = &chunk[used..];
                }
                Ok(ParseStep::SkipAhead { used }) => {
                    self.skip_bytes = used;
                    break;
                }
                Ok(ParseStep::Incomplete(need)) => {
                    self.partial.extend_from_slice(chunk);
                    self.needed_bytes = need;
                    return Ok(&[]);
                }
                Err(what) => return Err(self.fail(what)),
            }
        }
        Ok(chunk)
    }

    fn read_partial_record(&mut self, each: &mut impl FnMut(&Frame<'_>)) -> Result<(), InputError> {
        match self.parser.next_record(&self.partial) {
            Ok(ParseStep::Frame { frame, used }) => {
                each(&frame);
                self.offset += used as u64;
                self.partial.clear();
            }
            Ok(ParseStep::Skip { used }) => {
                self.offset += used as u64;
                self.partial.clear();
            }
            Ok(ParseStep::SkipAhead { used }) => {
                let held = self.partial.len() as u64;
                self.offset += held;
                self.skip_bytes = used.saturating_sub(held);
                self.partial.clear();
            }
            Ok(ParseStep::Incomplete(need)) => self.needed_bytes = need,
            Err(what) => return Err(self.fail(what)),
        }
        Ok(())
    }

    fn fail(&mut self, what: String) -> InputError {
        self.failed = true;
        InputError { offset: self.offset, what }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ByteOrder {
    #[default]
    Little,
    Big,
}

impl ByteOrder {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }
}
