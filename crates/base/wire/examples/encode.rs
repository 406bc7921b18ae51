//! Benchmark of the query-event encoder on a capture. Usage: `encode FILE [PORT,...] [-o OUT]`.
//!
//! The capture is first read into memory. Decoding, encoding and compressing are timed separately, each over
//! the whole capture.

use std::time::Instant;
use toll_wire::decoder::{CaptureDecoder, Config};
use toll_wire::event::{Event, Sink};
use toll_wire::pcap::Format;
use toll_wire::queries::{BLOCK_SIZE, BlockCompressor, Encoder, Reader};

/// Looks at events and forgets them.
#[derive(Default)]
struct EventCounter(u64);

impl Sink for EventCounter {
    fn on_event(&mut self, _event: &Event<'_>) {
        self.0 += 1;
    }
}

struct BlockSink {
    encoder: Encoder,
    current: Vec<u8>,
    whole: Vec<Vec<u8>>,
}

impl Sink for BlockSink {
    fn on_event(&mut self, event: &Event<'_>) {
        self.encoder.encode_event(event, &mut self.current);
        if self.current.len() >= BLOCK_SIZE {
            self.whole.push(std::mem::replace(&mut self.current, Vec::with_capacity(2 * BLOCK_SIZE)));
        }
    }
}

fn decode(
    capture: &[u8],
    config: &Config,
    sink: &mut dyn Sink,
) -> Result<(u64, f64), Box<dyn std::error::Error>> {
    let format = Format::detect(capture).ok_or("neither pcap nor pcapng nor tcpdump text")?;
    let begun = Instant::now();
    let mut decoder = CaptureDecoder::new(format, config);
    for chunk in capture.chunks(1 << 20) {
        decoder.feed(chunk, sink)?;
    }
    decoder.finish(sink);
    Ok((decoder.accounting().frames.read, begun.elapsed().as_secs_f64()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let capture = std::fs::read(arguments.next().ok_or("which file?")?)?;
    let mut config = Config::default();
    let mut out = None;
    while let Some(argument) = arguments.next() {
        if argument == "-o" {
            out = arguments.next();
        } else {
            config.ports = argument.split(',').map(str::parse).collect::<Result<_, _>>()?;
        }
    }
    let mut count = EventCounter::default();
    let (frames, decoding_s) = decode(&capture, &config, &mut count)?;
    let mut blocks = BlockSink {
        encoder: Encoder::new(1),
        current: Vec::with_capacity(2 * BLOCK_SIZE),
        whole: Vec::new(),
    };
    let (_, encoding_s) = decode(&capture, &config, &mut blocks)?;
    blocks.whole.push(blocks.current);
    let plain: usize = blocks.whole.iter().map(Vec::len).sum();
    let mut packer = BlockCompressor::new()?;
    let mut file = Vec::with_capacity(plain);
    let begun = Instant::now();
    for block in &blocks.whole {
        packer.compress(block, &mut file)?;
    }
    let packing_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let mut reader = Reader::new();
    let mut again = EventCounter::default();
    reader.feed(&file, &mut again);
    reader.finish();
    let reading_s = begun.elapsed().as_secs_f64();
    assert_eq!(again.0, count.0, "an event is missing");
    let each = |seconds: f64| seconds * 1e9 / count.0.max(1) as f64;
    println!("{frames} frames, {} events, {} bytes of capture", count.0, capture.len());
    println!("decode   {:6.1} ns an event", each(decoding_s));
    println!("encode   {:6.1} ns an event, {plain} bytes plain", each(encoding_s - decoding_s));
    println!("compress {:6.1} ns an event, {} bytes in the file", each(packing_s), file.len());
    println!("read     {:6.1} ns an event", each(reading_s));
    if let Some(out) = out {
        std::fs::write(out, &file)?;
    }
    Ok(())
}
