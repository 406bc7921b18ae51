//! TCP reassembly of both directions of a connection, in causal order. Drops retransmissions, reports gaps,
//! never parses.
//!
//! A segment is delivered after two conditions hold. Its own stream has reached its sequence number, and the
//! opposite stream has reached its acknowledgement number. So everything that its sender had read is
//! delivered first. The consumer sees cause before effect, whatever the order of packets in the capture. A
//! byte range missing in the capture is reported as soon as it is acknowledged.

use super::{Limits, Listener, Outcome};
use crate::frame::{ACK, FIN, RST, SYN, Segment};
use crate::side::{Hole, Side};

/// Bytes ahead of (or behind) a stream beyond which a segment is of another connection: no
/// receive window reaches so far.
const OTHER_CONNECTION: i32 = 1 << 28;
/// Segments in a row that repeat old bytes, after which the sequence numbers are believed to
/// have started anew: another connection took its place, and its SYN was not captured.
const REPEATS_BELIEVED: u32 = 64;
/// How many further segments may arrive before bytes that their receiver has acknowledged are
/// given up: captures shuffle packets over queues, but not by much.
const SHUFFLE: u32 = 32;
/// Packet time that a closed connection is remembered, so that stragglers do not open a new one.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

pub(super) struct Connection<K, R> {
    pub key: K,
    client: Half,
    server: Half,
    /// Segments that came before their turn, as they arrived.
    held: Vec<Held>,
    held_bytes: usize,
    last_ns: u64,
    /// A SYN was seen: where the streams begin is to be learned from SYNs alone.
    opened: bool,
    closed: bool,
    /// What the listener keeps of it.
    record: R,
}

/// What one side has sent.
#[derive(Debug, Default, Clone, Copy)]
struct Half {
    known: bool,
    /// The sequence number that comes next.
    next: u32,
    /// First sequence number, where its SYN was seen.
    first: Option<u32>,
    finished: bool,
    repeats: u32,
}

impl Half {
    fn beginning_at(first: u32) -> Self {
        Half { known: true, next: first, first: Some(first), finished: false, repeats: 0 }
    }
}

/// A segment that waits.
struct Held {
    from: Side,
    seq: u32,
    ack: Option<u32>,
    finishes: bool,
    payload: Vec<u8>,
    payload_len: u32,
    time_ns: u64,
    /// Segments of this connection that have arrived since.
    passed_by: u32,
}

/// The part of a segment that delivery looks at.
#[derive(Clone, Copy)]
struct Piece<'a> {
    from: Side,
    seq: u32,
    ack: Option<u32>,
    finishes: bool,
    payload: &'a [u8],
    payload_len: u32,
    time_ns: u64,
}

impl Held {
    fn piece(&self) -> Piece<'_> {
        Piece {
            from: self.from,
            seq: self.seq,
            ack: self.ack,
            finishes: self.finishes,
            payload: &self.payload,
            payload_len: self.payload_len,
            time_ns: self.time_ns,
        }
    }
}

/// How far `seq` is ahead of `next`, in sequence space.
#[inline]
fn ahead(seq: u32, next: u32) -> i32 {
    seq.wrapping_sub(next).cast_signed()
}

impl<K, R: Default> Connection<K, R> {
    /// An empty record, for [`open`](Self::open).
    pub(super) fn new(key: K) -> Self {
        Connection {
            key,
            client: Half::default(),
            server: Half::default(),
            held: Vec::new(),
            held_bytes: 0,
            last_ns: 0,
            opened: false,
            closed: false,
            record: R::default(),
        }
    }
}

