//! Decoder of the events in an uncompressed block.
//!
//! Validates all input. Its own memory is at most a few times the block.

use super::interned::{BlockSpan, PeerSpans};
use super::record::{self, KINDS};
use super::varint::VarintReader;
use super::{FULL_SHARE, accounting_record};
use crate::accounting::DecodeAccounting;
use crate::event::{ErrorInfo, Event, Flags, RequestCounts, SampleShare, Sink};
use crate::fingerprint::BackslashMode;

/// Interned texts and connections of a block so far, by number.
#[derive(Default)]
pub(super) struct BlockTables {
    texts: Vec<BlockSpan>,
    peers: Vec<PeerSpans>,
}

/// What a block is, apart from its events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DecodedBlock {
    pub capture: u64,
    /// Events of the capture before it.
    pub first_event: u64,
    /// Events handed on.
    pub events: u64,
    pub tainted: u64,
    /// The capture ended in good order, with this.
    pub accounting: Option<DecodeAccounting>,
    /// It contradicts itself behind those events.
    pub is_damaged: bool,
}

/// Reads blocks one after another; `share` is the share reported last.
pub(super) struct BlockDecoder {
    tables: BlockTables,
    share: u64,
}

impl BlockDecoder {
    pub fn new() -> Self {
        Self { tables: BlockTables::default(), share: FULL_SHARE }
    }

    /// Hands on the events of a block. `None`: not even its head can be read.
    pub fn decode_block<S: Sink + ?Sized>(&mut self, plain: &[u8], sink: &mut S) -> Option<DecodedBlock> {
        self.tables.texts.clear();
        self.tables.peers.clear();
        let mut rest = VarintReader(plain);
        let (capture, before) = (rest.number()?, rest.number()?);
        let mut time_ns = rest.number()?;
        let share = rest.number()?;
        // The share changed without a record: its block is missing, or in another file.
        if share != self.share {
            self.report_share(time_ns, share, None, sink);
        }
        let mut block = DecodedBlock { capture, first_event: before, ..DecodedBlock::default() };
        while !rest.0.is_empty() {
            if self.decode_record(&mut rest, plain, &mut time_ns, &mut block, sink).is_none() {
                block.is_damaged = true;
                break;
            }
        }
        Some(block)
    }

    fn report_share<S: Sink + ?Sized>(
        &mut self,
        time_ns: u64,
        share: u64,
        asked: Option<RequestCounts>,
        sink: &mut S,
    ) {
        self.share = share;
        sink.on_sample_share(&SampleShare {
            time_ns,
            fraction: share.min(FULL_SHARE) as f64 / FULL_SHARE as f64,
            requests: asked,
        });
    }

    #[inline]
    fn decode_record<'a, S: Sink + ?Sized>(
        &mut self,
        rest: &mut VarintReader<'a>,
        plain: &'a [u8],
        time_ns: &mut u64,
        block: &mut DecodedBlock,
        sink: &mut S,
    ) -> Option<()> {
        let bits = rest.number()?;
        match bits & record::KIND_BITS {
            record::SHARE => {
                *time_ns = rest.delta(*time_ns)?;
                let share = rest.number()?;
                let asked = RequestCounts { total: rest.number()?, sampled: rest.number()? };
                self.report_share(*time_ns, share, Some(asked), sink);
            }
            record::LEDGER => block.accounting = Some(accounting_record::read_accounting(rest)?),
            _ => {
                let event = decode_event(bits, rest, plain, *time_ns, &mut self.tables)?;
                *time_ns = event.start_ns;
                block.events += 1;
                block.tainted += u64::from(event.tainted);
                sink.on_event(&event);
            }
        }
        Some(())
    }
}

