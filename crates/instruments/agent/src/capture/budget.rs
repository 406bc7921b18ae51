//! CPU budget of a capture, kept by random sampling of connections.
//!
//! A connection is kept or left out as a whole: it is kept while a hash of its two ends lies below a
//! threshold. So a connection that was left out stays out until the share has risen past it. Lowering the
//! threshold costs nothing, and the server never waits. Packets of connections left out are not even decoded.

use super::output::{Account, Class, Output};
use super::tap::Seen;
use std::collections::VecDeque;
use toll_sys::clock;
use toll_wire::decoder::{CallDirection, SocketChunk};
use toll_wire::event::{RequestCounts, SampleShare};
use toll_wire::frame::{self, mix_bits};
use toll_wire::pcap::Frame;

/// Between two looks at the CPU clock, which is a system call.
const LOOK_EVERY_NS: u64 = 50_000_000;
/// Interval between reports of the share while not all connections are kept.
const TELL_EVERY_NS: u64 = 1_000_000_000;
/// A share of the connections, as a threshold of their hashes.
const ALL: u64 = 1 << 32;

/// An output with connection sampling that stays within a CPU budget.
pub struct Budgeted {
    inner: Box<dyn Output>,
    controller: Controller,
    /// Hashes below it are kept.
    threshold: u64,
    /// Another capture draws other connections.
    seed: u64,
    looked_ns: u64,
    /// What goes to one of these is asked.
    ports: Vec<u16>,
    asked: RequestCounts,
    told_ns: u64,
    shed: Account,
    is_hopeless: bool,
}

impl Budgeted {
    /// `share_of_core`: budget of all threads of this process together, as a share of one CPU. `ports`: of
    /// servers.
    pub fn new(inner: Box<dyn Output>, share_of_core: f64, ports: &[u16]) -> Self {
        Self {
            inner,
            controller: Controller::new(share_of_core),
            threshold: ALL,
            seed: clock::wall_us(),
            looked_ns: 0,
            ports: ports.to_vec(),
            asked: RequestCounts::default(),
            told_ns: 0,
            shed: Account::default(),
            is_hopeless: false,
        }
    }

    fn leave_out(&mut self, time_ns: u64) {
        self.shed.shed += 1;
        self.shed.note_loss(time_ns, time_ns);
    }

    fn tell(&mut self, now_ns: u64) {
        let kept = self.threshold as f64 / ALL as f64;
        self.inner.share(&SampleShare { time_ns: now_ns, fraction: kept, requests: Some(self.asked) });
        self.told_ns = now_ns;
    }

    /// Counts what is asked of a connection, and says whether that one is kept.
    #[inline]
    fn keeps(&mut self, connection: u64, is_asked: bool) -> bool {
        let is_kept = connection >> 32 < self.threshold;
        self.asked.total += u64::from(is_asked);
        self.asked.sampled += u64::from(is_asked && is_kept);
        is_kept
    }

    fn look(&mut self, now_ns: u64) {
        let kept = self.controller.look(clock::mono_us() * 1_000, clock::process_cpu_us() * 1_000);
        let threshold = (kept * ALL as f64) as u64;
        let is_due = threshold < ALL && now_ns.abs_diff(self.told_ns) >= TELL_EVERY_NS;
        if threshold != self.threshold || is_due {
            self.threshold = threshold;
            self.tell(now_ns);
        }
        if self.controller.is_hopeless() && !self.is_hopeless {
            self.is_hopeless = true;
            tracing::warn!(
                "the budget cannot be kept: to look at one connection in {:.0} takes more CPU than that; \
                 give it more, or narrow the capture with --port",
                1.0 / kept
            );
        }
    }
}

impl Output for Budgeted {
    #[inline]
    fn packet(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        if self.threshold < ALL
            && let Ok(packet) = frame::parse_segment(frame)
        {
            let is_asked = packet.segment.payload_len > 0 && self.ports.contains(&packet.destination_port);
            if !self.keeps(packet.connection_hash(self.seed), is_asked) {
                self.leave_out(frame.time_ns);
                return Ok(());
            }
        }
        self.inner.packet(frame)
    }

    #[inline]
    fn spoken(&mut self, said: &SocketChunk<'_>) -> anyhow::Result<()> {
        if self.threshold < ALL {
            let is_asked = said.full_len > 0 && said.direction == CallDirection::FromClient;
            if !self.keeps(mix_bits(said.socket ^ self.seed), is_asked) {
                self.leave_out(said.time_ns);
                return Ok(());
            }
        }
        self.inner.spoken(said)
    }

    fn beat(&mut self, now_ns: u64) -> anyhow::Result<()> {
        if now_ns.abs_diff(self.looked_ns) >= LOOK_EVERY_NS {
            self.looked_ns = now_ns;
            self.look(now_ns);
        }
        self.inner.beat(now_ns)
    }

    fn seen(&mut self, seen: &Seen, now_ns: u64) {
        self.inner.seen(seen, now_ns);
    }

    fn costliest(&self, most: usize) -> Vec<Class> {
        self.inner.costliest(most)
    }

    fn account(&self) -> Account {
        let mut account = self.inner.account();
        account.items += self.shed.shed;
        account.shed += self.shed.shed;
        if let Some((first_ns, last_ns)) = self.shed.first_loss_ns.zip(self.shed.last_loss_ns) {
            account.note_loss(first_ns, last_ns);
        }
        account
    }

    fn finish(&mut self, now_ns: u64) -> anyhow::Result<()> {
        if self.threshold < ALL {
            self.tell(now_ns);
        }
        self.inner.finish(now_ns)
    }
}

