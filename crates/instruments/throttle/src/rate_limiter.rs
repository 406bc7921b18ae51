//! Token-bucket rate limiter in front of the reader of a dump.
//!
//! The reader requests permission before each read, and proceeds in small pieces. While it waits the pipe
//! fills, the dump program stops reading from its server, and the server's thread waits. Small pieces keep
//! that thread's work in short, even bursts. Never decides the rate: `controller.rs` does.

use super::decision::ReadLimit;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A piece is what the rate gives in this time, between these ends. A page is the least that empties a
/// pipe's slot, 64 KiB all that a pipe holds by default.
const CHUNK_S: f64 = 0.005;
const CHUNK_MIN: f64 = 4_096.0;
const CHUNK_MAX: f64 = 65_536.0;
/// What was not used of this time may be used at once: a reader that overslept makes up for it.
const BURST_S: f64 = 0.01;
/// After a wait, what had piled up in pipes and sockets comes faster than the dump goes by itself.
const BACKLOG_DRAIN: Duration = Duration::from_secs(1);
/// A shorter stretch at full speed says nothing of the dump's own speed.
const FULL_SPEED_MIN: Duration = Duration::from_secs(1);

/// Rate limiter, shared by the reader and the controller.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<State>,
    changed: Condvar,
    bytes_read: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// When somebody first asked: the bucket counts its time from then on.
    started: Option<Instant>,
    limit: ReadLimit,
    bucket: TokenBucket,
    close_reason: Option<String>,
    times: ReaderTimes,
    full_speed: FullSpeedPeriod,
    /// When the last piece was handed out: what passes until the next is asked for is its taker's.
    handed_out: Option<Instant>,
}

/// Time of the reader by cause, and its reads without any wait.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReaderTimes {
    /// Paused.
    pub paused: Duration,
    /// Waiting for the rate limiter.
    pub throttled: Duration,
    /// Waiting for the dump.
    pub dump_wait: Duration,
    /// Spent by the consumer of the data.
    pub consumer: Duration,
    /// Stretches in which it never waited for leave: what was read in them, and how long they were.
    pub full_speed_bytes: u64,
    pub full_speed: Duration,
}

/// The stretch without a wait that goes on.
#[derive(Debug, Clone, Copy)]
struct FullSpeedPeriod {
    since: Instant,
    bytes: u64,
}

impl FullSpeedPeriod {
    fn after_wait(now: Instant) -> Self {
        Self { since: now + BACKLOG_DRAIN, bytes: 0 }
    }
}

/// Token bucket in bytes: filled over time, with a small capacity. Knows no clock.
#[derive(Debug, Clone, Copy, Default)]
struct TokenBucket {
    tokens: f64,
    refilled_s: f64,
}

impl TokenBucket {
    /// Bytes that may be read now, at most `wanted`; or the seconds to wait for them.
    fn take(&mut self, now_s: f64, rate: f64, wanted: usize) -> Result<usize, f64> {
        let piece = (rate * CHUNK_S).clamp(CHUNK_MIN, CHUNK_MAX);
        let most = (2.0 * piece).max(rate * BURST_S);
        self.tokens = (self.tokens + (now_s - self.refilled_s).max(0.0) * rate).min(most);
        self.refilled_s = now_s;
        let least = piece.min(wanted as f64);
        if self.tokens < least {
            return Err((least - self.tokens) / rate);
        }
        let taken = wanted.min(self.tokens.min(CHUNK_MAX) as usize);
        self.tokens -= taken as f64;
        Ok(taken)
    }

    fn return_tokens(&mut self, bytes: usize) {
        self.tokens += bytes as f64;
    }
}

impl Default for RateLimiter {
    /// Closed until [`RateLimiter::set_limit`] is called.
    fn default() -> Self {
        let state = State {
            started: None,
            limit: ReadLimit::Paused,
            bucket: TokenBucket::default(),
            close_reason: None,
            times: ReaderTimes::default(),
            full_speed: FullSpeedPeriod::after_wait(Instant::now()),
            handed_out: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), bytes_read: AtomicU64::new(0) }
    }
}

impl RateLimiter {
    pub fn set_limit(&self, allow: ReadLimit) {
        let mut state = self.state();
        if state.limit != allow {
            state.limit = allow;
            self.changed.notify_all();
        }
    }

