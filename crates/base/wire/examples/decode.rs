//! Benchmark of the capture decoder, with a summary of the events. Usage: `decode FILE [PORT,...]
//! [--events]`.
//!
//! The file is read in chunks of 1 MiB, so the figure includes reading from the page cache.

use std::io::Read;
use std::time::Instant;
use toll_wire::decoder::{CaptureDecoder, Config};
use toll_wire::event::{Event, Sink};
use toll_wire::pcap::Format;

struct EventCounter {
    events: u64,
    text_bytes: u64,
    print: bool,
}

impl Sink for EventCounter {
    fn on_event(&mut self, event: &Event<'_>) {
        self.events += 1;
        self.text_bytes += (event.text.len() + event.params.len()) as u64;
        if self.print {
            println!(
                "{:?} {:?} {} [{}] {}",
                event.kind,
                event.query_ns,
                String::from_utf8_lossy(event.text),
                String::from_utf8_lossy(event.params),
                if event.tainted { "tainted" } else { "" }
            );
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which file?")?;
    let mut config = Config::default();
    let mut sink = EventCounter { events: 0, text_bytes: 0, print: false };
    for argument in arguments {
        if argument == "--events" {
            sink.print = true;
        } else {
            config.ports = argument.split(',').map(str::parse).collect::<Result<_, _>>()?;
        }
    }
    let mut file = std::fs::File::open(path)?;
    let mut chunk = vec![0; 1 << 20];
    let begun = Instant::now();
    let mut read = file.read(&mut chunk)?;
    let format = Format::detect(&chunk[..read]).ok_or("neither pcap nor pcapng nor tcpdump text")?;
    let mut decoder = CaptureDecoder::new(format, &config);
    let mut total = 0;
    while read > 0 {
        total += read;
        decoder.feed(&chunk[..read], &mut sink)?;
        read = file.read(&mut chunk)?;
    }
    decoder.finish(&mut sink);
    let seconds = begun.elapsed().as_secs_f64();
    println!("{:#?}", decoder.accounting());
    println!(
        "{} events, {total} bytes in {seconds:.3} s: {:.0} MB/s, {:.0} ns a frame",
        sink.events,
        total as f64 / seconds / 1e6,
        seconds * 1e9 / decoder.accounting().frames.read.max(1) as f64
    );
    Ok(())
}
