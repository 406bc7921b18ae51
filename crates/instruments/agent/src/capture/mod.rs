//! Low-overhead capture of a host's queries.
//!
//! A tap (packets, or the server's sockets) passes its data to an output. The output passes bytes in chunks
//! to a writer thread. Never measures the cost of this: variants of scenarios do.

pub mod budget;
pub mod chunks;
pub mod decoded;
mod device;
pub mod files;
mod ledger;
pub mod metrics;
pub mod output;
mod packets;
pub mod printing;
mod sockets;
mod spoken;
pub mod stream;
pub mod tap;

pub use ledger::Ledger;

use crate::rotation::Rotate;
use anyhow::{Context, bail};
use budget::Budgeted;
use chunks::{Chunks, Destination};
use decoded::{CHUNK_BYTES, Digesting, Packing, Queries};
use files::{Asked, Files};
use metrics::{Metrics, Offer};
use output::Output;
use packets::{Packets, Statistics};
use printing::How;
use sockets::{SocketOptions, Sockets};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stream::{Fill, Key, Stream};
use tap::{Seen, Tap};
use toll_sys::cancel::CancelToken;
use toll_sys::clock;
use toll_sys::named_choice::NamedChoice;
use toll_taps::{Answers, Filter, WHOLE, drop_privileges};
use toll_wire::decoder::Config;

/// Bytes that are handed to the writer at once: enough that calls and seeks no longer count.
const CHUNK: usize = 1 << 20;
/// Chunks that may wait for a writer that is held up: as much again as the ring, by default.
const QUEUE: usize = 64;
/// Kept of one call: what a digest keeps of a statement, and of an answer its kind, error and affected rows.
const WHOLE_CALL: usize = 1 << 20;
const HEAD_OF_ANSWER: u32 = 128;
/// Packets and beats: ten times a second at least.
const WAIT: Duration = Duration::from_millis(100);
/// In the metrics: each is a time series of its own, and their number must not grow with the application.
const CLASSES_TOLD: usize = 10;
const SECOND: Duration = Duration::from_secs(1);
/// The kernel hands over what is in an open block within a fifth of a second.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Options of a capture.
#[derive(Debug, Clone)]
pub struct Options {
    pub source: Source,
    /// A name, or `any`.
    pub device: String,
    pub ports: Vec<u16>,
    pub server_pid: Option<u32>,
    pub goal: Goal,
    /// Bytes kept of each packet that a server answers; absent: what is of use of each kind of answer.
    pub snap_server: Option<u32>,
    pub buffer_bytes: usize,
    pub rotate: Rotate,
    pub keep: Option<usize>,
    pub overwrite: bool,
    /// Of one core.
    pub cpu_share: Option<f64>,
    pub duration: Option<Duration>,
    pub user: Option<String>,
    /// A digest of each stretch of this length.
    pub every: Option<Duration>,
    pub key: Option<PathBuf>,
    /// Streams without a key.
    pub plain: bool,
    pub metrics: Option<String>,
    pub status: bool,
    pub json: bool,
}

/// Kind of tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Packets of a network device
    Packets,
    /// What the server reads from its sockets and writes to them, Unix sockets too
    Sockets,
}

impl NamedChoice for Source {
    const CHOICES: &'static [(&'static str, Self, &'static str)] = &[
        ("packets", Self::Packets, "Packets of a network device"),
        (
            "sockets",
            Self::Sockets,
            "What the server reads from its sockets and writes to them, Unix sockets too",
        ),
    ];
}

/// Kind of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    Packets(PathBuf),
    Queries(PathBuf),
    Digest,
    Stream(String),
}

/// The program around a capture: signals, and whoever reads what is found.
pub trait Front {
    /// Called once, when the tap is open and the rights to open it are given up. What it returns is looked at from then on.
    ///
    /// # Errors
    /// There are no signals, or no threads, to be had: the capture ends.
    fn begin(&mut self) -> anyhow::Result<Signals>;

    /// The counters so far; `ended`: those of the whole capture, which nothing follows. Must not block before that: the
    /// kernel's ring is not read meanwhile.
    fn show(&mut self, ledger: &Ledger, ended: bool);

