//! How far the captures of streams are digested: what is missing between two files of one was lost on its way.
//!
//! A hidden file beside the streams' files, replaced with each batch.
//!
//! # Invariants
//! A batch that is digested again finds what it found the first time.

use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toll_sys::private_file;
use toll_wire::queries::QueriesAccounting;

pub const NAME: &str = ".captures";
/// Captures that are remembered. Their numbers are the times at which they began: the oldest are forgotten first.
const CAPTURES_MAX: usize = 4_096;

/// Number of the first event, by capture, that is not digested yet.
type Ends = BTreeMap<u64, u64>;

/// Ends of captures before a batch, and as they are by now.
#[derive(Debug, PartialEq, Eq)]
pub struct CaptureEnds {
    path: PathBuf,
    batch: String,
    before: Ends,
    now: Ends,
}

impl CaptureEnds {
    /// As they were before this batch. A file that is missing or damaged knows none: what was lost before the batch is not
    /// known then.
    pub fn read(dir: &Path, batch: &str) -> Self {
        let path = dir.join(NAME);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = text.lines();
        let is_again = lines.next() == Some(batch);
        let (mut before, mut after) = (Ends::new(), Ends::new());
        for line in lines {
            let mut words = line.split(' ');
            let ends = match words.next() {
                Some("before") => &mut before,
                Some("after") => &mut after,
                _ => continue,
            };
            let mut number = || words.next()?.parse::<u64>().ok();
            if let (Some(capture), Some(end)) = (number(), number()) {
                ends.insert(capture, end);
            }
        }
        let before = if is_again { before } else { after };
        Self { path, batch: batch.to_owned(), now: before.clone(), before }
    }

    /// Takes a file that was read. The answer: events missing between it and the files of the same capture before it.
    /// `follows`: they came to this receiver, too.
    pub fn add(&mut self, file: &QueriesAccounting, follows: bool) -> u64 {
        let mut missing = 0_u64;
        for (capture, events) in file.ranges() {
            let end = self.now.entry(capture).or_insert(events.start);
            if follows {
                missing = missing.saturating_add(events.start.saturating_sub(*end));
            }
            *end = events.end.max(*end);
            if file.captures_ended > 0 {
                self.now.remove(&capture);
            }
        }
        while self.now.len() > CAPTURES_MAX {
            self.now.pop_first();
        }
        missing
    }

    /// Once the batch is in the tables.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn write(&self) -> Result<()> {
        let mut text = format!("{}\n", self.batch);
        for (word, ends) in [("before", &self.before), ("after", &self.now)] {
            for (capture, end) in ends {
                text += &format!("{word} {capture} {end}\n");
            }
        }
        private_file::write(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_wire::event::{Event, Sink};
    use toll_wire::queries::{BlockCompressor, Encoder, Reader};

    /// Blocks of a capture, each with so many events.
    fn blocks(capture: u64, events: &[usize]) -> Vec<Vec<u8>> {
        let (mut encoder, mut compressor) = (Encoder::new(capture), BlockCompressor::new().unwrap());
        let mut block = |events: &usize| {
            let (mut plain, mut packed) = (Vec::new(), Vec::new());
            let event = Event { start_ns: 1, text: b"SELECT 1", ..Event::default() };
            (0..*events).for_each(|_| encoder.encode_event(&event, &mut plain));
            compressor.compress(&plain, &mut packed).unwrap();
            packed
        };
        events.iter().map(&mut block).collect()
    }

    struct Nobody;

    impl Sink for Nobody {
        fn on_event(&mut self, _event: &Event<'_>) {}
    }

    fn read(blocks: &[&[u8]]) -> QueriesAccounting {
        let mut reader = Reader::new();
        blocks.iter().for_each(|block| reader.feed(block, &mut Nobody));
        reader.finish();
        reader.accounting().clone()
    }

    #[test]
    fn what_is_missing_between_files_is_counted_once_however_often_a_batch_is_digested() {
        let dir = tempfile::tempdir().unwrap();
        let sent = blocks(7, &[3, 5, 2, 4, 1]);
        let first = read(&[&sent[0]]);
        let second = read(&[&sent[2], &sent[4]]);
        let digest = |batch: &str, files: &[(&QueriesAccounting, bool)]| {
            let mut ends = CaptureEnds::read(dir.path(), batch);
            let lost = files.iter().map(|(file, follows)| ends.add(file, *follows)).sum::<u64>();
            ends.write().unwrap();
            lost
        };
        assert_eq!(digest("a", &[(&first, true)]), 0);
        for _ in 0..2 {
            assert_eq!(
                digest("b", &[(&second, true)]),
                5,
                "the second block; within the file is the reader's"
            );
        }
        // The same in one batch, and where the rest went elsewhere.
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        assert_eq!(digest("c", &[(&second, true)]), 0, "nobody knows what came before");
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        assert_eq!(digest("d", &[(&first, true), (&second, true)]), 5);
        std::fs::write(dir.path().join(NAME), "d\nbefore 7\nafter x y\nnonsense\nafter 7 3\n").unwrap();
        assert_eq!(digest("e", &[(&second, false)]), 0);
        assert_eq!(CaptureEnds::read(dir.path(), "f").before, Ends::from([(7, 15)]));
    }

    #[test]
    fn only_the_newest_captures_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut ends = CaptureEnds::read(dir.path(), "a");
        for capture in 0..=CAPTURES_MAX as u64 {
            assert_eq!(ends.add(&read(&[&blocks(capture, &[1])[0]]), true), 0);
        }
        assert_eq!((ends.now.len(), ends.now.contains_key(&0)), (CAPTURES_MAX, false));
    }
}
