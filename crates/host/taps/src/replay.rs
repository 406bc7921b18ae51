//! Timed transmission of frames in memory through a device.

use crate::account::Account;
use crate::clock::{now_ns, prefer_this_thread, wait_until};
use crate::pace::{Before, Pace, Rate};
use crate::sender::{BATCH, Sender};
use std::io;
use std::time::Duration;

/// How often whoever waits hears of it, and is asked whether to go on.
const BEAT_NS: u64 = 100_000_000;

/// Frames to send, one after the other in one piece of memory.
#[derive(Debug, Clone, Default)]
pub struct Packets {
    bytes: Vec<u8>,
    /// End offset of each frame in `bytes`.
    ends: Vec<usize>,
    /// When each was captured, from the first on, ns; never falls.
    times_ns: Vec<u64>,
}

impl Packets {
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
    pub fn span_ns(&self) -> u64 {
        let last = self.times_ns.last().copied().unwrap_or(0);
        last + last / (self.len() as u64).saturating_sub(1).max(1)
    }
}

/// Options of a replay.
#[derive(Debug, Clone, Copy)]
pub struct Replay {
    pub pace: Pace,
    /// Times through; `None`: until the time is up.
    pub rounds: Option<u64>,
    pub packets: Option<u64>,
    pub duration: Option<Duration>,
    /// Ends with the error once no packet has been taken for this long.
    pub give_up: Duration,
}

/// Once in a tenth of a second.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub packets: u64,
    pub bytes: u64,
    pub elapsed: Duration,
}

/// Result of a replay.
#[derive(Debug)]
pub struct Ended {
    pub account: Account,
    /// From the start to when the kernel had taken the last packet.
    pub lasted: Duration,
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
/// The histogram cannot be made; what goes wrong while sending stands in [`Ended`].
pub fn replay(
    sender: &mut Sender,
    packets: &mut Packets,
    asked: &Replay,
    mut before: impl FnMut(&mut [u8], u64),
    mut after: impl FnMut(&mut [u8]),
    mut go_on: impl FnMut(Progress) -> bool,
) -> Result<Ended, hdrhistogram::CreationError> {
    let mut ended = Ended {
        account: Account::new()?,
        lasted: Duration::ZERO,
        due: Duration::ZERO,
        retries: 0,
        error: None,
        was_stopped: false,
    };
    prefer_this_thread();
    let start = now_ns();
    let mut run =
        Run { sender, asked, start, beat: start, before: Before::default(), due_ns: 0, ended: &mut ended };
    let span_ns = packets.span_ns();
    let mut round = 0;
    while !packets.is_empty() && asked.rounds.is_none_or(|rounds| round < rounds) {
        if !run.round(packets, round * span_ns, &mut before, &mut after, &mut go_on) {
            break;
        }
        round += 1;
    }
    let due_ns = run.due_ns;
    if ended.lasted.is_zero() {
        // Not one was taken.
        ended.lasted = Duration::from_nanos(now_ns() - start);
    }
    ended.due = Duration::from_nanos(due_ns);
    Ok(ended)
}

struct Run<'a> {
    sender: &'a mut Sender,
    asked: &'a Replay,
    start: u64,
    /// When `go_on` was asked last.
    beat: u64,
    before: Before,
    due_ns: u64,
    ended: &'a mut Ended,
}

impl Run<'_> {
    /// Once through; false: it is over.
    fn round(
        &mut self,
        packets: &mut Packets,
        recorded_ns: u64,
        before: &mut impl FnMut(&mut [u8], u64),
        after: &mut impl FnMut(&mut [u8]),
        go_on: &mut impl FnMut(Progress) -> bool,
    ) -> bool {
        let mut next = 0;
        while next < packets.len() {
            let now = now_ns();
            if now - self.beat >= BEAT_NS {
                self.beat = now;
                let Run { before, start, .. } = *self;
                let elapsed = Duration::from_nanos(now - start);
                if !go_on(Progress { packets: before.packets, bytes: before.bytes, elapsed }) {
                    self.ended.was_stopped = true;
                    return false;
                }
            }
            let elapsed = now - self.start;
            if self.asked.duration.is_some_and(|most| elapsed >= most.as_nanos() as u64) {
                return false;
            }
            let due = self.due_now(packets, next, recorded_ns, elapsed);
            if due.count == 0 {
                // No further than a beat, so that an end that is asked for is heeded.
                let most = self.asked.duration.map_or(u64::MAX, |most| self.start + most.as_nanos() as u64);
                wait_until((self.start + due.first_ns).min(now + BEAT_NS).min(most));
                continue;
            }
            for i in 0..due.count {
                before(packets.frame_mut(next + i), self.before.packets + i as u64);
            }
            match self.send(packets, next, due.count) {
                Some(taken) => {
                    self.account(packets, next, taken, recorded_ns);
                    (next..next + taken).for_each(|i| after(packets.frame_mut(i)));
                    next += taken;
                }
                None => return false,
            }
            if self.asked.packets.is_some_and(|most| self.before.packets >= most) {
                return false;
            }
        }
        true
    }

    fn due_now(&self, packets: &Packets, next: usize, recorded_ns: u64, elapsed: u64) -> Due {
        let left = self.asked.packets.map_or(u64::MAX, |most| most - self.before.packets);
        let most = BATCH.min(packets.len() - next).min(usize::try_from(left).unwrap_or(usize::MAX));
        if self.asked.pace.rate() == Rate::TopSpeed {
            return Due { count: most, first_ns: 0 };
        }
        let mut before = self.before;
        let mut due = Due { count: 0, first_ns: 0 };
        while due.count < most {
            before.recorded_ns = recorded_ns + packets.times_ns[next + due.count];
            let at = self.asked.pace.due_ns(before);
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
    fn send(&mut self, packets: &Packets, next: usize, count: usize) -> Option<usize> {
        let begun = now_ns();
        loop {
            let error = match self.sender.send((next..next + count).map(|i| packets.frame(i))) {
                Ok(taken) => {
                    // The one after those was refused, and is offered again.
                    self.ended.retries += u64::from(taken < count);
                    return Some(taken);
                }
                Err(error) => error,
            };
            let waited = Duration::from_nanos(now_ns() - begun);
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ENOBUFS | libc::EAGAIN) if waited < self.asked.give_up => {
                    self.ended.retries += 1;
                    std::thread::yield_now();
                }
                _ => {
                    self.ended.error = Some(error);
                    return None;
                }
            }
        }
    }

    fn account(&mut self, packets: &Packets, next: usize, taken: usize, recorded_ns: u64) {
        let at = now_ns() - self.start;
        self.ended.lasted = Duration::from_nanos(at);
        let is_paced = self.asked.pace.rate() != Rate::TopSpeed;
        for i in next..next + taken {
            let bytes = packets.frame(i).len();
            self.before.recorded_ns = recorded_ns + packets.times_ns[i];
            let due = is_paced.then(|| self.asked.pace.due_ns(self.before));
            self.ended.account.left(due, at, bytes as u32);
            self.before.packets += 1;
            self.before.bytes += bytes as u64;
            self.due_ns = due.unwrap_or(0);
        }
    }
}

/// How many of the next packets are due, and when the first that is not.
struct Due {
    count: usize,
    first_ns: u64,
}
