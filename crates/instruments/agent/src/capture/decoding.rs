//! Outputs that decode while capturing: to a query-event file, or to a digest.
//!
//! The tap's thread decodes. Other threads compress, print and write.

use super::chunk_queue::{ChunkQueue, ChunkSink};
use super::digest_printer::{DigestPrinter, GatherTime, PrintOptions};
use super::output::{CaptureOutput, ClassTotals, OutputCounters};
use super::tap::TapCounters;
use anyhow::Context;
use std::cmp::Reverse;
use std::time::Duration;
use toll_digest::classes::Class as DigestClass;
use toll_digest::{DigestResult, InputAccounting, InputSource, SamplingSink};
use toll_sys::clock;
use toll_wire::attribute::Attribute;
use toll_wire::decoder::{Config, Decoder, SocketChunk};
use toll_wire::event::{CommandKind, Event, SampleShare, Sink};
use toll_wire::pcap::Frame;
use toll_wire::queries::{BLOCK_SIZE, BlockCompressor, Encoder, MAX_BLOCK_SIZE};

/// Bytes of a chunk of query events: a block each.
pub const CHUNK_BYTES: usize = BLOCK_SIZE;

/// Query events, block after block, into chunks whose destination is a [`CompressingSink`].
pub struct QueryOutput {
    decoder: Decoder,
    writer: EventWriter,
    items: u64,
}

/// Where the decoder's events go. An item of the chunks is a packet or a call, whether an event came of it or not: so
/// what is lost on the way out is told in what the tap has counted.
struct EventWriter {
    encoder: Encoder,
    chunks: ChunkQueue,
    /// Of the packet or call that is being decoded.
    now_ns: u64,
    queries: u64,
    /// Items that were ended before their time, because their events filled a chunk.
    ended_early: u64,
}

impl QueryOutput {
    pub fn new(config: &Config, chunks: ChunkQueue) -> Self {
        // No other capture of this host began at the same microsecond.
        let encoder = Encoder::new(clock::wall_us());
        let writing = EventWriter { encoder, chunks, now_ns: 0, queries: 0, ended_early: 0 };
        Self { decoder: Decoder::new(config), writer: writing, items: 0 }
    }
}

fn is_query(event: &Event<'_>) -> bool {
    matches!(event.kind, CommandKind::Query | CommandKind::Execute)
}

impl Sink for EventWriter {
    #[inline]
    fn on_event(&mut self, event: &Event<'_>) {
        self.queries += u64::from(is_query(event));
        let block = self.chunks.buffer();
        self.encoder.encode_event(event, block);
        // A connection that ends may bring thousands at once.
        if block.len() >= CHUNK_BYTES {
            self.chunks.finish_item(self.now_ns);
            self.ended_early += 1;
        }
    }
}

impl EventWriter {
    #[inline]
    fn finish_item(&mut self) {
        match self.ended_early.checked_sub(1) {
            Some(left) => self.ended_early = left,
            None => self.chunks.finish_item(self.now_ns),
        }
    }
}

impl CaptureOutput for QueryOutput {
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        self.items += 1;
        self.writer.now_ns = frame.time_ns;
        self.decoder.decode_frame(frame, &mut self.writer);
        self.writer.finish_item();
        Ok(())
    }

    fn socket_chunk(&mut self, chunk: &SocketChunk<'_>) -> anyhow::Result<()> {
        self.items += 1;
        self.writer.now_ns = chunk.time_ns;
        self.decoder.decode_socket_chunk(chunk, &mut self.writer);
        self.writer.finish_item();
        Ok(())
    }

    fn tick(&mut self, now_ns: u64) -> anyhow::Result<()> {
        self.writer.chunks.flush(now_ns);
        self.writer.chunks.check()
    }

    fn sample_share(&mut self, share: &SampleShare) {
        self.writer.encoder.set_share(share);
    }

    fn counters(&self) -> OutputCounters {
        let mut account = OutputCounters::default();
        self.writer.chunks.add_counters(&mut account);
        OutputCounters { items: self.items, queries: Some(self.writer.queries), ..account }
    }

    fn finish(&mut self, now_ns: u64) -> anyhow::Result<()> {
        let Self { decoder, writer: writing, .. } = self;
        writing.now_ns = now_ns;
        decoder.finish(writing);
        if !writing.chunks.buffer().is_empty() {
            writing.chunks.finish_item(now_ns);
        }
        // Not a part of an item, so that no full queue can lose it: the account of all is a block by itself.
        let mut tail = Vec::new();
        writing.encoder.encode_accounting(&decoder.accounting(), &mut tail);
        writing.chunks.finish(&tail)
    }
}

