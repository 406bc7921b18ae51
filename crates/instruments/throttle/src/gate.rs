//! Token-bucket rate limiter in front of the reader of a dump.
//!
//! The reader requests permission before each read, and proceeds in small pieces. While it waits the pipe
//! fills, the dump program stops reading from its server, and the server's thread waits. Small pieces keep
//! that thread's work in short, even bursts. Never decides the rate: `steering.rs` does.

use super::decision::Allow;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A piece is what the rate gives in this time, between these ends. A page is the least that empties a
/// pipe's slot, 64 KiB all that a pipe holds by default.
const PIECE_S: f64 = 0.005;
const PIECE_LEAST: f64 = 4_096.0;
const PIECE_MOST: f64 = 65_536.0;
/// What was not used of this time may be used at once: a reader that overslept makes up for it.
const SAVED_S: f64 = 0.01;
/// After a wait, what had piled up in pipes and sockets comes faster than the dump goes by itself.
const PILED_UP: Duration = Duration::from_secs(1);
/// A shorter stretch at full speed says nothing of the dump's own speed.
const STRETCH: Duration = Duration::from_secs(1);

/// Rate limiter, shared by the reader and the controller.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    moved: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// When somebody first asked: the bucket counts its time from then on.
    begun: Option<Instant>,
    allow: Allow,
    bucket: Bucket,
    ended: Option<String>,
    times: Times,
    stretch: Stretch,
    /// When the last piece was handed out: what passes until the next is asked for is its taker's.
    handed: Option<Instant>,
}

/// Time of the reader by cause, and its reads without any wait.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Times {
    /// Paused.
    pub still: Duration,
    /// Waiting for the rate limiter.
    pub slowed: Duration,
    /// Waiting for the dump.
    pub dump: Duration,
    /// Spent by the consumer of the data.
    pub taker: Duration,
    /// Stretches in which it never waited for leave: what was read in them, and how long they were.
    pub free_bytes: u64,
    pub free: Duration,
}

/// The stretch without a wait that goes on.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    since: Instant,
    bytes: u64,
}

impl Stretch {
    fn after_wait(now: Instant) -> Self {
        Self { since: now + PILED_UP, bytes: 0 }
    }
}

/// Token bucket in bytes: filled over time, with a small capacity. Knows no clock.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    saved: f64,
    at_s: f64,
}

impl Bucket {
    /// Bytes that may be read now, at most `wanted`; or the seconds to wait for them.
    fn take(&mut self, now_s: f64, rate: f64, wanted: usize) -> Result<usize, f64> {
        let piece = (rate * PIECE_S).clamp(PIECE_LEAST, PIECE_MOST);
        let most = (2.0 * piece).max(rate * SAVED_S);
        self.saved = (self.saved + (now_s - self.at_s).max(0.0) * rate).min(most);
        self.at_s = now_s;
        let least = piece.min(wanted as f64);
        if self.saved < least {
            return Err((least - self.saved) / rate);
        }
        let taken = wanted.min(self.saved.min(PIECE_MOST) as usize);
        self.saved -= taken as f64;
        Ok(taken)
    }

    fn give_back(&mut self, bytes: usize) {
        self.saved += bytes as f64;
    }
}

impl Default for Gate {
    /// Closed until [`Gate::allow`] is called.
    fn default() -> Self {
        let state = State {
            begun: None,
            allow: Allow::Still,
            bucket: Bucket::default(),
            ended: None,
            times: Times::default(),
            stretch: Stretch::after_wait(Instant::now()),
            handed: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), moved: AtomicU64::new(0) }
    }
}

impl Gate {
    pub fn allow(&self, allow: Allow) {
        let mut state = self.state();
        if state.allow != allow {
            state.allow = allow;
            self.changed.notify_all();
        }
    }

