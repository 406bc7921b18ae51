//! Interface of all capture outputs. Independent of the tap.

use super::tap::TapCounters;
use toll_wire::decoder::SocketChunk;
use toll_wire::event::SampleShare;
use toll_wire::pcap::Frame;

/// Output of a tap. Called on the tap's thread. Never waits for a disk or a network, except in
/// [`finish`](Self::finish).
pub trait CaptureOutput {
    /// A packet, in the kernel's order.
    ///
    /// # Errors
    /// Nothing can be taken any more.
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()>;

    /// Bytes that crossed a socket of the server.
    ///
    /// # Errors
    /// Nothing can be taken any more, or this output is of packets.
    fn socket_chunk(&mut self, chunk: &SocketChunk<'_>) -> anyhow::Result<()>;

    /// Called after each batch, and at least ten times a second, to hand on data that has waited long enough.
    /// `now_ns`: Unix time.
    ///
    /// # Errors
    /// What was handed on before could not be written.
    fn tick(&mut self, now_ns: u64) -> anyhow::Result<()>;

    /// Counters of the tap, every second and before [`finish`](Self::finish).
    fn tap_counters(&mut self, _seen: &TapCounters, _now_ns: u64) {}

    /// From now on only the packets and calls of a share of the connections come here. Until something is said
    /// all do; outputs that cannot scale by it pass it by.
    fn sample_share(&mut self, _share: &SampleShare) {}

    /// Of a digest that is being made: the `_most` classes that took the most time so far, costliest first.
    fn top_classes(&self, _most: usize) -> Vec<ClassTotals> {
        Vec::new()
    }

    /// The accounting so far.
    fn counters(&self) -> OutputCounters;

    /// Hands on everything and waits until it is out, as long as something moves.
    ///
    /// # Errors
    /// Something could not be written; the account says how much.
    fn finish(&mut self, now_ns: u64) -> anyhow::Result<()>;
}

/// A class of queries in a digest.
#[derive(Debug, Clone)]
pub struct ClassTotals {
    pub id: String,
    pub fingerprint: String,
    pub queries: u64,
    /// Query times together.
    pub seconds: f64,
}

/// Accounting of an output. `items` = written + everything lost + `shed` + `waiting`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputCounters {
    /// Packets, or calls of a socket.
    pub items: u64,
    /// In a queue, or being written.
    pub waiting: u64,
    /// Of an output that decodes: queries and executions of prepared statements so far.
    pub queries: Option<u64>,
    pub bytes_written: u64,
    /// The writer did not keep up, and the queue to it was full.
    pub lost_queue: u64,
    pub lost_disk: u64,
    pub lost_network: u64,
    /// Items not sampled, to stay within the CPU budget.
    pub shed: u64,
    /// Capture time of the first lost or shed item (Unix time, ns).
    pub first_loss_ns: Option<u64>,
    pub last_loss_ns: Option<u64>,
}

impl OutputCounters {
    /// All items missing in the output, for any reason.
    pub fn lost_items(&self) -> u64 {
        self.lost_queue + self.lost_disk + self.lost_network + self.shed
    }

    /// Records a loss of items captured between these times.
    pub fn note_loss(&mut self, first_ns: u64, last_ns: u64) {
        self.first_loss_ns = Some(self.first_loss_ns.map_or(first_ns, |known| known.min(first_ns)));
        self.last_loss_ns = Some(self.last_loss_ns.map_or(last_ns, |known| known.max(last_ns)));
    }
}
