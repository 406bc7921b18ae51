#![no_main]

//! Fuzz target of the dump splitter and chunker.
//!
//! The sections of a dump add up to the dump, for input in any pieces. The chunks of a file add up to the
//! file.

use std::convert::Infallible;
use toll_backup::archive::chunker::{ChunkSizes, Chunker};
use toll_backup::archive::sections::{Section, SectionPart, SectionSink, SectionSplitter};

#[derive(Default, PartialEq, Debug)]
struct Seen {
    sections: Vec<Section>,
    bytes: Vec<u8>,
    rows: u64,
    pieces: Vec<Vec<u8>>,
}

struct Watching {
    seen: Seen,
    chunker: Chunker,
}

const SIZES: ChunkSizes = ChunkSizes { min: 16, average: 40, max: 100 };

impl SectionSink for Watching {
    fn begin(&mut self, section: Section) -> toll_store::Result<()> {
        self.seen.sections.push(section);
        Ok(())
    }

    fn part(&mut self, part: SectionPart<'_>) -> toll_store::Result<()> {
        assert!(!self.seen.sections.is_empty(), "bytes of no section");
        assert!(!part.ends || part.bytes.ends_with(b"\n"));
        self.seen.bytes.extend_from_slice(part.bytes);
        self.seen.rows += u64::from(part.is_row && part.ends);
        let Seen { pieces, .. } = &mut self.seen;
        let Ok(()) = self.chunker.push(part.bytes, part.ends, |piece| {
            pieces.push(piece);
            Ok::<_, Infallible>(())
        });
        Ok(())
    }
}

fn split(input: &[u8], step: usize) -> (Seen, bool) {
    let mut watching = Watching { seen: Seen::default(), chunker: Chunker::new(SIZES) };
    let mut sections = SectionSplitter::default();
    for chunk in input.chunks(step) {
        sections.feed(chunk, &mut watching).expect("this sink takes everything");
    }
    let is_whole = sections.finish(&mut watching).is_ok();
    let Seen { pieces, .. } = &mut watching.seen;
    let Ok(()) = watching.chunker.finish(|piece| {
        pieces.push(piece);
        Ok::<_, Infallible>(())
    });
    (watching.seen, is_whole)
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let whole = split(input, usize::MAX);
    assert_eq!(whole.0.bytes, input);
    assert_eq!(whole.0.pieces.concat(), input);
    assert!(whole.0.pieces.iter().all(|piece| piece.len() <= SIZES.max));
    assert_eq!(split(input, 7), whole);
});