    /// Closes the limiter for good: reads fail with this error.
    pub fn close(&self, why: &str) {
        self.state().close_reason.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    /// Why it ended, if it did.
    pub fn close_reason(&self) -> Option<String> {
        self.state().close_reason.clone()
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    pub fn times(&self) -> ReaderTimes {
        self.state().times
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before the lock is let go.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until some of `wanted` bytes may be read.
    fn acquire(&self, wanted: usize) -> io::Result<usize> {
        let mut state = self.state();
        let mut now = Instant::now();
        if let Some(handed) = state.handed_out.take() {
            state.times.consumer += now.saturating_duration_since(handed);
        }
        loop {
            if let Some(why) = &state.close_reason {
                return Err(io::Error::other(why.clone()));
            }
            let begun = *state.started.get_or_insert(now);
            let now_s = now.saturating_duration_since(begun).as_secs_f64();
            let (still, wait) = match state.limit {
                ReadLimit::Unlimited => return Ok(wanted),
                ReadLimit::Paused => (true, None),
                ReadLimit::Rate(rate) => match state.bucket.take(now_s, rate, wanted) {
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
            *(if still { &mut state.times.paused } else { &mut state.times.throttled }) += waited;
            state.end_full_speed_period(now);
            state.full_speed = FullSpeedPeriod::after_wait(woken);
            now = woken;
        }
    }

    /// Of what was taken, so much was read.
    fn record_read(&self, taken: usize, read: usize, since: Instant) {
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        let now = Instant::now();
        let mut state = self.state();
        state.bucket.return_tokens(taken - read);
        state.times.dump_wait += now.saturating_duration_since(since);
        state.handed_out = Some(now);
        if now >= state.full_speed.since {
            state.full_speed.bytes += read as u64;
        }
        if read == 0 {
            state.end_full_speed_period(now);
        }
    }
}

impl State {
    fn end_full_speed_period(&mut self, now: Instant) {
        let lasted = now.saturating_duration_since(self.full_speed.since);
        if lasted >= FULL_SPEED_MIN {
            self.times.full_speed += lasted;
            self.times.full_speed_bytes += self.full_speed.bytes;
        }
    }
}

/// Reader of a dump that is limited by its rate limiter.
#[derive(Debug)]
pub struct ThrottledReader<R> {
    inner: R,
    limiter: Arc<RateLimiter>,
}

impl<R: Read> ThrottledReader<R> {
    pub fn new(inner: R, limiter: Arc<RateLimiter>) -> Self {
        Self { inner, limiter }
    }
}

impl<R: Read> Read for ThrottledReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let taken = self.limiter.acquire(buffer.len())?;
        let since = Instant::now();
        let read = self.inner.read(&mut buffer[..taken]);
        self.limiter.record_read(taken, *read.as_ref().unwrap_or(&0), since);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_gives_the_rate_whatever_the_pieces_and_saves_little() {
        for (rate, wanted) in [(50e3, 65_536), (3e6, 10_000), (800e6, 65_536), (3e6, 65_536)] {
            let mut bucket = TokenBucket::default();
            let (mut now_s, mut taken, mut largest) = (0.0, 0, 0);
            while now_s < 100.0 {
                match bucket.take(now_s, rate, wanted) {
                    Ok(piece) => {
                        // Half of each is not there to be read, and is not lost.
                        bucket.return_tokens(piece - piece / 2);
                        taken += piece / 2;
                        largest = largest.max(piece);
                    }
                    Err(wait_s) => now_s += wait_s + 1e-4,
                }
            }
            let got = taken as f64 / now_s;
            assert!((got / rate - 1.0).abs() < 0.03, "{rate}: {got}");
            assert!(largest <= wanted && largest as f64 <= CHUNK_MAX);
        }
        let mut bucket = TokenBucket::default();
        bucket.take(1_000.0, 1e6, 65_536).unwrap();
        assert!(bucket.take(1_000.0, 1e6, 65_536).unwrap_or(0) <= 10_000, "an hour's rate was saved up");
    }

    #[test]
    fn what_passes_a_gate_is_what_came_and_its_waits_are_counted() {
        let limiter = Arc::new(RateLimiter::default());
        let bytes: Vec<u8> = (0..400_000u32).map(|i| (i % 251) as u8).collect();
        let mut throttled = ThrottledReader::new(&bytes[..], Arc::clone(&limiter));
        let reader = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut got = Vec::new();
                throttled.read_to_end(&mut got).unwrap();
                got
            });
            // Shut at first: nothing passes before it is told to open.
            limiter.set_limit(ReadLimit::Paused);
            assert_eq!(limiter.bytes_read(), 0);
            limiter.set_limit(ReadLimit::Rate(4e6));
            reader.join().unwrap()
        });
        assert_eq!(reader, bytes);
        assert_eq!(limiter.bytes_read(), bytes.len() as u64);
        assert!(limiter.times().throttled > Duration::ZERO);
    }

    #[test]
    fn a_gate_that_has_ended_wakes_its_reader_with_the_reason() {
        let limiter = Arc::new(RateLimiter::default());
        let reader = {
            let limiter = Arc::clone(&limiter);
            std::thread::spawn(move || ThrottledReader::new(&b"never"[..], limiter).read(&mut [0; 8]))
        };
        limiter.close("somebody said panic");
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "somebody said panic");
        assert_eq!(limiter.close_reason().as_deref(), Some("somebody said panic"));
    }
}
