//! What does one thread do all day: begin events when they are due, follow answers, note times?
//!
//! A worker owns its connections, its random stream and its tally; with others it shares only the
//! schedule. With several connections it waits in epoll; with one it simply reads, which saves a
//! system call for each answer.

use super::poller::Poller;
use super::reconnect::{Answer, Request};
use super::session::Session;
use super::slot::{Progress, Slot, State};
use super::tally::Tally;
use super::{RunError, Shared};
use crate::clock::{now_ns, sleep_until};
use crate::connection::Error;
use crate::mix::{Mix, Rng};
use crate::schedule::Due;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::Duration;

/// After the end, answers still on their way are awaited for this long.
const DRAIN_NS: u64 = 2_000_000_000;
/// How often a worker looks for connections that came back.
const LOOK_FOR_SESSIONS_NS: u64 = 5_000_000;
/// However long nothing happens, a worker looks this often whether it is to stop.
const LONGEST_WAIT_NS: u64 = 100_000_000;

/// One worker's tally of one bin.
pub struct Report {
    pub bin_end_ns: u64,
    /// The worker has ended; `bin_end_ns` is when.
    pub last: bool,
    pub tally: Tally,
}

/// The times of a run, all of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Bins end at `bin_origin_ns` plus multiples of `bin_ns`.
    pub bin_origin_ns: u64,
    pub bin_ns: u64,
}

impl Times {
    /// The first bin end after `now_ns`.
    pub fn bin_end_after(&self, now_ns: u64) -> u64 {
        let origin = self.bin_origin_ns % self.bin_ns;
        let past = (now_ns - origin.min(now_ns)) / self.bin_ns;
        origin + (past + 1) * self.bin_ns
    }
}

pub struct Worker {
    shared: Arc<Shared>,
    mix: Arc<Mix>,
    slots: Vec<Slot>,
    idle: Vec<usize>,
    down: usize,
    rng: Rng,
    poller: Poller,
    times: Times,
    tally: Tally,
    bin_end_ns: u64,
    reports: SyncSender<Report>,
    reserved: Option<Due>,
    lost: Sender<Request>,
    answer: Sender<Answer>,
    answers: Receiver<Answer>,
}

impl Worker {
    /// Takes over connected sessions; nothing is sent yet.
    pub fn new(
        shared: Arc<Shared>,
        mix: Arc<Mix>,
        sessions: Vec<Session>,
        rng: Rng,
        times: Times,
        reports: SyncSender<Report>,
        lost: Sender<Request>,
    ) -> Result<Self, RunError> {
        let slots: Vec<Slot> = sessions.into_iter().map(|s| Slot::new(Box::new(s))).collect();
        let (answer, answers) = channel();
        let worker = Self {
            idle: (0..slots.len()).rev().collect(),
            poller: Poller::new(slots.len()).map_err(RunError::System)?,
            tally: Tally::new(shared.schedule.is_some()),
            bin_end_ns: times.bin_end_after(times.start_ns),
            shared,
            mix,
            slots,
            down: 0,
            rng,
            times,
            reports,
            reserved: None,
            lost,
            answer,
            answers,
        };
        (0..worker.slots.len()).try_for_each(|key| worker.register(key)).map_err(RunError::System)?;
        Ok(worker)
    }

    fn is_lone(&self) -> bool {
        self.slots.len() == 1
    }

    fn register(&self, key: usize) -> std::io::Result<()> {
        let Some(session) = self.slots[key].session() else { return Ok(()) };
        let stream = session.connection.stream();
        if self.is_lone() {
            let limit = Some(Duration::from_nanos(self.times.bin_ns.min(LONGEST_WAIT_NS)));
            return stream.set_timeouts(limit, limit);
        }
        stream.set_nonblocking(true)?;
        self.poller.add(stream, key)
    }

