//! Events of logs and captures that were recorded, split into stretches of the clock.

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
}

impl<'a> SplittingSink<'a> {
    /// `width`: of a stretch; those of a minute begin at full minutes. `stop`: set once nothing can be written.
    pub fn new(mut writer: TableWriter, width: Duration, stop: &'a AtomicBool) -> Self {
        let width_us = i64::try_from(width.as_micros()).unwrap_or(i64::MAX).max(1);
        writer.refuse_replaced();
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

    /// The events that follow are of another input.
    ///
    /// # Errors
    /// The digests so far could not be written.
    pub fn begin_input(&mut self, source: &'static str) -> anyhow::Result<()> {
        self.close_all()?;
        self.share = None;
        self.writer.set_source(source);
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.close_all()?;
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

    fn close_all(&mut self) -> anyhow::Result<()> {
        for (begin_us, open) in take(&mut self.open) {
            self.close(begin_us, open);
        }
        self.error.take().map_or(Ok(()), Err)
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
            lost: 0,
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
            Open { digest: Digest::new(Settings::default()), sampled }
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
        let Open { digest, sampled } = self.open(begin_us);
        SamplingSink { digest, sampled }.on_event(event);
    }

    fn on_sample_share(&mut self, share: &SampleShare) {
        self.share = Some(*share);
        self.open.values_mut().for_each(|open| open.sampled.set_share(share));
    }
}