/// What is aimed at, of the budget: the rest is for what comes between two looks.
const AIM: f64 = 0.85;
/// Below this part of the budget more is let in.
const ROOM: f64 = 0.7;
/// Too much is judged over this time.
const SHORT_NS: u64 = 200_000_000;
/// The time within which the budget holds.
const WINDOW_NS: u64 = 1_000_000_000;
/// More is let in after so long without a cut; each time that was too much, twice as long.
const HOLD_NS: u64 = 1_000_000_000;
const HOLD_MOST_NS: u64 = 64_000_000_000;
/// How much more at once, at most.
const STEP: f64 = 2.0;
/// Fewer connections than this are no sample of anything.
const LEAST: f64 = 1.0 / 4096.0;

/// Controller that sets the share of connections from the CPU time used. Knows no clock itself.
struct Controller {
    budget: f64,
    kept: f64,
    /// Looks of the last window: wall and CPU, ns.
    looks: VecDeque<(u64, u64)>,
    /// Since the share is what it is.
    changed_ns: u64,
    hold_ns: u64,
    /// The share before it was last raised, and what that used, until the raise has proved right.
    raised_from: Option<(f64, f64)>,
    /// What was used before a raise that was too much.
    failed_at: Option<f64>,
    is_hopeless: bool,
}

impl Controller {
    fn new(budget: f64) -> Self {
        Self {
            budget,
            kept: 1.0,
            looks: VecDeque::new(),
            changed_ns: 0,
            hold_ns: HOLD_NS,
            raised_from: None,
            failed_at: None,
            is_hopeless: false,
        }
    }

    fn is_hopeless(&self) -> bool {
        self.is_hopeless
    }

    /// The share to keep from now on.
    fn look(&mut self, wall_ns: u64, cpu_ns: u64) -> f64 {
        while self.looks.front().is_some_and(|(then_ns, _)| wall_ns.saturating_sub(*then_ns) > WINDOW_NS) {
            self.looks.pop_front();
        }
        let is_first = self.looks.is_empty();
        self.looks.push_back((wall_ns, cpu_ns));
        if is_first {
            // After a pause, or at the beginning, nothing can be said.
            self.changed_ns = wall_ns;
            return self.kept;
        }
        // Only since the share is what it is: what was used before says nothing of it.
        let short_ns = wall_ns.saturating_sub(SHORT_NS);
        let (passed_ns, used_ns) = self.since(short_ns.max(self.changed_ns), wall_ns, cpu_ns);
        // As much as the whole of that time may cost is too much, however little of it has passed.
        if used_ns > self.budget * SHORT_NS as f64 {
            let (_, spent_ns) = self.since(short_ns, wall_ns, cpu_ns);
            self.cut(wall_ns, used_ns / passed_ns.max(1) as f64, spent_ns);
            return self.kept;
        }
        let unchanged_ns = wall_ns.saturating_sub(self.changed_ns);
        if unchanged_ns >= HOLD_NS {
            let from_ns = wall_ns.saturating_sub(WINDOW_NS).max(self.changed_ns);
            let (passed_ns, used_ns) = self.since(from_ns, wall_ns, cpu_ns);
            let used = used_ns / passed_ns.max(1) as f64;
            // The load itself has fallen: what was too much then need not be now.
            if self.failed_at.is_some_and(|before| used < before / 2.0) {
                (self.failed_at, self.hold_ns) = (None, HOLD_NS);
            }
            if unchanged_ns >= self.hold_ns {
                self.proved(used, wall_ns);
            }
        }
        self.kept
    }

    /// Time and CPU since a moment, ns.
    fn since(&self, from_ns: u64, wall_ns: u64, cpu_ns: u64) -> (u64, f64) {
        let begin = self.looks.iter().find(|(then_ns, _)| *then_ns >= from_ns);
        let (then_ns, then_cpu_ns) = begin.copied().unwrap_or((wall_ns, cpu_ns));
        (wall_ns - then_ns, cpu_ns.saturating_sub(then_cpu_ns) as f64)
    }

    /// `used` of one CPU were too much, `spent_ns` of it within the last short time.
    fn cut(&mut self, wall_ns: u64, used: f64, spent_ns: f64) {
        self.is_hopeless = self.kept <= LEAST;
        self.kept = match self.raised_from.take() {
            // That was too much: back to what was right, and patience.
            Some((kept, used_before)) if used < 2.0 * self.budget => {
                self.hold_ns = (self.hold_ns * 2).min(HOLD_MOST_NS);
                self.failed_at = Some(used_before);
                kept
            }
            _ => {
                self.hold_ns = HOLD_NS;
                // What of the window's budget is left is for its rest, and for what was decoded and is not yet
                // compressed.
                let left_ns = self.budget * WINDOW_NS as f64 - spent_ns;
                let left = left_ns / (self.budget * (WINDOW_NS - SHORT_NS) as f64);
                let aim = (AIM * left).clamp(0.01, AIM);
                self.kept * (aim * self.budget / used).min(AIM)
            }
        };
        self.kept = self.kept.max(LEAST);
        self.changed_ns = wall_ns;
    }

    /// A share that has held for long enough was right; there may be room for more.
    fn proved(&mut self, used: f64, wall_ns: u64) {
        if self.raised_from.take().is_some() {
            self.hold_ns = (self.hold_ns / 2).max(HOLD_NS);
        }
        if self.kept < 1.0 && used < ROOM * self.budget {
            self.raised_from = Some((self.kept, used));
            let most = if used > 0.0 { AIM * self.budget / used } else { STEP };
            self.kept = (self.kept * STEP.min(most)).min(1.0);
            self.changed_ns = wall_ns;
        }
    }
}

#[cfg(test)]
mod tests;
