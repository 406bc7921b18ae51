//! Worker thread with several non-blocking connections: starts due events, reads responses, records times.
//!
//! A worker owns its connections, its random stream and its counters. It shares only the schedule with other
//! workers. It waits in epoll.

use super::hold::WAKE_NS;
use super::ledger::{Ledger, Report};
use super::poller::Poller;
use super::reconnect::{Answer, Request};
use super::session::Session;
use super::slot::{Progress, Slot, State};
use super::{DRAIN_NS, LONGEST_WAIT_NS, RunError, Shared};
use crate::mix::Mix;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use toll_stats::random::Rng;
use toll_stats::schedule::ScheduledEvent;
use toll_sys::clock::{mono_ns, sleep_until_ns};

/// How often a worker looks for connections that came back.
const LOOK_FOR_SESSIONS_NS: u64 = 5_000_000;

pub struct Worker {
    shared: Arc<Shared>,
    mix: Arc<Mix>,
    slots: Vec<Slot>,
    idle: Vec<usize>,
    /// Events that are held back, by when they are done; one whose connection broke meanwhile is no longer.
    held: BinaryHeap<Reverse<(u64, usize)>>,
    down: usize,
    rng: Rng,
    poller: Poller,
    ledger: Ledger,
    reports: SyncSender<Report>,
    reserved: Option<ScheduledEvent>,
    lost: Sender<Request>,
    answer: Sender<Answer>,
    answers: Receiver<Answer>,
}

impl Worker {
    /// Takes over connected sessions; nothing is sent yet.
    pub fn new(
        shared: Arc<Shared>,
        sessions: Vec<Session>,
        rng: Rng,
        reports: SyncSender<Report>,
        lost: Sender<Request>,
    ) -> Result<Self, RunError> {
        let slots: Vec<Slot> = sessions.into_iter().map(|s| Slot::new(Box::new(s))).collect();
        let (answer, answers) = channel();
        let mut worker = Self {
            idle: (0..slots.len()).rev().collect(),
            poller: Poller::new(slots.len()).map_err(RunError::System)?,
            ledger: Ledger::new(shared.clone()),
            mix: shared.access.mix.clone(),
            shared,
            slots,
            held: BinaryHeap::new(),
            down: 0,
            rng,
            reports,
            reserved: None,
            lost,
            answer,
            answers,
        };
        (0..worker.slots.len()).try_for_each(|key| worker.register(key)).map_err(RunError::System)?;
        Ok(worker)
    }

    fn register(&mut self, key: usize) -> std::io::Result<()> {
        let Some(session) = self.slots[key].session() else { return Ok(()) };
        session.connection.set_nonblocking()?;
        self.poller.add(session.connection.stream(), key)
    }

    /// Works until the end of the run, then sends its last report.
    pub fn run(mut self) -> Result<(), RunError> {
        sleep_until_ns(self.shared.times.start_ns);
        let mut now = mono_ns();
        let mut deadline_ns = self.shared.times.end_ns;
        let mut over = false;
        loop {
            self.roll(now);
            now = self.release_held(now)?;
            if !over && self.shared.is_over(now) {
                over = true;
                deadline_ns = now + DRAIN_NS;
            }
            if over && (self.idle.len() + self.down == self.slots.len() || now >= deadline_ns) {
                self.finish(now);
                return Ok(());
            }
            if self.down > 0 {
                self.look_for_sessions()?;
            }
            if !over {
                now = self.begin_due(now)?;
            }
            self.wait(now, deadline_ns, over)?;
            now = mono_ns();
        }
    }

    /// Begins events on idle connections for as long as any is due.
    fn begin_due(&mut self, mut now: u64) -> Result<u64, RunError> {
        while let Some(&key) = self.idle.last() {
            let Some(due) = self.shared.next_due(&mut self.reserved, now) else { break };
            self.idle.pop();
            self.begin(key, due, now)?;
            now = mono_ns();
        }
        Ok(now)
    }

    #[inline]
    fn begin(&mut self, key: usize, due: ScheduledEvent, now: u64) -> Result<(), RunError> {
        let event = self.mix.pick(due.number, &mut self.rng);
        let progress = self.slots[key].begin(&self.mix, event, due.intended_ns, now, &mut self.rng);
        self.note(key, progress, now)
    }

