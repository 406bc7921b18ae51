//! Digests of received files, as tables: a thread beside those of the streams.

use super::batch::Batch;
use super::capture_ends::CaptureEnds;
use super::file_names::goes_on_from_elsewhere;
use crate::table_options::TableOptions;
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toll_sys::count_format::format_count;
use toll_tables::{ReplacedFiles, Source, SplittingSink, TableWriter};
use toll_wire::queries::Reader;

/// How often files are looked for. Each batch writes a file for each shard and table, and in a bucket each has its price.
const BATCH_INTERVAL: Duration = Duration::from_secs(5);
const BUCKET_BATCH_INTERVAL: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After tables could not be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Only memory bounds what is written at once.
const FLUSH_INTERVAL: Duration = Duration::from_secs(86_400);
const READ_BYTES: usize = 1 << 20;
/// Of all that is received for tables.
const TYPE: &str = "queries";

/// Tables that received queries are digested to.
#[derive(Debug, Clone)]
pub struct ReceivedTables {
    pub tables: TableOptions,
    /// Length of the stretches.
    pub every: Duration,
}

impl ReceivedTables {
    /// Sees beforehand that there will be a place to write to.
    ///
    /// # Errors
    /// There will be none.
    pub fn prepare(&self) -> Result<()> {
        self.open([0; 16]).map(drop)
    }

    fn open(&self, id: [u8; 16]) -> Result<TableWriter> {
        let source = Source { host: String::new(), cluster: self.tables.cluster.clone(), source: "", id };
        TableWriter::open(self.tables.open_store()?, source, FLUSH_INTERVAL)
    }
}

/// The thread that digests.
pub struct Digesting {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Digesting {
    /// `open_files`: those that streams write to.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(
        dir: PathBuf,
        options: ReceivedTables,
        open_files: impl Fn() -> HashSet<PathBuf> + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("toll-tables".into())
            .spawn(move || run(&dir, &options, &open_files, &stopping))
            .context("cannot start a thread to digest with")?;
        Ok(Self { stop, thread })
    }

    /// Digests the files that are closed by now, and ends.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!(
                "the thread that writes tables has failed: its files are digested at the next start"
            );
        }
    }
}

fn run(dir: &Path, options: &ReceivedTables, open_files: &dyn Fn() -> HashSet<PathBuf>, stop: &AtomicBool) {
    loop {
        // Files that are closed by the end are digested after it.
        let is_last = stop.load(Ordering::Relaxed);
        let pause = match digest_batches(dir, options, open_files) {
            Ok(()) if options.tables.tree().is_none() => BUCKET_BATCH_INTERVAL,
            Ok(()) => BATCH_INTERVAL,
            Err(error) => {
                tracing::warn!("no tables: {error:#}; tried again later, the files stay");
                RETRY_INTERVAL
            }
        };
        if is_last {
            return;
        }
        let since = Instant::now();
        while since.elapsed() < pause && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// All that are closed.
fn digest_batches(
    dir: &Path,
    options: &ReceivedTables,
    open_files: &dyn Fn() -> HashSet<PathBuf>,
) -> Result<()> {
    while let Some(batch) = Batch::take(dir, open_files)? {
        digest_batch(dir, &batch, options)?;
        batch.finish()?;
    }
    Ok(())
}

fn digest_batch(dir: &Path, batch: &Batch, options: &ReceivedTables) -> Result<()> {
    let writer = options.open(batch.id())?;
    // A batch is digested whole or again.
    let stop = AtomicBool::new(false);
    let mut sink = SplittingSink::new(writer, options.every, &stop);
    sink.set_replaced(if batch.was_begun() { ReplacedFiles::Skipped } else { ReplacedFiles::New });
    let mut bytes = vec![0; READ_BYTES];
    let mut ends = CaptureEnds::read(dir, batch.hex_id());
    for (host, path) in batch.files() {
        sink.begin_input_of(host, TYPE);
        let mut events = Reader::default();
        let mut file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        loop {
            let read = file.read(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
            if read == 0 {
                break;
            }
            events.feed(&bytes[..read], &mut sink);
        }
        events.finish();
        let newer = events.accounting().blocks_newer;
        if newer > 0 {
            let kept = Batch::keep_unread(&path)?;
            tracing::warn!(
                "{host} sends what only a newer toll can read: {} that are in no table. Install that version here, then: toll \
                 digest --parquet {} --host {host} --cluster {} {}",
                format_count(newer, "block"),
                options.tables.root,
                options.tables.cluster,
                kept.display(),
            );
        }
        let before = ends.add(host, events.accounting(), !goes_on_from_elsewhere(&path));
        sink.end_input(before.saturating_add(events.accounting().missing_events()))?;
    }
    sink.finish()?;
    ends.write()
}
