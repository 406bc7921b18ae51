//! State machine of one connection: idle, sending, waiting, or lost.
//!
//! Advances one event, statement by statement. Knows neither other connections nor schedules.

use super::session::{Prepared, Session};
use crate::mix::{Mix, Step, put_plain_query};
use std::io;
use toll_mysql::connection::{Error, ResponseScanner, ScanStatus, ServerError};
use toll_stats::random::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No connection.
    Down,
    Idle,
    /// The kernel has taken only part of the request.
    Sending,
    Waiting,
    /// All is answered, and the event is not done before this moment.
    Held {
        until_ns: u64,
    },
}

#[derive(Debug)]
pub struct Slot {
    session: Option<Box<Session>>,
    scanner: ResponseScanner,
    pub state: State,
    event: usize,
    step: usize,
    table: u32,
    kept: i64,
    /// The event failed with this code; what is awaited now is the answer to ROLLBACK.
    failed: Option<u16>,
    pub intended_ns: u64,
    pub begun_ns: u64,
}

/// Result of a step on the connection.
#[derive(Debug)]
pub enum Progress {
    /// Nothing more to read, or to write, for now.
    Blocked,
    /// A statement was answered and the event goes on.
    Answered,
    /// A statement failed and is being rolled back.
    RollingBack(Box<ServerError>),
    /// The event's last statement was answered.
    Done,
    /// The event's ROLLBACK was answered, or there was nothing to roll back (then with the error).
    Failed(u16, Option<Box<ServerError>>),
    /// The connection broke with this; an event was under way or not.
    Lost(Error, bool),
}

/// The server ends the connection right after these: shutdown, killed.
const LAST_WORDS: [u16; 3] = [1053, 1927, 3169];

impl Slot {
    pub fn new(session: Box<Session>) -> Self {
        Self {
            scanner: session.connection.scanner(),
            session: Some(session),
            state: State::Idle,
            event: 0,
            step: 0,
            table: 0,
            kept: 0,
            failed: None,
            intended_ns: 0,
            begun_ns: 0,
        }
    }

    pub fn revive(&mut self, session: Box<Session>) {
        *self = Self::new(session);
    }

    /// Releases the connection.
    pub fn leave(&mut self) -> Option<Box<Session>> {
        self.state = State::Down;
        self.session.take()
    }

    pub fn session(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut()
    }

    /// Begins an event and sends its first statement.
    #[inline]
    pub fn begin(
        &mut self,
        mix: &Mix,
        event: usize,
        intended_ns: u64,
        now_ns: u64,
        rng: &mut Rng,
    ) -> Progress {
        (self.event, self.step, self.failed) = (event, 0, None);
        (self.intended_ns, self.begun_ns) = (intended_ns, now_ns);
        self.state = State::Sending;
        self.send(mix, rng)
    }

    /// Sends the statement of the current step.
    #[inline]
    fn send(&mut self, mix: &Mix, rng: &mut Rng) -> Progress {
        let Some(session) = &mut self.session else { return Progress::Blocked };
        let index = match mix.events[self.event].steps[self.step] {
            Step::One(index) => index,
            Step::OfTable { first, fresh } => {
                if fresh {
                    self.table = rng.below(u64::from(mix.tables)) as u32;
                }
                first + self.table as usize
            }
        };
        let statement = &mix.statements[index];
        let wire = session.connection.packet_io();
        match &mut session.statements[index] {
            Prepared::Text => statement.put_query(wire.begin_command(), rng, &mut self.kept),
            Prepared::Id { id, typed } => {
                statement.put_execute(wire.begin_command(), *id, *typed, rng, &mut self.kept);
                *typed = true;
            }
        }
        let sent = wire.send();
        self.sent(sent)
    }

    #[inline]
    fn sent(&mut self, sent: io::Result<bool>) -> Progress {
        match sent {
            Ok(true) => {
                self.state = State::Waiting;
                Progress::Blocked
            }
            Ok(false) => {
                self.state = State::Sending;
                Progress::Blocked
            }
            Err(cause) => self.lost(Error::ConnectionLost { doing: "sending a statement", cause }),
        }
    }

    /// More can be written.
    pub fn flush(&mut self) -> Progress {
        let Some(session) = &mut self.session else { return Progress::Blocked };
        let sent = session.connection.packet_io().flush();
        self.sent(sent)
    }

    /// Reads what there is, up to the end of one response.
    #[inline]
    pub fn advance(&mut self, mix: &Mix, rng: &mut Rng) -> Progress {
        let Some(session) = &mut self.session else { return Progress::Blocked };
        let wire = session.connection.packet_io();
        loop {
            match wire.fill() {
                Ok(0) => {
                    let cause =
                        io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection");
                    return self.lost(Error::ConnectionLost { doing: "waiting for an answer", cause });
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Progress::Blocked,
                Err(cause) => {
                    return self.lost(Error::ConnectionLost { doing: "waiting for an answer", cause });
                }
            }
            let (consumed, end) = self.scanner.scan(wire.pending());
            wire.consume(consumed);
            match end {
                ScanStatus::Incomplete => {}
                _ if matches!(self.state, State::Idle | State::Held { .. }) => {
                    // What nobody asked for is the server's farewell.
                    let cause = io::Error::new(io::ErrorKind::ConnectionAborted, "the server said goodbye");
                    return self.lost(Error::ConnectionLost { doing: "idle", cause });
                }
                ScanStatus::Ok => return self.answered(mix, rng),
                ScanStatus::Failed(error) => return self.failed(mix, error),
                ScanStatus::Corrupt(detail) => {
                    return self.lost(Error::protocol("reading an answer", detail));
                }
            }
        }
    }

    #[inline]
    fn answered(&mut self, mix: &Mix, rng: &mut Rng) -> Progress {
        if let Some(code) = self.failed.take() {
            self.state = State::Idle;
            return Progress::Failed(code, None);
        }
        self.step += 1;
        if self.step == mix.events[self.event].steps.len() {
            self.state = State::Idle;
            return Progress::Done;
        }
        match self.send(mix, rng) {
            Progress::Blocked => Progress::Answered,
            other => other,
        }
    }

    fn failed(&mut self, mix: &Mix, error: Box<ServerError>) -> Progress {
        let code = error.code;
        if LAST_WORDS.contains(&code) {
            return self.lost(Error::Server(*error));
        }
        if self.failed.is_none() && mix.events[self.event].transaction && self.step > 0 {
            let Some(session) = &mut self.session else { return Progress::Blocked };
            self.failed = Some(code);
            let wire = session.connection.packet_io();
            put_plain_query(wire.begin_command(), "ROLLBACK");
            let sent = wire.send();
            return match self.sent(sent) {
                Progress::Blocked => Progress::RollingBack(error),
                other => other,
            };
        }
        self.state = State::Idle;
        Progress::Failed(self.failed.take().unwrap_or(code), Some(error))
    }

    fn lost(&mut self, error: Error) -> Progress {
        let under_way = self.state != State::Idle;
        self.session = None;
        self.state = State::Down;
        Progress::Lost(error, under_way)
    }
}
