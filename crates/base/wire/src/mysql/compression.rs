//! Decompressor of compressed protocol frames to packets. Never holds a whole uncompressed frame.
//!
//! A frame has its own header (length, sequence number, uncompressed length). An uncompressed length of 0
//! means that the body is stored uncompressed. A frame may hold a part of a packet or several packets. The
//! first bytes identify the codec, so sessions joined midway are decoded too.

use super::bounded_buffer::BoundedBuffer;
use super::session::Session;
use super::{Context, client};
use crate::direction::{Direction, GapCause};
use crate::event::Sink;
use crate::memory_budget::MemoryBudget;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{Decoder as Zstd, InBuffer, Operation, OutBuffer};

const HEADER: usize = 7;
/// Kept of a frame that straddles segments; larger ones pass unread and their time is still known.
const MAX_BUFFERED_FRAME: usize = 4 << 20;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The frames of both directions.
#[derive(Debug, Default)]
pub(super) struct Compression {
    pub client: FrameAssembler,
    pub server: FrameAssembler,
}

/// The frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameAssembler {
    head: [u8; HEADER],
    head_len: u8,
    remaining: u32,
    body: BoundedBuffer,
    /// Part of the frame was not kept or not captured.
    incomplete: bool,
    /// Where the next frame begins is not known.
    pub desynced: bool,
}

/// A frame that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub content: Content<'a>,
    /// Length before compression.
    pub length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<'a> {
    Stored(&'a [u8]),
    Compressed(&'a [u8]),
    /// Passed by unread.
    Skipped,
}

fn header(head: [u8; HEADER]) -> (u32, u32) {
    (u32::from_le_bytes([head[0], head[1], head[2], 0]), u32::from_le_bytes([head[4], head[5], head[6], 0]))
}

impl<'a> Frame<'a> {
    fn new(head: [u8; HEADER], body: &'a [u8]) -> Self {
        match header(head) {
            (length, 0) => Frame { content: Content::Stored(body), length: u64::from(length) },
            (_, length) => Frame { content: Content::Compressed(body), length: u64::from(length) },
        }
    }
}

impl FrameAssembler {
    /// Takes bytes up to the end of a frame; `None`: its end has not arrived. `each` sees the frame.
    pub fn consume<'a>(
        &mut self,
        bytes: &'a [u8],
        budget: &mut MemoryBudget,
    ) -> (Option<FrameEnd<'a>>, &'a [u8]) {
        if self.head_len == 0
            && let Some((head, rest)) = bytes.split_first_chunk::<HEADER>()
        {
            let length = header(*head).0 as usize;
            if let Some((body, rest)) = rest.split_at_checked(length) {
                return (Some(FrameEnd::Whole(Frame::new(*head, body))), rest);
            }
        }
        let mut bytes = bytes;
        if usize::from(self.head_len) < HEADER {
            let have = usize::from(self.head_len);
            let taken = (HEADER - have).min(bytes.len());
            self.head[have..have + taken].copy_from_slice(&bytes[..taken]);
            self.head_len += taken as u8;
            bytes = &bytes[taken..];
            if usize::from(self.head_len) < HEADER {
                return (None, bytes);
            }
            self.remaining = header(self.head).0;
            self.incomplete = false;
        }
        let taken = (self.remaining as usize).min(bytes.len());
        self.incomplete |= self.body.append(&bytes[..taken], MAX_BUFFERED_FRAME, budget) > 0;
        self.remaining -= taken as u32;
        let ended = (self.remaining == 0).then_some(FrameEnd::Assembled);
        (ended, &bytes[taken..])
    }

    /// Passes bytes that were not captured. `None`: they reach beyond the frame.
    pub fn skip_gap(&mut self, count: u64) -> Option<Option<FrameEnd<'static>>> {
        if usize::from(self.head_len) < HEADER || count > u64::from(self.remaining) {
            return None;
        }
        self.remaining -= count as u32;
        self.incomplete = true;
        Some((self.remaining == 0).then_some(FrameEnd::Assembled))
    }

    /// The body that was put together; give it back with [`FrameAssembler::recycle_body`].
    pub fn take_assembled(&mut self) -> (BoundedBuffer, [u8; HEADER], bool) {
        (std::mem::take(&mut self.body), self.head, self.incomplete)
    }

    pub fn recycle_body(&mut self, mut body: BoundedBuffer, budget: &mut MemoryBudget) {
        body.clear(budget);
        self.body = body;
        self.head_len = 0;
    }

    pub fn reset(&mut self, budget: &mut MemoryBudget) {
        self.body.clear(budget);
        self.head_len = 0;
        self.remaining = 0;
        self.desynced = false;
    }
}

/// Result of [`FrameAssembler::consume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameEnd<'a> {
    /// In one piece, where it was.
    Whole(Frame<'a>),
    /// Assembled; see [`FrameAssembler::take_assembled`].
    Assembled,
}

/// The frame of what was put together.
pub(super) fn assembled_frame<'a>(
    body: &'a BoundedBuffer,
    head: [u8; HEADER],
    incomplete: bool,
) -> Frame<'a> {
    let frame = Frame::new(head, body.bytes());
    if incomplete { Frame { content: Content::Skipped, ..frame } } else { frame }
}

/// True if a client's segment is one compressed frame that may hold a command.
pub(super) fn may_hold_command(bytes: &[u8], is_plausible: impl Fn(&[u8]) -> bool) -> bool {
    let Some((head, body)) = bytes.split_first_chunk::<HEADER>() else { return false };
    let (length, before) = header(*head);
    if head[3] != 0 || length as usize != body.len() {
        return false;
    }
    match before {
        0 => is_plausible(body),
        // Servers and clients store what compression would not shorten.
        _ => before > length && (is_zlib(body) || body.starts_with(&ZSTD_MAGIC)),
    }
}

