//! Worker thread with a single blocking connection.
//!
//! Its reads block until the server responds, so a request costs one write, one read and one clock read.
//! Tasks that it cannot do meanwhile go through its [`WorkerHandle`]. It also reconnects where events have
//! connections of their own.

use super::connection_slot::{ConnectionSlot, SlotProgress, SlotState};
use super::event_quota::EventQuota;
use super::reconnect::{ReconnectRequest, ReconnectResult};
use super::session::Session;
use super::watchdog::{WorkerHandle, WorkerState};
use super::worker_counters::BinReport;
use super::{MAX_WAIT_NS, RunError, Shared};
use crate::mix::Mix;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::Duration;
use toll_mysql::connection::Error;
use toll_stats::random::Rng;
use toll_stats::schedule::ScheduledEvent;
use toll_sys::clock::{mono_ns, sleep_until_ns};

pub struct BlockingWorker {
    shared: Arc<Shared>,
    mix: Arc<Mix>,
    handle: Arc<WorkerHandle>,
    slot: ConnectionSlot,
    rng: Rng,
    /// As it was at first.
    first_rng: Rng,
    reports: SyncSender<BinReport>,
    reserved: Option<ScheduledEvent>,
    /// Events that this connection has carried to their end.
    events_on_connection: u64,
    /// Where the load rests at bin edges.
    quota: Option<EventQuota>,
    /// The connection was lost; another was asked for.
    broken: bool,
    reconnect_requests: Sender<ReconnectRequest>,
    reconnect_sender: Sender<ReconnectResult>,
    reconnect_results: Receiver<ReconnectResult>,
}

impl BlockingWorker {
    /// Takes over a connected session; nothing is sent yet.
    pub fn new(
        shared: Arc<Shared>,
        account: Arc<WorkerHandle>,
        mut session: Session,
        rng: Rng,
        reports: SyncSender<BinReport>,
        lost: Sender<ReconnectRequest>,
    ) -> Result<Self, RunError> {
        account.register_session(&mut session)?;
        let slot = ConnectionSlot::new(Box::new(session));
        let (answer, answers) = channel();
        let quota = shared.rest_at_edges.then(|| EventQuota::new(shared.times));
        Ok(Self {
            mix: shared.access.mix.clone(),
            shared,
            handle: account,
            slot,
            first_rng: rng.clone(),
            rng,
            reports,
            reserved: None,
            events_on_connection: 0,
            quota,
            broken: false,
            reconnect_requests: lost,
            reconnect_sender: answer,
            reconnect_results: answers,
        })
    }

    /// Works until the end of the run, then sends its last report.
    pub fn run(mut self) -> Result<(), RunError> {
        sleep_until_ns(self.shared.times.start_ns);
        let mut now = mono_ns();
        while !self.shared.is_over(now) {
            now = if self.broken {
                self.wait_for_session()?
            } else if let Some(edge_ns) = self.quota.as_mut().and_then(|quota| quota.edge_to_rest_at(now)) {
                self.rest(edge_ns)
            } else if let Some(due) = self.shared.next_due(&mut self.reserved, now) {
                let free = self.run_event(due, now);
                if let Some(quota) = &mut self.quota {
                    quota.record(free.saturating_sub(now));
                }
                free
            } else {
                let due_ns = self.reserved.map_or(u64::MAX, |due| due.intended_ns);
                sleep_until_ns(due_ns.min(self.shared.times.end_ns).min(now + MAX_WAIT_NS));
                mono_ns()
            };
        }
        self.finish();
        Ok(())
    }

    /// Waits for the edge, and hands in its bin. The next bin has the same events.
    fn rest(&mut self, edge_ns: u64) -> u64 {
        self.rng = self.first_rng.clone();
        sleep_until_ns(edge_ns.min(self.shared.times.end_ns));
        let mut entries = self.handle.lock_state();
        self.submit_ended_bins(&mut entries, mono_ns())
    }

    /// One event from its begin to its end, with the connection that it may need; answers when the
    /// next may begin.
    #[inline]
    fn run_event(&mut self, due: ScheduledEvent, now: u64) -> u64 {
        self.handle.begin_event(due.intended_ns);
        if self.slot.state == SlotState::Disconnected
            && let Err(error) = self.connect()
        {
            return self.fail_event(&error);
        }
        let event = self.mix.pick_event(due.number, &mut self.rng);
        let mut progress = self.slot.begin_event(&self.mix, event, due.intended_ns, now, &mut self.rng);
        loop {
            if let (SlotProgress::Done, Some(hold)) = (&progress, self.shared.delay)
                && !hold.wait_for_release(self.slot.begun_ns, &self.shared)
            {
                // Stays under way: that is how it is counted at the end.
                return mono_ns();
            }
            if !matches!(progress, SlotProgress::Blocked)
                && let Some(free) = self.record_progress(&progress)
            {
                return if self.is_connection_spent() { self.disconnect() } else { free };
            }
            progress = self.slot.advance(&self.mix, &mut self.rng);
        }
    }

