//! Session setup before a connection carries load: login, schema, prepared statements.

use crate::mix::Mix;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use toll_mysql::connection::{AbortHandle, Connection, Error};
use toll_mysql::target::{Address, Target};

/// Server, account and statements, the same for every session of a run.
#[derive(Debug)]
pub struct SessionFactory {
    pub target: Target,
    pub mix: Arc<Mix>,
    /// Statements are prepared, rather than sent as text.
    pub prepared: bool,
}

/// A connection that is ready, with the server's ids of the mix's statements.
#[derive(Debug)]
pub struct Session {
    pub connection: Connection,
    pub statements: Vec<StatementHandle>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementHandle {
    /// Sent as text: asked for, or the server will not prepare it.
    Text,
    /// Parameter types were not sent yet, or they were.
    Id { id: u32, typed: bool },
}

/// "This command is not supported in the prepared statement protocol yet" (BEGIN in MySQL).
const UNSUPPORTED_PS: u16 = 1295;

impl SessionFactory {
    /// Connects, logs in and prepares. No step may take longer than the target's timeout, so that a server
    /// that stops answering here does not hold the run up for ever; the limit stays set. `seen` receives the
    /// socket as soon as it is connected.
    pub fn open_session(&self, seen: impl FnOnce(AbortHandle)) -> Result<Session, Error> {
        self.prepare_session(Connection::connect_abortable(&self.target, None, seen)?)
    }

    /// The same, from the first of these ports of the client's that can be had, or else the kernel's choice.
    pub fn open_first_session(&self, client_ports: impl Iterator<Item = u16>) -> Result<Session, Error> {
        let is_tcp = matches!(self.target.address, Address::Tcp { .. });
        for port in client_ports.filter(|_| is_tcp) {
            match Connection::connect_abortable(&self.target, Some(port), |_| {}) {
                Err(Error::ConnectFailed { cause, .. }) if is_taken(&cause) => {}
                connected => return self.prepare_session(connected?),
            }
        }
        self.open_session(|_| {})
    }

    fn prepare_session(&self, mut connection: Connection) -> Result<Session, Error> {
        let mut statements = Vec::with_capacity(self.mix.statements.len());
        for statement in &self.mix.statements {
            if !self.prepared || statement.text_only {
                statements.push(StatementHandle::Text);
                continue;
            }
            statements.push(match connection.prepare(&statement.sql) {
                Ok(id) => StatementHandle::Id { id, typed: false },
                Err(Error::Server(e)) if e.code == UNSUPPORTED_PS => StatementHandle::Text,
                Err(e) => return Err(e),
            });
        }
        Ok(Session { connection, statements })
    }
}

/// Another socket has the port, or its last connection to this server is too recent.
fn is_taken(cause: &io::Error) -> bool {
    matches!(cause.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable)
}