impl<K, R> Connection<K, R> {
    pub(super) fn open<C: Listener<K, R>>(&mut self, listener: &mut C) {
        self.client = Half::default();
        self.server = Half::default();
        self.opened = false;
        self.closed = false;
        self.last_ns = 0;
        listener.begin(&mut self.record, &self.key);
    }

    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    #[inline]
    pub(super) fn segment<C: Listener<K, R>>(
        &mut self,
        from: Side,
        segment: &Segment<'_>,
        time_ns: u64,
        limits: &Limits,
        listener: &mut C,
    ) -> Outcome {
        let idle_ns = time_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(time_ns);
        let mut seq = segment.seq;
        let ack = (segment.flags & ACK != 0).then_some(segment.ack);
        if segment.flags & (SYN | RST) != 0 {
            if segment.flags & RST != 0 {
                self.reset(listener);
                return Outcome::Parsed;
            }
            if self.synchronise(from, segment, time_ns, idle_ns, listener) {
                return Outcome::Duplicate;
            }
            seq = seq.wrapping_add(1);
        }
        self.learn(from, seq, ack);
        let finishes = segment.flags & FIN != 0;
        if segment.payload_len == 0 && !finishes {
            return Outcome::Parsed;
        }
        let piece = Piece {
            from,
            seq,
            ack,
            finishes,
            payload: segment.payload,
            payload_len: segment.payload_len,
            time_ns,
        };
        if self.half(from).finished && self.closed {
            return Outcome::Duplicate;
        }
        let known = self.half(from).known;
        let distance = if known { ahead(seq, self.half(from).next) } else { 0 };
        if !(-OTHER_CONNECTION..OTHER_CONNECTION).contains(&distance) {
            self.restart(&piece, listener);
        } else if distance < 0 && ahead(piece.end(), self.half(from).next) <= 0 {
            return self.repeated(&piece, listener);
        }
        let outcome = if segment.payload.len() < segment.payload_len as usize {
            Outcome::Truncated
        } else {
            Outcome::Parsed
        };
        if self.held.is_empty() && self.is_next(&piece) {
            self.deliver(&piece, listener);
            return outcome;
        }
        self.hold(&piece, outcome, limits, listener)
    }

