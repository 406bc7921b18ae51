//! Encoder of events into a block. Runs beside a busy server.
//!
//! One pass, without allocation once the block's buffer has reached its size.

use super::interned::{BlockSpan, InternTable, PeerRef, PeerSpans};
use super::varint::VarintWriter;
use super::{FULL_SHARE, MAX_NAME, MAX_TEXT, record};
use crate::accounting::DecodeAccounting;
use crate::event::{CommandKind, ErrorInfo, Event, SampleShare};

/// Longer texts are seldom repeated.
const MAX_INTERNED_TEXT: usize = 2048;

/// Writes the events of one capture, block after block.
pub struct Encoder {
    capture: u64,
    events: u64,
    /// Of the latest record of the block.
    time_ns: u64,
    /// The share that was written last, in steps of 2^-32.
    share: u64,
    /// What is yet to be written of it.
    pending_share: Option<SampleShare>,
    interned: InternTable,
}

impl Encoder {
    /// `capture`: what tells one capture from another, such as the time at which it began.
    pub fn new(capture: u64) -> Self {
        Self {
            capture,
            events: 0,
            time_ns: 0,
            share: FULL_SHARE,
            pending_share: None,
            interned: InternTable::new(),
        }
    }

    /// Events so far.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Events from now on are of such a share of the connections. It is written with the next event, since
    /// blocks end with events.
    pub fn set_share(&mut self, share: &SampleShare) {
        self.pending_share = Some(*share);
    }

    /// Appends an event. An empty `block` begins a new one; it is whole after each event.
    #[inline]
    pub fn encode_event(&mut self, event: &Event<'_>, block: &mut Vec<u8>) {
        self.begin_record(event.start_ns, block);
        let (text, text_over) = truncate_bytes(event.text, MAX_TEXT);
        let (params, params_over) = truncate_bytes(event.params, MAX_TEXT);
        let text_cut = event.text_cut + text_over + params_over;
        let user = truncate_bytes(event.user, MAX_NAME).0;
        let host = truncate_bytes(event.host, MAX_NAME).0;
        let db = truncate_bytes(event.db, MAX_NAME).0;
        let who = PeerRef { user, host, db, port: event.port, connection_id: event.connection_id };
        let peer = self.interned.find_peer(&who, block);
        let known =
            if text.len() <= MAX_INTERNED_TEXT { Some(self.interned.find_text(text, block)) } else { None };
        let repeated = known.and_then(Result::ok);

        let answered_ns = event.start_ns.wrapping_add(event.query_ns.unwrap_or(0));
        let end_apart = event.end_ns.is_some_and(|end_ns| end_ns != answered_ns);
        let holds = |bit: u64, is_there: bool| if is_there { bit } else { 0 };
        let flags = flag_bits(event);
        let bits = kind_code(event.kind)
            | holds(record::QUERY_TIME, event.query_ns.is_some())
            | holds(record::FIRST_BYTE, event.first_byte_ns.is_some())
            | holds(record::END, event.end_ns.is_some())
            | holds(record::END_APART, end_apart)
            | holds(record::ROWS_SENT, event.rows_sent.is_some())
            | holds(record::WARNINGS, event.warnings.is_some())
            | holds(record::FLAGS, flags != 0)
            | holds(record::STATEMENT_ID, event.statement_id.is_some())
            | holds(record::PARAMS, !params.is_empty())
            | holds(record::ROWS_AFFECTED, event.rows_affected.is_some())
            | holds(record::TAINTED, event.tainted)
            | holds(record::ERROR, event.error.is_some())
            | holds(record::TEXT_CUT, text_cut > 0);

        // All numbers, then all bytes: a reader knows the position of each.
        let mut numbers = VarintWriter::new();
        numbers.put(bits);
        numbers.put_delta(self.time_ns, event.start_ns);
        numbers.put(u64::from(peer.unwrap_or(0)));
        numbers.put(u64::from(repeated.unwrap_or(0)));
        numbers.put(event.bytes_from_client);
        numbers.put(event.bytes_from_server);
        if let Some(ns) = event.query_ns {
            numbers.put(ns);
        }
        if let Some(ns) = event.first_byte_ns {
            numbers.put_delta(event.query_ns.unwrap_or(0), ns);
        }
        if let (true, Some(ns)) = (end_apart, event.end_ns) {
            numbers.put_delta(answered_ns, ns);
        }
        if let Some(rows) = event.rows_sent {
            numbers.put(rows);
        }
        if let Some(warnings) = event.warnings {
            numbers.put(u64::from(warnings));
        }
        if flags != 0 {
            numbers.put(flags);
        }
        if let Some(id) = event.statement_id {
            numbers.put(u64::from(id));
        }
        if let Some(rows) = event.rows_affected {
            numbers.put(rows);
        }
        if text_cut > 0 {
            numbers.put(text_cut);
        }
        if peer.is_err() {
            numbers.put(u64::from(who.port));
            // 0: it is not known.
            numbers.put(who.connection_id.map_or(0, |id| id.saturating_add(1)));
            numbers.put(user.len() as u64);
            numbers.put(host.len() as u64);
            numbers.put(db.len() as u64);
        }
        if repeated.is_none() {
            numbers.put(text.len() as u64);
        }
        if !params.is_empty() {
            numbers.put(params.len() as u64);
        }
        let error = event.error.map(|error| ErrorInfo {
            state: truncate_bytes(error.state, MAX_NAME).0,
            message: truncate_bytes(error.message, MAX_NAME).0,
            ..error
        });
        if let Some(error) = &error {
            numbers.put(u64::from(error.number));
            numbers.put(error.state.len() as u64);
            numbers.put(error.message.len() as u64);
        }

        block.extend_from_slice(numbers.bytes());
        if let Err(place) = peer {
            let peer = PeerSpans {
                user: append_bytes(user, block),
                host: append_bytes(host, block),
                db: append_bytes(db, block),
                port: who.port,
                connection_id: who.connection_id,
            };
            self.interned.insert_peer(place, peer);
        }
        match known {
            Some(Ok(_)) => {}
            Some(Err(place)) => {
                let text = append_bytes(text, block);
                self.interned.insert_text(place, text);
            }
            None => {
                append_bytes(text, block);
                self.interned.skip_text();
            }
        }
        block.extend_from_slice(params);
        if let Some(error) = &error {
            block.extend_from_slice(error.state);
            block.extend_from_slice(error.message);
        }
        self.time_ns = event.start_ns;
        self.events += 1;
    }

