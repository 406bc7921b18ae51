//! TCP reassembly of both directions of a connection, in causal order. Drops retransmissions, reports gaps,
//! never parses.
//!
//! A segment is delivered after two conditions hold. Its own stream has reached its sequence number, and the
//! opposite stream has reached its acknowledgement number. So everything that its sender had read is
//! delivered first. The consumer sees cause before effect, whatever the order of packets in the capture. A
//! byte range missing in the capture is reported as soon as it is acknowledged.

use super::{Limits, SegmentOutcome, StreamListener};
use crate::direction::{Direction, GapCause};
use crate::frame::{ACK, FIN, RST, SYN, Segment};

/// Bytes ahead of (or behind) a stream beyond which a segment is of another connection: no
/// receive window reaches so far.
const MAX_SEQUENCE_JUMP: i32 = 1 << 28;
/// Segments in a row that repeat old bytes, after which the sequence numbers are assumed to
/// have started anew: another connection took its place, and its SYN was not captured.
const MAX_REPEATS: u32 = 64;
/// How many further segments may arrive before bytes that their receiver has acknowledged are
/// given up: captures shuffle packets over queues, but not by much.
const REORDER_SEGMENTS: u32 = 32;
/// Packet time that a closed connection is remembered, so that stragglers do not open a new one.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

pub(super) struct Connection<K, R> {
    pub key: K,
    client: HalfStream,
    server: HalfStream,
    /// Segments that came before their turn, as they arrived.
    reorder_buffer: Vec<HeldSegment>,
    reorder_bytes: usize,
    last_ns: u64,
    /// A SYN was seen: where the streams begin is to be learned from SYNs alone.
    syn_seen: bool,
    closed: bool,
    /// What the listener keeps of it.
    record: R,
}

/// What one side has sent.
#[derive(Debug, Default, Clone, Copy)]
struct HalfStream {
    is_known: bool,
    /// The sequence number that comes next.
    next: u32,
    /// First sequence number, where its SYN was seen.
    first_seq: Option<u32>,
    finished: bool,
    repeats: u32,
}

impl HalfStream {
    fn beginning_at(first: u32) -> Self {
        HalfStream { is_known: true, next: first, first_seq: Some(first), finished: false, repeats: 0 }
    }
}

/// A segment that waits.
struct HeldSegment {
    from: Direction,
    seq: u32,
    ack: Option<u32>,
    has_fin: bool,
    payload: Vec<u8>,
    payload_len: u32,
    time_ns: u64,
    /// Segments of this connection that have arrived since.
    later_segments: u32,
}

/// The part of a segment that delivery looks at.
#[derive(Clone, Copy)]
struct SegmentView<'a> {
    from: Direction,
    seq: u32,
    ack: Option<u32>,
    has_fin: bool,
    payload: &'a [u8],
    payload_len: u32,
    time_ns: u64,
}

impl HeldSegment {
    fn view(&self) -> SegmentView<'_> {
        SegmentView {
            from: self.from,
            seq: self.seq,
            ack: self.ack,
            has_fin: self.has_fin,
            payload: &self.payload,
            payload_len: self.payload_len,
            time_ns: self.time_ns,
        }
    }
}

/// How far `seq` is ahead of `next`, in sequence space.
#[inline]
fn sequence_distance(seq: u32, next: u32) -> i32 {
    seq.wrapping_sub(next).cast_signed()
}

impl<K, R: Default> Connection<K, R> {
    /// An empty record, for [`open`](Self::open).
    pub(super) fn new(key: K) -> Self {
        Connection {
            key,
            client: HalfStream::default(),
            server: HalfStream::default(),
            reorder_buffer: Vec::new(),
            reorder_bytes: 0,
            last_ns: 0,
            syn_seen: false,
            closed: false,
            record: R::default(),
        }
    }
}

