//! Block framing and compression of query-event files.

use super::MAX_BLOCK_SIZE;
use std::io;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::compress_bound;

/// How each block, and so each file, begins, up to the version: the head of a skippable frame of zstd with
/// 16 bytes in it, so that `zstd -dc` and `zstd -t` read these files too.
pub const MAGIC: [u8; 15] = *b"\x54\x2a\x4d\x18\x10\0\0\0tollqry";
const VERSION: u8 = 1;
/// The fastest of zstd's ordinary levels: it runs beside a busy server.
const ZSTD_LEVEL: i32 = 1;

/// Header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    pub version: u8,
    /// Bytes of the block in the file, behind this head.
    pub compressed_len: usize,
    /// Bytes of the block itself.
    pub plain_len: usize,
}

impl BlockHeader {
    /// Bytes of it.
    pub const LEN: usize = 24;

    /// `None`: no block begins with these bytes, of which there are [`Self::LEN`] at least.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<{ BlockHeader::LEN }>()?;
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let read = Self { version: head[MAGIC.len()], compressed_len: number(16), plain_len: number(20) };
        let is_believed =
            read.compressed_len <= compress_bound(MAX_BLOCK_SIZE) && read.plain_len <= MAX_BLOCK_SIZE;
        (head.starts_with(&MAGIC) && is_believed).then_some(read)
    }

    pub fn is_supported(&self) -> bool {
        self.version == VERSION
    }

    fn bytes(packed: u32, plain: u32) -> [u8; Self::LEN] {
        let mut head = [0; Self::LEN];
        head[..MAGIC.len()].copy_from_slice(&MAGIC);
        head[MAGIC.len()] = VERSION;
        head[16..20].copy_from_slice(&packed.to_le_bytes());
        head[20..].copy_from_slice(&plain.to_le_bytes());
        head
    }
}

/// Compresses blocks, one as little as another.
pub struct BlockCompressor(Compressor<'static>);

impl BlockCompressor {
    /// # Errors
    /// zstd has no memory.
    pub fn new() -> io::Result<Self> {
        let mut zstd = Compressor::new(ZSTD_LEVEL)?;
        zstd.include_checksum(true)?;
        Ok(Self(zstd))
    }

    /// Appends the block to `out`, as it stands in a file.
    ///
    /// # Errors
    /// The block is larger than a reader believes, or zstd fails.
    pub fn compress(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "a block of queries is too large");
        if plain.len() > MAX_BLOCK_SIZE {
            return Err(too_large());
        }
        let begin = out.len();
        let body = begin + BlockHeader::LEN;
        out.resize(body + compress_bound(plain.len()), 0);
        let packed = self.0.compress_to_buffer(plain, &mut out[body..])?;
        out.truncate(body + packed);
        let lengths = (u32::try_from(packed), u32::try_from(plain.len()));
        let (Ok(packed), Ok(plain)) = lengths else { return Err(too_large()) };
        out[begin..body].copy_from_slice(&BlockHeader::bytes(packed, plain));
        Ok(())
    }
}

/// Decompressor of what a [`BlockCompressor`] wrote.
pub(super) struct BlockDecompressor(Option<Decompressor<'static>>);

impl BlockDecompressor {
    pub fn new() -> Self {
        Self(None)
    }

    /// Puts the block into `plain`; `None`: it is damaged.
    pub fn decompress(&mut self, head: &BlockHeader, packed: &[u8], plain: &mut Vec<u8>) -> Option<()> {
        if self.0.is_none() {
            self.0 = Decompressor::new().ok();
        }
        plain.clear();
        plain.reserve(head.plain_len);
        let length = self.0.as_mut()?.decompress_to_buffer(packed, plain).ok()?;
        (length == head.plain_len).then_some(())
    }
}
