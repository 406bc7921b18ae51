//! State machine of one connection: idle, sending, waiting, or lost.
//!
//! Advances one event, statement by statement. Knows neither other connections nor schedules.

use super::session::{Session, StatementHandle};
use crate::mix::{Mix, Step, write_plain_query};
use std::io;
use toll_mysql::connection::{Error, ResponseScanner, ScanStatus, ServerError};
use toll_stats::random::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// No connection.
    Disconnected,
    Idle,
    /// The kernel has taken only part of the request.
    Sending,
    Waiting,
    /// All is answered, and the event is not done before this moment.
    Delayed {
        until_ns: u64,
    },
}

#[derive(Debug)]
pub struct ConnectionSlot {
    session: Option<Box<Session>>,
    scanner: ResponseScanner,
    pub state: SlotState,
    event: usize,
    step: usize,
    table: u32,
    kept_value: i64,
    /// The event failed with this code; what is awaited now is the answer to ROLLBACK.
    rolled_back_error: Option<u16>,
    pub intended_ns: u64,
    pub begun_ns: u64,
}

/// Result of a step on the connection.
#[derive(Debug)]
pub enum SlotProgress {
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
const CONNECTION_ENDING_ERRORS: [u16; 3] = [1053, 1927, 3169];

impl ConnectionSlot {
    pub fn new(session: Box<Session>) -> Self {
        Self {
            scanner: session.connection.scanner(),
            session: Some(session),
            state: SlotState::Idle,
            event: 0,
            step: 0,
            table: 0,
            kept_value: 0,
            rolled_back_error: None,
            intended_ns: 0,
            begun_ns: 0,
        }
    }

    pub fn replace_session(&mut self, session: Box<Session>) {
        *self = Self::new(session);
    }

    /// Releases the connection.
    pub fn take_session(&mut self) -> Option<Box<Session>> {
        self.state = SlotState::Disconnected;
        self.session.take()
    }

    pub fn session(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut()
    }

    /// Begins an event and sends its first statement.
    #[inline]
    pub fn begin_event(
        &mut self,
        mix: &Mix,
        event: usize,
        intended_ns: u64,
        now_ns: u64,
        rng: &mut Rng,
    ) -> SlotProgress {
        (self.event, self.step, self.rolled_back_error) = (event, 0, None);
        (self.intended_ns, self.begun_ns) = (intended_ns, now_ns);
        self.state = SlotState::Sending;
        self.send_statement(mix, rng)
    }

    /// Sends the statement of the current step.
    #[inline]
    fn send_statement(&mut self, mix: &Mix, rng: &mut Rng) -> SlotProgress {
        let Some(session) = &mut self.session else { return SlotProgress::Blocked };
        let index = match mix.events[self.event].steps[self.step] {
            Step::Fixed(index) => index,
            Step::PerTable { first, fresh } => {
                if fresh {
                    self.table = rng.below(u64::from(mix.tables)) as u32;
                }
                first + self.table as usize
            }
        };
        let statement = &mix.statements[index];
        let wire = session.connection.packet_io();
        match &mut session.statements[index] {
            StatementHandle::Text => statement.write_query(wire.begin_command(), rng, &mut self.kept_value),
            StatementHandle::Id { id, typed } => {
                statement.write_execute(wire.begin_command(), *id, *typed, rng, &mut self.kept_value);
                *typed = true;
            }
        }
        let sent = wire.send();
        self.after_send(sent)
    }

    #[inline]
    fn after_send(&mut self, sent: io::Result<bool>) -> SlotProgress {
        match sent {
            Ok(true) => {
                self.state = SlotState::Waiting;
                SlotProgress::Blocked
            }
            Ok(false) => {
                self.state = SlotState::Sending;
                SlotProgress::Blocked
            }
            Err(cause) => {
                self.on_connection_lost(Error::ConnectionLost { doing: "sending a statement", cause })
            }
        }
    }

    /// More can be written.
    pub fn flush(&mut self) -> SlotProgress {
        let Some(session) = &mut self.session else { return SlotProgress::Blocked };
        let sent = session.connection.packet_io().flush();
        self.after_send(sent)
    }

    /// Reads what there is, up to the end of one response.
    #[inline]
    pub fn advance(&mut self, mix: &Mix, rng: &mut Rng) -> SlotProgress {
        let Some(session) = &mut self.session else { return SlotProgress::Blocked };
        let wire = session.connection.packet_io();
        loop {
            match wire.fill() {
                Ok(0) => {
                    let cause =
                        io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection");
                    return self
                        .on_connection_lost(Error::ConnectionLost { doing: "waiting for an answer", cause });
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return SlotProgress::Blocked,
                Err(cause) => {
                    return self
                        .on_connection_lost(Error::ConnectionLost { doing: "waiting for an answer", cause });
                }
            }
            let (consumed, end) = self.scanner.scan(wire.pending());
            wire.consume(consumed);
            match end {
                ScanStatus::Incomplete => {}
                _ if matches!(self.state, SlotState::Idle | SlotState::Delayed { .. }) => {
                    // What nobody asked for is the server's farewell.
                    let cause = io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the server closed the idle connection",
                    );
                    return self.on_connection_lost(Error::ConnectionLost { doing: "idle", cause });
                }
                ScanStatus::Ok => return self.on_response(mix, rng),
                ScanStatus::Failed(error) => return self.on_error(mix, error),
                ScanStatus::Corrupt(detail) => {
                    return self.on_connection_lost(Error::protocol("reading an answer", detail));
                }
            }
        }
    }

    #[inline]
    fn on_response(&mut self, mix: &Mix, rng: &mut Rng) -> SlotProgress {
        if let Some(code) = self.rolled_back_error.take() {
            self.state = SlotState::Idle;
            return SlotProgress::Failed(code, None);
        }
        self.step += 1;
        if self.step == mix.events[self.event].steps.len() {
            self.state = SlotState::Idle;
            return SlotProgress::Done;
        }
        match self.send_statement(mix, rng) {
            SlotProgress::Blocked => SlotProgress::Answered,
            other => other,
        }
    }

    fn on_error(&mut self, mix: &Mix, error: Box<ServerError>) -> SlotProgress {
        let code = error.code;
        if CONNECTION_ENDING_ERRORS.contains(&code) {
            return self.on_connection_lost(Error::Server(*error));
        }
        if self.rolled_back_error.is_none() && mix.events[self.event].transaction && self.step > 0 {
            let Some(session) = &mut self.session else { return SlotProgress::Blocked };
            self.rolled_back_error = Some(code);
            let wire = session.connection.packet_io();
            write_plain_query(wire.begin_command(), "ROLLBACK");
            let sent = wire.send();
            return match self.after_send(sent) {
                SlotProgress::Blocked => SlotProgress::RollingBack(error),
                other => other,
            };
        }
        self.state = SlotState::Idle;
        SlotProgress::Failed(self.rolled_back_error.take().unwrap_or(code), Some(error))
    }

    fn on_connection_lost(&mut self, error: Error) -> SlotProgress {
        let under_way = self.state != SlotState::Idle;
        self.session = None;
        self.state = SlotState::Disconnected;
        SlotProgress::Lost(error, under_way)
    }
}