/// Compresses blocks of query events on the writer's thread, and hands them on.
pub struct CompressingSink {
    packer: BlockCompressor,
    packed: Vec<u8>,
    inner: Box<dyn ChunkSink>,
    bytes_out: u64,
    /// Items that could not be compressed.
    lost: u64,
}

impl CompressingSink {
    /// # Errors
    /// There is no memory to compress with.
    pub fn new(inner: Box<dyn ChunkSink>) -> anyhow::Result<Self> {
        let packer = BlockCompressor::new().context("cannot begin to compress query events")?;
        Ok(Self { packer, packed: Vec::new(), inner, bytes_out: 0, lost: 0 })
    }

    fn pack(&mut self, plain: &[u8]) -> anyhow::Result<()> {
        self.packed.clear();
        self.packer.compress(plain, &mut self.packed).with_context(|| {
            format!("cannot compress {} bytes of query events (at most {MAX_BLOCK_SIZE})", plain.len())
        })
    }
}

impl ChunkSink for CompressingSink {
    fn begin(&mut self, header: &[u8]) -> anyhow::Result<()> {
        self.inner.begin(header)
    }

    fn write_chunk(&mut self, bytes: &[u8], items: u64, first_ns: u64, last_ns: u64) -> anyhow::Result<()> {
        // Packets of which no event came.
        if bytes.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.pack(bytes) {
            self.lost += items;
            return Err(error);
        }
        let lost = self.inner.lost_items();
        let taken = self.inner.write_chunk(&self.packed, items, first_ns, last_ns);
        if self.inner.lost_items() == lost {
            self.bytes_out += self.packed.len() as u64;
        }
        taken
    }

    fn lost_items(&self) -> (u64, u64) {
        let (disk, network) = self.inner.lost_items();
        (disk + self.lost, network)
    }

    fn bytes_out(&self) -> Option<u64> {
        Some(self.bytes_out)
    }

    fn loss_interval(&self) -> Option<(u64, u64)> {
        self.inner.loss_interval()
    }

    fn stall_timeout(&self) -> Duration {
        self.inner.stall_timeout()
    }

    fn finish(&mut self, tail: &[u8]) -> anyhow::Result<()> {
        if tail.is_empty() {
            return self.inner.finish(tail);
        }
        self.pack(tail)?;
        self.inner.finish(&self.packed)?;
        self.bytes_out += self.packed.len() as u64;
        Ok(())
    }
}

/// A digest of the captured queries, printed at the end, or a new one after each interval.
pub struct DigestOutput {
    decoder: Decoder,
    sink: DigestSink,
    printer: DigestPrinter,
    every_ns: Option<u64>,
    /// When the current stretch is over; 0: none has begun.
    until_ns: u64,
    items: u64,
    /// Bytes that earlier stretches saw.
    bytes_before: u64,
    /// Begin of the current stretch, and what the kernel has lost until now; see [`GatherTime`].
    begin_ns: u64,
    lost: u64,
    lost_before: u64,
}

struct DigestSink {
    result: DigestResult,
    queries: u64,
}

impl Sink for DigestSink {
    fn on_event(&mut self, event: &Event<'_>) {
        self.queries += u64::from(is_query(event));
        let DigestResult { digest, sampled, .. } = &mut self.result;
        SamplingSink { digest, sampled }.on_event(event);
    }
}

