//! Framing of the compressed protocol (zlib, zstd).
//!
//! A frame has a 7-byte header and a body. The header holds the compressed length, the sequence number and
//! the uncompressed length. An uncompressed length of 0 means that the body is stored uncompressed.

use super::packet_io::MAX_RESULT_BYTES;
use crate::target::Compression;
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use std::io::{self, Read};
use toll_wire::protocol::MAX_PAYLOAD;

/// Shorter bodies are stored: the servers' own limit (MIN_COMPRESS_LENGTH).
const MIN_COMPRESS_LENGTH: usize = 50;
/// As much as one read of an uncompressed connection.
const READ_SIZE: usize = 32 * 1024;
/// What the client libraries ask of zstd unless told otherwise.
const ZSTD_LEVEL: i32 = 3;

pub struct FrameCodec {
    codec: Codec,
    sequence: u8,
    /// Bytes from the socket that are not a whole frame yet.
    raw: Vec<u8>,
    /// One read's worth, on its way into `raw`.
    read: Vec<u8>,
    body: Vec<u8>,
}

enum Codec {
    Zlib { deflate: Compress, inflate: Decompress },
    Zstd { compress: zstd::bulk::Compressor<'static>, decompress: zstd::bulk::Decompressor<'static> },
}

impl std::fmt::Debug for FrameCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl FrameCodec {
    pub fn new(kind: Compression) -> io::Result<Self> {
        let codec = match kind {
            Compression::Zstd => Codec::Zstd {
                compress: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
                decompress: zstd::bulk::Decompressor::new()?,
            },
            Compression::Zlib | Compression::Off => Codec::Zlib {
                deflate: Compress::new(flate2::Compression::default(), true),
                inflate: Decompress::new(true),
            },
        };
        Ok(Self { codec, sequence: 0, raw: Vec::new(), read: vec![0; READ_SIZE], body: Vec::new() })
    }

    /// A new command begins: frames are numbered from 0 again.
    pub fn reset_sequence(&mut self) {
        self.sequence = 0;
    }

    /// Appends `packets` to `out` as frames.
    pub fn encode_frames(&mut self, packets: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        for chunk in packets.chunks(MAX_PAYLOAD) {
            let packed =
                chunk.len() >= MIN_COMPRESS_LENGTH && self.codec.compress_body(chunk, &mut self.body)?;
            let (body, plain_len) = if packed { (self.body.as_slice(), chunk.len()) } else { (chunk, 0) };
            out.extend_from_slice(&(body.len() as u32).to_le_bytes()[..3]);
            out.push(self.sequence);
            out.extend_from_slice(&(plain_len as u32).to_le_bytes()[..3]);
            out.extend_from_slice(body);
            self.sequence = self.sequence.wrapping_add(1);
        }
        Ok(())
    }

    /// Reads once; every frame that is whole by now is appended to `plain`. `Ok(0)`: the end.
    pub fn read_frames(&mut self, socket: &mut impl Read, plain: &mut Vec<u8>) -> io::Result<usize> {
        let mut read = std::mem::take(&mut self.read);
        let outcome = socket.read(&mut read).and_then(|n| self.decode_frames(&read[..n], plain).map(|()| n));
        self.read = read;
        outcome
    }

    /// Takes bytes from the socket; every frame that is whole by now is appended to `plain`.
    fn decode_frames(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        self.raw.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(header) = self.raw.get(at..at + 7) {
            let len = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
            let plain_len = u32::from_le_bytes([header[4], header[5], header[6], 0]) as usize;
            let Some(body) = self.raw.get(at + 7..at + 7 + len) else { break };
            self.sequence = header[3].wrapping_add(1);
            if plain.len() + plain_len > MAX_RESULT_BYTES {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "compressed frames hold more than 256 MiB that was not read yet",
                ));
            }
            if plain_len == 0 {
                plain.extend_from_slice(body);
            } else {
                self.codec.decompress_body(body, plain_len, plain)?;
            }
            at += 7 + len;
        }
        self.raw.drain(..at);
        Ok(())
    }
}

impl Codec {
    /// Answers false where the result would not be smaller.
    fn compress_body(&mut self, plain: &[u8], body: &mut Vec<u8>) -> io::Result<bool> {
        body.clear();
        match self {
            Self::Zlib { deflate, .. } => {
                body.reserve(plain.len());
                deflate.reset();
                let status = deflate.compress_vec(plain, body, FlushCompress::Finish)?;
                Ok(status == Status::StreamEnd && body.len() < plain.len())
            }
            Self::Zstd { compress, .. } => {
                *body = compress.compress(plain)?;
                Ok(body.len() < plain.len())
            }
        }
    }

    fn decompress_body(&mut self, body: &[u8], plain_len: usize, plain: &mut Vec<u8>) -> io::Result<()> {
        let before = plain.len();
        match self {
            Self::Zlib { inflate, .. } => {
                plain.reserve_exact(plain_len);
                inflate.reset(true);
                // Within capacity: a body that claims less than it holds stops there.
                inflate.decompress_vec(body, plain, FlushDecompress::Finish)?;
            }
            Self::Zstd { decompress, .. } => {
                plain.extend_from_slice(&decompress.decompress(body, plain_len)?);
            }
        }
        if plain.len() - before != plain_len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a compressed frame has another length than its header",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_come_out_of_frames_as_they_went_in(
            packets in proptest::collection::vec(any::<u8>(), 0..4000),
            cut in 1..200usize,
            zstd: bool,
        ) {
            let kind = if zstd { Compression::Zstd } else { Compression::Zlib };
            let (mut frames, mut wire, mut back) = (FrameCodec::new(kind).unwrap(), Vec::new(), Vec::new());
            frames.encode_frames(&packets, &mut wire).unwrap();
            for piece in wire.chunks(cut) {
                frames.decode_frames(piece, &mut back).unwrap();
            }
            prop_assert_eq!(back, packets);
        }

        #[test]
        fn bad_frames_are_an_error_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), zstd: bool) {
            let kind = if zstd { Compression::Zstd } else { Compression::Zlib };
            let mut plain = Vec::new();
            let _ = FrameCodec::new(kind).unwrap().decode_frames(&bytes, &mut plain);
        }
    }

    #[test]
    fn a_long_text_travels_smaller() {
        let text = b"SELECT c FROM sbtest1 WHERE id=1 ".repeat(100);
        let mut wire = Vec::new();
        FrameCodec::new(Compression::Zlib).unwrap().encode_frames(&text, &mut wire).unwrap();
        assert!(wire.len() < text.len() / 5, "{} of {}", wire.len(), text.len());
    }
}
