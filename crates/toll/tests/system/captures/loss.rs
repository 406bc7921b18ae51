//! Tests of captures with missing packets, compared with the whole capture.

use std::collections::HashMap;
use toll_testkit::wire::{DecodedEvent, EventCollector};
use toll_wire::decoder::Config;

/// Length of a pcap file's own header.
const HEADER: usize = 24;

/// The capture without the records that `lose` picks, by their number.
pub fn drop_packets(capture: &[u8], mut lose: impl FnMut(usize) -> bool) -> Vec<u8> {
    let mut kept = capture[..HEADER].to_vec();
    let mut at = HEADER;
    for number in 0.. {
        let Some(length) = capture.get(at + 8..at + 12) else { break };
        let end = at + 16 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        if !lose(number) {
            kept.extend(&capture[at..end]);
        }
        at = end;
    }
    kept
}

/// The first record from number `least` on that every record before it is older than, so that a moment
/// tells on which side of the cut a packet is: stamps are whole microseconds, and those of two CPUs need not
/// be in the file's order.
pub fn cut_between(capture: &[u8], least: usize) -> usize {
    let mut stamps = Vec::new();
    let mut at = HEADER;
    while let Some(record) = capture.get(at..at + 16) {
        let word = |i: usize| u32::from_le_bytes(record[i..i + 4].try_into().unwrap());
        stamps.push((word(0), word(4)));
        at += 16 + word(8) as usize;
    }
    let mut oldest_after = stamps.clone();
    for i in (1..oldest_after.len()).rev() {
        oldest_after[i - 1] = oldest_after[i - 1].min(oldest_after[i]);
    }
    let mut newest_before = stamps[..least].iter().copied().max().unwrap();
    (least..stamps.len())
        .find(|&i| {
            let is_between = newest_before < oldest_after[i];
            newest_before = newest_before.max(stamps[i]);
            is_between
        })
        .unwrap()
}

/// One packet of a hundred is missing, at random: no event that is called clean may be false, and
/// what is missing must show.
pub fn one_packet_of_a_hundred(capture: &[u8], whole: &EventCollector, config: &Config, case: &str) {
    for mut state in [7_u64, 8, 9] {
        let mut lost = 0;
        let lossy = drop_packets(capture, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let lose = (state >> 33).is_multiple_of(100);
            lost += u64::from(lose);
            lose
        });
        let lossy = EventCollector::decode_with(&lossy, config);
        assert_eq!(lossy.ledger.frames.read + lost, whole.ledger.frames.read, "{case}");
        let clean = assert_clean_ones_are_true(&lossy, whole, case);
        assert!(lossy.ledger.commands.tainted > 0, "{case}");
        assert!(clean * 10 > whole.list.len() * 8, "{case}: {clean} of {} are clean", whole.list.len());
    }
}

/// Every clean event is one of `whole`, in text, parameters, rows and time. Returns their number.
pub fn assert_clean_ones_are_true(seen: &EventCollector, whole: &EventCollector, case: &str) -> usize {
    let mut truth: HashMap<(u16, u64), Vec<&DecodedEvent>> = HashMap::new();
    for event in &whole.list {
        truth.entry((event.port, event.start_ns)).or_default().push(event);
    }
    let clean = seen.list.iter().filter(|event| !event.tainted && event.query_ns.is_some());
    clean
        .map(|event| {
            let same = |truth: &&DecodedEvent| {
                truth.query_ns == event.query_ns
                    && truth.first_byte_ns == event.first_byte_ns
                    && truth.rows_sent == event.rows_sent
                    && is_same_statement(event, truth)
            };
            let candidates = truth.get(&(event.port, event.start_ns));
            let found = candidates.is_some_and(|list| list.iter().any(same));
            assert!(found, "{case}: {event:?} against {candidates:?}");
        })
        .count()
}

/// But for what was sent in a packet that is missing: the text of a PREPARE, or the types of
/// values, which then read as `...`.
pub fn is_same_statement(event: &DecodedEvent, truth: &DecodedEvent) -> bool {
    if event.text.ends_with("(text not seen)") {
        return event.kind == truth.kind && event.statement_id == truth.statement_id;
    }
    let is_same_values = match event.params.strip_suffix("...") {
        Some(known) => truth.params.starts_with(known),
        None => event.params == truth.params,
    };
    event.text == truth.text && is_same_values
}