impl DigestOutput {
    /// `every`: a digest of each such stretch of time (on the clock: of a minute, at each full minute), then begun
    /// anew, so that it runs for weeks.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn new(config: &Config, every: Option<Duration>, how: PrintOptions) -> anyhow::Result<Self> {
        let every_ns = every.map(|every| u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1));
        let gathering = DigestSink { result: DigestResult::new(how.settings), queries: 0 };
        Ok(Self {
            decoder: Decoder::new(config),
            sink: gathering,
            printer: DigestPrinter::start(how, every.is_some())?,
            every_ns,
            until_ns: 0,
            items: 0,
            bytes_before: 0,
            begin_ns: clock::wall_us() * 1_000,
            lost: 0,
            lost_before: 0,
        })
    }

    /// Returns the digest of the interval that ends now, and starts another.
    fn take_digest(&mut self, now_ns: u64) -> (DigestResult, GatherTime) {
        let mut done = self.sink.result.restart();
        let bytes = self.decoder.accounting().bytes.frames;
        done.inputs = vec![InputSource {
            name: self.printer.source().to_owned(),
            r#type: "capture",
            bytes: bytes - self.bytes_before,
        }];
        self.bytes_before = bytes;
        let time = GatherTime { begin_ns: self.begin_ns, end_ns: now_ns, lost: self.lost - self.lost_before };
        (self.begin_ns, self.lost_before) = (now_ns, self.lost);
        (done, time)
    }
}

impl CaptureOutput for DigestOutput {
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        self.items += 1;
        self.decoder.decode_frame(frame, &mut self.sink);
        Ok(())
    }

    fn socket_chunk(&mut self, chunk: &SocketChunk<'_>) -> anyhow::Result<()> {
        self.items += 1;
        self.decoder.decode_socket_chunk(chunk, &mut self.sink);
        Ok(())
    }

    fn tick(&mut self, now_ns: u64) -> anyhow::Result<()> {
        self.printer.check()?;
        let Some(every_ns) = self.every_ns else { return Ok(()) };
        // The first time, or once the clock was set back.
        if self.until_ns == 0 || self.until_ns.saturating_sub(now_ns) > every_ns {
            self.until_ns = next_boundary(now_ns, every_ns);
        }
        // While nobody reads what was printed before, the stretch grows: nothing is lost, and nothing waits.
        if now_ns >= self.until_ns && self.printer.is_ready() {
            let (done, time) = self.take_digest(now_ns);
            self.printer.print(done, time)?;
            self.until_ns = next_boundary(now_ns, every_ns);
        }
        Ok(())
    }

    fn tap_counters(&mut self, seen: &TapCounters, _now_ns: u64) {
        self.lost = self.lost.max(seen.lost_kernel);
    }

    fn sample_share(&mut self, share: &SampleShare) {
        self.sink.result.sampled.set_share(share);
    }

    fn top_classes(&self, most: usize) -> Vec<ClassTotals> {
        let took_ns = |class: &DigestClass| class.measure(Attribute::QueryTime).map_or(0, |time| time.sum);
        let mut classes: Vec<&DigestClass> = self.sink.result.digest.classes().iter().collect();
        classes.sort_by_key(|class| Reverse(took_ns(class)));
        classes.truncate(most);
        let totals = |class: &DigestClass| ClassTotals {
            id: class.id.to_string(),
            fingerprint: String::from_utf8_lossy(&class.text).into_owned(),
            queries: class.count,
            seconds: took_ns(class) as f64 / 1e9,
        };
        classes.into_iter().map(totals).collect()
    }

    fn counters(&self) -> OutputCounters {
        OutputCounters {
            items: self.items,
            queries: Some(self.sink.queries),
            bytes_written: self.printer.bytes(),
            ..OutputCounters::default()
        }
    }

    fn finish(&mut self, now_ns: u64) -> anyhow::Result<()> {
        self.decoder.finish(&mut self.sink);
        let (mut done, time) = self.take_digest(now_ns);
        // Of the whole capture: of a stretch of it, commands are still under way.
        done.accounting = InputAccounting::from_counts(self.decoder.accounting());
        self.printer.finish(done, time)
    }
}

/// The next full stretch of the clock.
fn next_boundary(now_ns: u64, every_ns: u64) -> u64 {
    (now_ns / every_ns).saturating_add(1).saturating_mul(every_ns)
}
