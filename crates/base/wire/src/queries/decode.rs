//! Decoder of the events in an uncompressed block.
//!
//! Validates all input. Its own memory is at most a few times the block.

use super::interned::{Peer, Stretch};
use super::record::{self, KINDS};
use super::varint::Rest;
use super::{ALL, ledger_record};
use crate::event::{Asked, ErrorInfo, Event, Flags, Share, Sink};
use crate::ledger::Ledger;

/// Interned texts and connections of a block so far, by number.
#[derive(Default)]
pub(super) struct Said {
    texts: Vec<Stretch>,
    peers: Vec<Peer>,
}

/// What a block is, apart from its events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    pub capture: u64,
    /// Events of the capture before it.
    pub before: u64,
    /// Events handed on.
    pub events: u64,
    pub tainted: u64,
    /// The capture ended in good order, with this.
    pub ledger: Option<Ledger>,
    /// It contradicts itself behind those events.
    pub is_damaged: bool,
}

/// Reads blocks one after another; `share` is what they told last.
pub(super) struct Decoder {
    said: Said,
    share: u64,
}

impl Decoder {
    pub fn new() -> Self {
        Self { said: Said::default(), share: ALL }
    }

    /// Hands on the events of a block. `None`: not even its head can be read.
    pub fn block<S: Sink + ?Sized>(&mut self, plain: &[u8], sink: &mut S) -> Option<Block> {
        self.said.texts.clear();
        self.said.peers.clear();
        let mut rest = Rest(plain);
        let (capture, before) = (rest.number()?, rest.number()?);
        let mut time_ns = rest.number()?;
        let share = rest.number()?;
        // Where it changed without being told: the block that told it is missing, or in another file.
        if share != self.share {
            self.tell(time_ns, share, None, sink);
        }
        let mut block = Block { capture, before, ..Block::default() };
        while !rest.0.is_empty() {
            if self.record(&mut rest, plain, &mut time_ns, &mut block, sink).is_none() {
                block.is_damaged = true;
                break;
            }
        }
        Some(block)
    }

    fn tell<S: Sink + ?Sized>(&mut self, time_ns: u64, share: u64, asked: Option<Asked>, sink: &mut S) {
        self.share = share;
        sink.share(&Share { time_ns, kept: share.min(ALL) as f64 / ALL as f64, asked });
    }

    #[inline]
    fn record<'a, S: Sink + ?Sized>(
        &mut self,
        rest: &mut Rest<'a>,
        plain: &'a [u8],
        time_ns: &mut u64,
        block: &mut Block,
        sink: &mut S,
    ) -> Option<()> {
        let bits = rest.number()?;
        match bits & record::KIND_BITS {
            record::SHARE => {
                *time_ns = rest.step(*time_ns)?;
                let share = rest.number()?;
                let asked = Asked { all: rest.number()?, kept: rest.number()? };
                self.tell(*time_ns, share, Some(asked), sink);
            }
            record::LEDGER => block.ledger = Some(ledger_record::read(rest)?),
            _ => {
                let event = event(bits, rest, plain, *time_ns, &mut self.said)?;
                *time_ns = event.start_ns;
                block.events += 1;
                block.tainted += u64::from(event.tainted);
                sink.event(&event);
            }
        }
        Some(())
    }
}

