//! Tests of a capture's query events as the library writes them, compared with a digest of the packets.

use super::printed;
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex};
use toll_agent::capture::chunk_queue::{ChunkQueue, ChunkSink};
use toll_agent::capture::decoding::{CHUNK_BYTES, CompressingSink, QueryOutput};
use toll_agent::capture::output::{CaptureOutput, OutputCounters};
use toll_digest::Type;
use toll_digest::count::{CountWindow, count_queries};
use toll_wire::decoder::Config;
use toll_wire::pcap::{Format, Frame, Reader};

/// Buffer with several owners.
#[derive(Clone, Default)]
pub struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl ChunkSink for SharedBuffer {
    fn begin(&mut self, header: &[u8]) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend_from_slice(header);
        Ok(())
    }

    fn write_chunk(
        &mut self,
        bytes: &[u8],
        _items: u64,
        _first_ns: u64,
        _last_ns: u64,
    ) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn lost_items(&self) -> (u64, u64) {
        (0, 0)
    }

    fn finish(&mut self, tail: &[u8]) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend_from_slice(tail);
        Ok(())
    }
}

impl std::io::Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn config(port: u16) -> Config {
    Config { ports: vec![port], ..Config::default() }
}

/// Calls `each` for every packet of a capture, in order.
pub fn for_each_frame(capture: &[u8], mut each: impl FnMut(&Frame<'_>)) {
    let mut reader = Reader::new(Format::detect(capture).unwrap());
    reader.feed(capture, &mut each).unwrap();
    reader.finish(&mut each);
}

/// The packets of a capture as query events. `before` is called before each packet.
pub fn encode(
    capture: &[u8],
    port: u16,
    mut before: impl FnMut(u64, &mut QueryOutput),
) -> (Vec<u8>, OutputCounters) {
    let file = SharedBuffer::default();
    let packing = CompressingSink::new(Box::new(file.clone())).unwrap();
    // Room for all of it: what is asked is whether all is there.
    let chunks = ChunkQueue::start(Box::new(packing), b"", CHUNK_BYTES, 4096).unwrap();
    let mut queries = QueryOutput::new(&config(port), chunks);
    let mut last_ns = 0;
    for_each_frame(capture, |frame| {
        before(frame.time_ns, &mut queries);
        queries.packet(frame).unwrap();
        queries.tick(frame.time_ns).unwrap();
        last_ns = frame.time_ns;
    });
    queries.finish(last_ns).unwrap();
    (file.bytes(), queries.counters())
}

/// Digest of a file, without the fields about files.
pub fn decoded_json(file: &Path, port: u16) -> Value {
    let mut digest = printed::digest(file, port);
    digest["inputs"] = Value::Null;
    digest["ledger"]["queries"] = Value::Null;
    digest
}

/// A file of query events and its capture give the same digest, to the last byte of each event.
pub fn assert_same(capture: &Path, port: u16, case: &str) {
    let bytes = std::fs::read(capture).unwrap();
    let (events, account) = encode(&bytes, port, |_, _| {});
    let file = capture.with_extension("queries");
    std::fs::write(&file, &events).unwrap();
    assert_eq!(account.bytes_written, events.len() as u64, "{case}");
    assert_eq!(account.lost_items(), 0, "{case}");
    let (from_packets, from_events) = (decoded_json(capture, port), decoded_json(&file, port));
    assert_eq!(from_events["ledger"]["adds_up"], true, "{case}");
    assert!(from_events["totals"]["queries"].as_u64().unwrap() > 100, "{case}: too little to tell anything");
    assert_eq!(from_events["totals"]["queries"], account.queries.unwrap(), "{case}");
    assert!(from_events == from_packets, "{case}:\n{from_events:#}\n{from_packets:#}");
    assert!(printed::lines(&file, port) == printed::lines(capture, port), "{case}");
    let counted = |path: &Path, kind, window| count_queries(path, kind, window, &[port]).unwrap().queries;
    let mut windows = vec![CountWindow::Whole];
    let mut times = Vec::new();
    for_each_frame(&bytes, |frame| times.push(frame.time_ns));
    let at = |part: usize| times[times.len() * part / 4];
    windows.extend([(0, 1), (1, 3)].map(|(a, b)| CountWindow::Time { since_ns: at(a), until_ns: at(b) }));
    for window in windows {
        let both = (counted(&file, Some(Type::Queries), window), counted(capture, Some(Type::Pcap), window));
        assert!(both.0 == both.1 && both.0 > 0, "{case}: {window:?}: {both:?}");
    }
    assert!(events.len() * 5 < bytes.len(), "{case}: {} of {} bytes", events.len(), bytes.len());
}
