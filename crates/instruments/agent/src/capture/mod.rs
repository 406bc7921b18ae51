//! Low-overhead capture of a host's queries.
//!
//! A tap (packets, or the server's sockets) passes its data to an output. The output passes bytes in chunks
//! to a writer thread. Never measures the cost of this: variants of scenarios do.

mod accounting;
pub mod budget;
pub mod chunk_queue;
pub mod decoding;
mod device_tap;
pub mod digest_printer;
pub mod files;
pub mod metrics;
mod options;
pub mod otlp;
pub mod output;
mod packet_output;
mod server_tap;
mod socket_chunk;
pub mod stream;
mod tables;
pub mod tap;

pub use accounting::CaptureAccounting;
pub use options::{CaptureOptions, OutputKind, TapKind};

use crate::table_options::TableOptions;
use anyhow::{Context, bail};
use budget::BudgetedOutput;
use chunk_queue::{ChunkQueue, ChunkSink};
use decoding::{CHUNK_BYTES, CompressingSink, DigestOutput, QueryOutput};
use digest_printer::PrintOptions;
use files::{FileOptions, FileSink};
use metrics::MetricsServer;
use otlp::OtlpExporter;
use output::CaptureOutput;
use packet_output::{PacketOutput, Statistics};
use server_tap::{ServerTap, ServerTapOptions};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stream::{BufferFill, SenderKey, StreamSink};
use tap::{Tap, TapCounters};
use toll_sys::cancel::CancelToken;
use toll_sys::clock;
use toll_sys::prometheus::MetricsListener;
use toll_taps::{MAX_SNAP_LEN, PacketFilter, ResponseSnap, WritePlaces, drop_privileges, places_of};
use toll_wire::decoder::Config;

/// Bytes that are handed to the writer at once: enough that calls and seeks no longer count.
const PACKET_CHUNK_BYTES: usize = 1 << 20;
/// Chunks that may wait for a writer that is held up: as much again as the ring, by default.
const QUEUE_CHUNKS: usize = 64;
/// Kept of one call: what a digest keeps of a statement, and of an answer its kind, error and affected rows.
const CLIENT_CALL_BYTES: usize = 1 << 20;
const RESPONSE_HEAD_BYTES: u32 = 128;
/// Packets and beats: ten times a second at least.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// In the metrics: each is a time series of its own, and their number must not grow with the application.
const METRIC_CLASSES: usize = 10;
const COUNTER_INTERVAL: Duration = Duration::from_secs(1);
/// The kernel hands over what is in an open block within a fifth of a second.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The program around a capture: its signals, and the reader of its output.
pub trait CaptureFrontend {
    /// Called once, when the tap is open and the rights to open it are given up. What it returns is looked at from then on.
    ///
    /// # Errors
    /// There are no signals, or no threads, to be had: the capture ends.
    fn install_signals(&mut self) -> anyhow::Result<Signals>;

    /// The counters so far; `ended`: those of the whole capture, which nothing follows. Must not block before that: the
    /// kernel's ring is not read meanwhile.
    fn show_accounting(&mut self, ledger: &CaptureAccounting, ended: bool);

    /// Where digests are printed, by a thread of their own.
    fn digest_writer(&mut self) -> Box<dyn Write + Send>;

    /// The place that the name `-` stands for.
    ///
    /// # Errors
    /// It is closed.
    fn output(&mut self) -> std::io::Result<File>;
}

