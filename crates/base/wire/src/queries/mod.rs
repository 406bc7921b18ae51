//! Query-event file format: writer and reader. The format is docs/reference/queries-format.md.
//!
//! [`Encoder`] writes events into uncompressed blocks, [`BlockCompressor`] compresses a block, [`Reader`] reverses
//! both. Blocks are independent: a reader may start at any block, and continues behind a damaged one.

mod accounting;
mod accounting_record;
mod block;
mod decode;
mod encode;
mod interned;
mod reader;
mod varint;

pub use accounting::QueriesAccounting;
pub use block::{BlockCompressor, BlockHeader, MAGIC};
pub use encode::Encoder;
pub use reader::Reader;

/// Plain bytes after which whoever writes ends a block: some thousand events, so that what a block says first
/// of all (whole statements, who is connected) is little of it.
pub const BLOCK_SIZE: usize = 256 << 10;
/// Maximum plausible size of an uncompressed block: one that ends with an event of [`MAX_TEXT`] in its
/// statement and as much in its parameters.
pub const MAX_BLOCK_SIZE: usize = 4 << 20;
/// Bytes kept of a statement, and of its parameters; `Event::text_cut` tells of the rest.
const MAX_TEXT: usize = 1 << 20;
/// Bytes kept of the name of a user, host or schema (servers allow 320) and of an error's message (512
/// characters).
const MAX_NAME: usize = 2048;

/// What a record of a block is: the low three bits of its first number; below [`record::SHARE`] it is an
/// event of that kind.
mod record {
    use crate::event::CommandKind;

    pub const KINDS: [CommandKind; 6] = [
        CommandKind::Query,
        CommandKind::Prepare,
        CommandKind::Execute,
        CommandKind::Close,
        CommandKind::Reset,
        CommandKind::Admin,
    ];
    pub const SHARE: u64 = 6;
    pub const LEDGER: u64 = 7;
    pub const KIND_BITS: u64 = 7;

    // What else an event holds; the frequent ones lowest.
    pub const QUERY_TIME: u64 = 1 << 3;
    pub const FIRST_BYTE: u64 = 1 << 4;
    pub const END: u64 = 1 << 5;
    pub const ROWS_SENT: u64 = 1 << 6;
    pub const WARNINGS: u64 = 1 << 7;
    pub const FLAGS: u64 = 1 << 8;
    pub const STATEMENT_ID: u64 = 1 << 9;
    pub const PARAMS: u64 = 1 << 10;
    pub const ROWS_AFFECTED: u64 = 1 << 11;
    /// The end is not where start and query time put it.
    pub const END_APART: u64 = 1 << 12;
    pub const TAINTED: u64 = 1 << 13;
    pub const ERROR: u64 = 1 << 14;
    pub const TEXT_CUT: u64 = 1 << 15;
}

/// A share of the connections in steps of 2^-32; this is all of them.
const FULL_SHARE: u64 = 1 << 32;

#[cfg(test)]
mod tests;
