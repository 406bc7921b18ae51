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
/// Captures that are remembered. Of the host with the most, the one that was not heard of for longest is forgotten first: however
/// many one host names, those of the others stay known.
const CAPTURES_MAX: usize = 4_096;

/// By host and its number, which is no other capture's of that host.
type Ends = BTreeMap<(String, u64), End>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// The first event that is not digested yet.
    event: u64,
    /// The batch that had some of it last, counted from the first.
    heard: u64,
}

/// Ends of captures before a batch, and as they are by now.
#[derive(Debug, PartialEq, Eq)]
pub struct CaptureEnds {
    path: PathBuf,
    batch: String,
    /// Of this batch.
    number: u64,
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
        let (of, number) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
        let is_again = of == batch;
        let number = number.parse::<u64>().unwrap_or(0).saturating_add(u64::from(!is_again));
        let wanted = if is_again { "before" } else { "after" };
        let before: Ends = lines.filter_map(|line| parse_end(line.strip_prefix(wanted)?)).collect();
        Self { path, batch: batch.to_owned(), number, now: before.clone(), before }
    }

    /// Takes a file of a host that was read. The answer: events missing between it and the files of the same capture before it.
    /// `follows`: they came to this receiver, too.
    pub fn add(&mut self, host: &str, file: &QueriesAccounting, follows: bool) -> u64 {
        let mut missing = 0_u64;
        for (capture, events) in file.ranges() {
            let key = (host.to_owned(), capture);
            let known = self.now.get(&key).map_or(events.start, |end| end.event);
            if follows {
                missing = missing.saturating_add(events.start.saturating_sub(known));
            }
            if file.captures_ended > 0 {
                self.now.remove(&key);
            } else {
                self.now.insert(key, End { event: events.end.max(known), heard: self.number });
            }
        }
        while self.now.len() > CAPTURES_MAX {
            self.forget_one();
        }
        missing
    }

    fn forget_one(&mut self) {
        let mut of_hosts = BTreeMap::<&str, usize>::new();
        self.now.keys().for_each(|(host, _)| *of_hosts.entry(host).or_default() += 1);
        let most = of_hosts.values().max();
        let of_most = self.now.iter().filter(|((host, _), _)| of_hosts.get(host.as_str()) == most);
        let oldest = of_most.min_by_key(|(_, end)| end.heard).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.now.remove(&oldest);
        }
    }

    /// Once the batch is in the tables.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn write(&self) -> Result<()> {
        let mut text = format!("{} {}\n", self.batch, self.number);
        for (word, ends) in [("before", &self.before), ("after", &self.now)] {
            for ((host, capture), End { event, heard }) in ends {
                text += &format!("{word} {host} {capture} {event} {heard}\n");
            }
        }
        private_file::write(&self.path, &text)
    }
}

/// `None`: the line is damaged.
fn parse_end(line: &str) -> Option<((String, u64), End)> {
    let mut words = line.strip_prefix(' ')?.split(' ');
    let host = words.next()?.to_owned();
    let mut number = || words.next()?.parse::<u64>().ok();
    let (capture, event, heard) = (number()?, number()?, number()?);
    words.next().is_none().then_some(((host, capture), End { event, heard }))
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
            let lost = files.iter().map(|(file, follows)| ends.add("db1", file, *follows)).sum::<u64>();
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
        std::fs::write(
            dir.path().join(NAME),
            "d 4\nbefore db1 7\nafter db1 x y z\nnonsense\nafter db1 7 3 4\n",
        )
        .unwrap();
        assert_eq!(digest("e", &[(&second, false)]), 0);
        let known = CaptureEnds::read(dir.path(), "f").before;
        assert_eq!(known, Ends::from([(("db1".into(), 7), End { event: 15, heard: 5 })]));
        let mut ends = CaptureEnds::read(dir.path(), "f");
        assert_eq!(ends.add("db2", &first, true), 0, "a capture of another host");
    }

    #[test]
    fn captures_that_were_not_heard_of_for_longest_are_forgotten_first() {
        let dir = tempfile::tempdir().unwrap();
        let block = |capture: u64| read(&[&blocks(capture, &[1])[0]]);
        let mut ends = CaptureEnds::read(dir.path(), "a");
        for capture in 0..CAPTURES_MAX as u64 {
            assert_eq!(ends.add("db1", &block(capture), true), 0);
        }
        ends.write().unwrap();
        let mut ends = CaptureEnds::read(dir.path(), "b");
        // The oldest goes on.
        ends.add("db1", &block(0), true);
        ends.add("db1", &block(1 << 40), true);
        let is_known = |capture: u64| ends.now.contains_key(&("db1".to_owned(), capture));
        assert_eq!(
            (ends.now.len(), is_known(0), is_known(1), is_known(1 << 40)),
            (CAPTURES_MAX, true, false, true)
        );
    }

    #[test]
    fn a_host_that_names_any_number_of_captures_leaves_those_of_others_known() {
        let dir = tempfile::tempdir().unwrap();
        let block = |capture: u64| read(&[&blocks(capture, &[1])[0]]);
        let mut ends = CaptureEnds::read(dir.path(), "a");
        ends.add("db2", &block(0), true);
        ends.write().unwrap();
        let mut ends = CaptureEnds::read(dir.path(), "b");
        (0..CAPTURES_MAX as u64 + 8).for_each(|capture| _ = ends.add("db1", &block(capture), true));
        assert_eq!((ends.now.len(), ends.now.contains_key(&("db2".to_owned(), 0))), (CAPTURES_MAX, true));
    }
}