    /// Where digests are printed, by a thread of their own.
    fn digests(&mut self) -> Box<dyn Write + Send>;

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
pub fn capture(options: &Options, front: &mut dyn Front) -> anyhow::Result<()> {
    refuse_what_is_not_here(options)?;
    let offer = options.metrics.as_deref().map(Offer::at).transpose()?;
    // The user who goes on may have no right to read it.
    let key = stream_key(options)?;
    // Before anything comes: to reach somebody takes a while, and nothing is taken from the kernel meanwhile.
    let stream = match &options.goal {
        Goal::Stream(to) => Some(Stream::connect(to, &key)?),
        _ => None,
    };
    let (mut tap, link_number) = open_tap(options)?;
    drop_privileges(options.user.as_deref())?;
    let asked = front.begin()?;
    let metrics = offer.map(Metrics::answer).transpose()?;
    let (output, fill) = open_output(options, link_number, stream, front)?;
    let mut output = match options.cpu_share {
        Some(share) => Box::new(Budgeted::new(output, share, &options.ports)),
        None => output,
    };
    if let Some(metrics) = &metrics {
        tracing::info!("metrics at {}", metrics.address());
    }
    tracing::info!("listening on {}", listening(options));
    let begun = Instant::now();
    let (tap, output) = (&mut *tap, &mut *output);
    let mut capture = Capture { tap, output, front, options, metrics, fill, begun, seen: Seen::default() };
    let ended = capture.go_on_until(&asked);
    let drained = capture.drain();
    let finished = capture.output.finish(wall_ns());
    capture.show(true);
    ended.and(drained).and(finished)
}

fn refuse_what_is_not_here(options: &Options) -> anyhow::Result<()> {
    if options.source == Source::Sockets && matches!(options.goal, Goal::Packets(_)) {
        bail!(
            "a file of packets takes packets, and --tap sockets sees none: write --queries FILE or --digest"
        );
    }
    Ok(())
}

/// The tap, and for a file of packets the number of what their first header is.
fn open_tap(options: &Options) -> anyhow::Result<(Box<dyn Tap>, u16)> {
    match options.source {
        Source::Packets => {
            let answers = options.snap_server.map_or(Answers::ByKind, Answers::Bytes);
            let filter = Filter { ports: options.ports.clone(), answers };
            let tap = device::Packets::open(&options.device, &filter, options.buffer_bytes)?;
            let link_number = tap.link_number();
            Ok((Box::new(tap), link_number))
        }
        Source::Sockets => {
            let tap = Sockets::open(&SocketOptions {
                pid: options.server_pid,
                ports: options.ports.clone(),
                keep_client: WHOLE_CALL,
                keep_server: options.snap_server.unwrap_or(HEAD_OF_ANSWER) as usize,
                buffer_bytes: options.buffer_bytes,
            })?;
            tracing::info!("{}", tap.describe());
            Ok((Box::new(tap), 0))
        }
    }
}

fn stream_key(options: &Options) -> anyhow::Result<Key> {
    if let Goal::Stream(to) = &options.goal {
        let port = to.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if let Some(port) = port.filter(|port| options.ports.contains(port)) {
            bail!(
                "the stream to {to} would be captured too, and what is captured of it, without end: port {port} is \
                 one of --port; have the receiver listen on another"
            );
        }
    }
    match (&options.goal, &options.key) {
        (Goal::Stream(_), Some(path)) => Key::read(path),
        (Goal::Stream(to), None) if !options.plain => bail!(
            "streaming to {to} takes --key FILE, the same as the receiver's (`toll receive --new-key FILE` makes one), or \
             --plain where everybody on the network may read the queries"
        ),
        _ => Ok(Key::Plain),
    }
}

/// The output; of a stream also how full its memory is.
fn open_output(
    options: &Options,
    link_number: u16,
    stream: Option<Stream>,
    front: &mut dyn Front,
) -> anyhow::Result<(Box<dyn Output>, Option<Fill>)> {
    match &options.goal {
        Goal::Packets(path) => {
            let statistics = Statistics::begin(wall_ns());
            let tail = statistics.clone();
            let files = Files::new(asked(options, path, front)?, Box::new(move || tail.tail()))?;
            let header = packets::header(&options.device, link_number, WHOLE);
            let chunks = Chunks::start(Box::new(files), &header, CHUNK, QUEUE)?;
            Ok((Box::new(Packets::new(chunks, statistics)), None))
        }
        Goal::Queries(path) => {
            let files = Files::new(asked(options, path, front)?, Box::new(Vec::new))?;
            Ok((queries(options, Box::new(files))?, None))
        }
        Goal::Digest => {
            let how = How::usual(options.json, listening(options), front.digests());
            Ok((Box::new(Digesting::new(&decoding(options), options.every, how)?), None))
        }
        // What sockets give has no packets: it goes as queries.
        Goal::Stream(to) => {
            let stream = stream.with_context(|| format!("{to} was not reached: a fault of toll's"))?;
            let fill = stream.fill();
            if options.source == Source::Sockets {
                return Ok((queries(options, Box::new(stream))?, Some(fill)));
            }
            let header = packets::header(&options.device, link_number, WHOLE);
            let chunks = Chunks::start(Box::new(stream), &header, CHUNK, QUEUE)?;
            Ok((Box::new(Packets::new(chunks, Statistics::begin(wall_ns()))), Some(fill)))
        }
    }
}

/// Its blocks stand by themselves: neither files nor streams need a head.
fn queries(options: &Options, destination: Box<dyn Destination>) -> anyhow::Result<Box<dyn Output>> {
    let chunks = Chunks::start(Box::new(Packing::new(destination)?), &[], CHUNK_BYTES, QUEUE)?;
    Ok(Box::new(Queries::new(&decoding(options), chunks)))
}

fn decoding(options: &Options) -> Config {
    Config { ports: options.ports.clone(), ..Config::default() }
}

fn asked(options: &Options, path: &Path, front: &mut dyn Front) -> anyhow::Result<Asked> {
    let open = (path.as_os_str() == "-").then(|| front.output()).transpose();
    Ok(Asked {
        path: path.to_owned(),
        open: open.context("cannot write to standard output")?,
        rotate: options.rotate,
        keep: options.keep,
        overwrite: options.overwrite,
    })
}

fn listening(options: &Options) -> String {
    match options.source {
        Source::Packets => {
            let ports: Vec<String> = options.ports.iter().map(u16::to_string).collect();
            let s = if ports.len() == 1 { "" } else { "s" };
            let mib = options.buffer_bytes >> 20;
            format!("{}, port{s} {}, with a ring of {mib} MiB", options.device, ports.join(", "))
        }
        Source::Sockets => "the server's sockets".into(),
    }
}

fn wall_ns() -> u64 {
    clock::wall_us() * 1000
}

/// A capture that is going on.
struct Capture<'a> {
    tap: &'a mut dyn Tap,
    output: &'a mut dyn Output,
    front: &'a mut dyn Front,
    options: &'a Options,
    metrics: Option<Metrics>,
    /// Of a stream.
    fill: Option<Fill>,
    begun: Instant,
    seen: Seen,
}