#[inline]
fn decode_event<'a>(
    bits: u64,
    rest: &mut VarintReader<'a>,
    plain: &'a [u8],
    time_ns: u64,
    tables: &mut BlockTables,
) -> Option<Event<'a>> {
    let holds = |bit: u64| bits & bit != 0;
    let start_ns = rest.delta(time_ns)?;
    let peer: usize = rest.number_as()?;
    let text: usize = rest.number_as()?;
    let bytes_from_client = rest.number()?;
    let bytes_from_server = rest.number()?;
    let query_ns = if holds(record::QUERY_TIME) { Some(rest.number()?) } else { None };
    let first_byte_ns =
        if holds(record::FIRST_BYTE) { Some(rest.delta(query_ns.unwrap_or(0))?) } else { None };
    let answered_ns = start_ns.wrapping_add(query_ns.unwrap_or(0));
    let end_ns = match (holds(record::END), holds(record::END_APART)) {
        (false, _) => None,
        (true, false) => Some(answered_ns),
        (true, true) => Some(rest.delta(answered_ns)?),
    };
    let rows_sent = if holds(record::ROWS_SENT) { Some(rest.number()?) } else { None };
    let warnings = if holds(record::WARNINGS) { Some(rest.number_as()?) } else { None };
    let flags = if holds(record::FLAGS) { rest.number()? } else { 0 };
    let statement_id = if holds(record::STATEMENT_ID) { Some(rest.number_as()?) } else { None };
    let rows_affected = if holds(record::ROWS_AFFECTED) { Some(rest.number()?) } else { None };
    let text_cut = if holds(record::TEXT_CUT) { rest.number()? } else { 0 };
    let new_peer = if peer == 0 { Some(NewPeer::read(rest)?) } else { None };
    let text_len = if text == 0 { rest.number_as()? } else { 0 };
    let params_len = if holds(record::PARAMS) { rest.number_as()? } else { 0 };
    let error = if holds(record::ERROR) {
        Some((rest.number_as()?, rest.number_as::<usize>()?, rest.number_as::<usize>()?))
    } else {
        None
    };

    let who = match new_peer {
        Some(new) => new.read_texts(rest, plain, &mut tables.peers)?,
        None => *tables.peers.get(peer - 1)?,
    }
    .resolve_in(plain);
    let text = if text == 0 {
        let stretch = take_bytes(text_len, rest, plain)?;
        tables.texts.push(stretch);
        stretch
    } else {
        *tables.texts.get(text - 1)?
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
        text: text.slice_of(plain),
        // The file does not tell.
        backslashes: BackslashMode::Unknown,
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
        flags: Flags {
            no_index_used: decode_flag(flags),
            no_good_index_used: decode_flag(flags >> 2),
            ..Flags::default()
        },
        tainted: holds(record::TAINTED),
        attributes: &[],
    })
}

fn decode_flag(two: u64) -> Option<bool> {
    (two & 1 != 0).then_some(two & 2 != 0)
}

/// The other end of a connection that the block names for the first time.
struct NewPeer {
    port: u16,
    connection_id: Option<u64>,
    lengths: [usize; 3],
}

impl NewPeer {
    fn read(rest: &mut VarintReader<'_>) -> Option<Self> {
        Some(Self {
            port: rest.number_as()?,
            connection_id: rest.number()?.checked_sub(1),
            lengths: [rest.number_as()?, rest.number_as()?, rest.number_as()?],
        })
    }

    fn read_texts(
        &self,
        rest: &mut VarintReader<'_>,
        plain: &[u8],
        peers: &mut Vec<PeerSpans>,
    ) -> Option<PeerSpans> {
        let peer = PeerSpans {
            user: take_bytes(self.lengths[0], rest, plain)?,
            host: take_bytes(self.lengths[1], rest, plain)?,
            db: take_bytes(self.lengths[2], rest, plain)?,
            port: self.port,
            connection_id: self.connection_id,
        };
        peers.push(peer);
        Some(peer)
    }
}

/// The next bytes, as a stretch of the block.
fn take_bytes(len: usize, rest: &mut VarintReader<'_>, plain: &[u8]) -> Option<BlockSpan> {
    let at = u32::try_from(plain.len() - rest.0.len()).ok()?;
    rest.bytes(len)?;
    Some(BlockSpan { at, len: u32::try_from(len).ok()? })
}
