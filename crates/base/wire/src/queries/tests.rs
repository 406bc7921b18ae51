//! Round-trip tests of query-event files: whole, truncated and damaged.

use super::block::MAGIC;
use super::*;
use crate::accounting::DecodeAccounting;
use crate::event::{ErrorInfo, Event, Flags, RequestCounts, SampleShare, Sink};
use proptest::prelude::*;

/// An event that outlives its block.
#[derive(Debug, Clone, PartialEq, Default)]
struct OwnedEvent {
    event: Event<'static>,
    text: Vec<u8>,
    params: Vec<u8>,
    user: Vec<u8>,
    host: Vec<u8>,
    db: Vec<u8>,
    error: Option<(u16, Vec<u8>, Vec<u8>)>,
}

impl OwnedEvent {
    fn of(event: &Event<'_>) -> Self {
        let error = event.error.map(|error| (error.number, error.state.to_vec(), error.message.to_vec()));
        let (text, params) = (event.text.to_vec(), event.params.to_vec());
        let (user, host, db) = (event.user.to_vec(), event.host.to_vec(), event.db.to_vec());
        Self { event: unborrowed(event), text, params, user, host, db, error }
    }

    fn event(&self) -> Event<'_> {
        Event {
            text: &self.text,
            params: &self.params,
            user: &self.user,
            host: &self.host,
            db: &self.db,
            error: self.error.as_ref().map(|(number, state, message)| ErrorInfo {
                number: *number,
                state,
                message,
            }),
            ..unborrowed(&self.event)
        }
    }
}

/// Without what it borrows.
fn unborrowed(event: &Event<'_>) -> Event<'static> {
    Event {
        start_ns: event.start_ns,
        first_byte_ns: event.first_byte_ns,
        query_ns: event.query_ns,
        end_ns: event.end_ns,
        lock_ns: event.lock_ns,
        kind: event.kind,
        text_cut: event.text_cut,
        statement_id: event.statement_id,
        port: event.port,
        connection_id: event.connection_id,
        bytes_from_client: event.bytes_from_client,
        bytes_from_server: event.bytes_from_server,
        rows_sent: event.rows_sent,
        rows_examined: event.rows_examined,
        rows_affected: event.rows_affected,
        warnings: event.warnings,
        flags: event.flags,
        tainted: event.tainted,
        ..Event::default()
    }
}

#[derive(Debug, Default, PartialEq)]
struct RecordedEvents {
    events: Vec<OwnedEvent>,
    /// With the number of events before each.
    shares: Vec<(usize, SampleShare)>,
}

impl Sink for RecordedEvents {
    fn on_event(&mut self, event: &Event<'_>) {
        self.events.push(OwnedEvent::of(event));
    }

    fn on_sample_share(&mut self, share: &SampleShare) {
        self.shares.push((self.events.len(), *share));
    }
}

/// A file with a block after every `each` events.
fn file(encoder: &mut Encoder, events: &[OwnedEvent], each: usize) -> Vec<Vec<u8>> {
    let mut packer = BlockCompressor::new().unwrap();
    let mut plain = Vec::new();
    events
        .chunks(each)
        .map(|events| {
            plain.clear();
            events.iter().for_each(|event| encoder.encode_event(&event.event(), &mut plain));
            let mut block = Vec::new();
            packer.compress(&plain, &mut block).unwrap();
            block
        })
        .collect()
}

fn read(bytes: &[u8], piece: usize) -> (RecordedEvents, QueriesAccounting) {
    let mut reader = Reader::new();
    let mut seen = RecordedEvents::default();
    bytes.chunks(piece.max(1)).for_each(|piece| reader.feed(piece, &mut seen));
    reader.finish();
    assert!(reader.accounting().is_consistent(), "{:#?}", reader.accounting());
    (seen, reader.accounting().clone())
}

fn sample_event(n: u64) -> OwnedEvent {
    OwnedEvent {
        event: Event {
            start_ns: 1_700_000_000_000_000_000 + n * 1000,
            query_ns: Some(n),
            end_ns: Some(1_700_000_000_000_000_000 + n * 1001),
            port: (n % 3) as u16,
            connection_id: Some(n % 3),
            ..Event::default()
        },
        text: format!("select {} from t", n % 5).into_bytes(),
        user: b"app".to_vec(),
        host: b"10.0.0.1".to_vec(),
        ..OwnedEvent::default()
    }
}

fn ledger() -> DecodeAccounting {
    let mut accounting = DecodeAccounting::default();
    (accounting.frames.read, accounting.frames.parsed, accounting.frames.duplicate) = (9, 7, 2);
    (accounting.sessions.seen, accounting.sessions.silent) = (3, 3);
    (accounting.commands.seen, accounting.commands.unfinished, accounting.commands.desynchronised) =
        (4, 4, 1 << 40);
    accounting
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    // From few, so that they come again; and from many.
    prop_oneof![
        prop::sample::select(vec![b"".to_vec(), b"select 1".to_vec(), b"shop".to_vec()]),
        prop::collection::vec(any::<u8>(), 0..most),
    ]
}

fn times() -> impl Strategy<Value = Event<'static>> {
    let ns = any::<Option<u64>>;
    let near = prop_oneof![any::<u64>(), 1_700_000_000_000_000_000..1_700_000_001_000_000_000_u64];
    (near, ns(), ns(), ns(), any::<bool>()).prop_map(
        |(start_ns, first_byte_ns, query_ns, end_ns, is_usual)| {
            let usual = query_ns.map(|ns| start_ns.wrapping_add(ns));
            let end_ns = if is_usual { usual } else { end_ns };
            Event { start_ns, first_byte_ns, query_ns, end_ns, ..Event::default() }
        },
    )
}