impl Capture<'_> {
    fn go_on_until(&mut self, asked: &Signals) -> anyhow::Result<()> {
        let mut counted = self.begun;
        while !asked.to_end() && self.options.duration.is_none_or(|most| self.begun.elapsed() < most) {
            let wait = self.wait();
            self.tap.take(wait, self.output)?;
            self.output.beat(wall_ns())?;
            if counted.elapsed() >= SECOND {
                counted = Instant::now();
                self.count()?;
                if self.options.status {
                    self.show(false);
                }
            }
            if asked.to_tell() {
                self.count()?;
                tracing::info!("{}", self.ledger(false).text());
            }
        }
        Ok(())
    }

    /// No longer than what is left of the time.
    fn wait(&self) -> Duration {
        match self.options.duration {
            Some(most) => most.saturating_sub(self.begun.elapsed()).clamp(Duration::from_millis(1), WAIT),
            None => WAIT,
        }
    }

    fn count(&mut self) -> anyhow::Result<()> {
        self.seen = self.tap.counters()?;
        self.output.seen(&self.seen, wall_ns());
        if let Some(metrics) = &self.metrics {
            let mut account = self.output.account();
            if let Some((first_ns, last_ns)) = self.tap.lost_between() {
                account.note_loss(first_ns, last_ns);
            }
            metrics.say(&self.seen, &account);
            if let Some((used, room)) = self.fill.as_ref().map(Fill::bytes) {
                metrics.say_buffer(used, room);
            }
            metrics.say_classes(self.output.costliest(CLASSES_TOLD));
        }
        Ok(())
    }

    /// What came until now, and nothing more. A device that is gone has left behind what came before.
    fn drain(&mut self) -> anyhow::Result<()> {
        self.tap.close()?;
        let begun = Instant::now();
        let mut ended = Ok(());
        loop {
            let taken = self.tap.take(WAIT / 10, self.output);
            ended = ended.and(taken);
            self.count()?;
            let Seen { passed, taken, lost_kernel } = self.seen;
            if passed <= taken + lost_kernel || begun.elapsed() >= LAST_WORDS {
                return ended;
            }
        }
    }

    fn ledger(&self, ended: bool) -> Ledger {
        let of = match self.options.source {
            Source::Packets => "packet",
            Source::Sockets => "call",
        };
        let elapsed_s = self.begun.elapsed().as_secs_f64();
        let account = self.output.account();
        Ledger::new(&self.seen, &account, self.tap.lost_between(), of, elapsed_s, ended)
    }

    fn show(&mut self, ended: bool) {
        let ledger = self.ledger(ended);
        self.front.show(&ledger, ended);
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
    fn to_end(&self) -> bool {
        self.end.is_cancelled()
    }

    fn to_tell(&self) -> bool {
        self.status.swap(false, Ordering::Relaxed)
    }
}