    fn wait(&mut self, now: u64, deadline_ns: u64, over: bool) -> Result<(), RunError> {
        let mut until = self.ledger.bin_end_ns().min(deadline_ns).min(now + LONGEST_WAIT_NS);
        if self.down > 0 {
            until = until.min(now + LOOK_FOR_SESSIONS_NS);
        }
        if let Some(Reverse((done_ns, _))) = self.held.peek() {
            until = until.min(done_ns.saturating_sub(WAKE_NS));
        }
        if !self.idle.is_empty()
            && !over
            && let Some(due) = self.reserved
        {
            until = until.min(due.intended_ns);
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

    fn want_write(&mut self, key: usize, want: bool) -> Result<(), RunError> {
        let Some(session) = self.slots[key].session() else { return Ok(()) };
        self.poller.want_write(session.connection.stream(), key, want).map_err(RunError::System)
    }

    /// Reads what came on a connection, and acts on it.
    #[inline]
    fn follow(&mut self, key: usize) -> Result<(), RunError> {
        let progress = self.slots[key].advance(&self.mix, &mut self.rng);
        if matches!(progress, Progress::Blocked) {
            return Ok(());
        }
        let now = mono_ns();
        self.roll(now);
        self.note(key, progress, now)
    }

    /// Counts the events whose time has come; answers what time it is then.
    fn release_held(&mut self, mut now: u64) -> Result<u64, RunError> {
        while let Some(&Reverse((until_ns, key))) = self.held.peek()
            && until_ns <= now
        {
            self.held.pop();
            if (self.slots[key].state == State::Held { until_ns }) {
                self.slots[key].state = State::Idle;
                self.ledger.note(&Progress::Done, &self.slots[key], now);
                self.next_on(key, now)?;
                now = mono_ns();
                self.roll(now);
            }
        }
        Ok(now)
    }

    #[inline]
    fn note(&mut self, key: usize, progress: Progress, now: u64) -> Result<(), RunError> {
        if let (Progress::Done, Some(hold)) = (&progress, self.shared.hold) {
            let until_ns = hold.until_ns(self.slots[key].begun_ns, now);
            self.slots[key].state = State::Held { until_ns };
            self.held.push(Reverse((until_ns, key)));
            return Ok(());
        }
        self.ledger.note(&progress, &self.slots[key], now);
        match progress {
            Progress::Blocked | Progress::Answered | Progress::RollingBack(_) => {}
            Progress::Done | Progress::Failed(..) => return self.next_on(key, now),
            Progress::Lost(_, under_way) => {
                self.lose(key, under_way);
                return Ok(());
            }
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
        // Not while the run ends: the main loop sees to that.
        if self.shared.is_over(now) {
            return Ok(());
        }
        self.begin_due(now).map(drop)
    }

    fn lose(&mut self, key: usize, under_way: bool) {
        if !under_way {
            self.idle.retain(|idle| *idle != key);
        }
        self.down += 1;
        // The thread ends only with the run.
        let _ = self.lost.send(Request { slot: key, answer: self.answer.clone() });
    }

    fn look_for_sessions(&mut self) -> Result<(), RunError> {
        while let Ok(answer) = self.answers.try_recv() {
            match answer {
                Answer::Failed(error) => self.ledger.refused(&error),
                Answer::Back { slot, session } => {
                    self.slots[slot].revive(session);
                    self.down -= 1;
                    self.idle.push(slot);
                    self.ledger.reconnected();
                    self.register(slot).map_err(RunError::System)?;
                }
            }
        }
        Ok(())
    }

    /// Hands in every bin that has ended by now.
    #[inline]
    fn roll(&mut self, now: u64) {
        while let Some(report) = self.ledger.ended_bin(now, begun(&self.slots), self.reserved) {
            self.shared.hand_in(&self.reports, report);
        }
    }

    fn finish(mut self, now: u64) {
        self.roll(now);
        let last = self.ledger.last(now, begun(&self.slots), self.reserved);
        self.shared.hand_in(&self.reports, last);
    }
}

/// Intended times of the events under way.
fn begun(slots: &[Slot]) -> impl Iterator<Item = u64> {
    let busy = slots.iter().filter(|slot| !matches!(slot.state, State::Down | State::Idle));
    busy.map(|slot| slot.intended_ns)
}
