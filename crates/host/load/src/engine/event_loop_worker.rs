//! Worker thread with several non-blocking connections: starts due events, reads responses, records times.
//!
//! A worker owns its connections, its random stream and its counters. It shares only the schedule with other
//! workers. It waits in epoll.

use super::connection_slot::{ConnectionSlot, SlotProgress, SlotState};
use super::delay_injection::WAKE_LATENCY_NS;
use super::poller::Poller;
use super::reconnect::{ReconnectRequest, ReconnectResult};
use super::session::Session;
use super::worker_counters::{BinReport, WorkerCounters};
use super::{DRAIN_NS, MAX_WAIT_NS, RunError, Shared};
use crate::mix::Mix;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use toll_stats::random::Rng;
use toll_stats::schedule::ScheduledEvent;
use toll_sys::clock::{mono_ns, sleep_until_ns};

/// How often a worker looks for connections that came back.
const RECONNECT_POLL_NS: u64 = 5_000_000;

pub struct EventLoopWorker {
    shared: Arc<Shared>,
    mix: Arc<Mix>,
    slots: Vec<ConnectionSlot>,
    idle: Vec<usize>,
    /// Events that are held back, by when they are done; one whose connection broke meanwhile is no longer.
    delayed: BinaryHeap<Reverse<(u64, usize)>>,
    disconnected: usize,
    rng: Rng,
    poller: Poller,
    counters: WorkerCounters,
    reports: SyncSender<BinReport>,
    reserved: Option<ScheduledEvent>,
    reconnect_requests: Sender<ReconnectRequest>,
    reconnect_sender: Sender<ReconnectResult>,
    reconnect_results: Receiver<ReconnectResult>,
}

impl EventLoopWorker {
    /// Takes over connected sessions; nothing is sent yet.
    pub fn new(
        shared: Arc<Shared>,
        sessions: Vec<Session>,
        rng: Rng,
        reports: SyncSender<BinReport>,
        lost: Sender<ReconnectRequest>,
    ) -> Result<Self, RunError> {
        let slots: Vec<ConnectionSlot> =
            sessions.into_iter().map(|s| ConnectionSlot::new(Box::new(s))).collect();
        let (answer, answers) = channel();
        let mut worker = Self {
            idle: (0..slots.len()).rev().collect(),
            poller: Poller::new(slots.len()).map_err(RunError::System)?,
            counters: WorkerCounters::new(shared.clone()),
            mix: shared.access.mix.clone(),
            shared,
            slots,
            delayed: BinaryHeap::new(),
            disconnected: 0,
            rng,
            reports,
            reserved: None,
            reconnect_requests: lost,
            reconnect_sender: answer,
            reconnect_results: answers,
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
            self.submit_ended_bins(now);
            now = self.finish_delayed_events(now)?;
            if !over && self.shared.is_over(now) {
                over = true;
                deadline_ns = now + DRAIN_NS;
            }
            if over && (self.idle.len() + self.disconnected == self.slots.len() || now >= deadline_ns) {
                self.finish(now);
                return Ok(());
            }
            if self.disconnected > 0 {
                self.install_new_sessions()?;
            }
            if !over {
                now = self.begin_due_events(now)?;
            }
            self.wait(now, deadline_ns, over)?;
            now = mono_ns();
        }
    }

    /// Begins events on idle connections for as long as any is due.
    fn begin_due_events(&mut self, mut now: u64) -> Result<u64, RunError> {
        while let Some(&key) = self.idle.last() {
            let Some(due) = self.shared.next_due(&mut self.reserved, now) else { break };
            self.idle.pop();
            self.begin_event(key, due, now)?;
            now = mono_ns();
        }
        Ok(now)
    }

    #[inline]
    fn begin_event(&mut self, key: usize, due: ScheduledEvent, now: u64) -> Result<(), RunError> {
        let event = self.mix.pick_event(due.number, &mut self.rng);
        let progress = self.slots[key].begin_event(&self.mix, event, due.intended_ns, now, &mut self.rng);
        self.record_progress(key, progress, now)
    }

    fn wait(&mut self, now: u64, deadline_ns: u64, over: bool) -> Result<(), RunError> {
        let mut until = self.counters.bin_end_ns().min(deadline_ns).min(now + MAX_WAIT_NS);
        if self.disconnected > 0 {
            until = until.min(now + RECONNECT_POLL_NS);
        }
        if let Some(Reverse((done_ns, _))) = self.delayed.peek() {
            until = until.min(done_ns.saturating_sub(WAKE_LATENCY_NS));
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
            if writable && self.slots[key].state == SlotState::Sending {
                let progress = self.slots[key].flush();
                if self.slots[key].state == SlotState::Waiting {
                    self.set_write_interest(key, false)?;
                }
                self.record_progress(key, progress, now)?;
            }
            if self.slots[key].state != SlotState::Disconnected {
                self.read_responses(key)?;
            }
        }
        Ok(())
    }

