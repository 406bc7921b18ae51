//! Protocol between the two ends of a streamed capture.
//!
//! Messages have a type, a length and a payload, over any ordered byte stream (`docs/reference/streaming.md`). Never
//! decompresses a chunk. All numbers are little-endian.

#[cfg(test)]
mod tests;

use thiserror::Error;

/// Protocol version that both ends must have.
pub const VERSION: u16 = 1;
/// Bytes of a chunk before it was compressed, at most.
pub const MAX_CHUNK: usize = 8 << 20;
/// Bytes of a payload, at most: a chunk that nothing makes smaller (zstd then adds a 256th), and its head.
pub const MAX_PAYLOAD: usize = MAX_CHUNK + (MAX_CHUNK >> 8) + 1_024;
/// Maximum payload of the first message of a connection, bytes.
pub const MAX_HELLO: usize = 128 << 10;
/// Bytes of what each file of a stream begins or ends with, at most.
pub const MAX_HEADER_OR_FOOTER: usize = 64 << 10;
/// A name of a host is no longer (RFC 1035).
const MAX_HOST: usize = 255;

const MAGIC: [u8; 4] = *b"toll";
/// Kind and length.
const MESSAGE_HEADER: usize = 5;
/// Header of a chunk: four numbers of 64 bits and one of 32.
const CHUNK_HEADER: usize = 5 * 8 + 4;

/// Identifier of a stream from its sender, the same on all its connections.
pub type StreamId = [u8; 16];

/// Content type of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamContent {
    Pcapng,
    Queries,
}

/// Message of either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    // The sender's.
    Hello(Hello<'a>),
    Chunk(Chunk<'a>),
    /// Keep-alive of an idle sender; requests an [`Message::Acknowledged`].
    KeepAlive,
    End(End<'a>),
    // The receiver's.
    /// The chunk that it wants first: at least the sender's `first`.
    Welcome {
        next: u64,
    },
    /// All chunks below this number are written.
    Acknowledged {
        below: u64,
    },
    /// Why it takes no more on this connection.
    Refused {
        why: &'a str,
    },
    /// After [`Message::End`]: everything is on its disk.
    Done,
}

/// Greeting of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    pub stream: StreamId,
    pub content: StreamContent,
    /// When the capture began, Unix nanoseconds.
    pub begun_ns: u64,
    /// The lowest number among the chunks that the sender still has; the next one where it has none.
    pub first: u64,
    /// Of the sender.
    pub host: &'a str,
    /// What each file of this stream begins with.
    pub file_header: &'a [u8],
}

/// Whole items (packets, events), numbered from 0 without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    pub number: u64,
    pub items: u64,
    /// Of its first and last item, Unix nanoseconds.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Items that the sender dropped for lack of memory, since the stream began.
    pub lost: u64,
    /// Bytes that the frame inflates to.
    pub plain_len: u32,
    /// One zstd frame.
    pub frame: &'a [u8],
}

/// Final counters from the sender, at the end of the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End<'a> {
    pub chunks: u64,
    pub items: u64,
    pub lost: u64,
    /// What the last file of this stream ends with.
    pub file_footer: &'a [u8],
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    #[error("byte {0:#04x} is not a message type: the peer is not toll, or it expects a key")]
    UnknownKind(u8),
    #[error("a message of {length} bytes: the maximum is {longest}")]
    TooLong { length: usize, longest: usize },
    #[error("a message of kind {0:#04x} is truncated, too long, or has invalid text")]
    InvalidContent(u8),
    #[error("the peer uses stream version {0}, this toll {ours}: run the same version of toll at both ends", ours = VERSION)]
    UnsupportedVersion(u16),
}

/// Length of the message at the start of `input`, head included. `None`: the head is not complete yet.
///
/// # Errors
/// It begins with none, or its payload is longer than `longest`.
pub fn message_length(input: &[u8], longest: usize) -> Result<Option<usize>, MessageError> {
    let Some(kind) = input.first() else { return Ok(None) };
    if !b"HCSEWARD".contains(kind) {
        return Err(MessageError::UnknownKind(*kind));
    }
    let Some((head, _)) = input.split_first_chunk::<MESSAGE_HEADER>() else { return Ok(None) };
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > longest {
        return Err(MessageError::TooLong { length, longest });
    }
    Ok(Some(MESSAGE_HEADER + length))
}

