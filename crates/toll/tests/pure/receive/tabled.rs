//! Queries of two senders that become tables at a receiver which is killed again and again, while tables are compacted.

use super::ends::{Receiver, new_keys, new_sender, new_sender_key, wait_until};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_agent::capture::chunk_queue::ChunkSink;
use toll_stats::random::Rng;
use toll_tables::{CompactOptions, Location, RowSet, Store, compact};
use toll_wire::event::{CommandKind, Event};
use toll_wire::queries::{BlockCompressor, Encoder};

/// 2026-01-01 00:00 UTC.
const BEGIN_NS: u64 = 1_767_225_600_000_000_000;
/// Of each sender, from one chunk to the next.
const STEP_NS: u64 = 7_000_000_000;
pub const CHUNK_EVENTS: u64 = 20;
const CLASSES: u64 = 3;

fn store(tables: &Path) -> Arc<dyn Store> {
    Location::Directory(tables.into()).open().unwrap()
}

/// Sends chunks of real query events.
pub struct QuerySender {
    stream: toll_agent::capture::stream::StreamSink,
    encoder: Encoder,
    compressor: BlockCompressor,
    chunks: u64,
    /// Events that never went out, of chunks between those that did.
    lost: i64,
    /// Of chunks behind the last that did.
    lost_since: i64,
}

impl QuerySender {
    pub fn start(address: &str, key: &str, capture: u64) -> Self {
        let mut stream = new_sender(address, key);
        stream.begin(b"").unwrap();
        Self {
            stream,
            encoder: Encoder::new(capture),
            compressor: BlockCompressor::new().unwrap(),
            chunks: 0,
            lost: 0,
            lost_since: 0,
        }
    }

    /// As after a kill of a sender whose chunks were acknowledged: another stream, without an end of the one before.
    fn start_again(&mut self, address: &str, key: &str, capture: u64) {
        wait_until("all is acknowledged", || self.stream.buffer_fill().bytes().0 == 0);
        let Self { chunks, lost, .. } = *self;
        *self = Self { chunks, lost, ..Self::start(address, key, capture) };
        self.send_chunk();
    }

    /// As where there is no memory for it.
    fn lose_chunk(&mut self) {
        self.encode_chunk();
        self.lost_since += CHUNK_EVENTS as i64;
    }

    pub fn send_chunk(&mut self) {
        let plain = self.encode_chunk();
        let mut block = Vec::new();
        self.compressor.compress(&plain, &mut block).unwrap();
        let begin_ns = BEGIN_NS + self.chunks * STEP_NS;
        let end_ns = begin_ns + CHUNK_EVENTS * 1_000_000;
        self.stream.write_chunk(&block, CHUNK_EVENTS, begin_ns, end_ns).unwrap();
        self.chunks += 1;
        self.lost += std::mem::take(&mut self.lost_since);
    }

    fn encode_chunk(&mut self) -> Vec<u8> {
        let mut plain = Vec::new();
        let begin_ns = BEGIN_NS + self.chunks * STEP_NS;
        for number in 0..CHUNK_EVENTS {
            let text =
                format!("SELECT c FROM t{} WHERE id = {number}", char::from(b'a' + (number % CLASSES) as u8));
            self.encoder.encode_event(
                &Event {
                    kind: CommandKind::Query,
                    text: text.as_bytes(),
                    db: b"shop",
                    start_ns: begin_ns + number * 1_000_000,
                    query_ns: Some(1_000 + number),
                    ..Event::default()
                },
                &mut plain,
            );
        }
        plain
    }
}

/// Queries, their time, and events that were lost, by host.
pub fn sums(tables: &Path) -> BTreeMap<String, (i64, i64, i64)> {
    let mut sums = BTreeMap::<String, (i64, i64, i64)>::new();
    let rows = RowSet::read(&*store(tables)).unwrap();
    for row in rows.digests {
        let (n, time_ns, _) = sums.entry(row.host).or_default();
        (*n, *time_ns) = (*n + row.n, *time_ns + row.time_ns);
    }
    for row in rows.coverage {
        sums.entry(row.host).or_default().2 += row.lost;
    }
    sums
}

/// Kills the receiver so often, and asserts that the tables have each query once.
pub fn assert_once_over_kills(lab: &crate::lab::Lab, kills: u32) {
    let keys = new_keys(lab);
    let other_key = new_sender_key(lab, &keys.receiver, "db2");
    let tables = lab.path("tables");
    std::fs::create_dir(&tables).unwrap();
    let more = ["--rotate", "10s", "--parquet", &tables, "--every", "1m", "--cluster", "shop"];
    let mut receiver = Some(Receiver::start_at(lab, "127.0.0.1:0", &keys, "incoming", &more));
    let address = receiver.as_ref().unwrap().address.clone();
    let mut senders =
        [QuerySender::start(&address, &keys.sender, 1), QuerySender::start(&address, &other_key, 2)];
    let (is_over, mut captures) = (AtomicBool::new(false), 2);
    let mut draws = Rng::new(u64::from(std::process::id()), 1);
    std::thread::scope(|scope| {
        // Beside the receivers, as from cron.
        let compacting = scope.spawn(|| {
            let mut merged = 0;
            while !is_over.load(Ordering::Relaxed) {
                let until_us = i64::try_from(BEGIN_NS / 1_000).unwrap() + 100 * 86_400_000_000;
                merged += compact(
                    &store(tables.as_ref()),
                    &CompactOptions { until_us, ..CompactOptions::default() },
                    &AtomicBool::new(false),
                    |_, _| {},
                )
                .unwrap()
                .stretches;
                std::thread::sleep(Duration::from_millis(70));
            }
            merged
        });
        for _ in 0..kills {
            for sender in &mut senders {
                sender.send_chunk();
                for _ in 0..draws.below(4) {
                    if draws.below(4) == 0 {
                        sender.lose_chunk();
                    }
                    sender.send_chunk();
                }
            }
            std::thread::sleep(Duration::from_millis(draws.below(400)));
            receiver.take().unwrap().end("KILL");
            receiver = Some(Receiver::start_at(lab, &address, &keys, "incoming", &more));
            captures += 1;
            if draws.below(4) == 0 {
                senders[0].start_again(&address, &keys.sender, captures);
            }
        }
        for sender in &mut senders {
            sender.send_chunk();
            sender.stream.finish(b"").unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(compacting.join().unwrap() > 0, "nothing was merged meanwhile");
    });
    let receiver = receiver.unwrap();
    let whole = |account: &serde_json::Value| account["whole"] == true;
    wait_until("both streams have ended", || receiver.accounts().into_iter().filter(whole).count() == 2);
    let dir = receiver.dir.clone();
    assert_eq!(receiver.end("TERM").code(), Some(0));
    let expected = |sender: &QuerySender| {
        let chunk_ns: u64 = (0..CHUNK_EVENTS).map(|number| 1_000 + number).sum();
        ((sender.chunks * CHUNK_EVENTS) as i64, (sender.chunks * chunk_ns) as i64, sender.lost)
    };
    let [first, second] = &senders;
    assert!(first.lost + second.lost > 0, "nothing was lost, of which the account could tell");
    assert_eq!(
        sums(tables.as_ref()),
        BTreeMap::from([("db1".into(), expected(first)), ("db2".into(), expected(second))])
    );
    // A stream that has not ended may come back: its journal stays, and how far it is digested.
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(
        left.iter()
            .all(|path| path.extension().is_some_and(|end| end == "stream") || path.ends_with(".captures")),
        "{left:?}"
    );
}