    /// Appends the accounting of the decoder: the last record of a capture.
    pub fn encode_accounting(&mut self, accounting: &DecodeAccounting, block: &mut Vec<u8>) {
        self.begin_record(self.time_ns, block);
        let mut numbers = VarintWriter::new();
        let lines = super::accounting_record::accounting_lines(accounting);
        numbers.put(record::LEDGER);
        numbers.put(lines.len() as u64);
        block.extend_from_slice(numbers.bytes());
        for line in lines {
            let mut numbers = VarintWriter::new();
            numbers.put(line);
            block.extend_from_slice(numbers.bytes());
        }
    }

    /// What comes before an event: a block's head if it is the first, and the share where it changed.
    #[inline]
    fn begin_record(&mut self, time_ns: u64, block: &mut Vec<u8>) {
        if block.is_empty() {
            self.interned.begin_block();
            let mut numbers = VarintWriter::new();
            numbers.put(self.capture);
            numbers.put(self.events);
            numbers.put(time_ns);
            numbers.put(self.share);
            block.extend_from_slice(numbers.bytes());
            self.time_ns = time_ns;
        }
        if let Some(share) = self.pending_share.take() {
            self.share = (share.fraction.clamp(0.0, 1.0) * FULL_SHARE as f64) as u64;
            let asked = share.requests.unwrap_or_default();
            let mut numbers = VarintWriter::new();
            numbers.put(record::SHARE);
            numbers.put_delta(self.time_ns, share.time_ns);
            numbers.put(self.share);
            numbers.put(asked.total);
            numbers.put(asked.sampled);
            block.extend_from_slice(numbers.bytes());
            self.time_ns = share.time_ns;
        }
    }
}

#[inline]
fn truncate_bytes(bytes: &[u8], most: usize) -> (&[u8], u64) {
    match bytes.split_at_checked(most) {
        Some((head, over)) => (head, over.len() as u64),
        None => (bytes, 0),
    }
}

#[inline]
fn append_bytes(bytes: &[u8], block: &mut Vec<u8>) -> BlockSpan {
    // A block has four MiB at most.
    let stretch = BlockSpan { at: block.len() as u32, len: bytes.len() as u32 };
    block.extend_from_slice(bytes);
    stretch
}

fn kind_code(kind: CommandKind) -> u64 {
    match kind {
        CommandKind::Query => 0,
        CommandKind::Prepare => 1,
        CommandKind::Execute => 2,
        CommandKind::Close => 3,
        CommandKind::Reset => 4,
        CommandKind::Admin => 5,
    }
}

/// The two flags of the protocol: if each is known, and its value.
fn flag_bits(event: &Event<'_>) -> u64 {
    let two = |flag: Option<bool>| match flag {
        None => 0,
        Some(false) => 1,
        Some(true) => 3,
    };
    two(event.flags.no_index_used) | two(event.flags.no_good_index_used) << 2
}
