//! Decompressor of compressed protocol frames to packets. Never holds a whole uncompressed frame.
//!
//! A frame has its own header (length, sequence number, uncompressed length). An uncompressed length of 0
//! means that the body is stored uncompressed. A frame may hold a part of a packet or several packets. The
//! first bytes identify the codec, so sessions joined midway are decoded too.

use super::kept::Kept;
use super::session::Session;
use super::{Context, client};
use crate::event::Sink;
use crate::room::Room;
use crate::side::{Hole, Side};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{Decoder as Zstd, InBuffer, Operation, OutBuffer};

const HEADER: usize = 7;
/// Kept of a frame that straddles segments; larger ones pass unread and their time is still known.
const LARGEST: usize = 4 << 20;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The frames of both directions.
#[derive(Debug, Default)]
pub(super) struct Compression {
    pub client: Frames,
    pub server: Frames,
}

/// The frames of one direction.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: [u8; HEADER],
    have: u8,
    left: u32,
    body: Kept,
    /// Part of the frame was not kept or not captured.
    incomplete: bool,
    /// Where the next frame begins is not known.
    pub adrift: bool,
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
    Missing,
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

impl Frames {
    /// Takes bytes up to the end of a frame; `None`: its end has not arrived. `each` sees the frame.
    pub fn take<'a>(&mut self, bytes: &'a [u8], room: &mut Room) -> (Option<Taken<'a>>, &'a [u8]) {
        if self.have == 0
            && let Some((head, rest)) = bytes.split_first_chunk::<HEADER>()
        {
            let length = header(*head).0 as usize;
            if let Some((body, rest)) = rest.split_at_checked(length) {
                return (Some(Taken::Whole(Frame::new(*head, body))), rest);
            }
        }
        let mut bytes = bytes;
        if usize::from(self.have) < HEADER {
            let have = usize::from(self.have);
            let taken = (HEADER - have).min(bytes.len());
            self.head[have..have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken as u8;
            bytes = &bytes[taken..];
            if usize::from(self.have) < HEADER {
                return (None, bytes);
            }
            self.left = header(self.head).0;
            self.incomplete = false;
        }
        let taken = (self.left as usize).min(bytes.len());
        self.incomplete |= self.body.append(&bytes[..taken], LARGEST, room) > 0;
        self.left -= taken as u32;
        let ended = (self.left == 0).then_some(Taken::Assembled);
        (ended, &bytes[taken..])
    }

    /// Passes bytes that were not captured. `None`: they reach beyond the frame.
    pub fn hole(&mut self, count: u64) -> Option<Option<Taken<'static>>> {
        if usize::from(self.have) < HEADER || count > u64::from(self.left) {
            return None;
        }
        self.left -= count as u32;
        self.incomplete = true;
        Some((self.left == 0).then_some(Taken::Assembled))
    }

    /// The body that was put together; give it back with [`Frames::next`].
    pub fn assembled(&mut self) -> (Kept, [u8; HEADER], bool) {
        (std::mem::take(&mut self.body), self.head, self.incomplete)
    }

    pub fn next(&mut self, mut body: Kept, room: &mut Room) {
        body.clear(room);
        self.body = body;
        self.have = 0;
    }

    pub fn reset(&mut self, room: &mut Room) {
        self.body.clear(room);
        self.have = 0;
        self.left = 0;
        self.adrift = false;
    }
}

/// Result of [`Frames::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken<'a> {
    /// In one piece, where it was.
    Whole(Frame<'a>),
    /// Put together; see [`Frames::assembled`].
    Assembled,
}

/// The frame of what was put together.
pub(super) fn assembled_frame<'a>(body: &'a Kept, head: [u8; HEADER], incomplete: bool) -> Frame<'a> {
    let frame = Frame::new(head, body.bytes());
    if incomplete { Frame { content: Content::Missing, ..frame } } else { frame }
}

/// True if a client's segment is one compressed frame that may hold a command.
pub(super) fn holds_command(bytes: &[u8], is_plausible: impl Fn(&[u8]) -> bool) -> bool {
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
    pub(super) fn compressed_bytes<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        mut bytes: &[u8],
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        if self.frames(from).is_none_or(|frames| frames.adrift) {
            let found = from == Side::Client && holds_command(bytes, client::is_plausible);
            if !found {
                self.pass_unread(bytes.len() as u64, time_ns);
                return;
            }
            if let Some(frames) = self.frames(from) {
                frames.reset(&mut context.workspace.room);
            }
        }
        while !bytes.is_empty() {
            let Some(frames) = self.frames(from) else { return };
            let (taken, rest) = frames.take(bytes, &mut context.workspace.room);
            bytes = rest;
            match taken {
                Some(Taken::Whole(frame)) => self.frame(from, frame, time_ns, context),
                Some(Taken::Assembled) => self.assembled_frame(from, time_ns, context),
                None => {}
            }
        }
    }

    pub(super) fn frames(&mut self, from: Side) -> Option<&mut Frames> {
        let compression = self.compression.as_deref_mut()?;
        Some(match from {
            Side::Client => &mut compression.client,
            Side::Server => &mut compression.server,
        })
    }

    pub(super) fn assembled_frame<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        let Some((body, head, incomplete)) = self.frames(from).map(Frames::assembled) else { return };
        self.frame(from, assembled_frame(&body, head, incomplete), time_ns, context);
        if let Some(frames) = self.frames(from) {
            frames.next(body, &mut context.workspace.room);
        }
    }

    fn frame<S: Sink + ?Sized>(
        &mut self,
        from: Side,
        frame: Frame<'_>,
        time_ns: u64,
        context: &mut Context<'_, S>,
    ) {
        match frame.content {
            Content::Stored(body) => self.plain_bytes(from, body, time_ns, context),
            Content::Missing => self.plain_hole(from, frame.length, Hole::Cut, time_ns, context),
            Content::Compressed(body) => {
                let mut inflater = std::mem::take(&mut context.workspace.inflater);
                let whole = inflater
                    .expand(body, frame.length, |piece| self.plain_bytes(from, piece, time_ns, context));
                context.workspace.inflater = inflater;
                if !whole {
                    self.lose_client_step(context);
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
const PIECE: usize = 64 << 10;

impl Inflater {
    /// Hands the content to `each` in pieces. False: the frame is damaged (what was handed over
    /// up to there is right).
    pub fn expand(&mut self, body: &[u8], length: u64, mut each: impl FnMut(&[u8])) -> bool {
        self.out.resize(PIECE, 0);
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