impl<K, R> Connection<K, R> {
    pub(super) fn open<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        self.client = HalfStream::default();
        self.server = HalfStream::default();
        self.syn_seen = false;
        self.closed = false;
        self.last_ns = 0;
        listener.on_begin(&mut self.record, &self.key);
    }

    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    #[inline]
    pub(super) fn handle_segment<C: StreamListener<K, R>>(
        &mut self,
        from: Direction,
        segment: &Segment<'_>,
        time_ns: u64,
        limits: &Limits,
        listener: &mut C,
    ) -> SegmentOutcome {
        let idle_ns = time_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(time_ns);
        let mut seq = segment.seq;
        let ack = (segment.flags & ACK != 0).then_some(segment.ack);
        if segment.flags & (SYN | RST) != 0 {
            if segment.flags & RST != 0 {
                self.reset(listener);
                return SegmentOutcome::Parsed;
            }
            if self.handle_syn(from, segment, time_ns, idle_ns, listener) {
                return SegmentOutcome::Duplicate;
            }
            seq = seq.wrapping_add(1);
        }
        self.infer_start(from, seq, ack);
        let finishes = segment.flags & FIN != 0;
        if segment.payload_len == 0 && !finishes {
            return SegmentOutcome::Parsed;
        }
        let piece = SegmentView {
            from,
            seq,
            ack,
            has_fin: finishes,
            payload: segment.payload,
            payload_len: segment.payload_len,
            time_ns,
        };
        if self.half(from).finished && self.closed {
            return SegmentOutcome::Duplicate;
        }
        let known = self.half(from).is_known;
        let distance = if known { sequence_distance(seq, self.half(from).next) } else { 0 };
        if !(-MAX_SEQUENCE_JUMP..MAX_SEQUENCE_JUMP).contains(&distance) {
            self.restart_stream(&piece, listener);
        } else if distance < 0 && sequence_distance(piece.end(), self.half(from).next) <= 0 {
            return self.handle_repeated(&piece, listener);
        }
        let outcome = if segment.payload.len() < segment.payload_len as usize {
            SegmentOutcome::Truncated
        } else {
            SegmentOutcome::Parsed
        };
        if self.reorder_buffer.is_empty() && self.is_next(&piece) {
            self.deliver(&piece, listener);
            return outcome;
        }
        self.hold_segment(&piece, outcome, limits, listener)
    }

    #[inline]
    fn half(&self, side: Direction) -> &HalfStream {
        match side {
            Direction::FromClient => &self.client,
            Direction::FromServer => &self.server,
        }
    }

    #[inline]
    fn half_mut(&mut self, side: Direction) -> &mut HalfStream {
        match side {
            Direction::FromClient => &mut self.client,
            Direction::FromServer => &mut self.server,
        }
    }

    /// Begins a connection; true: this SYN was seen before.
    #[cold]
    fn handle_syn<C: StreamListener<K, R>>(
        &mut self,
        from: Direction,
        segment: &Segment<'_>,
        time_ns: u64,
        idle_ns: u64,
        listener: &mut C,
    ) -> bool {
        let first = segment.seq.wrapping_add(1);
        // Even the same number may begin another connection, once the former is over.
        let over = self.closed && idle_ns > LINGER_NS;
        if self.half(from).first_seq == Some(first) && !over {
            return true;
        }
        let opens = segment.flags & ACK == 0;
        let answers = !opens && (!self.client.is_known || self.client.first_seq == Some(segment.ack));
        if self.half(from).is_known && (opens || !answers) || self.closed {
            // The same two ends, another connection.
            self.close(listener);
            self.open(listener);
            self.last_ns = time_ns;
        }
        self.syn_seen = true;
        *self.half_mut(from) = HalfStream::beginning_at(first);
        if !opens && !self.half(from.reverse()).is_known {
            *self.half_mut(from.reverse()) = HalfStream::beginning_at(segment.ack);
        }
        listener.on_syn(&mut self.record, from, time_ns);
        false
    }

    /// A connection that was open already: its streams begin where they are first seen.
    #[inline]
    fn infer_start(&mut self, from: Direction, seq: u32, ack: Option<u32>) {
        if self.syn_seen {
            return;
        }
        if !self.half(from).is_known {
            *self.half_mut(from) = HalfStream { is_known: true, next: seq, ..HalfStream::default() };
        }
        if let (false, Some(ack)) = (self.half(from.reverse()).is_known, ack) {
            *self.half_mut(from.reverse()) =
                HalfStream { is_known: true, next: ack, ..HalfStream::default() };
        }
    }

    #[inline]
    fn is_next(&self, piece: &SegmentView<'_>) -> bool {
        let (own, peer) = (self.half(piece.from), self.half(piece.from.reverse()));
        own.is_known
            && sequence_distance(piece.seq, own.next) <= 0
            && piece.ack.is_none_or(|ack| peer.is_known && sequence_distance(ack, peer.next) <= 0)
    }

    #[inline]
    fn deliver<C: StreamListener<K, R>>(&mut self, piece: &SegmentView<'_>, listener: &mut C) {
        let half = self.half_mut(piece.from);
        let old = sequence_distance(half.next, piece.seq).max(0) as usize;
        half.next = piece.end();
        half.repeats = 0;
        let captured = piece.payload.len();
        if old < captured {
            listener.on_bytes(&mut self.record, piece.from, &piece.payload[old..], piece.time_ns);
        }
        let missing = (piece.payload_len as usize).saturating_sub(captured.max(old));
        if missing > 0 {
            listener.on_gap(&mut self.record, piece.from, missing as u64, GapCause::Truncated, piece.time_ns);
        }
        if piece.has_fin {
            self.finish_side(piece.from, listener);
        }
    }

    fn finish_side<C: StreamListener<K, R>>(&mut self, side: Direction, listener: &mut C) {
        let half = self.half_mut(side);
        half.next = half.next.wrapping_add(1);
        half.finished = true;
        if self.client.finished && self.server.finished {
            self.reset(listener);
        }
    }

    #[cold]
    fn reset<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        self.flush_held(listener);
        self.closed = true;
    }

    /// Old bytes, or a second copy.
    #[cold]
    fn handle_repeated<C: StreamListener<K, R>>(
        &mut self,
        piece: &SegmentView<'_>,
        listener: &mut C,
    ) -> SegmentOutcome {
        let half = self.half_mut(piece.from);
        half.repeats += 1;
        if half.repeats < MAX_REPEATS || piece.payload_len < 2 {
            return SegmentOutcome::Duplicate;
        }
        self.restart_stream(piece, listener);
        self.deliver(piece, listener);
        SegmentOutcome::Parsed
    }

    /// Sequence numbers jumped: what was there is over, what comes was open before it was seen.
    #[cold]
    fn restart_stream<C: StreamListener<K, R>>(&mut self, piece: &SegmentView<'_>, listener: &mut C) {
        self.close(listener);
        self.open(listener);
        self.last_ns = piece.time_ns;
        self.infer_start(piece.from, piece.seq, piece.ack);
    }

    /// Keeps a segment that came early, and delivers what can be delivered now.
    #[cold]
    fn hold_segment<C: StreamListener<K, R>>(
        &mut self,
        piece: &SegmentView<'_>,
        outcome: SegmentOutcome,
        limits: &Limits,
        listener: &mut C,
    ) -> SegmentOutcome {
        let copy = self.reorder_buffer.iter().any(|held| {
            held.from == piece.from && held.seq == piece.seq && held.payload_len >= piece.payload_len
        });
        if copy {
            return SegmentOutcome::Duplicate;
        }
        for held in &mut self.reorder_buffer {
            held.later_segments += 1;
        }
        self.reorder_bytes += piece.payload.len();
        listener.budget().reserve(piece.payload.len());
        self.reorder_buffer.push(HeldSegment {
            from: piece.from,
            seq: piece.seq,
            ack: piece.ack,
            has_fin: piece.has_fin,
            payload: piece.payload.to_vec(),
            payload_len: piece.payload_len,
            time_ns: piece.time_ns,
            later_segments: 0,
        });
        self.deliver_held(listener);
        while self.is_gap_overdue(limits, listener) {
            self.skip_gap(listener);
            self.deliver_held(listener);
        }
        outcome
    }

    fn deliver_held<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        while let Some(at) = self.reorder_buffer.iter().position(|held| self.is_next(&held.view())) {
            let held = self.reorder_buffer.remove(at);
            self.release_held(&held, listener);
            let piece = held.view();
            if sequence_distance(piece.end(), self.half(piece.from).next) > 0 {
                self.deliver(&piece, listener);
            }
        }
    }

    fn is_gap_overdue<C: StreamListener<K, R>>(&self, limits: &Limits, listener: &mut C) -> bool {
        let Some(first) = self.reorder_buffer.first() else { return false };
        self.reorder_buffer.len() > limits.reorder_segments
            || self.reorder_bytes > limits.reorder_bytes
            || listener.budget().is_exceeded()
            || self.last_ns.saturating_sub(first.time_ns) > limits.reorder_ns
            || first.later_segments > REORDER_SEGMENTS && self.was_received(&first.view())
    }

    /// True if the bytes that `piece` waits for have reached their receiver, so that they are not resent.
    fn was_received(&self, piece: &SegmentView<'_>) -> bool {
        let own = self.half(piece.from);
        if own.is_known && sequence_distance(piece.seq, own.next) > 0 {
            // Only the other side's acknowledgements tell; they are on the segments held.
            return self.reorder_buffer.iter().any(|held| {
                held.from != piece.from && held.ack.is_some_and(|ack| sequence_distance(ack, piece.seq) >= 0)
            });
        }
        // It waits for what it acknowledges itself.
        true
    }

    /// Declares the bytes lost that the segment held for longest waits for.
    fn skip_gap<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        for side in [Direction::FromClient, Direction::FromServer] {
            if !self.half(side).is_known {
                return self.begin_at_first_held(side);
            }
        }
        let mut at = 0;
        // What it waits for may be held too, and wait for something else in its turn.
        for _ in 0..4 {
            let Some(held) = self.reorder_buffer.get(at) else { return };
            let (from, time_ns) = (held.from, held.time_ns);
            let own_gap = sequence_distance(held.seq, self.half(from).next) > 0;
            let (side, to) =
                if own_gap { (from, held.seq) } else { (from.reverse(), held.ack.unwrap_or_default()) };
            let next = self.half(side).next;
            let blocked = |other: &HeldSegment| other.from == side && sequence_distance(other.seq, next) <= 0;
            if let Some(head) = self.reorder_buffer.iter().position(blocked) {
                at = head;
                continue;
            }
            let ends = self.reorder_buffer.iter().filter(|other| other.from == side).map(|other| other.seq);
            let to = ends.fold(to, |to, seq| if sequence_distance(seq, to) < 0 { seq } else { to });
            self.half_mut(side).next = to;
            let missing = sequence_distance(to, next).max(0) as u64;
            listener.on_gap(&mut self.record, side, missing, GapCause::Lost, time_ns);
            return;
        }
        // Each claims to answer the other, which no TCP does: the earlier goes first.
        let mut held = self.reorder_buffer.remove(0);
        self.release_held(&held, listener);
        held.ack = None;
        let missing = sequence_distance(held.seq, self.half(held.from).next);
        if missing > 0 {
            self.half_mut(held.from).next = held.seq;
            listener.on_gap(&mut self.record, held.from, missing as u64, GapCause::Lost, held.time_ns);
        }
        if sequence_distance(held.view().end(), self.half(held.from).next) >= 0 {
            self.deliver(&held.view(), listener);
        }
    }

    /// The SYN of this side was not captured.
    fn begin_at_first_held(&mut self, side: Direction) {
        let sent = self.reorder_buffer.iter().filter(|held| held.from == side).map(|held| held.seq);
        let answered =
            self.reorder_buffer.iter().filter(|held| held.from != side).filter_map(|held| held.ack);
        let first = sent
            .chain(answered)
            .reduce(|first, seq| if sequence_distance(seq, first) < 0 { seq } else { first });
        *self.half_mut(side) =
            HalfStream { is_known: true, next: first.unwrap_or_default(), ..HalfStream::default() };
    }

    fn release_held<C: StreamListener<K, R>>(&mut self, held: &HeldSegment, listener: &mut C) {
        self.reorder_bytes -= held.payload.len();
        listener.budget().release(held.payload.len());
    }

    /// Delivers everything held, with holes where bytes are missing.
    pub(super) fn flush_held<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        while !self.reorder_buffer.is_empty() {
            self.skip_gap(listener);
            self.deliver_held(listener);
        }
    }

    /// The connection is over, or its record is needed for another.
    pub(super) fn close<C: StreamListener<K, R>>(&mut self, listener: &mut C) {
        self.flush_held(listener);
        listener.on_end(&mut self.record);
    }
}

impl SegmentView<'_> {
    #[inline]
    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload_len)
    }
}
