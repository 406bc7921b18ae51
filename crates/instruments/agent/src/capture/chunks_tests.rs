//! Tests of the chunk queue: every item is delivered or counted as dropped.

use super::*;
use std::sync::mpsc::Sender;

/// What a destination was given: `(bytes, items, first_ns, last_ns)`.
type WrittenChunk = (Vec<u8>, u64, u64, u64);

/// Takes a chunk when it is let to, and tells of it.
struct GatedSink {
    permits: Receiver<()>,
    written: Sender<WrittenChunk>,
    /// Chunks that it was offered.
    offered: Arc<AtomicU64>,
    /// Chunks that it takes before the disk is full.
    fits: usize,
    lost: u64,
}

impl ChunkSink for GatedSink {
    fn begin(&mut self, header: &[u8]) -> anyhow::Result<()> {
        self.report_chunk(header, 0, 0, 0);
        Ok(())
    }

    fn write_chunk(&mut self, bytes: &[u8], items: u64, first_ns: u64, last_ns: u64) -> anyhow::Result<()> {
        self.offered.fetch_add(1, Ordering::AcqRel);
        // Whoever has left wants nothing of it.
        let _ = self.permits.recv();
        if self.fits == 0 {
            let is_first = self.lost == 0;
            self.lost += items;
            return if is_first { Err(anyhow!("full")) } else { Ok(()) };
        }
        self.fits -= 1;
        self.report_chunk(bytes, items, first_ns, last_ns);
        Ok(())
    }

    fn lost_items(&self) -> (u64, u64) {
        (self.lost, 0)
    }

    fn finish(&mut self, tail: &[u8]) -> anyhow::Result<()> {
        self.report_chunk(tail, 0, 0, 0);
        Ok(())
    }
}

impl GatedSink {
    fn report_chunk(&self, bytes: &[u8], items: u64, first_ns: u64, last_ns: u64) {
        let _ = self.written.send((bytes.to_vec(), items, first_ns, last_ns));
    }
}

struct Test {
    chunks: ChunkQueue,
    offered: Arc<AtomicU64>,
    permits: Sender<()>,
    written: Receiver<WrittenChunk>,
    time_ns: u64,
}

impl Test {
    /// Chunks of ten bytes.
    fn new(bound: usize, fits: usize) -> Self {
        let (let_in, waits) = std::sync::mpsc::channel();
        let (tells, given) = std::sync::mpsc::channel();
        let offered = Arc::new(AtomicU64::new(0));
        let gate = GatedSink { permits: waits, written: tells, offered: Arc::clone(&offered), fits, lost: 0 };
        let chunks = ChunkQueue::start(Box::new(gate), b"<", 10, bound).unwrap();
        Self { chunks, offered, permits: let_in, written: given, time_ns: 0 }
    }

    /// Items of five bytes, at times 1, 2, 3...
    fn push_items(&mut self, items: u64) {
        for _ in 0..items {
            self.time_ns += 1;
            self.chunks.buffer().extend_from_slice(format!("{:05}", self.time_ns).as_bytes());
            self.chunks.finish_item(self.time_ns);
        }
    }

    fn account(&self) -> OutputCounters {
        let mut account = OutputCounters::default();
        self.chunks.add_counters(&mut account);
        account
    }

    /// Lets as many chunks in as ever come.
    fn permit_all(&self) {
        for _ in 0..1000 {
            self.permits.send(()).unwrap();
        }
    }

    /// Everything that was given, in one piece, and the items of it.
    fn end(mut self) -> (String, u64, OutputCounters, anyhow::Result<()>) {
        let finished = self.chunks.finish(b">");
        let account = self.account();
        drop(self.chunks);
        let given: Vec<WrittenChunk> = self.written.iter().collect();
        let bytes = given.iter().flat_map(|(bytes, ..)| bytes.clone()).collect();
        (String::from_utf8(bytes).unwrap(), given.iter().map(|(_, items, ..)| items).sum(), account, finished)
    }
}

#[test]
fn what_is_put_in_comes_out_in_order_between_head_and_tail() {
    let mut test = Test::new(4, 1000);
    test.permit_all();
    test.push_items(3);
    let (bytes, items, account, finished) = test.end();
    finished.unwrap();
    assert_eq!((bytes.as_str(), items), ("<000010000200003>", 3));
    assert_eq!(account, OutputCounters { items: 3, bytes_written: 17, ..OutputCounters::default() });
}

#[test]
fn what_finds_the_queue_full_is_counted_and_dated_and_all_adds_up() {
    let mut test = Test::new(2, 1000);
    // Two items a chunk: one chunk is being written, two wait, and one is being filled; the others are lost.
    test.push_items(2);
    while test.offered.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    test.push_items(40);
    let account = test.account();
    assert_eq!(account.items, 42);
    assert!(account.lost_queue >= 30, "{account:?}");
    assert_eq!(account.waiting + account.lost_queue, 42, "{account:?}");
    assert!(account.first_loss_ns.unwrap() >= 5 && account.last_loss_ns == Some(42), "{account:?}");
    test.permit_all();
    let (bytes, items, account, finished) = test.end();
    finished.unwrap();
    assert_eq!((account.waiting, account.lost_disk), (0, 0));
    assert_eq!(items + account.lost_queue, 42);
    assert_eq!(bytes.len() as u64, items * 5 + 2);
}

#[test]
fn buffers_go_round() {
    let mut test = Test::new(2, 1000);
    test.permit_all();
    test.push_items(500);
    assert!(test.chunks.buffers <= 4, "{}", test.chunks.buffers);
}

#[test]
fn what_waits_is_handed_on_after_a_while_and_not_before() {
    let mut test = Test::new(2, 1000);
    test.permit_all();
    test.push_items(1);
    assert_eq!(test.written.recv().unwrap().0, b"<");
    test.chunks.flush(1_000);
    test.chunks.flush(1_000 + MAX_HOLD_NS - 1);
    assert_eq!(test.chunks.current.items, 1);
    test.chunks.flush(1_000 + MAX_HOLD_NS);
    assert_eq!(test.written.recv().unwrap(), (b"00001".to_vec(), 1, 1, 1));
    // The next item's time begins anew.
    test.push_items(1);
    test.chunks.flush(1_000 + 2 * MAX_HOLD_NS);
    assert_eq!(test.chunks.current.items, 1);
}

#[test]
fn a_disk_that_is_full_is_said_once_and_what_it_lacks_is_counted() {
    let mut test = Test::new(100, 2);
    test.permit_all();
    test.push_items(20);
    let said = loop {
        if let Err(error) = test.chunks.check() {
            break error.to_string();
        }
        std::thread::yield_now();
    };
    assert_eq!(said, "full");
    let (bytes, items, account, finished) = test.end();
    finished.unwrap();
    assert_eq!((bytes.as_str(), items), ("<00001000020000300004>", 4));
    assert_eq!((account.items, account.lost_disk, account.waiting), (20, 16, 0));
    assert_eq!((account.first_loss_ns, account.last_loss_ns), (Some(5), Some(20)));
}