    /// True if the connection has carried all its planned events.
    #[inline]
    fn is_connection_spent(&self) -> bool {
        let every = self.shared.reconnect_every;
        every > 0 && self.events_on_connection >= every && self.slot.state == SlotState::Idle
    }

    /// Closes the session. Returns the time at which the server has closed, which counts into no latency.
    fn disconnect(&mut self) -> u64 {
        if let Some(session) = self.slot.take_session() {
            session.connection.quit();
        }
        mono_ns()
    }

    /// Makes the connection anew, as the plan says.
    fn connect(&mut self) -> Result<(), Error> {
        let mut session =
            self.shared.access.open_session(|cutter| self.handle.register_connection(cutter))?;
        self.handle.register_session(&mut session)?;
        self.install_session(Box::new(session));
        let mut entries = self.handle.lock_state();
        self.submit_ended_bins(&mut entries, mono_ns());
        entries.counters.record_planned_reconnect();
        Ok(())
    }

    /// The connection could not be made anew: the event has failed, and the connection is treated as
    /// any that broke.
    fn fail_event(&mut self, error: &Error) -> u64 {
        let mut entries = self.handle.lock_state();
        let free = self.submit_ended_bins(&mut entries, mono_ns());
        if entries.was_cut {
            return free;
        }
        entries.counters.record_event_connect_failure(error);
        self.handle.end_event();
        drop(entries);
        self.request_session();
        free
    }

    fn install_session(&mut self, session: Box<Session>) {
        self.slot.replace_session(session);
        self.events_on_connection = 0;
        self.broken = false;
    }

    fn request_session(&mut self) {
        self.broken = true;
        // The thread ends only with the run.
        let _ = self
            .reconnect_requests
            .send(ReconnectRequest { slot: 0, reply_to: self.reconnect_sender.clone() });
    }

    /// Records the progress of the event. Returns the earliest start of the next one, once it is over.
    #[inline]
    fn record_progress(&mut self, progress: &SlotProgress) -> Option<u64> {
        let mut entries = self.handle.lock_state();
        let now = mono_ns();
        let free = self.submit_ended_bins(&mut entries, now);
        let lost = matches!(progress, SlotProgress::Lost(..));
        if lost && entries.was_cut {
            // Stays under way: that is how it is counted at the end.
            return Some(free);
        }
        entries.counters.record_progress(progress, &self.slot, now);
        if matches!(progress, SlotProgress::Answered | SlotProgress::RollingBack(_)) {
            return None;
        }
        self.handle.end_event();
        drop(entries);
        self.events_on_connection += 1;
        if lost {
            self.request_session();
        }
        Some(free)
    }

    /// Waits for a connection in the place of the broken one, or for a while; answers the time.
    fn wait_for_session(&mut self) -> Result<u64, RunError> {
        let answer = self.reconnect_results.recv_timeout(Duration::from_nanos(MAX_WAIT_NS));
        let mut entries = self.handle.lock_state();
        let now = mono_ns();
        let free = self.submit_ended_bins(&mut entries, now);
        match answer {
            Ok(ReconnectResult::Failed(error)) => entries.counters.record_connect_failure(&error),
            Ok(ReconnectResult::Reconnected { mut session, .. }) => {
                entries.counters.record_reconnect();
                drop(entries);
                self.handle.register_session(&mut session)?;
                self.install_session(session);
            }
            // We hold a sender ourselves: it was the time.
            Err(_) => {}
        }
        Ok(free)
    }

    /// Hands in every bin that has ended by now; answers the time at which that is done, so that it
    /// counts into no latency.
    #[inline]
    fn submit_ended_bins(&self, entries: &mut WorkerState, now: u64) -> u64 {
        let mut free = now;
        while let Some(report) =
            entries.counters.take_ended_bin(now, self.handle.event_in_flight(), self.reserved)
        {
            self.shared.submit_report(&self.reports, report);
            free = mono_ns();
        }
        free
    }

    fn finish(self) {
        let mut entries = self.handle.lock_state();
        let now = mono_ns();
        self.submit_ended_bins(&mut entries, now);
        let last = entries.counters.final_report(now, self.handle.event_in_flight(), self.reserved);
        self.shared.submit_report(&self.reports, last);
    }
}