    /// Works until the end of the run, then sends its last report.
    pub fn run(mut self) -> Result<(), RunError> {
        sleep_until(self.times.start_ns);
        let mut now = now_ns();
        let mut deadline_ns = self.times.end_ns;
        let mut over = false;
        loop {
            self.roll(now);
            if !over && (now >= self.times.end_ns || self.shared.stop.load(Relaxed)) {
                over = true;
                deadline_ns = now + DRAIN_NS;
            }
            if over && (self.idle.len() + self.down == self.slots.len() || now >= deadline_ns) {
                return self.finish(now);
            }
            if self.down > 0 {
                self.look_for_sessions()?;
            }
            if !over {
                now = self.begin_due(now)?;
            }
            self.wait(now, deadline_ns, over)?;
            now = now_ns();
        }
    }

    /// Begins events on idle connections for as long as any is due.
    fn begin_due(&mut self, mut now: u64) -> Result<u64, RunError> {
        while let Some(&key) = self.idle.last() {
            let Some(due) = self.next_due(now) else { break };
            self.idle.pop();
            self.begin(key, due, now)?;
            now = now_ns();
        }
        Ok(now)
    }

    /// The next event to begin, if its time has come.
    #[inline]
    fn next_due(&mut self, now: u64) -> Option<Due> {
        let Some(schedule) = &self.shared.schedule else {
            let number =
                if self.mix.sequence.is_some() { self.shared.sequence.fetch_add(1, Relaxed) } else { 0 };
            return Some(Due { intended_ns: now, number });
        };
        if self.reserved.is_none() {
            self.reserved = schedule.lock().unwrap_or_else(|e| e.into_inner()).take();
        }
        self.reserved.take_if(|due| due.intended_ns <= now)
    }

    #[inline]
    fn begin(&mut self, key: usize, due: Due, now: u64) -> Result<(), RunError> {
        let event = self.mix.pick(due.number, &mut self.rng);
        let progress = self.slots[key].begin(&self.mix, event, due.intended_ns, now, &mut self.rng);
        self.note(key, progress, now)
    }

    fn wait(&mut self, now: u64, deadline_ns: u64, over: bool) -> Result<(), RunError> {
        let mut until = self.bin_end_ns.min(deadline_ns).min(now + LONGEST_WAIT_NS);
        if self.down > 0 {
            until = until.min(now + LOOK_FOR_SESSIONS_NS);
        }
        if !self.idle.is_empty()
            && !over
            && let Some(due) = self.reserved
        {
            until = until.min(due.intended_ns);
        }
        if self.is_lone() {
            match self.slots[0].state {
                State::Idle | State::Down => sleep_until(until),
                State::Sending => {
                    let progress = self.slots[0].flush();
                    self.note(0, progress, now)?;
                }
                State::Waiting => self.follow(0)?,
            }
            return Ok(());
        }
        let found = self.poller.wait(until.saturating_sub(now)).map_err(RunError::System)?;
        for nth in 0..found {
            let (key, writable) = self.poller.ready(nth);
            if writable && self.slots[key].state == State::Sending {
                let progress = self.slots[key].flush();
                if self.slots[key].state == State::Waiting {
                    self.want_write(key, false)?;
                }
                self.note(key, progress, now)?;
            }
            if self.slots[key].state != State::Down {
                self.follow(key)?;
            }
        }
        Ok(())
    }

    fn want_write(&self, key: usize, want: bool) -> Result<(), RunError> {
        match self.slots[key].session() {
            Some(session) if !self.is_lone() => {
                self.poller.want_write(session.connection.stream(), key, want).map_err(RunError::System)
            }
            _ => Ok(()),
        }
    }

    /// Reads what came on a connection, and acts on it.
    #[inline]
    fn follow(&mut self, key: usize) -> Result<(), RunError> {
        let progress = self.slots[key].advance(&self.mix, &mut self.rng);
        if matches!(progress, Progress::Blocked) {
            return Ok(());
        }
        let now = now_ns();
        self.roll(now);
        self.note(key, progress, now)
    }

