//! Timed transmission of frames in memory through a device.

use crate::clock::{now_ns, raise_thread_priority, wait_until};
use crate::pace::{Pace, Rate, SentSoFar};
use crate::pacing_stats::PacingStats;
use crate::sender::{BATCH, Sender};
use std::io;
use std::time::Duration;

/// How often whoever waits hears of it, and is asked whether to go on.
const POLL_INTERVAL_NS: u64 = 100_000_000;

/// Frames to send, one after the other in one piece of memory.
#[derive(Debug, Clone, Default)]
pub struct FrameList {
    bytes: Vec<u8>,
    /// End offset of each frame in `bytes`.
    ends: Vec<usize>,
    /// When each was captured, from the first on, ns; never falls.
    times_ns: Vec<u64>,
}

impl FrameList {
    /// Adds a frame; a time before that of the last one counts as the last one's.
    pub fn push(&mut self, frame: &[u8], time_ns: u64) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        self.times_ns.push(time_ns.max(self.times_ns.last().copied().unwrap_or(0)));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub fn frame(&self, i: usize) -> &[u8] {
        &self.bytes[self.start(i)..self.ends[i]]
    }

    /// The frame, to be changed in place.
    pub fn frame_mut(&mut self, i: usize) -> &mut [u8] {
        let start = self.start(i);
        &mut self.bytes[start..self.ends[i]]
    }

    #[inline]
    fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.ends[i - 1] }
    }

    /// How long one time through takes as captured: with an average gap after the last, so that rounds follow each
    /// other as packets do.
    pub fn round_ns(&self) -> u64 {
        let last = self.times_ns.last().copied().unwrap_or(0);
        last + last / (self.len() as u64).saturating_sub(1).max(1)
    }
}

/// Options of a replay.
#[derive(Debug, Clone, Copy)]
pub struct ReplayPlan {
    pub pace: Pace,
    /// Times through; `None`: until the time is up.
    pub rounds: Option<u64>,
    pub packets: Option<u64>,
    pub duration: Option<Duration>,
    /// Ends with the error once no packet has been taken for this long.
    pub send_timeout: Duration,
}

/// Once in a tenth of a second.
#[derive(Debug, Clone, Copy)]
pub struct ReplayProgress {
    pub packets: u64,
    pub bytes: u64,
    pub elapsed: Duration,
}

/// Result of a replay.
#[derive(Debug)]
pub struct ReplayResult {
    pub pacing: PacingStats,
    /// From the start to when the kernel had taken the last packet.
    pub elapsed: Duration,
    /// Due time of the last packet; the start at top speed.
    pub due: Duration,
    /// Times that the device's queue was full and the packet was offered again.
    pub retries: u64,
    /// Why it ended before all was sent.
    pub error: Option<io::Error>,
    pub was_stopped: bool,
}

/// Sends all packets, as often as asked. `before` may change each frame right before it is offered, told its number among
/// all that are sent; `after` once it is sent, for the next round; `go_on` is asked ten times a second.
///
/// # Errors
/// The histogram cannot be made; what goes wrong while sending stands in [`ReplayResult`].
pub fn replay_frames(
    sender: &mut Sender,
    packets: &mut FrameList,
    plan: &ReplayPlan,
    mut before: impl FnMut(&mut [u8], u64),
    mut after: impl FnMut(&mut [u8]),
    mut go_on: impl FnMut(ReplayProgress) -> bool,
) -> Result<ReplayResult, hdrhistogram::CreationError> {
    let mut ended = ReplayResult {
        pacing: PacingStats::new()?,
        elapsed: Duration::ZERO,
        due: Duration::ZERO,
        retries: 0,
        error: None,
        was_stopped: false,
    };
    raise_thread_priority();
    let start = now_ns();
    let mut run = ReplayRun {
        sender,
        plan,
        start,
        last_poll_ns: start,
        sent: SentSoFar::default(),
        due_ns: 0,
        result: &mut ended,
    };
    let span_ns = packets.round_ns();
    let mut round = 0;
    while !packets.is_empty() && plan.rounds.is_none_or(|rounds| round < rounds) {
        if !run.send_round(packets, round * span_ns, &mut before, &mut after, &mut go_on) {
            break;
        }
        round += 1;
    }
    let due_ns = run.due_ns;
    if ended.elapsed.is_zero() {
        // Not one was taken.
        ended.elapsed = Duration::from_nanos(now_ns() - start);
    }
    ended.due = Duration::from_nanos(due_ns);
    Ok(ended)
}

