//! Reader of query-event files. Finds blocks at any position; holds at most one.

use super::accounting::QueriesAccounting;
use super::block::{BlockDecompressor, BlockHeader, MAGIC};
use super::decode::BlockDecoder;
use crate::event::Sink;
use memchr::memmem::Finder;

/// Reads files of query events as they come, in pieces of any size.
pub struct Reader {
    /// A block, or a head, that is not there as a whole yet.
    partial: Vec<u8>,
    plain: Vec<u8>,
    unpacker: BlockDecompressor,
    decoder: BlockDecoder,
    accounting: QueriesAccounting,
    magic: Finder<'static>,
}

/// Classification of the first bytes.
enum BlockMatch {
    /// A block of so many bytes, head included.
    Block(BlockHeader, usize),
    /// Too few bytes to tell.
    Incomplete,
    /// So many bytes that are no block's.
    NotBlock(usize),
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    pub fn new() -> Self {
        Self {
            partial: Vec::new(),
            plain: Vec::new(),
            unpacker: BlockDecompressor::new(),
            decoder: BlockDecoder::new(),
            accounting: QueriesAccounting::default(),
            magic: Finder::new(&MAGIC),
        }
    }

    /// Takes the next bytes of a file; the events of blocks that are whole with them go to `sink`. Damaged
    /// blocks are counted and passed by.
    pub fn feed<S: Sink + ?Sized>(&mut self, chunk: &[u8], sink: &mut S) {
        self.accounting.bytes += chunk.len() as u64;
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.partial.is_empty() {
                rest = match self.find_block(rest) {
                    BlockMatch::Block(head, length) if rest.len() >= length => {
                        let (block, rest) = rest.split_at(length);
                        self.decode_block(&head, block, sink);
                        rest
                    }
                    BlockMatch::Block(..) | BlockMatch::Incomplete => {
                        self.partial.extend_from_slice(rest);
                        return;
                    }
                    BlockMatch::NotBlock(bytes) => self.skip_bytes(bytes, rest),
                };
            } else {
                let wanted = match self.find_block(&self.partial) {
                    BlockMatch::Block(_, length) => length,
                    BlockMatch::Incomplete => BlockHeader::LEN,
                    BlockMatch::NotBlock(bytes) => {
                        self.accounting.skipped_bytes += bytes as u64;
                        self.partial.drain(..bytes);
                        continue;
                    }
                };
                let (more, after) = rest.split_at(rest.len().min(wanted - self.partial.len()));
                self.partial.extend_from_slice(more);
                rest = after;
                if let BlockMatch::Block(head, length) = self.find_block(&self.partial)
                    && self.partial.len() >= length
                {
                    let block = std::mem::take(&mut self.partial);
                    self.decode_block(&head, &block, sink);
                    self.partial = block;
                    self.partial.clear();
                }
            }
        }
    }

    /// Nothing follows.
    pub fn finish(&mut self) {
        // What was kept because it began like a head may be known not to be one since.
        while !self.partial.is_empty()
            && let BlockMatch::NotBlock(bytes) = self.find_block(&self.partial)
        {
            self.accounting.skipped_bytes += bytes as u64;
            self.partial.drain(..bytes);
        }
        self.accounting.unread_tail_bytes += self.partial.len() as u64;
        self.partial.clear();
    }

    /// Adds up after [`finish`](Self::finish).
    pub fn accounting(&self) -> &QueriesAccounting {
        &self.accounting
    }

    fn skip_bytes<'a>(&mut self, bytes: usize, rest: &'a [u8]) -> &'a [u8] {
        self.accounting.skipped_bytes += bytes as u64;
        &rest[bytes..]
    }

    fn find_block(&self, bytes: &[u8]) -> BlockMatch {
        if let Some(head) = BlockHeader::read(bytes) {
            return BlockMatch::Block(head, BlockHeader::LEN + head.compressed_len);
        }
        let known = bytes.len().min(MAGIC.len());
        if bytes.len() < BlockHeader::LEN && bytes[..known] == MAGIC[..known] {
            return BlockMatch::Incomplete;
        }
        match self.magic.find(&bytes[1..]) {
            Some(at) => BlockMatch::NotBlock(1 + at),
            // The last bytes may be the first of a head.
            None => BlockMatch::NotBlock(bytes.len().saturating_sub(MAGIC.len() - 1).max(1)),
        }
    }

    fn decode_block<S: Sink + ?Sized>(&mut self, head: &BlockHeader, block: &[u8], sink: &mut S) {
        self.accounting.blocks += 1;
        self.accounting.block_bytes += block.len() as u64;
        if !head.is_supported() {
            self.accounting.blocks_newer += 1;
            return;
        }
        let unpacked = self.unpacker.decompress(head, &block[BlockHeader::LEN..], &mut self.plain);
        match unpacked.and_then(|()| self.decoder.decode_block(&self.plain, sink)) {
            Some(block) => self.accounting.count_block(&block),
            None => self.accounting.blocks_damaged += 1,
        }
    }
}
