//! Digest printer of a running capture, on a thread of its own: prints each, and hands it to OpenTelemetry and to tables. A
//! slow or absent reader, or a full disk, never blocks the capture.

use super::otlp::OtlpFeed;
use anyhow::{Context, anyhow, bail};
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use toll_digest::classes::{Limit, Settings};
use toll_digest::{DigestResult, Format, Request};
use toll_tables::{Stretch, TableWriter};
use toll_wire::decoder::Config;

/// At the end, a reader that has taken nothing for so long is given up.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// At the end, tables are waited for so long: a server that is slow may yet take them.
const TABLES_TIMEOUT: Duration = Duration::from_secs(120);

/// Options of the digest and its format.
pub struct PrintOptions {
    pub settings: Settings,
    pub limit: Limit,
    pub format: Format,
    /// True: statements with their literals.
    pub literals: bool,
    /// What is captured, in the report's first line.
    pub source: String,
    pub out: Box<dyn Write + Send>,
    /// Sends each digest to OpenTelemetry, too.
    pub otlp: Option<OtlpFeed>,
    /// Writes each digest to tables, too.
    pub tables: Option<TableWriter>,
}

/// When a digest was gathered, Unix time, and what the kernel lost meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatherTime {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Packets or calls.
    pub lost: u64,
}

impl PrintOptions {
    /// For people, or as JSON.
    pub fn with_defaults(is_json: bool, source: String, out: Box<dyn Write + Send>) -> Self {
        Self {
            settings: Settings::default(),
            limit: Limit::default(),
            format: if is_json { Format::Json } else { Format::Report },
            literals: false,
            source,
            out,
            otlp: None,
            tables: None,
        }
    }
}

/// Prints one digest after another.
pub struct DigestPrinter {
    digests: Option<Sender<(Box<DigestResult>, GatherTime)>>,
    ended: Receiver<()>,
    shared: Arc<Shared>,
    source: String,
}

#[derive(Default)]
struct Shared {
    is_busy: AtomicBool,
    is_writing_tables: AtomicBool,
    bytes: AtomicU64,
    error: Mutex<Option<anyhow::Error>>,
}

impl DigestPrinter {
    /// `is_one_of_many`: JSON then stands on a line for each digest.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(how: PrintOptions, is_one_of_many: bool) -> anyhow::Result<Self> {
        let (digests, to_print) = channel::<(Box<DigestResult>, GatherTime)>();
        let (end, ended) = channel();
        let shared = Arc::new(Shared::default());
        let printer_shared = Arc::clone(&shared);
        let request = Request {
            files: Vec::new(),
            kind: None,
            capture: Config::default(),
            settings: how.settings,
            limit: how.limit,
            since: None,
            until: None,
            filter: None,
            format: how.format,
            literals: how.literals,
            jobs: 1,
        };
        let mut otlp = how.otlp;
        let mut tables = how.tables;
        let mut out = CountingWriter { out: BufWriter::new(how.out), shared: Arc::clone(&shared) };
        std::thread::Builder::new()
            .name("toll-printer".into())
            .spawn(move || {
                for (mut done, time) in to_print {
                    done.digest.settle();
                    // First, since a reader may be slow.
                    if let Some(otlp) = &mut otlp {
                        otlp.add(&done, request.limit, time.end_ns);
                    }
                    if let Some(tables) = &mut tables {
                        printer_shared.while_writing_tables(|| add_to_tables(tables, &done, time));
                    }
                    let printed = if is_one_of_many && request.format == Format::Json {
                        toll_digest::print_line(&request, &done, &mut out)
                    } else {
                        toll_digest::print(&request, &done, &mut out)
                    };
                    printer_shared.is_busy.store(false, Ordering::Release);
                    if let Err(error) = printed {
                        printer_shared.set_error(error.context("cannot print the digest"));
                        break;
                    }
                }
                if let Some(mut tables) = tables
                    && let Err(error) = printer_shared.while_writing_tables(|| finish_tables(&mut tables))
                {
                    printer_shared.set_error(error);
                }
                let _ = end.send(());
            })
            .context("cannot start a thread to print with")?;
        Ok(Self { digests: Some(digests), ended, shared, source: how.source })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Bytes printed so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// True if the previous digest is printed: at most one waits at a time.
    pub fn is_ready(&self) -> bool {
        !self.shared.is_busy.load(Ordering::Acquire)
    }

    /// # Errors
    /// A digest could not be printed; returned once.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// # Errors
    /// The one before could not be printed.
    pub fn print(&mut self, done: DigestResult, time: GatherTime) -> anyhow::Result<()> {
        self.shared.is_busy.store(true, Ordering::Release);
        let sent = self.digests.as_ref().map(|digests| digests.send((Box::new(done), time)).is_ok());
        if sent == Some(true) {
            return Ok(());
        }
        self.check()?;
        bail!("the digest cannot be printed any more")
    }

