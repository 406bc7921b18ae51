//! Packet output: a capture file in pcapng, appended to the writer's chunks. Never inspects a packet.

use super::chunk_queue::ChunkQueue;
use super::output::{CaptureOutput, OutputCounters};
use super::tap::TapCounters;
use anyhow::bail;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toll_wire::decoder::SocketChunk;
use toll_wire::pcap::{Frame, Interface, write};

/// Every packet into a pcapng with a single interface.
pub struct PacketOutput {
    chunks: ChunkQueue,
    statistics: Statistics,
}

/// What each file (or stream) begins with.
pub fn header(device: &str, link: u16, snap_len: u32) -> Vec<u8> {
    let mut header = Vec::new();
    write::append_ng_section(&mut header);
    write::append_ng_interface(
        &mut header,
        &Interface { number: 0, link, snap_len, name: device.as_bytes() },
    );
    header
}

impl PacketOutput {
    /// `chunks` were started with [`header`]; whoever ends files meanwhile has the same `statistics`.
    pub fn new(chunks: ChunkQueue, statistics: Statistics) -> Self {
        Self { chunks, statistics }
    }
}

impl CaptureOutput for PacketOutput {
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        write::append_ng_packet(self.chunks.buffer(), 0, frame);
        self.chunks.finish_item(frame.time_ns);
        Ok(())
    }

    fn socket_chunk(&mut self, _chunk: &SocketChunk<'_>) -> anyhow::Result<()> {
        bail!("a capture file holds packets, and sockets have none: say --queries or --digest");
    }

    fn tick(&mut self, now_ns: u64) -> anyhow::Result<()> {
        self.chunks.flush(now_ns);
        self.chunks.check()
    }

    fn tap_counters(&mut self, seen: &TapCounters, now_ns: u64) {
        self.statistics.update(seen, &self.counters(), now_ns);
    }

    fn counters(&self) -> OutputCounters {
        let mut account = OutputCounters::default();
        self.chunks.add_counters(&mut account);
        account
    }

    fn finish(&mut self, now_ns: u64) -> anyhow::Result<()> {
        // Of what waits nothing is lost as a rule; what is lost after all is in the accounting.
        self.statistics.advance(now_ns);
        self.chunks.finish(&self.statistics.trailer())
    }
}

/// What the file that is written says at its end of the time since the one before it.
#[derive(Debug, Clone)]
pub struct Statistics(Arc<Mutex<StatisticsState>>);

#[derive(Debug)]
struct StatisticsState {
    received: u64,
    dropped: u64,
    now_ns: u64,
    /// As far as the files that have ended say.
    before: (u64, u64, u64),
}

impl Statistics {
    pub fn begin(now_ns: u64) -> Self {
        Self(Arc::new(Mutex::new(StatisticsState {
            received: 0,
            dropped: 0,
            now_ns,
            before: (0, 0, now_ns),
        })))
    }

    fn update(&self, seen: &TapCounters, account: &OutputCounters, now_ns: u64) {
        let mut state = self.lock();
        state.received = seen.passed;
        state.dropped = seen.lost_kernel + account.lost_items();
        state.now_ns = now_ns;
    }

    fn advance(&self, now_ns: u64) {
        self.lock().now_ns = now_ns;
    }

    /// The block that ends the file of now; the next file's begins where this one ends.
    pub fn trailer(&self) -> Vec<u8> {
        let mut state = self.lock();
        let (received, dropped, begin_ns) = state.before;
        let statistics = write::InterfaceStatistics {
            begin_ns,
            end_ns: state.now_ns,
            received: state.received.saturating_sub(received),
            dropped: state.dropped.saturating_sub(dropped),
        };
        state.before = (state.received, state.dropped, state.now_ns);
        let mut tail = Vec::new();
        write::append_ng_statistics(&mut tail, 0, &statistics);
        tail
    }

    fn lock(&self) -> MutexGuard<'_, StatisticsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_wire::pcap::{Format, Reader};

    #[test]
    fn each_file_tells_of_its_own_time_alone() {
        let statistics = Statistics::begin(5);
        let dropped = |tail: &[u8]| {
            let mut file = header("lo", 101, 0);
            file.extend(tail);
            let mut reader = Reader::new(Format::PcapNg);
            reader.feed(&file, &mut |_| panic!("there is no packet")).unwrap();
            reader.dropped_by_capture()
        };
        let seen = |passed, lost_kernel| TapCounters { passed, delivered: passed - lost_kernel, lost_kernel };
        statistics.update(&seen(100, 3), &OutputCounters { lost_queue: 4, ..OutputCounters::default() }, 10);
        assert_eq!(dropped(&statistics.trailer()), Some(7));
        statistics.update(&seen(200, 5), &OutputCounters { lost_queue: 4, ..OutputCounters::default() }, 20);
        assert_eq!(dropped(&statistics.trailer()), Some(2));
        assert_eq!(dropped(&statistics.trailer()), Some(0));
    }
}
