//! CPU budget of a capture, kept by random sampling of connections.
//!
//! A connection is kept or left out as a whole: it is kept while a hash of its two ends lies below a
//! threshold. So a connection that was left out stays out until the share has risen past it. Lowering the
//! threshold costs nothing, and the server never waits. Packets of connections left out are not even decoded.

use super::output::{CaptureOutput, ClassTotals, OutputCounters};
use super::tap::TapCounters;
use std::collections::VecDeque;
use toll_sys::clock;
use toll_wire::decoder::{CallDirection, SocketChunk};
use toll_wire::event::{RequestCounts, SampleShare};
use toll_wire::frame::{self, mix_bits};
use toll_wire::pcap::Frame;

/// Between two looks at the CPU clock, which is a system call.
const CHECK_INTERVAL_NS: u64 = 50_000_000;
/// Interval between reports of the share while not all connections are kept.
const SHARE_INTERVAL_NS: u64 = 1_000_000_000;
/// A share of the connections, as a threshold of their hashes.
const ALL_CONNECTIONS: u64 = 1 << 32;

/// An output with connection sampling that stays within a CPU budget.
pub struct BudgetedOutput {
    inner: Box<dyn CaptureOutput>,
    controller: ShareController,
    /// Hashes below it are kept.
    threshold: u64,
    /// Another capture draws other connections.
    seed: u64,
    checked_ns: u64,
    /// What goes to one of these is asked.
    ports: Vec<u16>,
    asked: RequestCounts,
    share_written_ns: u64,
    shed_counters: OutputCounters,
    is_unattainable: bool,
}

impl BudgetedOutput {
    /// `share_of_core`: budget of all threads of this process together, as a share of one CPU. `ports`: of
    /// servers.
    pub fn new(inner: Box<dyn CaptureOutput>, share_of_core: f64, ports: &[u16]) -> Self {
        Self {
            inner,
            controller: ShareController::new(share_of_core),
            threshold: ALL_CONNECTIONS,
            seed: clock::wall_us(),
            checked_ns: 0,
            ports: ports.to_vec(),
            asked: RequestCounts::default(),
            share_written_ns: 0,
            shed_counters: OutputCounters::default(),
            is_unattainable: false,
        }
    }

    fn record_shed(&mut self, time_ns: u64) {
        self.shed_counters.shed += 1;
        self.shed_counters.note_loss(time_ns, time_ns);
    }

    fn write_share(&mut self, now_ns: u64) {
        let kept = self.threshold as f64 / ALL_CONNECTIONS as f64;
        self.inner.sample_share(&SampleShare { time_ns: now_ns, fraction: kept, requests: Some(self.asked) });
        self.share_written_ns = now_ns;
    }

    /// Counts what is asked of a connection, and says whether that one is kept.
    #[inline]
    fn samples_connection(&mut self, connection: u64, is_asked: bool) -> bool {
        let is_kept = connection >> 32 < self.threshold;
        self.asked.total += u64::from(is_asked);
        self.asked.sampled += u64::from(is_asked && is_kept);
        is_kept
    }

    fn check_budget(&mut self, now_ns: u64) {
        let kept = self.controller.update(clock::mono_us() * 1_000, clock::process_cpu_us() * 1_000);
        let threshold = (kept * ALL_CONNECTIONS as f64) as u64;
        let is_due =
            threshold < ALL_CONNECTIONS && now_ns.abs_diff(self.share_written_ns) >= SHARE_INTERVAL_NS;
        if threshold != self.threshold || is_due {
            self.threshold = threshold;
            self.write_share(now_ns);
        }
        if self.controller.is_unattainable() && !self.is_unattainable {
            self.is_unattainable = true;
            tracing::warn!(
                "the CPU budget is too small: even one connection in {:.0} exceeds it. Raise the budget, or \
                 narrow the capture with --port.",
                1.0 / kept
            );
        }
    }
}

