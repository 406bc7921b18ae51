//! Packet output: a capture file in pcapng, appended to the writer's chunks. Never inspects a packet.

use super::chunks::Chunks;
use super::output::{Account, Output};
use super::tap::Seen;
use anyhow::bail;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toll_wire::decoder::SocketChunk;
use toll_wire::pcap::{Frame, Interface, write};

/// Every packet into a pcapng with a single interface.
pub struct Packets {
    chunks: Chunks,
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

impl Packets {
    /// `chunks` were started with [`header`]; whoever ends files meanwhile has the same `statistics`.
    pub fn new(chunks: Chunks, statistics: Statistics) -> Self {
        Self { chunks, statistics }
    }
}

impl Output for Packets {
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        write::append_ng_packet(self.chunks.buffer(), 0, frame);
        self.chunks.end_item(frame.time_ns);
        Ok(())
    }

    fn spoken(&mut self, _said: &SocketChunk<'_>) -> anyhow::Result<()> {
        bail!("a capture file holds packets, and sockets have none: say --queries or --digest");
    }

    fn beat(&mut self, now_ns: u64) -> anyhow::Result<()> {
        self.chunks.flush(now_ns);
        self.chunks.check()
    }

    fn seen(&mut self, seen: &Seen, now_ns: u64) {
        self.statistics.note(seen, &self.account(), now_ns);
    }

    fn account(&self) -> Account {
        let mut account = Account::default();
        self.chunks.account(&mut account);
        account
    }

    fn finish(&mut self, now_ns: u64) -> anyhow::Result<()> {
        // Of what waits nothing is lost as a rule; what is lost after all stands in the ledger.
        self.statistics.advance(now_ns);
        self.chunks.finish(&self.statistics.tail())
    }
}

/// What the file that is written says at its end of the time since the one before it.
#[derive(Debug, Clone)]
pub struct Statistics(Arc<Mutex<Told>>);

#[derive(Debug)]
struct Told {
    received: u64,
    dropped: u64,
    now_ns: u64,
    /// As far as the files that have ended say.
    before: (u64, u64, u64),
}

impl Statistics {
    pub fn begin(now_ns: u64) -> Self {
        Self(Arc::new(Mutex::new(Told { received: 0, dropped: 0, now_ns, before: (0, 0, now_ns) })))
    }

    fn note(&self, seen: &Seen, account: &Account, now_ns: u64) {
        let mut told = self.told();
        told.received = seen.passed;
        told.dropped = seen.lost_kernel + account.lost();
        told.now_ns = now_ns;
    }

    fn advance(&self, now_ns: u64) {
        self.told().now_ns = now_ns;
    }

    /// The block that ends the file of now; the next file's begins where this one ends.
    pub fn tail(&self) -> Vec<u8> {
        let mut told = self.told();
        let (received, dropped, begin_ns) = told.before;
        let statistics = write::InterfaceStatistics {
            begin_ns,
            end_ns: told.now_ns,
            received: told.received.saturating_sub(received),
            dropped: told.dropped.saturating_sub(dropped),
        };
        told.before = (told.received, told.dropped, told.now_ns);
        let mut tail = Vec::new();
        write::append_ng_statistics(&mut tail, 0, &statistics);
        tail
    }

    fn told(&self) -> MutexGuard<'_, Told> {
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
        let seen = |passed, lost_kernel| Seen { passed, taken: passed - lost_kernel, lost_kernel };
        statistics.note(&seen(100, 3), &Account { lost_queue: 4, ..Account::default() }, 10);
        assert_eq!(dropped(&statistics.tail()), Some(7));
        statistics.note(&seen(200, 5), &Account { lost_queue: 4, ..Account::default() }, 20);
        assert_eq!(dropped(&statistics.tail()), Some(2));
        assert_eq!(dropped(&statistics.tail()), Some(0));
    }
}
