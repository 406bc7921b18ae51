//! Meter of the response times that a server's own users see, by class of query: from the server's sockets, or where no tap may
//! run from the server's own counters.
//!
//! # Invariants
//! Never changes the server: a source that is off there is not switched on.

mod counters;
mod pilot;
mod tap;

pub use pilot::{PilotSample, SeenTraffic, noise_of};
pub use tap::command;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use toll_journal::Journal;
use toll_mysql::Target;
use toll_record::{ClassSample, ClassTimes};

/// Length of a stretch, which begins and ends where the wall clock shows a multiple of it. Short, since windows hold whole ones.
pub const STRETCH_US: u64 = 500_000;

/// Where the times come from.
#[derive(Debug, Clone)]
pub enum ClassSource {
    /// A capture on the server's sockets: this command prints response times on each line.
    Tap(Vec<String>),
    /// `performance_schema`: kinds of statement, without distributions.
    Counters(Box<Target>),
}

impl ClassSource {
    /// In words, for people.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Tap(_) => "all queries on the server's sockets, by fingerprint",
            Self::Counters(_) => "performance_schema's counts and sums, by kind of statement",
        }
    }
}

/// One class in a short stretch.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenClass {
    pub name: String,
    /// What its queries do, in a few words.
    pub title: String,
    pub times: ClassTimes,
}

/// All classes of a short stretch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeenStretch {
    /// Its end, CLOCK_MONOTONIC.
    pub mono_us: u64,
    pub width_us: u64,
    pub classes: Vec<SeenClass>,
}

impl SeenStretch {
    /// What the run keeps of it: the classes of its plan.
    pub fn to_sample(&self, server: u32, is_planned: impl Fn(&str) -> bool) -> ClassSample {
        let kept = self.classes.iter().filter(|class| is_planned(&class.name));
        ClassSample {
            mono_us: self.mono_us,
            width_us: self.width_us,
            server,
            classes: kept.map(|class| (class.name.clone(), class.times)).collect(),
        }
    }
}

/// Takes each stretch as it ends.
type Taker = Box<dyn FnMut(SeenStretch) + Send>;

/// A meter at work.
#[derive(Debug)]
pub struct ClassMeter {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    tap: Option<tap::TapProcess>,
}

impl ClassMeter {
    /// Starts it, and waits until it measures. `journal`: of the run whose process it is. `own`: fingerprints of toll's queries,
    /// which no user sent.
    ///
    /// # Errors
    /// It cannot measure here, with the reason.
    pub fn start(
        source: &ClassSource,
        journal: Option<&Journal>,
        own: Vec<String>,
        taker: impl FnMut(SeenStretch) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let taker: Taker = Box::new(taker);
        let (reader, tap) = match source {
            ClassSource::Tap(command) => {
                let (reader, tap) = tap::start(command, journal, own, taker)?;
                (reader, Some(tap))
            }
            ClassSource::Counters(target) => (counters::start(target, &stop, taker)?, None),
        };
        Ok(Self { stop, reader: Some(reader), tap })
    }

    /// Of its process, if it has one.
    pub fn pid(&self) -> Option<u32> {
        self.tap.as_ref().map(tap::TapProcess::pid)
    }

    /// True once it measures no more.
    pub fn has_ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// # Errors
    /// Its process cannot be ended.
    pub fn stop(mut self, journal: Option<&Journal>) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(tap) = self.tap.take() {
            tap.stop(journal)?;
        }
        if let Some(reader) = self.reader.take() {
            // One that panicked has already said so on standard error.
            let _ = reader.join();
        }
        Ok(())
    }
}