/// Captures until a signal, the end of its time, or a failure. Then prints the accounting.
///
/// # Errors
/// The capture could not start, or lost data for a reason that the user must know.
pub fn capture(options: &CaptureOptions, front: &mut dyn CaptureFrontend) -> anyhow::Result<()> {
    check_options(options)?;
    let offer = options.metrics.as_deref().map(MetricsListener::bind).transpose()?;
    // The user who goes on may have no right to read it.
    let key = stream_key(options)?;
    // Before anything comes: to reach somebody takes a while, and nothing is taken from the kernel meanwhile.
    let stream = match &options.output {
        OutputKind::Stream(to) => Some(StreamSink::connect(to, &key)?),
        _ => None,
    };
    let (mut tap, link_number) = open_tap(options)?;
    let table_store = options.tables.as_ref().map(TableOptions::open_store).transpose()?;
    if !drop_privileges(options.user.as_deref(), &places_written(options))? {
        tracing::warn!(
            "this capture goes on as root, and the kernel has no Landlock (5.13) to bound where it writes: \
             name another user with --user"
        );
    }
    let signals = front.install_signals()?;
    let metrics = offer.map(MetricsServer::start).transpose()?;
    let instance = describe_instance(options);
    let otlp = options.otlp.as_ref().map(|to| OtlpExporter::start(to, &instance)).transpose()?;
    let opened = Opened { link_number, stream, table_store };
    let (output, fill) = open_output(options, opened, otlp.as_ref(), front)?;
    let mut output = match options.cpu_share {
        Some(share) => Box::new(BudgetedOutput::new(output, share, &options.ports)),
        None => output,
    };
    if let Some(metrics) = &metrics {
        tracing::info!("metrics at {}", metrics.address());
    }
    tracing::info!("listening on {}", describe_tap(options));
    let begun = Instant::now();
    let (tap, output) = (&mut *tap, &mut *output);
    let mut capture = Capture {
        tap,
        output,
        front,
        options,
        metrics,
        otlp,
        buffer_fill: fill,
        begun,
        tap_counters: TapCounters::default(),
    };
    let ended = capture.run_until(&signals);
    let drained = capture.drain();
    let finished = capture.output.finish(wall_ns());
    capture.otlp.iter().for_each(OtlpExporter::finish);
    capture.show(true);
    ended.and(drained).and(finished)
}

fn check_options(options: &CaptureOptions) -> anyhow::Result<()> {
    if options.source == TapKind::Sockets && matches!(options.output, OutputKind::Packets(_)) {
        bail!("-w needs --tap packets; with --tap sockets use --queries FILE or --digest");
    }
    Ok(())
}

/// Where files are made or written once privileges are dropped.
fn places_written(options: &CaptureOptions) -> WritePlaces {
    let files = match &options.output {
        OutputKind::Packets(path) | OutputKind::Queries(path) if path.as_os_str() != "-" => places_of(path),
        _ => Vec::new(),
    };
    WritePlaces { files, trees: options.tables.iter().filter_map(TableOptions::tree).collect() }
}

/// The tap, and for a file of packets the number of what their first header is.
fn open_tap(options: &CaptureOptions) -> anyhow::Result<(Box<dyn Tap>, u16)> {
    match options.source {
        TapKind::Packets => {
            let answers = options.snap_server.map_or(ResponseSnap::ByKind, ResponseSnap::Bytes);
            let filter = PacketFilter { ports: options.ports.clone(), responses: answers };
            let tap = device_tap::DeviceTap::open(&options.device, &filter, options.buffer_bytes)?;
            let link_number = tap.link_number();
            Ok((Box::new(tap), link_number))
        }
        TapKind::Sockets => {
            let tap = ServerTap::open(&ServerTapOptions {
                pid: options.server_pid,
                ports: options.ports.clone(),
                keep_client: CLIENT_CALL_BYTES,
                keep_server: options.snap_server.unwrap_or(RESPONSE_HEAD_BYTES) as usize,
                buffer_bytes: options.buffer_bytes,
                force_return_probes: options.force_return_probes,
            })?;
            tracing::info!("{}", tap.describe());
            Ok((Box::new(tap), 0))
        }
    }
}

fn stream_key(options: &CaptureOptions) -> anyhow::Result<SenderKey> {
    if let OutputKind::Stream(to) = &options.output {
        let port = to.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if let Some(port) = port.filter(|port| options.ports.contains(port)) {
            bail!(
                "the stream to {to} would be captured too, and what is captured of it, without end: port {port} is \
                 one of --port; have the receiver listen on another"
            );
        }
    }
    match (&options.output, &options.key) {
        (OutputKind::Stream(_), Some(path)) => SenderKey::read(path),
        (OutputKind::Stream(to), None) if !options.plain => bail!(
            "streaming to {to} takes --key FILE (`toll receive keygen FILE --receiver KEY` makes one at the receiver), or \
             --plain where everybody on the network may read the queries"
        ),
        _ => Ok(SenderKey::Plain),
    }
}

/// What is opened with the rights that a capture begins with.
struct Opened {
    link_number: u16,
    stream: Option<StreamSink>,
    table_store: Option<Arc<dyn toll_tables::Store>>,
}

