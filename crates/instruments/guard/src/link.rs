//! toll's side of the guard: starts it, keeps saying that toll lives, and knows what it has said.

use super::breaker::{Condition, Trip};
use super::messages::{FromGuard, GuardSetup, Look, OffReport, ToGuard, receive, send};
use anyhow::{Context, Result, bail, ensure};
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toll_sys::{child_process, clock};

/// How often toll says that it lives.
const BEAT: Duration = Duration::from_millis(200);
/// The guard says so five times a second.
const SILENCE_US: u64 = 1_000_000;
/// To log in, choose a query and open all connections.
const READY_US: u64 = 15_000_000;
const DRILL_US: u64 = 5_000_000;
/// To end by itself, once the run is over.
const END_US: u64 = 5_000_000;
const POLL: Duration = Duration::from_millis(10);

/// A guard at work.
#[derive(Debug)]
pub struct GuardLink {
    child: Child,
    to_guard: Arc<Mutex<ChildStdin>>,
    known: Arc<Mutex<Known>>,
    /// 0: none is.
    on_since_us: Arc<AtomicU64>,
    written_bytes: Arc<AtomicU64>,
    statement_since_us: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

/// What the guard has said.
#[derive(Debug, Clone, Default)]
struct Known {
    is_ready: bool,
    /// CLOCK_MONOTONIC, microseconds.
    heard_us: u64,
    look: Look,
    trip: Option<Trip>,
    off: Option<OffReport>,
    recovered: Option<Option<f64>>,
    has_gone: bool,
}

/// What the guard did, for the report.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardOutcome {
    pub trip: Trip,
    pub off: Option<OffReport>,
    /// Seconds until the server was calm again; `None`: it was not, or it is not known.
    pub recovered_s: Option<f64>,
}

