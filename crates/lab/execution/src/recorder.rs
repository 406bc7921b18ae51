//! Writer of the run directory, on a thread of its own so that measuring never waits for a disk.
//!
//! One thread owns the files; all others send lines through a bounded queue. Lines reach the kernel at least
//! once a second. A full queue blocks the sender.
//!
//! # Invariants
//! Never drops a line.

use anyhow::bail;
use hdrhistogram::Histogram;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use toll_record::{Artefact, RunWriter, Sample, TrialLine};

/// Queue length in lines: a few seconds of all samples, for a slow disk.
const QUEUE: usize = 8192;
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Lines are written together: to wake up for each would cost more than to write it.
const WRITE_EVERY: Duration = Duration::from_millis(500);

/// Handle for sending lines; cheap to clone.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: SyncSender<Line>,
    failure: Arc<Mutex<Option<String>>>,
    writer: Thread,
}

/// The writing thread.
#[derive(Debug)]
pub struct RecorderThread {
    thread: JoinHandle<()>,
}

enum Line {
    Trial(TrialLine),
    Sample(Sample),
    Artefact(Artefact),
    Latency {
        arm: String,
        trial: u32,
        begin_us: u64,
        duration_us: u64,
        histogram: Box<Histogram<u64>>,
    },
    /// All lines until here are to be in the kernel's hands; the answer says when.
    Flush(SyncSender<()>),
    End,
}

impl Recorder {
    pub fn start(writer: RunWriter) -> (Self, RecorderThread) {
        let (queue, lines) = sync_channel(QUEUE);
        let failure = Arc::new(Mutex::new(None));
        let slot = failure.clone();
        let thread = std::thread::spawn(move || {
            if let Err(error) = write_all(writer, &lines)
                && let Ok(mut slot) = slot.lock()
            {
                *slot = Some(error.to_string());
            }
        });
        (Self { queue, failure, writer: thread.thread().clone() }, RecorderThread { thread })
    }

    pub fn record_sample(&self, sample: Sample) {
        self.send(Line::Sample(sample));
    }

    pub fn record_trial(&self, line: TrialLine) {
        self.send(Line::Trial(line));
    }

    pub fn record_artefact(&self, line: Artefact) {
        self.send(Line::Artefact(line));
    }

    pub fn record_latency(
        &self,
        arm: &str,
        trial: u32,
        begin_us: u64,
        duration_us: u64,
        histogram: Box<Histogram<u64>>,
    ) {
        self.send(Line::Latency { arm: arm.to_owned(), trial, begin_us, duration_us, histogram });
    }

    /// Waits until all that was recorded so far is in the run's files.
    pub fn flush(&self) -> anyhow::Result<()> {
        let (done, flushed) = sync_channel(1);
        self.send(Line::Flush(done));
        self.writer.unpark();
        // A recorder that failed answers nobody.
        let _ = flushed.recv();
        self.check()
    }

    /// Fails once the run directory cannot be written any more.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.failure.lock() {
            Ok(slot) => match slot.as_deref() {
                Some(what) => bail!("cannot write the run: {what}; free some space or choose another --out"),
                None => Ok(()),
            },
            Err(_) => bail!("the recorder ended unexpectedly"),
        }
    }

    fn send(&self, line: Line) {
        // Only a recorder that failed hangs up; `check` reports it to the trial loop.
        let _ = self.queue.send(line);
    }
}

impl RecorderThread {
    /// Writes all queued lines and ends the thread.
    ///
    /// # Errors
    /// A line could not be written.
    pub fn finish(self, recorder: &Recorder) -> anyhow::Result<()> {
        recorder.send(Line::End);
        recorder.writer.unpark();
        let _ = self.thread.join();
        recorder.check()
    }
}

fn write_all(mut writer: RunWriter, lines: &Receiver<Line>) -> std::io::Result<()> {
    let mut flushed = Instant::now();
    loop {
        match lines.try_recv() {
            Ok(Line::Trial(line)) => writer.write_trial(&line)?,
            Ok(Line::Sample(line)) => writer.write_sample(&line)?,
            Ok(Line::Artefact(line)) => writer.write_artefact(&line)?,
            Ok(Line::Latency { arm, trial, begin_us, duration_us, histogram }) => {
                writer.write_latency(&arm, trial, begin_us, duration_us, &histogram)?;
            }
            Ok(Line::Flush(done)) => {
                writer.flush()?;
                let _ = done.send(());
            }
            Err(TryRecvError::Empty) => std::thread::park_timeout(WRITE_EVERY),
            Ok(Line::End) | Err(TryRecvError::Disconnected) => return writer.finish(),
        }
        if flushed.elapsed() >= FLUSH_EVERY {
            writer.flush()?;
            flushed = Instant::now();
        }
    }
}