#[inline]
fn event<'a>(
    bits: u64,
    rest: &mut Rest<'a>,
    plain: &'a [u8],
    time_ns: u64,
    said: &mut Said,
) -> Option<Event<'a>> {
    let holds = |bit: u64| bits & bit != 0;
    let start_ns = rest.step(time_ns)?;
    let peer: usize = rest.narrow()?;
    let text: usize = rest.narrow()?;
    let bytes_from_client = rest.number()?;
    let bytes_from_server = rest.number()?;
    let query_ns = if holds(record::QUERY_TIME) { Some(rest.number()?) } else { None };
    let first_byte_ns =
        if holds(record::FIRST_BYTE) { Some(rest.step(query_ns.unwrap_or(0))?) } else { None };
    let answered_ns = start_ns.wrapping_add(query_ns.unwrap_or(0));
    let end_ns = match (holds(record::END), holds(record::END_APART)) {
        (false, _) => None,
        (true, false) => Some(answered_ns),
        (true, true) => Some(rest.step(answered_ns)?),
    };
    let rows_sent = if holds(record::ROWS_SENT) { Some(rest.number()?) } else { None };
    let warnings = if holds(record::WARNINGS) { Some(rest.narrow()?) } else { None };
    let flags = if holds(record::FLAGS) { rest.number()? } else { 0 };
    let statement_id = if holds(record::STATEMENT_ID) { Some(rest.narrow()?) } else { None };
    let rows_affected = if holds(record::ROWS_AFFECTED) { Some(rest.number()?) } else { None };
    let text_cut = if holds(record::TEXT_CUT) { rest.number()? } else { 0 };
    let new_peer = if peer == 0 { Some(NewPeer::read(rest)?) } else { None };
    let text_len = if text == 0 { rest.narrow()? } else { 0 };
    let params_len = if holds(record::PARAMS) { rest.narrow()? } else { 0 };
    let error = if holds(record::ERROR) {
        Some((rest.narrow()?, rest.narrow::<usize>()?, rest.narrow::<usize>()?))
    } else {
        None
    };

    let who = match new_peer {
        Some(new) => new.take(rest, plain, &mut said.peers)?,
        None => *said.peers.get(peer - 1)?,
    }
    .of(plain);
    let text = if text == 0 {
        let stretch = take(text_len, rest, plain)?;
        said.texts.push(stretch);
        stretch
    } else {
        *said.texts.get(text - 1)?
    };
    let params = rest.bytes(params_len)?;
    let error = match error {
        Some((number, state, message)) => {
            Some(ErrorInfo { number, state: rest.bytes(state)?, message: rest.bytes(message)? })
        }
        None => None,
    };
    Some(Event {
        start_ns,
        first_byte_ns,
        query_ns,
        end_ns,
        lock_ns: None,
        kind: *KINDS.get((bits & record::KIND_BITS) as usize)?,
        text: text.of(plain),
        text_cut,
        params,
        statement_id,
        user: who.user,
        host: who.host,
        port: who.port,
        db: who.db,
        connection_id: who.connection_id,
        bytes_from_client,
        bytes_from_server,
        rows_sent,
        rows_examined: None,
        rows_affected,
        warnings,
        error,
        flags: Flags { no_index_used: flag(flags), no_good_index_used: flag(flags >> 2), ..Flags::default() },
        tainted: holds(record::TAINTED),
        attributes: &[],
    })
}

fn flag(two: u64) -> Option<bool> {
    (two & 1 != 0).then_some(two & 2 != 0)
}

/// The other end of a connection that the block names for the first time.
struct NewPeer {
    port: u16,
    connection_id: Option<u64>,
    lengths: [usize; 3],
}

impl NewPeer {
    fn read(rest: &mut Rest<'_>) -> Option<Self> {
        Some(Self {
            port: rest.narrow()?,
            connection_id: rest.number()?.checked_sub(1),
            lengths: [rest.narrow()?, rest.narrow()?, rest.narrow()?],
        })
    }

    fn take(&self, rest: &mut Rest<'_>, plain: &[u8], peers: &mut Vec<Peer>) -> Option<Peer> {
        let peer = Peer {
            user: take(self.lengths[0], rest, plain)?,
            host: take(self.lengths[1], rest, plain)?,
            db: take(self.lengths[2], rest, plain)?,
            port: self.port,
            connection_id: self.connection_id,
        };
        peers.push(peer);
        Some(peer)
    }
}

/// The next bytes, as a stretch of the block.
fn take(len: usize, rest: &mut Rest<'_>, plain: &[u8]) -> Option<Stretch> {
    let at = u32::try_from(plain.len() - rest.0.len()).ok()?;
    rest.bytes(len)?;
    Some(Stretch { at, len: u32::try_from(len).ok()? })
}