impl GuardLink {
    /// Starts the guard with `command`, and waits until all its connections are open. `on_look` is called with each look.
    ///
    /// `statement_since_us`: since when (CLOCK_MONOTONIC) toll's statement that switches has had no answer; 0: none is open.
    ///
    /// # Errors
    /// It cannot begin: nothing may be switched on. Its reason is on standard error.
    pub fn start(
        command: &[String],
        setup: &GuardSetup,
        statement_since_us: Arc<AtomicU64>,
        on_look: impl Fn(&Look) + Send + 'static,
    ) -> Result<Self> {
        let (program, words) = command.split_first().context("the guard needs a program")?;
        // In a group of its own: Ctrl-C at a terminal is for toll, which then ends the guard.
        let mut child = child_process::clean_env_command(program)
            .args(words)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the guard")?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the guard has no pipes")
        };
        let known = Arc::new(Mutex::new(Known { heard_us: clock::mono_us(), ..Known::default() }));
        let mut link = Self {
            child,
            to_guard: Arc::new(Mutex::new(stdin)),
            known,
            on_since_us: Arc::default(),
            written_bytes: Arc::default(),
            statement_since_us,
            stop: Arc::default(),
        };
        link.say(setup)?;
        let shared = Arc::clone(&link.known);
        std::thread::Builder::new().name("guard-ear".into()).spawn(move || {
            let mut from = BufReader::new(stdout);
            while let Ok(Some(message)) = receive::<FromGuard>(&mut from) {
                if let FromGuard::Beat { look } = &message {
                    on_look(look);
                }
                lock(&shared).learn(message);
            }
            lock(&shared).has_gone = true;
        })?;
        let is_ready = link.wait(READY_US, |known| known.is_ready || known.has_gone);
        let known = link.known();
        ensure!(
            is_ready && known.is_ready,
            "the guard did not begin{}",
            if is_ready { "" } else { " within 15 s" }
        );
        link.beat()?;
        Ok(link)
    }

    /// From now on the guard hears of toll five times a second.
    fn beat(&mut self) -> Result<()> {
        let (to_guard, stop, on) =
            (Arc::clone(&self.to_guard), Arc::clone(&self.stop), Arc::clone(&self.on_since_us));
        let (written, since) = (Arc::clone(&self.written_bytes), Arc::clone(&self.statement_since_us));
        std::thread::Builder::new().name("guard-beat".into()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let [on_us, statement_us] = [&on, &since].map(|since| match since.load(Ordering::Relaxed) {
                    0 => 0,
                    since_us => clock::mono_us().saturating_sub(since_us).max(1),
                });
                let beat =
                    ToGuard::Beat { on_us, written_bytes: written.load(Ordering::Relaxed), statement_us };
                if send(&mut *lock(&to_guard), &beat).is_err() {
                    return;
                }
                std::thread::sleep(BEAT);
            }
        })?;
        Ok(())
    }

    fn say(&self, message: &impl serde::Serialize) -> Result<()> {
        send(&mut *lock(&self.to_guard), message)
    }

    fn known(&self) -> Known {
        lock(&self.known).clone()
    }

    fn wait(&self, within_us: u64, holds: impl Fn(&Known) -> bool) -> bool {
        let until_us = clock::mono_us() + within_us;
        while !holds(&lock(&self.known)) {
            if clock::mono_us() >= until_us {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// Of the guard's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether a method is on, for the guard's next look.
    pub fn set_on(&self, is_on: bool) {
        self.on_since_us.store(if is_on { clock::mono_us() } else { 0 }, Ordering::Relaxed);
    }

    /// Bytes that the method has written, for the guard's next look.
    pub fn set_written(&self, bytes: u64) {
        self.written_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Why the run must end; `None`: it may go on.
    #[must_use]
    pub fn reason_to_end(&self, now_us: u64) -> Option<String> {
        let known = lock(&self.known);
        if let Some(trip) = &known.trip {
            return Some(format!("the breaker tripped: {}", trip.reason));
        }
        if known.has_gone {
            return Some("the guard has gone".into());
        }
        let silent_us = now_us.saturating_sub(known.heard_us);
        (silent_us > SILENCE_US)
            .then(|| format!("the guard has not been heard of for {:.1} s", silent_us as f64 / 1e6))
    }

    #[must_use]
    pub fn look(&self) -> Look {
        lock(&self.known).look
    }

    /// Has the guard trip once with nothing on, and returns what came of it.
    ///
    /// # Errors
    /// It does not trip in time, or cannot switch off.
    pub fn drill(&self) -> Result<OffReport> {
        self.say(&ToGuard::Drill)?;
        let is_off = self.wait(DRILL_US, |known| known.off.is_some() || known.has_gone);
        let mut known = lock(&self.known);
        if let Some(trip) = known.trip.as_ref().filter(|trip| trip.condition != Condition::Drill) {
            bail!("the breaker tripped before anything was on: {}", trip.reason);
        }
        known.trip = None;
        let report = known.off.take();
        let report = report.filter(|_| is_off).context("the guard did not trip in its drill within 5 s")?;
        ensure!(report.failures.is_empty(), "in its drill the guard failed: {}", report.failures.join("; "));
        Ok(report)
    }

    /// Ends the guard, and says what it did. Waits for its look at the server's recovery.
    ///
    /// # Errors
    /// It does not end; it is killed then.
    pub fn end(mut self) -> Result<Option<GuardOutcome>> {
        const RECOVERY_US: u64 = 35_000_000;
        if lock(&self.known).trip.is_some() {
            self.wait(RECOVERY_US, |known| known.recovered.is_some() || known.has_gone);
        } else {
            // One that has gone by itself has nothing to hear.
            let _ = self.say(&ToGuard::End);
        }
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.wait(END_US, |known| known.has_gone);
        let known = self.known();
        if !ended {
            self.child.kill()?;
        }
        self.child.wait()?;
        ensure!(ended, "the guard did not end within 5 s, and was killed");
        Ok(known.trip.map(|trip| GuardOutcome {
            trip,
            off: known.off,
            recovered_s: known.recovered.flatten(),
        }))
    }
}

impl Drop for GuardLink {
    fn drop(&mut self) {
        // Without a word: the guard switches off what is on, and ends.
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Known {
    fn learn(&mut self, message: FromGuard) {
        self.heard_us = clock::mono_us();
        match message {
            FromGuard::Ready => self.is_ready = true,
            FromGuard::Beat { look } => self.look = look,
            FromGuard::Tripped { trip } => self.trip = Some(trip),
            FromGuard::Off { report } => self.off = Some(report),
            FromGuard::Recovered { after_s } => self.recovered = Some(after_s),
        }
    }
}

/// Each update is whole before the lock is let go, so a panic elsewhere spoils nothing.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