    /// Closes the gate for good: reads fail with this error.
    pub fn end(&self, why: &str) {
        self.state().ended.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// Why it ended, if it did.
    pub fn ended(&self) -> Option<String> {
        self.state().ended.clone()
    }

    /// Bytes read so far.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub fn times(&self) -> Times {
        self.state().times
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before the lock is let go.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until some of `wanted` bytes may be read.
    fn take(&self, wanted: usize) -> io::Result<usize> {
        let mut state = self.state();
        let mut now = Instant::now();
        if let Some(handed) = state.handed.take() {
            state.times.taker += now.saturating_duration_since(handed);
        }
        loop {
            if let Some(why) = &state.ended {
                return Err(io::Error::other(why.clone()));
            }
            let begun = *state.begun.get_or_insert(now);
            let now_s = now.saturating_duration_since(begun).as_secs_f64();
            let (still, wait) = match state.allow {
                Allow::Open => return Ok(wanted),
                Allow::Still => (true, None),
                Allow::Rate(rate) => match state.bucket.take(now_s, rate, wanted) {
                    Ok(taken) => return Ok(taken),
                    Err(wait_s) => (false, Some(Duration::from_secs_f64(wait_s.min(1.0)))),
                },
            };
            state = match wait {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            let woken = Instant::now();
            let waited = woken.saturating_duration_since(now);
            *(if still { &mut state.times.still } else { &mut state.times.slowed }) += waited;
            state.end_stretch(now);
            state.stretch = Stretch::after_wait(woken);
            now = woken;
        }
    }

    /// Of what was taken, so much was read.
    fn passed(&self, taken: usize, read: usize, since: Instant) {
        self.moved.fetch_add(read as u64, Ordering::Relaxed);
        let now = Instant::now();
        let mut state = self.state();
        state.bucket.give_back(taken - read);
        state.times.dump += now.saturating_duration_since(since);
        state.handed = Some(now);
        if now >= state.stretch.since {
            state.stretch.bytes += read as u64;
        }
        if read == 0 {
            state.end_stretch(now);
        }
    }
}

impl State {
    fn end_stretch(&mut self, now: Instant) {
        let lasted = now.saturating_duration_since(self.stretch.since);
        if lasted >= STRETCH {
            self.times.free += lasted;
            self.times.free_bytes += self.stretch.bytes;
        }
    }
}

/// Reader of a dump that is limited by its gate.
#[derive(Debug)]
pub struct Throttled<R> {
    inner: R,
    gate: Arc<Gate>,
}

impl<R: Read> Throttled<R> {
    pub fn new(inner: R, gate: Arc<Gate>) -> Self {
        Self { inner, gate }
    }
}

impl<R: Read> Read for Throttled<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let taken = self.gate.take(buffer.len())?;
        let since = Instant::now();
        let read = self.inner.read(&mut buffer[..taken]);
        self.gate.passed(taken, *read.as_ref().unwrap_or(&0), since);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_gives_the_rate_whatever_the_pieces_and_saves_little() {
        for (rate, wanted) in [(50e3, 65_536), (3e6, 10_000), (800e6, 65_536), (3e6, 65_536)] {
            let mut bucket = Bucket::default();
            let (mut now_s, mut taken, mut largest) = (0.0, 0, 0);
            while now_s < 100.0 {
                match bucket.take(now_s, rate, wanted) {
                    Ok(piece) => {
                        // Half of each is not there to be read, and is not lost.
                        bucket.give_back(piece - piece / 2);
                        taken += piece / 2;
                        largest = largest.max(piece);
                    }
                    Err(wait_s) => now_s += wait_s + 1e-4,
                }
            }
            let got = taken as f64 / now_s;
            assert!((got / rate - 1.0).abs() < 0.03, "{rate}: {got}");
            assert!(largest <= wanted && largest as f64 <= PIECE_MOST);
        }
        let mut bucket = Bucket::default();
        bucket.take(1_000.0, 1e6, 65_536).unwrap();
        assert!(bucket.take(1_000.0, 1e6, 65_536).unwrap_or(0) <= 10_000, "an hour's rate was saved up");
    }

    #[test]
    fn what_passes_a_gate_is_what_came_and_its_waits_are_counted() {
        let gate = Arc::new(Gate::default());
        let bytes: Vec<u8> = (0..400_000u32).map(|i| (i % 251) as u8).collect();
        let mut throttled = Throttled::new(&bytes[..], Arc::clone(&gate));
        let reader = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut got = Vec::new();
                throttled.read_to_end(&mut got).unwrap();
                got
            });
            // Shut at first: nothing passes before it is told to open.
            gate.allow(Allow::Still);
            assert_eq!(gate.moved(), 0);
            gate.allow(Allow::Rate(4e6));
            reader.join().unwrap()
        });
        assert_eq!(reader, bytes);
        assert_eq!(gate.moved(), bytes.len() as u64);
        assert!(gate.times().slowed > Duration::ZERO);
    }

    #[test]
    fn a_gate_that_has_ended_wakes_its_reader_with_the_reason() {
        let gate = Arc::new(Gate::default());
        let reader = {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || Throttled::new(&b"never"[..], gate).read(&mut [0; 8]))
        };
        gate.end("somebody said panic");
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "somebody said panic");
        assert_eq!(gate.ended().as_deref(), Some("somebody said panic"));
    }
}