/// The output; of a stream also how full its memory is.
fn open_output(
    options: &CaptureOptions,
    opened: Opened,
    otlp: Option<&OtlpExporter>,
    front: &mut dyn CaptureFrontend,
) -> anyhow::Result<(Box<dyn CaptureOutput>, Option<BufferFill>)> {
    let Opened { link_number, stream, table_store } = opened;
    match &options.output {
        OutputKind::Packets(path) => {
            let statistics = Statistics::begin(wall_ns());
            let tail = statistics.clone();
            let files = FileSink::new(file_options(options, path, front)?, Box::new(move || tail.trailer()))?;
            let header = packet_output::header(&options.device, link_number, MAX_SNAP_LEN);
            let chunks = ChunkQueue::start(Box::new(files), &header, PACKET_CHUNK_BYTES, QUEUE_CHUNKS)?;
            Ok((Box::new(PacketOutput::new(chunks, statistics)), None))
        }
        OutputKind::Queries(path) => {
            let files = FileSink::new(file_options(options, path, front)?, Box::new(Vec::new))?;
            Ok((open_query_output(options, Box::new(files))?, None))
        }
        OutputKind::Digest => {
            let mut how =
                PrintOptions::with_defaults(options.json, describe_tap(options), front.digest_writer());
            how.settings.group_by = options.group_by;
            how.settings.times_alone = options.times_alone;
            how.otlp = otlp.map(|exporter| exporter.feed(wall_ns()));
            how.limit = options.limit;
            if let (Some(store), Some(to)) = (table_store, &options.tables) {
                how.tables = Some(tables::open_tables(store, to, options.source)?);
            }
            Ok((Box::new(DigestOutput::new(&decoder_config(options), options.digest_interval, how)?), None))
        }
        // What sockets give has no packets: it goes as queries.
        OutputKind::Stream(to) => {
            let stream = stream.with_context(|| format!("{to} was not reached: a fault of toll's"))?;
            let fill = stream.buffer_fill();
            if options.source == TapKind::Sockets || options.stream_queries {
                return Ok((open_query_output(options, Box::new(stream))?, Some(fill)));
            }
            let header = packet_output::header(&options.device, link_number, MAX_SNAP_LEN);
            let chunks = ChunkQueue::start(Box::new(stream), &header, PACKET_CHUNK_BYTES, QUEUE_CHUNKS)?;
            Ok((Box::new(PacketOutput::new(chunks, Statistics::begin(wall_ns()))), Some(fill)))
        }
    }
}

/// Its blocks stand by themselves: neither files nor streams need a head.
fn open_query_output(
    options: &CaptureOptions,
    destination: Box<dyn ChunkSink>,
) -> anyhow::Result<Box<dyn CaptureOutput>> {
    let chunks =
        ChunkQueue::start(Box::new(CompressingSink::new(destination)?), &[], CHUNK_BYTES, QUEUE_CHUNKS)?;
    Ok(Box::new(QueryOutput::new(&decoder_config(options), chunks)))
}

fn decoder_config(options: &CaptureOptions) -> Config {
    Config { ports: options.ports.clone(), ..Config::default() }
}

fn file_options(
    options: &CaptureOptions,
    path: &Path,
    front: &mut dyn CaptureFrontend,
) -> anyhow::Result<FileOptions> {
    let open = (path.as_os_str() == "-").then(|| front.output()).transpose();
    Ok(FileOptions {
        path: path.to_owned(),
        open: open.context("cannot write to standard output")?,
        rotation: options.rotation,
        keep: options.keep,
        overwrite: options.overwrite,
    })
}

fn describe_tap(options: &CaptureOptions) -> String {
    match options.source {
        TapKind::Packets => {
            let ports: Vec<String> = options.ports.iter().map(u16::to_string).collect();
            let s = if ports.len() == 1 { "" } else { "s" };
            let mib = options.buffer_bytes >> 20;
            format!("{}, port{s} {}, with a ring of {mib} MiB", options.device, ports.join(", "))
        }
        TapKind::Sockets => "the server's sockets".into(),
    }
}

/// What tells this capture from others of the host: `3306`, `3306,3307`, `sockets`.
fn describe_instance(options: &CaptureOptions) -> String {
    let ports: Vec<String> = options.ports.iter().map(u16::to_string).collect();
    if ports.is_empty() { "sockets".into() } else { ports.join(",") }
}

