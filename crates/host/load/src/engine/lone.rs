//! Worker thread with a single blocking connection.
//!
//! Its reads block until the server responds, so a request costs one write, one read and one clock read.
//! Tasks that it cannot do meanwhile go through its [`Account`]. It also reconnects where events have
//! connections of their own.

use super::account::{Account, Entries};
use super::ledger::Report;
use super::reconnect::{Answer, Request};
use super::session::Session;
use super::slot::{Progress, Slot, State};
use super::{LONGEST_WAIT_NS, RunError, Shared};
use crate::mix::Mix;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::Duration;
use toll_mysql::connection::Error;
use toll_stats::random::Rng;
use toll_stats::schedule::ScheduledEvent;
use toll_sys::clock::{mono_ns, sleep_until_ns};

pub struct Lone {
    shared: Arc<Shared>,
    mix: Arc<Mix>,
    account: Arc<Account>,
    slot: Slot,
    rng: Rng,
    reports: SyncSender<Report>,
    reserved: Option<ScheduledEvent>,
    /// Events that this connection has carried to their end.
    carried: u64,
    /// The connection was lost; another was asked for.
    broken: bool,
    lost: Sender<Request>,
    answer: Sender<Answer>,
    answers: Receiver<Answer>,
}

impl Lone {
    /// Takes over a connected session; nothing is sent yet.
    pub fn new(
        shared: Arc<Shared>,
        account: Arc<Account>,
        mut session: Session,
        rng: Rng,
        reports: SyncSender<Report>,
        lost: Sender<Request>,
    ) -> Result<Self, RunError> {
        account.adopt(&mut session)?;
        let slot = Slot::new(Box::new(session));
        let (answer, answers) = channel();
        Ok(Self {
            mix: shared.access.mix.clone(),
            shared,
            account,
            slot,
            rng,
            reports,
            reserved: None,
            carried: 0,
            broken: false,
            lost,
            answer,
            answers,
        })
    }

    /// Works until the end of the run, then sends its last report.
    pub fn run(mut self) -> Result<(), RunError> {
        sleep_until_ns(self.shared.times.start_ns);
        let mut now = mono_ns();
        while !self.shared.is_over(now) {
            now = if self.broken {
                self.await_session()?
            } else if let Some(due) = self.shared.next_due(&mut self.reserved, now) {
                self.carry_out(due, now)
            } else {
                let due_ns = self.reserved.map_or(u64::MAX, |due| due.intended_ns);
                sleep_until_ns(due_ns.min(self.shared.times.end_ns).min(now + LONGEST_WAIT_NS));
                mono_ns()
            };
        }
        self.finish();
        Ok(())
    }

    /// One event from its begin to its end, with the connection that it may need; answers when the
    /// next may begin.
    #[inline]
    fn carry_out(&mut self, due: ScheduledEvent, now: u64) -> u64 {
        self.account.begin(due.intended_ns);
        if self.slot.state == State::Down
            && let Err(error) = self.connect()
        {
            return self.refuse(&error);
        }
        let event = self.mix.pick(due.number, &mut self.rng);
        let mut progress = self.slot.begin(&self.mix, event, due.intended_ns, now, &mut self.rng);
        loop {
            if let (Progress::Done, Some(hold)) = (&progress, self.shared.hold)
                && !hold.wait(self.slot.begun_ns, &self.shared)
            {
                // Stays under way: that is how it is counted at the end.
                return mono_ns();
            }
            if !matches!(progress, Progress::Blocked)
                && let Some(free) = self.note(&progress)
            {
                return if self.is_spent() { self.leave() } else { free };
            }
            progress = self.slot.advance(&self.mix, &mut self.rng);
        }
    }

    /// True if the connection has carried all its planned events.
    #[inline]
    fn is_spent(&self) -> bool {
        let every = self.shared.reconnect_every;
        every > 0 && self.carried >= every && self.slot.state == State::Idle
    }

    /// Closes the session. Returns the time at which the server has closed, which counts into no latency.
    fn leave(&mut self) -> u64 {
        if let Some(session) = self.slot.leave() {
            session.connection.quit();
        }
        mono_ns()
    }

    /// Makes the connection anew, as the plan says.
    fn connect(&mut self) -> Result<(), Error> {
        let mut session = self.shared.access.open(|cutter| self.account.attach(cutter))?;
        self.account.adopt(&mut session)?;
        self.revive(Box::new(session));
        let mut entries = self.account.entries();
        self.hand_in_ended(&mut entries, mono_ns());
        entries.ledger.reconnected_as_asked();
        Ok(())
    }

    /// The connection could not be made anew: the event has failed, and the connection is treated as
    /// any that broke.
    fn refuse(&mut self, error: &Error) -> u64 {
        let mut entries = self.account.entries();
        let free = self.hand_in_ended(&mut entries, mono_ns());
        if entries.cut {
            return free;
        }
        entries.ledger.refused_event(error);
        self.account.end();
        drop(entries);
        self.ask_for_session();
        free
    }

    fn revive(&mut self, session: Box<Session>) {
        self.slot.revive(session);
        self.carried = 0;
        self.broken = false;
    }

    fn ask_for_session(&mut self) {
        self.broken = true;
        // The thread ends only with the run.
        let _ = self.lost.send(Request { slot: 0, answer: self.answer.clone() });
    }

    /// Records the progress of the event. Returns the earliest start of the next one, once it is over.
    #[inline]
    fn note(&mut self, progress: &Progress) -> Option<u64> {
        let mut entries = self.account.entries();
        let now = mono_ns();
        let free = self.hand_in_ended(&mut entries, now);
        let lost = matches!(progress, Progress::Lost(..));
        if lost && entries.cut {
            // Stays under way: that is how it is counted at the end.
            return Some(free);
        }
        entries.ledger.note(progress, &self.slot, now);
        if matches!(progress, Progress::Answered | Progress::RollingBack(_)) {
            return None;
        }
        self.account.end();
        drop(entries);
        self.carried += 1;
        if lost {
            self.ask_for_session();
        }
        Some(free)
    }

    /// Waits for a connection in the place of the broken one, or for a while; answers the time.
    fn await_session(&mut self) -> Result<u64, RunError> {
        let answer = self.answers.recv_timeout(Duration::from_nanos(LONGEST_WAIT_NS));
        let mut entries = self.account.entries();
        let now = mono_ns();
        let free = self.hand_in_ended(&mut entries, now);
        match answer {
            Ok(Answer::Failed(error)) => entries.ledger.refused(&error),
            Ok(Answer::Back { mut session, .. }) => {
                entries.ledger.reconnected();
                drop(entries);
                self.account.adopt(&mut session)?;
                self.revive(session);
            }
            // We hold a sender ourselves: it was the time.
            Err(_) => {}
        }
        Ok(free)
    }

    /// Hands in every bin that has ended by now; answers the time at which that is done, so that it
    /// counts into no latency.
    #[inline]
    fn hand_in_ended(&self, entries: &mut Entries, now: u64) -> u64 {
        let mut free = now;
        while let Some(report) = entries.ledger.ended_bin(now, self.account.under_way(), self.reserved) {
            self.shared.hand_in(&self.reports, report);
            free = mono_ns();
        }
        free
    }

    fn finish(self) {
        let mut entries = self.account.entries();
        let now = mono_ns();
        self.hand_in_ended(&mut entries, now);
        let last = entries.ledger.last(now, self.account.under_way(), self.reserved);
        self.shared.hand_in(&self.reports, last);
    }
}