fn counts() -> impl Strategy<Value = Event<'static>> {
    let flag = any::<Option<bool>>;
    let rows = any::<Option<u64>>;
    (
        (prop::sample::select(record::KINDS.to_vec()), any::<bool>(), flag(), flag()),
        (any::<Option<u32>>(), any::<u16>(), prop::option::of(0..u64::MAX)),
        (any::<u64>(), any::<u64>(), rows(), rows()),
        (any::<Option<u32>>(), 0..u64::MAX / 2),
    )
        .prop_map(|(what, who, size, (warnings, text_cut))| Event {
            kind: what.0,
            tainted: what.1,
            flags: Flags { no_index_used: what.2, no_good_index_used: what.3, ..Flags::default() },
            statement_id: who.0,
            port: who.1,
            connection_id: who.2,
            bytes_from_client: size.0,
            bytes_from_server: size.1,
            rows_sent: size.2,
            rows_affected: size.3,
            warnings,
            text_cut,
            ..Event::default()
        })
}

fn own() -> impl Strategy<Value = OwnedEvent> {
    let error = prop::option::of((any::<u16>(), bytes(6), bytes(80)));
    (times(), counts(), bytes(3000), bytes(60), (bytes(20), bytes(20), bytes(20)), error).prop_map(
        |(times, counts, text, params, (user, host, db), error)| {
            let Event { start_ns, first_byte_ns, query_ns, end_ns, .. } = times;
            let event = Event { start_ns, first_byte_ns, query_ns, end_ns, ..counts };
            OwnedEvent { event, text, params, user, host, db, error }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_event_comes_back_as_it_was(
        events in prop::collection::vec(own(), 1..60),
        each in 1_usize..40,
        piece in 1_usize..5000,
    ) {
        let whole = file(&mut Encoder::new(1), &events, each).concat();
        let (seen, ledger) = read(&whole, piece);
        prop_assert_eq!(&seen.events, &events);
        prop_assert!(seen.shares.is_empty());
        prop_assert_eq!((ledger.events, ledger.missing_events()), (events.len() as u64, 0));
        prop_assert_eq!(ledger.blocks_damaged + ledger.skipped_bytes + ledger.unread_tail_bytes, 0);
    }

    #[test]
    fn bytes_that_lie_end_as_an_account_that_adds_up(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        plain in prop::collection::vec(any::<u8>(), 0..600),
        piece in 1_usize..500,
    ) {
        let mut encoder = Encoder::new(1);
        let mut whole = file(&mut encoder, &(0..50).map(sample_event).collect::<Vec<_>>(), 10).concat();
        for (at, byte) in damage {
            let at = at.index(whole.len());
            whole[at] = byte;
        }
        // A block whose checksum is right and whose contents are anything.
        BlockCompressor::new().unwrap().compress(&plain, &mut whole).unwrap();
        let (seen, ledger) = read(&whole, piece);
        prop_assert_eq!(seen.events.len() as u64, ledger.events);
        prop_assert_eq!(read(&whole, whole.len()), (seen, ledger));
    }
}

#[test]
fn blocks_are_independent_and_a_missing_one_is_counted() {
    let events: Vec<OwnedEvent> = (0..40).map(sample_event).collect();
    let blocks = file(&mut Encoder::new(7), &events, 10);
    for missing in 0..4 {
        let kept: Vec<_> = (0..4).filter(|n| *n != missing).collect();
        let (seen, ledger) = read(&kept.iter().map(|n| blocks[*n].clone()).collect::<Vec<_>>().concat(), 64);
        let due: Vec<OwnedEvent> = kept.iter().flat_map(|n| events[n * 10..][..10].to_vec()).collect();
        assert_eq!(seen.events, due);
        // What is missing at the ends belongs to other files, or to none.
        assert_eq!(ledger.missing_events(), if missing == 0 || missing == 3 { 0 } else { 10 });
    }
    // In whichever order parts are read.
    let (mut first, second) = (read(&blocks[3], 64).1, read(&blocks[0], 64).1);
    first.merge(&second);
    assert_eq!((first.missing_events(), first.events, first.blocks), (20, 20, 2));
    // Another capture's events are not missing in this one.
    let other = file(&mut Encoder::new(8), &events, 10);
    assert_eq!(
        read(&[blocks[0].clone(), other[3].clone(), blocks[1].clone()].concat(), 64).1.missing_events(),
        0
    );
}

#[test]
fn a_file_that_was_cut_is_read_up_to_its_last_whole_block() {
    let events: Vec<OwnedEvent> = (0..30).map(sample_event).collect();
    let blocks = file(&mut Encoder::new(7), &events, 10);
    let whole = blocks.concat();
    for length in 0..whole.len() {
        let (seen, ledger) = read(&whole[..length], 100);
        let blocks_there = (1..=3).filter(|n| blocks[..*n].concat().len() <= length).count();
        assert_eq!(seen.events, events[..blocks_there * 10]);
        assert_eq!(ledger.unread_tail_bytes, (length - blocks[..blocks_there].concat().len()) as u64);
        assert_eq!((ledger.blocks_damaged, ledger.skipped_bytes), (0, 0));
    }
}

#[test]
fn what_began_like_a_head_and_is_none_is_skipped_however_it_comes() {
    let start = [&[0; 9][..], &MAGIC[..1], b"\x80"].concat();
    for piece in 1..=start.len() {
        let (_, ledger) = read(&start, piece);
        assert_eq!((ledger.skipped_bytes, ledger.unread_tail_bytes), (11, 0), "pieces of {piece}");
    }
}

#[test]
fn a_damaged_block_costs_only_its_own_events() {
    let events: Vec<OwnedEvent> = (0..30).map(sample_event).collect();
    let blocks = file(&mut Encoder::new(7), &events, 10);
    let second = blocks[0].len();
    for at in 0..blocks[1].len() {
        let mut whole = blocks.concat();
        whole[second + at] ^= 0x55;
        let (seen, ledger) = read(&whole, 1 << 20);
        if at == MAGIC.len() {
            assert_eq!((ledger.blocks_newer, ledger.blocks_damaged), (1, 0));
        } else {
            let told = ledger.blocks_damaged + ledger.skipped_bytes + ledger.unread_tail_bytes;
            assert!(told > 0, "byte {at}: {ledger:?}");
        }
        // A head that tells too long a block takes what is behind it along.
        let is_length = (16..20).contains(&at);
        let due = [&events[..10], if is_length { &events[..0] } else { &events[20..] }].concat();
        assert!(seen.events == due || is_length && seen.events.starts_with(&due), "byte {at}");
        assert_eq!(ledger.missing_events(), if seen.events.len() == 20 { 10 } else { 0 }, "byte {at}");
    }
}

#[test]
fn a_share_is_told_before_the_events_that_it_is_of_and_in_every_block() {
    let quarter = SampleShare {
        time_ns: 5_000,
        fraction: 0.25,
        requests: Some(RequestCounts { total: 0, sampled: 0 }),
    };
    let again = SampleShare {
        time_ns: 8_000,
        fraction: 0.25,
        requests: Some(RequestCounts { total: 40, sampled: 9 }),
    };
    let whole = SampleShare {
        time_ns: 9_000,
        fraction: 1.0,
        requests: Some(RequestCounts { total: 1 << 40, sampled: 10 }),
    };
    let mut encoder = Encoder::new(1);
    let mut blocks = file(&mut encoder, &[sample_event(0), sample_event(1)], 9);
    encoder.set_share(&quarter);
    blocks.extend(file(&mut encoder, &[sample_event(2), sample_event(3)], 1));
    encoder.set_share(&again);
    encoder.set_share(&whole);
    blocks.extend(file(&mut encoder, &[sample_event(4)], 1));
    let (seen, _) = read(&blocks.concat(), 100);
    // Of two between events the latter holds, and says all.
    assert_eq!(seen.shares, [(2, quarter), (4, whole)]);
    // Who joins later learns it too.
    let (seen, _) = read(&blocks[2..].concat(), 100);
    assert_eq!(
        seen.shares,
        [(0, SampleShare { time_ns: sample_event(3).event.start_ns, requests: None, ..quarter }), (1, whole)]
    );
}

#[test]
fn a_capture_that_ends_in_good_order_brings_its_ledger() {
    let mut encoder = Encoder::new(1);
    let mut whole = file(&mut encoder, &[sample_event(0)], 9).concat();
    assert_eq!(read(&whole, 100).1.captures_ended, 0);
    let mut plain = Vec::new();
    encoder.encode_accounting(&ledger(), &mut plain);
    BlockCompressor::new().unwrap().compress(&plain, &mut whole).unwrap();
    let (seen, found) = read(&whole, 100);
    assert_eq!((seen.events.len(), found.captures_ended, found.captured), (1, 1, ledger()));
    assert_eq!(found.missing_events(), 0);
    // Lines that a later version adds are passed by.
    let mut longer = plain.clone();
    let count = longer.len() - 1 - (longer.iter().rev().position(|byte| *byte == 27).unwrap());
    longer[count] = 28;
    longer.push(5);
    let mut whole = Vec::new();
    BlockCompressor::new().unwrap().compress(&longer, &mut whole).unwrap();
    assert_eq!(read(&whole, 100).1.captured, ledger());
}

#[test]
fn the_longest_statements_are_cut_to_a_block_that_is_believed() {
    let huge =
        OwnedEvent { text: vec![b'x'; MAX_TEXT + 7], params: vec![b'y'; MAX_TEXT + 5], ..sample_event(1) };
    let names = OwnedEvent { user: vec![b'u'; 9000], host: vec![b'h'; 9000], db: vec![b'd'; 9000], ..huge };
    let mut encoder = Encoder::new(1);
    let mut plain = Vec::new();
    while plain.len() < BLOCK_SIZE {
        encoder.encode_event(&sample_event(1).event(), &mut plain);
    }
    encoder.encode_event(&names.event(), &mut plain);
    let mut whole = Vec::new();
    BlockCompressor::new().unwrap().compress(&plain, &mut whole).unwrap();
    let (seen, ledger) = read(&whole, 9_000);
    let last = seen.events.last().unwrap();
    assert_eq!((last.text.len(), last.params.len(), last.event.text_cut), (MAX_TEXT, MAX_TEXT, 12));
    assert_eq!((last.user.len(), ledger.blocks_damaged), (MAX_NAME, 0));
    // What is larger yet is refused before it is written.
    assert!(BlockCompressor::new().unwrap().compress(&vec![0; MAX_BLOCK_SIZE + 1], &mut whole).is_err());
}

#[test]
fn events_that_are_alike_take_few_bytes() {
    let mut encoder = Encoder::new(1);
    let mut plain = Vec::new();
    (0..3).for_each(|n| {
        encoder
            .encode_event(&OwnedEvent { text: vec![b'x'; 1000], ..sample_event(n * 3) }.event(), &mut plain)
    });
    let before = plain.len();
    encoder.encode_event(&OwnedEvent { text: vec![b'x'; 1000], ..sample_event(9) }.event(), &mut plain);
    assert!(plain.len() - before < 16, "{} bytes", plain.len() - before);
}

#[test]
fn zstd_reads_these_files_too() {
    let events: Vec<OwnedEvent> = (0..30).map(sample_event).collect();
    let whole = file(&mut Encoder::new(7), &events, 10).concat();
    let plain = zstd::stream::decode_all(whole.as_slice()).unwrap();
    assert!(plain.windows(15).any(|part| part == b"select 0 from t"));
}