impl CaptureOutput for BudgetedOutput {
    #[inline]
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        if self.threshold < ALL_CONNECTIONS
            && let Ok(packet) = frame::parse_segment(frame)
        {
            let is_asked = packet.segment.payload_len > 0 && self.ports.contains(&packet.destination_port);
            if !self.samples_connection(packet.connection_hash(self.seed), is_asked) {
                self.record_shed(frame.time_ns);
                return Ok(());
            }
        }
        self.inner.packet(frame)
    }

    #[inline]
    fn socket_chunk(&mut self, chunk: &SocketChunk<'_>) -> anyhow::Result<()> {
        if self.threshold < ALL_CONNECTIONS {
            let is_asked = chunk.full_len > 0 && chunk.direction == CallDirection::FromClient;
            if !self.samples_connection(mix_bits(chunk.socket ^ self.seed), is_asked) {
                self.record_shed(chunk.time_ns);
                return Ok(());
            }
        }
        self.inner.socket_chunk(chunk)
    }

    fn tick(&mut self, now_ns: u64) -> anyhow::Result<()> {
        if now_ns.abs_diff(self.checked_ns) >= CHECK_INTERVAL_NS {
            self.checked_ns = now_ns;
            self.check_budget(now_ns);
        }
        self.inner.tick(now_ns)
    }

    fn tap_counters(&mut self, seen: &TapCounters, now_ns: u64) {
        self.inner.tap_counters(seen, now_ns);
    }

    fn top_classes(&self, most: usize) -> Vec<ClassTotals> {
        self.inner.top_classes(most)
    }

    fn counters(&self) -> OutputCounters {
        let mut account = self.inner.counters();
        account.items += self.shed_counters.shed;
        account.shed += self.shed_counters.shed;
        if let Some((first_ns, last_ns)) =
            self.shed_counters.first_loss_ns.zip(self.shed_counters.last_loss_ns)
        {
            account.note_loss(first_ns, last_ns);
        }
        account
    }

    fn finish(&mut self, now_ns: u64) -> anyhow::Result<()> {
        if self.threshold < ALL_CONNECTIONS {
            self.write_share(now_ns);
        }
        self.inner.finish(now_ns)
    }
}

/// What is aimed at, of the budget: the rest is for what comes between two looks.
const TARGET_SHARE: f64 = 0.85;
/// Below this part of the budget more is let in.
const RAISE_BELOW_SHARE: f64 = 0.7;
/// Too much is judged over this time.
const SHORT_NS: u64 = 200_000_000;
/// The time within which the budget holds.
const WINDOW_NS: u64 = 1_000_000_000;
/// More is let in after so long without a cut; each time that was too much, twice as long.
const HOLD_NS: u64 = 1_000_000_000;
const HOLD_MAX_NS: u64 = 64_000_000_000;
/// How much more at once, at most.
const MAX_STEP: f64 = 2.0;
/// Fewer connections than this are no sample of anything.
const MIN_SHARE: f64 = 1.0 / 4096.0;

/// Controller that sets the share of connections from the CPU time used. Knows no clock itself.
struct ShareController {
    budget: f64,
    share: f64,
    /// Looks of the last window: wall and CPU, ns.
    samples: VecDeque<(u64, u64)>,
    /// Since the share is what it is.
    changed_ns: u64,
    hold_ns: u64,
    /// The share before it was last raised, and what that used, until the raise has proved right.
    raised_from: Option<(f64, f64)>,
    /// What was used before a raise that was too much.
    failed_at: Option<f64>,
    is_unattainable: bool,
}

impl ShareController {
    fn new(budget: f64) -> Self {
        Self {
            budget,
            share: 1.0,
            samples: VecDeque::new(),
            changed_ns: 0,
            hold_ns: HOLD_NS,
            raised_from: None,
            failed_at: None,
            is_unattainable: false,
        }
    }

    fn is_unattainable(&self) -> bool {
        self.is_unattainable
    }

