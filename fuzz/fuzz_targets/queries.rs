//! Fuzz target of the query-event reader with hostile files.
//!
//! Checks: no panic, bounded memory, counters that add up, the same result for input in any pieces. The first
//! byte selects the rest: a file, or the plain contents of a block with a valid checksum.
#![no_main]

use toll_wire::event::{Event, SampleShare, Sink};
use toll_wire::queries::{BlockCompressor, MAX_BLOCK_SIZE, QueriesAccounting, Reader};

#[derive(Default, PartialEq, Debug)]
struct Seen {
    events: u64,
    bytes: u64,
    shares: u64,
}

impl Sink for Seen {
    fn on_event(&mut self, event: &Event<'_>) {
        self.events += 1;
        for part in [event.text, event.params, event.user, event.host, event.db] {
            assert!(part.len() <= MAX_BLOCK_SIZE);
            self.bytes += part.len() as u64;
        }
    }

    fn on_sample_share(&mut self, share: &SampleShare) {
        assert!((0.0..=1.0).contains(&share.fraction));
        self.shares += 1;
    }
}

fn read(file: &[u8], piece: usize) -> (Seen, QueriesAccounting) {
    let mut reader = Reader::new();
    let mut seen = Seen::default();
    file.chunks(piece).for_each(|piece| reader.feed(piece, &mut seen));
    reader.finish();
    assert!(reader.accounting().is_consistent(), "{:#?}", reader.accounting());
    assert_eq!(reader.accounting().events, seen.events);
    (seen, reader.accounting().clone())
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&what, rest)) = input.split_first() else { return };
    let mut file = Vec::new();
    if what & 1 == 0 {
        file.extend_from_slice(rest);
    } else {
        BlockCompressor::new().expect("memory").compress(rest, &mut file).expect("it is small");
    }
    assert_eq!(read(&file, usize::from(what >> 1) + 1), read(&file, file.len().max(1)));
});
