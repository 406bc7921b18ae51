//! Reader of query-event files. Finds blocks at any position; holds at most one.

use super::block::{Head, MAGIC, Unpacker};
use super::decode::Decoder;
use super::ledger::QueriesLedger;
use crate::event::Sink;
use memchr::memmem::Finder;

/// Reads files of query events as they come, in pieces of any size.
pub struct Reader {
    /// A block, or a head, that is not there as a whole yet.
    partial: Vec<u8>,
    plain: Vec<u8>,
    unpacker: Unpacker,
    decoder: Decoder,
    ledger: QueriesLedger,
    magic: Finder<'static>,
}

/// Classification of the first bytes.
enum Found {
    /// A block of so many bytes, head included.
    Block(Head, usize),
    /// Too few bytes to tell.
    Short,
    /// So many bytes that are no block's.
    Nothing(usize),
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
            unpacker: Unpacker::new(),
            decoder: Decoder::new(),
            ledger: QueriesLedger::default(),
            magic: Finder::new(&MAGIC),
        }
    }

    /// Takes the next bytes of a file; the events of blocks that are whole with them go to `sink`. Damaged
    /// blocks are counted and passed by.
    pub fn feed<S: Sink + ?Sized>(&mut self, chunk: &[u8], sink: &mut S) {
        self.ledger.bytes += chunk.len() as u64;
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.partial.is_empty() {
                rest = match self.find(rest) {
                    Found::Block(head, length) if rest.len() >= length => {
                        let (block, rest) = rest.split_at(length);
                        self.block(&head, block, sink);
                        rest
                    }
                    Found::Block(..) | Found::Short => {
                        self.partial.extend_from_slice(rest);
                        return;
                    }
                    Found::Nothing(bytes) => self.skip(bytes, rest),
                };
            } else {
                let wanted = match self.find(&self.partial) {
                    Found::Block(_, length) => length,
                    Found::Short => Head::LEN,
                    Found::Nothing(bytes) => {
                        self.ledger.skipped_bytes += bytes as u64;
                        self.partial.drain(..bytes);
                        continue;
                    }
                };
                let (more, after) = rest.split_at(rest.len().min(wanted - self.partial.len()));
                self.partial.extend_from_slice(more);
                rest = after;
                if let Found::Block(head, length) = self.find(&self.partial)
                    && self.partial.len() >= length
                {
                    let block = std::mem::take(&mut self.partial);
                    self.block(&head, &block, sink);
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
            && let Found::Nothing(bytes) = self.find(&self.partial)
        {
            self.ledger.skipped_bytes += bytes as u64;
            self.partial.drain(..bytes);
        }
        self.ledger.unread_tail += self.partial.len() as u64;
        self.partial.clear();
    }

    /// Adds up after [`finish`](Self::finish).
    pub fn ledger(&self) -> &QueriesLedger {
        &self.ledger
    }

    fn skip<'a>(&mut self, bytes: usize, rest: &'a [u8]) -> &'a [u8] {
        self.ledger.skipped_bytes += bytes as u64;
        &rest[bytes..]
    }

    fn find(&self, bytes: &[u8]) -> Found {
        if let Some(head) = Head::read(bytes) {
            return Found::Block(head, Head::LEN + head.packed);
        }
        let known = bytes.len().min(MAGIC.len());
        if bytes.len() < Head::LEN && bytes[..known] == MAGIC[..known] {
            return Found::Short;
        }
        match self.magic.find(&bytes[1..]) {
            Some(at) => Found::Nothing(1 + at),
            // The last bytes may be the first of a head.
            None => Found::Nothing(bytes.len().saturating_sub(MAGIC.len() - 1).max(1)),
        }
    }

    fn block<S: Sink + ?Sized>(&mut self, head: &Head, block: &[u8], sink: &mut S) {
        self.ledger.blocks += 1;
        self.ledger.block_bytes += block.len() as u64;
        if !head.is_known() {
            self.ledger.blocks_newer += 1;
            return;
        }
        let unpacked = self.unpacker.unpack(head, &block[Head::LEN..], &mut self.plain);
        match unpacked.and_then(|()| self.decoder.block(&self.plain, sink)) {
            Some(block) => self.ledger.see(&block),
            None => self.ledger.blocks_damaged += 1,
        }
    }
}