    /// The share to keep from now on.
    fn update(&mut self, wall_ns: u64, cpu_ns: u64) -> f64 {
        while self.samples.front().is_some_and(|(then_ns, _)| wall_ns.saturating_sub(*then_ns) > WINDOW_NS) {
            self.samples.pop_front();
        }
        let is_first = self.samples.is_empty();
        self.samples.push_back((wall_ns, cpu_ns));
        if is_first {
            // After a pause, or at the beginning, nothing can be said.
            self.changed_ns = wall_ns;
            return self.share;
        }
        // Only since the share is what it is: what was used before says nothing of it.
        let short_ns = wall_ns.saturating_sub(SHORT_NS);
        let (passed_ns, used_ns) = self.usage_since(short_ns.max(self.changed_ns), wall_ns, cpu_ns);
        // As much as the whole of that time may cost is too much, however little of it has passed.
        if used_ns > self.budget * SHORT_NS as f64 {
            let (_, spent_ns) = self.usage_since(short_ns, wall_ns, cpu_ns);
            self.lower_share(wall_ns, used_ns / passed_ns.max(1) as f64, spent_ns);
            return self.share;
        }
        let unchanged_ns = wall_ns.saturating_sub(self.changed_ns);
        if unchanged_ns >= HOLD_NS {
            let from_ns = wall_ns.saturating_sub(WINDOW_NS).max(self.changed_ns);
            let (passed_ns, used_ns) = self.usage_since(from_ns, wall_ns, cpu_ns);
            let used = used_ns / passed_ns.max(1) as f64;
            // The load itself has fallen: what was too much then need not be now.
            if self.failed_at.is_some_and(|before| used < before / 2.0) {
                (self.failed_at, self.hold_ns) = (None, HOLD_NS);
            }
            if unchanged_ns >= self.hold_ns {
                self.raise_share(used, wall_ns);
            }
        }
        self.share
    }

    /// Time and CPU since a moment, ns.
    fn usage_since(&self, from_ns: u64, wall_ns: u64, cpu_ns: u64) -> (u64, f64) {
        let begin = self.samples.iter().find(|(then_ns, _)| *then_ns >= from_ns);
        let (then_ns, then_cpu_ns) = begin.copied().unwrap_or((wall_ns, cpu_ns));
        (wall_ns - then_ns, cpu_ns.saturating_sub(then_cpu_ns) as f64)
    }

    /// `used` of one CPU were too much, `spent_ns` of it within the last short time.
    fn lower_share(&mut self, wall_ns: u64, used: f64, spent_ns: f64) {
        self.is_unattainable = self.share <= MIN_SHARE;
        self.share = match self.raised_from.take() {
            // That was too much: back to what was right, and patience.
            Some((kept, used_before)) if used < 2.0 * self.budget => {
                self.hold_ns = (self.hold_ns * 2).min(HOLD_MAX_NS);
                self.failed_at = Some(used_before);
                kept
            }
            _ => {
                self.hold_ns = HOLD_NS;
                // What of the window's budget is left is for its rest, and for what was decoded and is not yet
                // compressed.
                let left_ns = self.budget * WINDOW_NS as f64 - spent_ns;
                let left = left_ns / (self.budget * (WINDOW_NS - SHORT_NS) as f64);
                let aim = (TARGET_SHARE * left).clamp(0.01, TARGET_SHARE);
                self.share * (aim * self.budget / used).min(TARGET_SHARE)
            }
        };
        self.share = self.share.max(MIN_SHARE);
        self.changed_ns = wall_ns;
    }

    /// A share that has held for long enough was right; there may be room for more.
    fn raise_share(&mut self, used: f64, wall_ns: u64) {
        if self.raised_from.take().is_some() {
            self.hold_ns = (self.hold_ns / 2).max(HOLD_NS);
        }
        if self.share < 1.0 && used < RAISE_BELOW_SHARE * self.budget {
            self.raised_from = Some((self.share, used));
            let most = if used > 0.0 { TARGET_SHARE * self.budget / used } else { MAX_STEP };
            self.share = (self.share * MAX_STEP.min(most)).min(1.0);
            self.changed_ns = wall_ns;
        }
    }
}

#[cfg(test)]
mod tests;