    #[inline]
    fn half(&self, side: Side) -> &Half {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    #[inline]
    fn half_mut(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Begins a connection; true: this SYN was seen before.
    #[cold]
    fn synchronise<C: Listener<K, R>>(
        &mut self,
        from: Side,
        segment: &Segment<'_>,
        time_ns: u64,
        idle_ns: u64,
        listener: &mut C,
    ) -> bool {
        let first = segment.seq.wrapping_add(1);
        // Even the same number may begin another connection, once the former is over.
        let over = self.closed && idle_ns > LINGER_NS;
        if self.half(from).first == Some(first) && !over {
            return true;
        }
        let opens = segment.flags & ACK == 0;
        let answers = !opens && (!self.client.known || self.client.first == Some(segment.ack));
        if self.half(from).known && (opens || !answers) || self.closed {
            // The same two ends, another connection.
            self.close(listener);
            self.open(listener);
            self.last_ns = time_ns;
        }
        self.opened = true;
        *self.half_mut(from) = Half::beginning_at(first);
        if !opens && !self.half(from.other()).known {
            *self.half_mut(from.other()) = Half::beginning_at(segment.ack);
        }
        listener.connecting(&mut self.record, from, time_ns);
        false
    }

    /// A connection that was open already: its streams begin where they are first seen.
    #[inline]
    fn learn(&mut self, from: Side, seq: u32, ack: Option<u32>) {
        if self.opened {
            return;
        }
        if !self.half(from).known {
            *self.half_mut(from) = Half { known: true, next: seq, ..Half::default() };
        }
        if let (false, Some(ack)) = (self.half(from.other()).known, ack) {
            *self.half_mut(from.other()) = Half { known: true, next: ack, ..Half::default() };
        }
    }

    #[inline]
    fn is_next(&self, piece: &Piece<'_>) -> bool {
        let (own, peer) = (self.half(piece.from), self.half(piece.from.other()));
        own.known
            && ahead(piece.seq, own.next) <= 0
            && piece.ack.is_none_or(|ack| peer.known && ahead(ack, peer.next) <= 0)
    }

    #[inline]
    fn deliver<C: Listener<K, R>>(&mut self, piece: &Piece<'_>, listener: &mut C) {
        let half = self.half_mut(piece.from);
        let old = ahead(half.next, piece.seq).max(0) as usize;
        half.next = piece.end();
        half.repeats = 0;
        let captured = piece.payload.len();
        if old < captured {
            listener.bytes(&mut self.record, piece.from, &piece.payload[old..], piece.time_ns);
        }
        let missing = (piece.payload_len as usize).saturating_sub(captured.max(old));
        if missing > 0 {
            listener.hole(&mut self.record, piece.from, missing as u64, Hole::Cut, piece.time_ns);
        }
        if piece.finishes {
            self.finish_side(piece.from, listener);
        }
    }

    fn finish_side<C: Listener<K, R>>(&mut self, side: Side, listener: &mut C) {
        let half = self.half_mut(side);
        half.next = half.next.wrapping_add(1);
        half.finished = true;
        if self.client.finished && self.server.finished {
            self.reset(listener);
        }
    }

    #[cold]
    fn reset<C: Listener<K, R>>(&mut self, listener: &mut C) {
        self.give_up(listener);
        self.closed = true;
    }

    /// Old bytes, or a second copy.
    #[cold]
    fn repeated<C: Listener<K, R>>(&mut self, piece: &Piece<'_>, listener: &mut C) -> Outcome {
        let half = self.half_mut(piece.from);
        half.repeats += 1;
        if half.repeats < REPEATS_BELIEVED || piece.payload_len < 2 {
            return Outcome::Duplicate;
        }
        self.restart(piece, listener);
        self.deliver(piece, listener);
        Outcome::Parsed
    }

    /// Sequence numbers jumped: what was there is over, what comes was open before it was seen.
    #[cold]
    fn restart<C: Listener<K, R>>(&mut self, piece: &Piece<'_>, listener: &mut C) {
        self.close(listener);
        self.open(listener);
        self.last_ns = piece.time_ns;
        self.learn(piece.from, piece.seq, piece.ack);
    }

    /// Keeps a segment that came early, and delivers what can be delivered now.
    #[cold]
    fn hold<C: Listener<K, R>>(
        &mut self,
        piece: &Piece<'_>,
        outcome: Outcome,
        limits: &Limits,
        listener: &mut C,
    ) -> Outcome {
        let copy = self.held.iter().any(|held| {
            held.from == piece.from && held.seq == piece.seq && held.payload_len >= piece.payload_len
        });
        if copy {
            return Outcome::Duplicate;
        }
        for held in &mut self.held {
            held.passed_by += 1;
        }
        self.held_bytes += piece.payload.len();
        listener.room().take(piece.payload.len());
        self.held.push(Held {
            from: piece.from,
            seq: piece.seq,
            ack: piece.ack,
            finishes: piece.finishes,
            payload: piece.payload.to_vec(),
            payload_len: piece.payload_len,
            time_ns: piece.time_ns,
            passed_by: 0,
        });
        self.deliver_held(listener);
        while self.waits_too_long(limits, listener) {
            self.skip_gap(listener);
            self.deliver_held(listener);
        }
        outcome
    }

    fn deliver_held<C: Listener<K, R>>(&mut self, listener: &mut C) {
        while let Some(at) = self.held.iter().position(|held| self.is_next(&held.piece())) {
            let held = self.held.remove(at);
            self.release(&held, listener);
            let piece = held.piece();
            if ahead(piece.end(), self.half(piece.from).next) > 0 {
                self.deliver(&piece, listener);
            }
        }
    }

    fn waits_too_long<C: Listener<K, R>>(&self, limits: &Limits, listener: &mut C) -> bool {
        let Some(first) = self.held.first() else { return false };
        self.held.len() > limits.held_segments
            || self.held_bytes > limits.held_bytes
            || listener.room().is_exceeded()
            || self.last_ns.saturating_sub(first.time_ns) > limits.held_ns
            || first.passed_by > SHUFFLE && self.was_received(&first.piece())
    }

    /// True if the bytes that `piece` waits for have reached their receiver, so that they are not resent.
    fn was_received(&self, piece: &Piece<'_>) -> bool {
        let own = self.half(piece.from);
        if own.known && ahead(piece.seq, own.next) > 0 {
            // Only the other side's acknowledgements tell; they are on the segments held.
            return self.held.iter().any(|held| {
                held.from != piece.from && held.ack.is_some_and(|ack| ahead(ack, piece.seq) >= 0)
            });
        }
        // It waits for what it acknowledges itself.
        true
    }

    /// Declares the bytes lost that the segment held for longest waits for.
    fn skip_gap<C: Listener<K, R>>(&mut self, listener: &mut C) {
        for side in [Side::Client, Side::Server] {
            if !self.half(side).known {
                return self.begin_at_first_held(side);
            }
        }
        let mut at = 0;
        // What it waits for may be held too, and wait for something else in its turn.
        for _ in 0..4 {
            let Some(held) = self.held.get(at) else { return };
            let (from, time_ns) = (held.from, held.time_ns);
            let own_gap = ahead(held.seq, self.half(from).next) > 0;
            let (side, to) =
                if own_gap { (from, held.seq) } else { (from.other(), held.ack.unwrap_or_default()) };
            let next = self.half(side).next;
            let blocked = |other: &Held| other.from == side && ahead(other.seq, next) <= 0;
            if let Some(head) = self.held.iter().position(blocked) {
                at = head;
                continue;
            }
            let ends = self.held.iter().filter(|other| other.from == side).map(|other| other.seq);
            let to = ends.fold(to, |to, seq| if ahead(seq, to) < 0 { seq } else { to });
            self.half_mut(side).next = to;
            let missing = ahead(to, next).max(0) as u64;
            listener.hole(&mut self.record, side, missing, Hole::Lost, time_ns);
            return;
        }
        // Each claims to answer the other, which no TCP does: the earlier goes first.
        let mut held = self.held.remove(0);
        self.release(&held, listener);
        held.ack = None;
        let missing = ahead(held.seq, self.half(held.from).next);
        if missing > 0 {
            self.half_mut(held.from).next = held.seq;
            listener.hole(&mut self.record, held.from, missing as u64, Hole::Lost, held.time_ns);
        }
        if ahead(held.piece().end(), self.half(held.from).next) >= 0 {
            self.deliver(&held.piece(), listener);
        }
    }

    /// The SYN of this side was not captured.
    fn begin_at_first_held(&mut self, side: Side) {
        let sent = self.held.iter().filter(|held| held.from == side).map(|held| held.seq);
        let answered = self.held.iter().filter(|held| held.from != side).filter_map(|held| held.ack);
        let first = sent.chain(answered).reduce(|first, seq| if ahead(seq, first) < 0 { seq } else { first });
        *self.half_mut(side) = Half { known: true, next: first.unwrap_or_default(), ..Half::default() };
    }

    fn release<C: Listener<K, R>>(&mut self, held: &Held, listener: &mut C) {
        self.held_bytes -= held.payload.len();
        listener.room().give_back(held.payload.len());
    }

    /// Delivers everything held, with holes where bytes are missing.
    pub(super) fn give_up<C: Listener<K, R>>(&mut self, listener: &mut C) {
        while !self.held.is_empty() {
            self.skip_gap(listener);
            self.deliver_held(listener);
        }
    }

    /// The connection is over, or its record is needed for another.
    pub(super) fn close<C: Listener<K, R>>(&mut self, listener: &mut C) {
        self.give_up(listener);
        listener.end(&mut self.record);
    }
}

impl Piece<'_> {
    #[inline]
    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload_len)
    }
}
