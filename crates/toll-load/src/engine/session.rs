//! What must stand before a connection can carry load: login, schema, prepared statements.

use crate::connection::{Connection, Error};
use crate::mix::Mix;
use crate::target::Target;

/// A connection that is ready, with the server's ids of the mix's statements.
#[derive(Debug)]
pub struct Session {
    pub connection: Connection,
    pub statements: Vec<Prepared>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// Sent as text: asked for, or the server will not prepare it.
    Text,
    /// Parameter types were not sent yet, or they were.
    Id { id: u32, typed: bool },
}

/// "This command is not supported in the prepared statement protocol yet" (BEGIN in MySQL).
const UNSUPPORTED_PS: u16 = 1295;

impl Session {
    pub fn open(target: &Target, mix: &Mix, prepared: bool) -> Result<Self, Error> {
        let mut connection = Connection::connect(target)?;
        // A server that stops answering here must not hold the run up for ever.
        connection.set_read_timeout(Some(target.connect_timeout))?;
        let mut statements = Vec::with_capacity(mix.statements.len());
        for statement in &mix.statements {
            if !prepared || statement.text_only {
                statements.push(Prepared::Text);
                continue;
            }
            statements.push(match connection.prepare(&statement.sql) {
                Ok(id) => Prepared::Id { id, typed: false },
                Err(Error::Server(e)) if e.code == UNSUPPORTED_PS => Prepared::Text,
                Err(e) => return Err(e),
            });
        }
        Ok(Self { connection, statements })
    }
}