    fn set_write_interest(&mut self, key: usize, want: bool) -> Result<(), RunError> {
        let Some(session) = self.slots[key].session() else { return Ok(()) };
        self.poller.set_write_interest(session.connection.stream(), key, want).map_err(RunError::System)
    }

    /// Reads what came on a connection, and acts on it.
    #[inline]
    fn read_responses(&mut self, key: usize) -> Result<(), RunError> {
        let progress = self.slots[key].advance(&self.mix, &mut self.rng);
        if matches!(progress, SlotProgress::Blocked) {
            return Ok(());
        }
        let now = mono_ns();
        self.submit_ended_bins(now);
        self.record_progress(key, progress, now)
    }

    /// Counts the events whose time has come; answers what time it is then.
    fn finish_delayed_events(&mut self, mut now: u64) -> Result<u64, RunError> {
        while let Some(&Reverse((until_ns, key))) = self.delayed.peek()
            && until_ns <= now
        {
            self.delayed.pop();
            if (self.slots[key].state == SlotState::Delayed { until_ns }) {
                self.slots[key].state = SlotState::Idle;
                self.counters.record_progress(&SlotProgress::Done, &self.slots[key], now);
                self.reuse_connection(key, now)?;
                now = mono_ns();
                self.submit_ended_bins(now);
            }
        }
        Ok(now)
    }

    #[inline]
    fn record_progress(&mut self, key: usize, progress: SlotProgress, now: u64) -> Result<(), RunError> {
        if let (SlotProgress::Done, Some(hold)) = (&progress, self.shared.delay) {
            let until_ns = hold.release_ns(self.slots[key].begun_ns, now);
            self.slots[key].state = SlotState::Delayed { until_ns };
            self.delayed.push(Reverse((until_ns, key)));
            return Ok(());
        }
        self.counters.record_progress(&progress, &self.slots[key], now);
        match progress {
            SlotProgress::Blocked | SlotProgress::Answered | SlotProgress::RollingBack(_) => {}
            SlotProgress::Done | SlotProgress::Failed(..) => return self.reuse_connection(key, now),
            SlotProgress::Lost(_, under_way) => {
                self.request_reconnect(key, under_way);
                return Ok(());
            }
        }
        if self.slots[key].state == SlotState::Sending {
            self.set_write_interest(key, true)?;
        }
        Ok(())
    }

    /// A connection is free: in a closed loop it goes on at once.
    #[inline]
    fn reuse_connection(&mut self, key: usize, now: u64) -> Result<(), RunError> {
        self.idle.push(key);
        // Not while the run ends: the main loop sees to that.
        if self.shared.is_over(now) {
            return Ok(());
        }
        self.begin_due_events(now).map(drop)
    }

    fn request_reconnect(&mut self, key: usize, under_way: bool) {
        if !under_way {
            self.idle.retain(|idle| *idle != key);
        }
        self.disconnected += 1;
        // The thread ends only with the run.
        let _ = self
            .reconnect_requests
            .send(ReconnectRequest { slot: key, reply_to: self.reconnect_sender.clone() });
    }

    fn install_new_sessions(&mut self) -> Result<(), RunError> {
        while let Ok(answer) = self.reconnect_results.try_recv() {
            match answer {
                ReconnectResult::Failed(error) => self.counters.record_connect_failure(&error),
                ReconnectResult::Reconnected { slot, session } => {
                    self.slots[slot].replace_session(session);
                    self.disconnected -= 1;
                    self.idle.push(slot);
                    self.counters.record_reconnect();
                    self.register(slot).map_err(RunError::System)?;
                }
            }
        }
        Ok(())
    }

    /// Hands in every bin that has ended by now.
    #[inline]
    fn submit_ended_bins(&mut self, now: u64) {
        while let Some(report) =
            self.counters.take_ended_bin(now, intended_times_in_flight(&self.slots), self.reserved)
        {
            self.shared.submit_report(&self.reports, report);
        }
    }

    fn finish(mut self, now: u64) {
        self.submit_ended_bins(now);
        let last = self.counters.final_report(now, intended_times_in_flight(&self.slots), self.reserved);
        self.shared.submit_report(&self.reports, last);
    }
}

/// Intended times of the events under way.
fn intended_times_in_flight(slots: &[ConnectionSlot]) -> impl Iterator<Item = u64> {
    let busy = slots.iter().filter(|slot| !matches!(slot.state, SlotState::Disconnected | SlotState::Idle));
    busy.map(|slot| slot.intended_ns)
}