    #[inline]
    fn note(&mut self, key: usize, progress: Progress, now: u64) -> Result<(), RunError> {
        match progress {
            Progress::Blocked => {}
            Progress::Answered => self.tally.counts.statements += 1,
            Progress::Done => {
                self.tally.counts.statements += 1;
                let slot = &self.slots[key];
                self.tally.event(slot.intended_ns, slot.begun_ns, now);
                return self.next_on(key, now);
            }
            Progress::RollingBack(error) => {
                self.tally.counts.statements += 1;
                self.shared.remember(error.code, &error.message);
            }
            Progress::Failed(code, error) => {
                self.tally.counts.statements += 1;
                self.tally.failed_event(code);
                if let Some(error) = error {
                    self.shared.remember(code, &error.message);
                }
                return self.next_on(key, now);
            }
            Progress::Lost(error, under_way) => return self.lose(key, &error, under_way),
        }
        if self.slots[key].state == State::Sending {
            self.want_write(key, true)?;
        }
        Ok(())
    }

    /// A connection is free: in a closed loop it goes on at once.
    #[inline]
    fn next_on(&mut self, key: usize, now: u64) -> Result<(), RunError> {
        self.idle.push(key);
        // One at a time, and not while the run ends: the main loop sees to both.
        if self.is_lone() || now >= self.times.end_ns || self.shared.stop.load(Relaxed) {
            return Ok(());
        }
        self.begin_due(now).map(drop)
    }

    fn lose(&mut self, key: usize, error: &Error, under_way: bool) -> Result<(), RunError> {
        if matches!(error, Error::Server(_)) {
            self.tally.counts.statements += 1;
        }
        if under_way {
            self.tally.failed_event(error.code());
        } else {
            self.tally.failure(error.code());
            self.idle.retain(|idle| *idle != key);
        }
        self.shared.remember(error.code(), &error.to_string());
        self.down += 1;
        // The thread ends only with the run.
        let _ = self.lost.send(Request { slot: key, answer: self.answer.clone() });
        Ok(())
    }

    fn look_for_sessions(&mut self) -> Result<(), RunError> {
        while let Ok(answer) = self.answers.try_recv() {
            match answer {
                Answer::Failed(error) => {
                    self.tally.failure(error.code());
                    self.shared.remember(error.code(), &error.to_string());
                }
                Answer::Back { slot, session } => {
                    self.slots[slot].revive(session);
                    self.down -= 1;
                    self.idle.push(slot);
                    self.tally.counts.reconnects += 1;
                    self.register(slot).map_err(RunError::System)?;
                }
            }
        }
        Ok(())
    }

    /// Hands in every bin that has ended by now.
    #[inline]
    fn roll(&mut self, now: u64) {
        while now >= self.bin_end_ns {
            let end = self.bin_end_ns;
            self.bin_end_ns += self.times.bin_ns;
            self.hand_in(end, false);
        }
    }

    #[cold]
    fn hand_in(&mut self, end_ns: u64, last: bool) {
        let age = |intended_ns: u64| end_ns.saturating_sub(intended_ns);
        let busy = self.slots.iter().filter(|s| matches!(s.state, State::Sending | State::Waiting));
        let begun = busy.filter(|s| s.intended_ns <= end_ns);
        let (in_flight, oldest_ns) =
            begun.fold((0, 0), |(n, oldest): (u64, u64), slot| (n + 1, oldest.max(age(slot.intended_ns))));
        self.tally.counts.in_flight = in_flight;
        self.tally.counts.oldest_ns = oldest_ns.max(self.reserved.map_or(0, |due| age(due.intended_ns)));
        if let Some(schedule) = &self.shared.schedule
            && let Some(due) = schedule.lock().unwrap_or_else(|e| e.into_inner()).peek()
        {
            self.tally.counts.oldest_ns = self.tally.counts.oldest_ns.max(age(due.intended_ns));
        }
        let fresh = self.shared.spare().unwrap_or_else(|| Tally::new(self.shared.schedule.is_some()));
        let tally = std::mem::replace(&mut self.tally, fresh);
        // Waits where the reader is far behind; fails where it has gone, and then the run is ending.
        if self.reports.send(Report { bin_end_ns: end_ns, last, tally }).is_err() {
            self.shared.stop.store(true, Relaxed);
        }
    }

    fn finish(mut self, now: u64) -> Result<(), RunError> {
        self.roll(now);
        self.hand_in(now, true);
        Ok(())
    }
}