/// Reads one message of exactly [`message_length`] bytes.
///
/// # Errors
/// It is none.
pub fn parse_message(message: &[u8]) -> Result<Message<'_>, MessageError> {
    let kind = message.first().copied().unwrap_or_default();
    let mut fields =
        Fields { kind, rest: message.get(MESSAGE_HEADER..).ok_or(MessageError::InvalidContent(kind))? };
    let parsed = match kind {
        b'H' => Message::Hello(parse_hello(&mut fields)?),
        b'C' => Message::Chunk(Chunk {
            number: fields.u64()?,
            items: fields.u64()?,
            first_ns: fields.u64()?,
            last_ns: fields.u64()?,
            lost: fields.u64()?,
            plain_len: match fields.u32()? {
                plain if plain as usize <= MAX_CHUNK => plain,
                plain => return Err(MessageError::TooLong { length: plain as usize, longest: MAX_CHUNK }),
            },
            frame: fields.take_rest(),
        }),
        b'S' => Message::KeepAlive,
        b'E' => Message::End(End {
            chunks: fields.u64()?,
            items: fields.u64()?,
            lost: fields.u64()?,
            file_footer: fields.take_rest_up_to(MAX_HEADER_OR_FOOTER)?,
        }),
        b'W' => Message::Welcome { next: fields.u64()? },
        b'A' => Message::Acknowledged { below: fields.u64()? },
        b'R' => Message::Refused { why: fields.text()? },
        b'D' => Message::Done,
        kind => return Err(MessageError::UnknownKind(kind)),
    };
    if fields.rest.is_empty() { Ok(parsed) } else { Err(MessageError::InvalidContent(kind)) }
}

fn parse_hello<'a>(fields: &mut Fields<'a>) -> Result<Hello<'a>, MessageError> {
    if fields.take(MAGIC.len())? != MAGIC {
        return Err(MessageError::InvalidContent(b'H'));
    }
    // Whatever else another version has, it has this number here.
    let version = fields.array().map(u16::from_le_bytes)?;
    if version != VERSION {
        return Err(MessageError::UnsupportedVersion(version));
    }
    let stream = fields.array()?;
    let holds = match fields.array()? {
        [1] => StreamContent::Pcapng,
        [2] => StreamContent::Queries,
        _ => return Err(MessageError::InvalidContent(b'H')),
    };
    let (begun_ns, first) = (fields.u64()?, fields.u64()?);
    let [length] = fields.array()?;
    let host =
        std::str::from_utf8(fields.take(length.into())?).map_err(|_| MessageError::InvalidContent(b'H'))?;
    Ok(Hello {
        stream,
        content: holds,
        begun_ns,
        first,
        host,
        file_header: fields.take_rest_up_to(MAX_HEADER_OR_FOOTER)?,
    })
}

/// A payload, read from its front.
struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], MessageError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(MessageError::InvalidContent(self.kind))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(MessageError::InvalidContent(self.kind))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.array().map(u64::from_le_bytes)
    }

    fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn take_rest_up_to(&mut self, longest: usize) -> Result<&'a [u8], MessageError> {
        let length = self.rest.len();
        if length > longest { Err(MessageError::TooLong { length, longest }) } else { Ok(self.take_rest()) }
    }

    fn text(&mut self) -> Result<&'a str, MessageError> {
        std::str::from_utf8(self.take_rest_up_to(MAX_HELLO)?)
            .map_err(|_| MessageError::InvalidContent(self.kind))
    }
}

impl Message<'_> {
    /// Appends the encoding that [`parse_message`] reads. A name of a host that is too long is cut.
    pub fn encode_into(&self, into: &mut Vec<u8>) {
        let begin = into.len();
        into.extend_from_slice(&[self.kind(), 0, 0, 0, 0]);
        match self {
            Self::Hello(hello) => {
                let host = truncate_text(hello.host, MAX_HOST);
                into.extend_from_slice(&MAGIC);
                into.extend_from_slice(&VERSION.to_le_bytes());
                into.extend_from_slice(&hello.stream);
                into.push(match hello.content {
                    StreamContent::Pcapng => 1,
                    StreamContent::Queries => 2,
                });
                put_numbers(into, &[hello.begun_ns, hello.first]);
                into.push(host.len() as u8);
                into.extend_from_slice(host.as_bytes());
                into.extend_from_slice(hello.file_header);
            }
            Self::Chunk(chunk) => {
                into.reserve(CHUNK_HEADER + chunk.frame.len());
                put_numbers(into, &[chunk.number, chunk.items, chunk.first_ns, chunk.last_ns, chunk.lost]);
                into.extend_from_slice(&chunk.plain_len.to_le_bytes());
                into.extend_from_slice(chunk.frame);
            }
            Self::End(end) => {
                put_numbers(into, &[end.chunks, end.items, end.lost]);
                into.extend_from_slice(end.file_footer);
            }
            Self::Welcome { next: number } | Self::Acknowledged { below: number } => {
                put_numbers(into, &[*number]);
            }
            Self::Refused { why } => into.extend_from_slice(truncate_text(why, MAX_HELLO).as_bytes()),
            Self::KeepAlive | Self::Done => {}
        }
        let length = (into.len() - begin - MESSAGE_HEADER) as u32;
        into[begin + 1..begin + MESSAGE_HEADER].copy_from_slice(&length.to_le_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => b'H',
            Self::Chunk(_) => b'C',
            Self::KeepAlive => b'S',
            Self::End(_) => b'E',
            Self::Welcome { .. } => b'W',
            Self::Acknowledged { .. } => b'A',
            Self::Refused { .. } => b'R',
            Self::Done => b'D',
        }
    }
}

fn put_numbers(into: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        into.extend_from_slice(&number.to_le_bytes());
    }
}

/// Its beginning, of so many bytes at most, between two letters.
fn truncate_text(text: &str, longest: usize) -> &str {
    let mut end = longest.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