    /// Prints the last one and waits until it is out, as long as somebody reads.
    ///
    /// # Errors
    /// It could not be printed.
    pub fn finish(&mut self, done: DigestResult, time: GatherTime) -> anyhow::Result<()> {
        self.print(done, time)?;
        self.digests = None;
        let (begun, mut printed) = (Instant::now(), self.bytes());
        loop {
            match self.ended.recv_timeout(READER_TIMEOUT) {
                Ok(()) => return self.check(),
                // A panic; its message is on standard error.
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that prints has ended by itself"),
                Err(RecvTimeoutError::Timeout) if self.bytes() > printed => printed = self.bytes(),
                Err(RecvTimeoutError::Timeout) if self.shared.is_writing_tables.load(Ordering::Acquire) => {
                    if begun.elapsed() > TABLES_TIMEOUT {
                        bail!(
                            "the last digests are in no table: they could not be written within {} s",
                            TABLES_TIMEOUT.as_secs()
                        );
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(anyhow!(
                        "cannot print the digest: no reader for {} s",
                        READER_TIMEOUT.as_secs()
                    ));
                }
            }
        }
    }
}

impl Shared {
    fn while_writing_tables<T>(&self, write: impl FnOnce() -> T) -> T {
        self.is_writing_tables.store(true, Ordering::Release);
        let done = write();
        self.is_writing_tables.store(false, Ordering::Release);
        done
    }

    fn set_error(&self, error: anyhow::Error) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// What cannot be written now is tried again with the next digest.
fn add_to_tables(tables: &mut TableWriter, done: &DigestResult, time: GatherTime) {
    let us = |ns: u64| i64::try_from(ns / 1_000).unwrap_or(i64::MAX);
    let stretch = Stretch {
        begin_us: us(time.begin_ns),
        width_us: us(time.end_ns.saturating_sub(time.begin_ns)),
        digest: &done.digest,
        lost: time.lost,
        sampled_share: done.sampled.totals().map_or(1.0, |totals| totals.share_mean),
    };
    let dropped = tables.dropped();
    if let Err(error) = tables.add(&stretch) {
        let dropped = tables.dropped() - dropped;
        tracing::warn!(
            "{error:#}: {} digests wait in memory{}",
            tables.pending(),
            if dropped > 0 { format!(", {dropped} were dropped") } else { String::new() }
        );
    }
}

fn finish_tables(tables: &mut TableWriter) -> anyhow::Result<()> {
    tables.flush().with_context(|| format!("the last {} digests are in no table", tables.pending()))?;
    match tables.dropped() {
        0 => Ok(()),
        dropped => bail!("{dropped} digests are in no table, since none could be written for long"),
    }
}

/// Counts what reaches the reader.
struct CountingWriter {
    out: BufWriter<Box<dyn Write + Send>>,
    shared: Arc<Shared>,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.shared.bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_tables::{Listed, Location, Lock, Source, Store};

    /// Tables whose server takes longer for each file than a reader of digests may.
    #[derive(Debug)]
    struct Slow(Arc<dyn Store>, AtomicU64);

    impl Store for Slow {
        fn location(&self) -> Location {
            self.0.location()
        }

        fn put(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
            if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
                // The digest has been printed before: a reader would be waited for twice as long.
                std::thread::sleep(READER_TIMEOUT * 9 / 4);
            }
            self.0.put(path, bytes)
        }

        fn get(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
            self.0.get(path)
        }

        fn list(&self, dir: &str) -> anyhow::Result<Listed> {
            self.0.list(dir)
        }

        fn list_all(&self, dir: &str) -> anyhow::Result<Vec<String>> {
            self.0.list_all(dir)
        }

        fn remove(&self, path: &str) -> anyhow::Result<()> {
            self.0.remove(path)
        }

        fn check_writable(&self) -> anyhow::Result<()> {
            self.0.check_writable()
        }

        fn lock(self: Arc<Self>) -> anyhow::Result<Box<dyn Lock>> {
            Arc::clone(&self.0).lock()
        }
    }

    #[test]
    fn tables_that_are_slow_are_waited_for_longer_than_a_reader() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Location::Directory(dir.path().into()).open().unwrap();
        let source = Source { host: "db1".into(), cluster: "shop".into(), source: "packets", id: [1; 16] };
        let every = Duration::from_secs(600);
        let slow: Arc<dyn Store> = Arc::new(Slow(tables, AtomicU64::new(0)));
        let how = PrintOptions {
            tables: Some(TableWriter::open(slow, source, every).unwrap()),
            ..PrintOptions::with_defaults(true, "tables".into(), Box::new(std::io::sink()))
        };
        let mut printer = DigestPrinter::start(how, true).unwrap();
        printer.finish(DigestResult::new(Settings::default()), GatherTime::default()).unwrap();
        assert!(dir.path().join("coverage").exists());
    }
}
