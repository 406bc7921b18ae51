//! Events of logs and captures that were recorded, split into stretches of the clock.

use super::row_set::ReplacedFiles;
use super::writer::{Stretch, TableWriter};
use std::collections::BTreeMap;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_digest::classes::{Digest, Settings};
use toll_digest::{SampleEstimator, SamplingSink};
use toll_wire::event::{Event, SampleShare, Sink};

/// Stretches that events are added to at once: a log's events are out of order by seconds. An event of an earlier one begins
/// another digest of that one, so that sums are right all the same.
const OPEN_MAX: usize = 2;

/// Digests events by the stretch in which they began, and writes the digests to tables.
pub struct SplittingSink<'a> {
    writer: TableWriter,
    width_us: i64,
    open: BTreeMap<i64, Open>,
    share: Option<SampleShare>,
    untimed: u64,
    stretches: u64,
    error: Option<anyhow::Error>,
    stop: &'a AtomicBool,
}

struct Open {
    digest: Digest,
    sampled: SampleEstimator,
    lost: u64,
}

impl<'a> SplittingSink<'a> {
    /// `width`: of a stretch; those of a minute begin at full minutes. `stop`: set once nothing can be written.
    pub fn new(mut writer: TableWriter, width: Duration, stop: &'a AtomicBool) -> Self {
        let width_us = i64::try_from(width.as_micros()).unwrap_or(i64::MAX).max(1);
        writer.set_replaced(ReplacedFiles::Refused);
        Self {
            writer,
            width_us,
            open: BTreeMap::new(),
            share: None,
            untimed: 0,
            stretches: 0,
            error: None,
            stop,
        }
    }

    /// Of inputs that are the same each time, files that are merged by now count already; before the first time there are none.
    /// Unless it is said, such files are refused.
    pub fn set_replaced(&mut self, replaced: ReplacedFiles) {
        self.writer.set_replaced(replaced);
    }

    /// The events that follow are of another input, of this host.
    pub fn begin_input_of(&mut self, host: &str, source: &'static str) {
        self.writer.set_host(host);
        self.begin_input(source);
    }

    /// The events that follow are of another input.
    pub fn begin_input(&mut self, source: &'static str) {
        self.share = None;
        self.writer.set_source(source);
    }

    /// An input has ended, which says of itself that it lacks this many packets, events or entries. Nobody knows when they
    /// were lost: they count in its last stretch.
    ///
    /// # Errors
    /// The digests so far could not be written.
    pub fn end_input(&mut self, lost: u64) -> anyhow::Result<()> {
        if let Some(mut last) = self.open.last_entry() {
            last.get_mut().lost = lost;
        }
        for (begin_us, open) in take(&mut self.open) {
            self.close(begin_us, open);
        }
        self.error.take().map_or(Ok(()), Err)
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.end_input(0)?;
        self.writer.flush()
    }

    /// Events that say no time: they are in no table.
    pub fn untimed(&self) -> u64 {
        self.untimed
    }

    /// Rows of digests written.
    pub fn rows(&self) -> u64 {
        self.writer.rows()
    }

    /// Stretches of time with events.
    pub fn stretches(&self) -> u64 {
        self.stretches
    }

    /// The first failure ends the writing.
    fn close(&mut self, begin_us: i64, mut open: Open) {
        if self.error.is_some() {
            return;
        }
        open.digest.settle();
        let added = self.writer.add(&Stretch {
            begin_us,
            width_us: self.width_us,
            digest: &open.digest,
            lost: open.lost,
            sampled_share: open.sampled.totals().map_or(1.0, |totals| totals.share_mean),
        });
        self.stretches += 1;
        if let Err(error) = added {
            self.error = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn open(&mut self, begin_us: i64) -> &mut Open {
        if !self.open.contains_key(&begin_us)
            && self.open.len() >= OPEN_MAX
            && let Some((earliest, done)) = self.open.pop_first()
        {
            self.close(earliest, done);
        }
        let share = self.share;
        self.open.entry(begin_us).or_insert_with(|| {
            let mut sampled = SampleEstimator::default();
            share.iter().for_each(|share| sampled.set_share(share));
            Open { digest: Digest::new(Settings::default()), sampled, lost: 0 }
        })
    }
}

impl Sink for SplittingSink<'_> {
    fn on_event(&mut self, event: &Event<'_>) {
        if self.error.is_some() {
            return;
        }
        if event.start_ns == 0 {
            self.untimed += 1;
            return;
        }
        let start_us = i64::try_from(event.start_ns / 1_000).unwrap_or(i64::MAX);
        let begin_us = start_us - start_us.rem_euclid(self.width_us);
        let Open { digest, sampled, .. } = self.open(begin_us);
        SamplingSink { digest, sampled }.on_event(event);
    }

    fn on_sample_share(&mut self, share: &SampleShare) {
        self.share = Some(*share);
        self.open.values_mut().for_each(|open| open.sampled.set_share(share));
    }
}