struct ReplayRun<'a> {
    sender: &'a mut Sender,
    plan: &'a ReplayPlan,
    start: u64,
    /// When `go_on` was asked last.
    last_poll_ns: u64,
    sent: SentSoFar,
    due_ns: u64,
    result: &'a mut ReplayResult,
}

impl ReplayRun<'_> {
    /// Once through; false: it is over.
    fn send_round(
        &mut self,
        packets: &mut FrameList,
        recorded_ns: u64,
        before: &mut impl FnMut(&mut [u8], u64),
        after: &mut impl FnMut(&mut [u8]),
        go_on: &mut impl FnMut(ReplayProgress) -> bool,
    ) -> bool {
        let mut next = 0;
        while next < packets.len() {
            let now = now_ns();
            if now - self.last_poll_ns >= POLL_INTERVAL_NS {
                self.last_poll_ns = now;
                let ReplayRun { sent: before, start, .. } = *self;
                let elapsed = Duration::from_nanos(now - start);
                if !go_on(ReplayProgress { packets: before.packets, bytes: before.bytes, elapsed }) {
                    self.result.was_stopped = true;
                    return false;
                }
            }
            let elapsed = now - self.start;
            if self.plan.duration.is_some_and(|most| elapsed >= most.as_nanos() as u64) {
                return false;
            }
            let due = self.due_batch(packets, next, recorded_ns, elapsed);
            if due.count == 0 {
                // No further than a beat, so that an end that is asked for is heeded.
                let most = self.plan.duration.map_or(u64::MAX, |most| self.start + most.as_nanos() as u64);
                wait_until((self.start + due.first_ns).min(now + POLL_INTERVAL_NS).min(most));
                continue;
            }
            for i in 0..due.count {
                before(packets.frame_mut(next + i), self.sent.packets + i as u64);
            }
            match self.send_batch(packets, next, due.count) {
                Some(taken) => {
                    self.record_sent(packets, next, taken, recorded_ns);
                    (next..next + taken).for_each(|i| after(packets.frame_mut(i)));
                    next += taken;
                }
                None => return false,
            }
            if self.plan.packets.is_some_and(|most| self.sent.packets >= most) {
                return false;
            }
        }
        true
    }

    fn due_batch(&self, packets: &FrameList, next: usize, recorded_ns: u64, elapsed: u64) -> DueBatch {
        let left = self.plan.packets.map_or(u64::MAX, |most| most - self.sent.packets);
        let most = BATCH.min(packets.len() - next).min(usize::try_from(left).unwrap_or(usize::MAX));
        if self.plan.pace.rate() == Rate::TopSpeed {
            return DueBatch { count: most, first_ns: 0 };
        }
        let mut before = self.sent;
        let mut due = DueBatch { count: 0, first_ns: 0 };
        while due.count < most {
            before.recorded_ns = recorded_ns + packets.times_ns[next + due.count];
            let at = self.plan.pace.due_ns(before);
            if at > elapsed {
                due.first_ns = at;
                break;
            }
            before.packets += 1;
            before.bytes += packets.frame(next + due.count).len() as u64;
            due.count += 1;
        }
        due
    }

    /// Offers packets until the kernel takes some; `None`: it is over.
    fn send_batch(&mut self, packets: &FrameList, next: usize, count: usize) -> Option<usize> {
        let begun = now_ns();
        loop {
            let error = match self.sender.send((next..next + count).map(|i| packets.frame(i))) {
                Ok(taken) => {
                    // The one after those was refused, and is offered again.
                    self.result.retries += u64::from(taken < count);
                    return Some(taken);
                }
                Err(error) => error,
            };
            let waited = Duration::from_nanos(now_ns() - begun);
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ENOBUFS | libc::EAGAIN) if waited < self.plan.send_timeout => {
                    self.result.retries += 1;
                    std::thread::yield_now();
                }
                _ => {
                    self.result.error = Some(error);
                    return None;
                }
            }
        }
    }

    fn record_sent(&mut self, packets: &FrameList, next: usize, taken: usize, recorded_ns: u64) {
        let at = now_ns() - self.start;
        self.result.elapsed = Duration::from_nanos(at);
        let is_paced = self.plan.pace.rate() != Rate::TopSpeed;
        for i in next..next + taken {
            let bytes = packets.frame(i).len();
            self.sent.recorded_ns = recorded_ns + packets.times_ns[i];
            let due = is_paced.then(|| self.plan.pace.due_ns(self.sent));
            self.result.pacing.record_send(due, at, bytes as u32);
            self.sent.packets += 1;
            self.sent.bytes += bytes as u64;
            self.due_ns = due.unwrap_or(0);
        }
    }
}

/// How many of the next packets are due, and when the first that is not.
struct DueBatch {
    count: usize,
    first_ns: u64,
}