fn wall_ns() -> u64 {
    clock::wall_us() * 1000
}

/// A capture that is going on.
struct Capture<'a> {
    tap: &'a mut dyn Tap,
    output: &'a mut dyn CaptureOutput,
    front: &'a mut dyn CaptureFrontend,
    options: &'a CaptureOptions,
    metrics: Option<MetricsServer>,
    otlp: Option<OtlpExporter>,
    /// Of a stream.
    buffer_fill: Option<BufferFill>,
    begun: Instant,
    tap_counters: TapCounters,
}

impl Capture<'_> {
    fn run_until(&mut self, signals: &Signals) -> anyhow::Result<()> {
        let mut counted = self.begun;
        while !signals.is_ended() && self.options.duration.is_none_or(|most| self.begun.elapsed() < most) {
            let wait = self.poll_timeout();
            self.tap.poll(wait, self.output)?;
            self.output.tick(wall_ns())?;
            if counted.elapsed() >= COUNTER_INTERVAL {
                counted = Instant::now();
                self.update_counters()?;
                if self.options.status {
                    self.show(false);
                }
            }
            if signals.take_status_request() {
                self.update_counters()?;
                tracing::info!("{}", self.accounting(false).render_text());
            }
        }
        Ok(())
    }

    /// No longer than what is left of the time.
    fn poll_timeout(&self) -> Duration {
        match self.options.duration {
            Some(most) => {
                most.saturating_sub(self.begun.elapsed()).clamp(Duration::from_millis(1), POLL_TIMEOUT)
            }
            None => POLL_TIMEOUT,
        }
    }

    fn update_counters(&mut self) -> anyhow::Result<()> {
        self.tap_counters = self.tap.counters()?;
        self.output.tap_counters(&self.tap_counters, wall_ns());
        if let Some(otlp) = &self.otlp {
            otlp.set_counters(self.tap_counters, self.output.counters());
        }
        if let Some(metrics) = &self.metrics {
            metrics.set_export(self.otlp.as_ref().map(OtlpExporter::export_counters));
            let mut account = self.output.counters();
            if let Some((first_ns, last_ns)) = self.tap.loss_interval() {
                account.note_loss(first_ns, last_ns);
            }
            metrics.set_counters(&self.tap_counters, &account);
            if let Some((used, room)) = self.buffer_fill.as_ref().map(BufferFill::bytes) {
                metrics.set_buffer(used, room);
            }
            metrics.set_classes(self.output.top_classes(METRIC_CLASSES));
        }
        Ok(())
    }

    /// What came until now, and nothing more. A device that is gone has left behind what came before.
    fn drain(&mut self) -> anyhow::Result<()> {
        self.tap.close()?;
        let begun = Instant::now();
        let mut ended = Ok(());
        loop {
            let taken = self.tap.poll(POLL_TIMEOUT / 10, self.output);
            ended = ended.and(taken);
            self.update_counters()?;
            let TapCounters { passed, delivered: taken, lost_kernel } = self.tap_counters;
            if passed <= taken + lost_kernel || begun.elapsed() >= DRAIN_TIMEOUT {
                return ended;
            }
        }
    }

    fn accounting(&self, ended: bool) -> CaptureAccounting {
        let of = match self.options.source {
            TapKind::Packets => "packet",
            TapKind::Sockets => "call",
        };
        let elapsed_s = self.begun.elapsed().as_secs_f64();
        let account = self.output.counters();
        let lost = self.tap.loss_interval();
        CaptureAccounting {
            otlp: self.otlp.as_ref().map(OtlpExporter::export_counters),
            ..CaptureAccounting::new(&self.tap_counters, &account, lost, of, elapsed_s, ended)
        }
    }

    fn show(&mut self, ended: bool) {
        let ledger = self.accounting(ended);
        self.front.show_accounting(&ledger, ended);
    }
}

/// What signals have asked.
#[derive(Debug, Default)]
pub struct Signals {
    pub end: CancelToken,
    /// How far it is; taken back once that is said.
    pub status: Arc<AtomicBool>,
}

impl Signals {
    fn is_ended(&self) -> bool {
        self.end.is_cancelled()
    }

    fn take_status_request(&self) -> bool {
        self.status.swap(false, Ordering::Relaxed)
    }
}