/// Method deflate with a window of 32 KiB, and a check sum (RFC 1950).
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [0x78, flags, ..] if (0x7800 + u16::from(*flags)).is_multiple_of(31))
}

impl Session {
    /// Frames of a session that compresses, and the packets in them.
    pub(super) fn handle_compressed_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        mut bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        if self.frames_mut(from).is_none_or(|frames| frames.desynced) {
            let found = from == Direction::FromClient && may_hold_command(bytes, client::looks_like_command);
            if !found {
                self.count_unread(bytes.len() as u64, time_ns);
                return;
            }
            if let Some(frames) = self.frames_mut(from) {
                frames.reset(&mut context.workspace.budget);
            }
        }
        while !bytes.is_empty() {
            let Some(frames) = self.frames_mut(from) else { return };
            let (taken, rest) = frames.consume(bytes, &mut context.workspace.budget);
            bytes = rest;
            match taken {
                Some(FrameEnd::Whole(frame)) => self.handle_frame(from, frame, time_ns, context),
                Some(FrameEnd::Assembled) => self.handle_assembled_frame(from, time_ns, context),
                None => {}
            }
        }
    }

    pub(super) fn frames_mut(&mut self, from: Direction) -> Option<&mut FrameAssembler> {
        let compression = self.compression.as_deref_mut()?;
        Some(match from {
            Direction::FromClient => &mut compression.client,
            Direction::FromServer => &mut compression.server,
        })
    }

    pub(super) fn handle_assembled_frame<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let Some((body, head, incomplete)) = self.frames_mut(from).map(FrameAssembler::take_assembled) else {
            return;
        };
        self.handle_frame(from, assembled_frame(&body, head, incomplete), time_ns, context);
        if let Some(frames) = self.frames_mut(from) {
            frames.recycle_body(body, &mut context.workspace.budget);
        }
    }

    fn handle_frame<S: Sink + ?Sized>(
        &mut self,
        from: Direction,
        frame: Frame<'_>,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match frame.content {
            Content::Stored(body) => self.handle_plain_bytes(from, body, time_ns, context),
            Content::Skipped => {
                self.handle_plain_gap(from, frame.length, GapCause::Truncated, time_ns, context)
            }
            Content::Compressed(body) => {
                let mut inflater = std::mem::take(&mut context.workspace.inflater);
                let whole = inflater.expand(body, frame.length, |piece| {
                    self.handle_plain_bytes(from, piece, time_ns, context)
                });
                context.workspace.inflater = inflater;
                if !whole {
                    self.count_and_desync(context);
                }
            }
        }
    }
}

/// Expands frames; one serves all sessions of a decoder.
#[derive(Default)]
pub(crate) struct Inflater {
    zlib: Option<Decompress>,
    zstd: Option<Zstd<'static>>,
    out: Vec<u8>,
}

/// Expanded at once.
const EXPAND_CHUNK: usize = 64 << 10;

impl Inflater {
    /// Hands the content to `each` in pieces. False: the frame is damaged (what was handed over
    /// up to there is right).
    pub fn expand(&mut self, body: &[u8], length: u64, mut each: impl FnMut(&[u8])) -> bool {
        self.out.resize(EXPAND_CHUNK, 0);
        let mut expanded = 0;
        // No frame may say less than it holds.
        let mut piece = |bytes: &[u8]| {
            expanded += bytes.len() as u64;
            if expanded <= length {
                each(bytes);
            }
            expanded <= length
        };
        let whole = if body.starts_with(&ZSTD_MAGIC) {
            expand_zstd(&mut self.zstd, body, &mut self.out, &mut piece)
        } else {
            let zlib = self.zlib.get_or_insert_with(|| Decompress::new(true));
            expand_zlib(zlib, body, &mut self.out, &mut piece)
        };
        whole.is_some() && expanded == length
    }
}

fn expand_zlib(
    zlib: &mut Decompress,
    body: &[u8],
    out: &mut [u8],
    piece: &mut impl FnMut(&[u8]) -> bool,
) -> Option<()> {
    zlib.reset(true);
    loop {
        let (taken, given) = (zlib.total_in() as usize, zlib.total_out());
        let status = zlib.decompress(body.get(taken..)?, out, FlushDecompress::None).ok()?;
        let produced = (zlib.total_out() - given) as usize;
        if produced > 0 && !piece(&out[..produced]) {
            return None;
        }
        match status {
            Status::StreamEnd => return Some(()),
            _ if produced == 0 && zlib.total_in() as usize == taken => return None,
            _ => {}
        }
    }
}

fn expand_zstd(
    zstd: &mut Option<Zstd<'static>>,
    body: &[u8],
    out: &mut [u8],
    piece: &mut impl FnMut(&[u8]) -> bool,
) -> Option<()> {
    if zstd.is_none() {
        *zstd = Zstd::new().ok();
    }
    let zstd = zstd.as_mut()?;
    zstd.reinit().ok()?;
    let mut input = InBuffer::around(body);
    loop {
        let before = input.pos();
        let mut output = OutBuffer::around(&mut *out);
        let left = zstd.run(&mut input, &mut output).ok()?;
        let produced = output.pos();
        if produced > 0 && !piece(&out[..produced]) {
            return None;
        }
        if left == 0 {
            return Some(());
        }
        if produced == 0 && input.pos() == before {
            return None;
        }
    }
}
