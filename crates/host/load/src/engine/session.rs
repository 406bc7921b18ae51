//! Session setup before a connection carries load: login, schema, prepared statements.

use crate::mix::Mix;
use std::sync::Arc;
use toll_mysql::connection::{AbortHandle, Connection, Error};
use toll_mysql::target::Target;

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
        let mut connection = Connection::connect_abortable(&self.target, seen)?;
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
