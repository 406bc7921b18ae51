//! Connection to a MySQL or MariaDB server that runs one statement at a time.
//!
//! Blocking, over TCP, a Unix socket, TLS and protocol compression. Results are held as text: for
//! administration and status, not for load.

mod auth;
mod compress;
mod error;
mod handshake;
mod rows;
mod scan;
mod stream;
mod wire;

pub use error::{Error, ServerError};
pub use rows::Rows;
pub use scan::{Scan, Scanner};
pub use stream::Cutter;
pub use wire::Wire;

use crate::target::Target;
use handshake::Session;
use std::time::Duration;
use stream::{Socket, Stream};
use toll_wire::protocol::command::{COM_PING, COM_QUERY, COM_QUIT, COM_STMT_PREPARE};

/// Longest wait for the server to close after COM_QUIT. Servers close at once.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// A session with a server. Dropping it sends COM_QUIT.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    session: Session,
    said_goodbye: bool,
}

impl Connection {
    /// Connects, logs in and runs the target's session statements. Afterwards a statement may take as long as it likes; see
    /// [`Self::set_read_timeout`].
    pub fn connect(target: &Target) -> Result<Self, Error> {
        let mut connection = Self::open(target, |_| {})?;
        connection.set_read_timeout(None)?;
        Ok(connection)
    }

    /// The same, but what follows may take no longer than the target's timeout either. `seen` is
    /// given the socket before the first word is exchanged.
    pub fn open(target: &Target, seen: impl FnOnce(Cutter)) -> Result<Self, Error> {
        let stream = Stream::Plain(Socket::connect(&target.address, target.connect_timeout)?);
        seen(stream.cutter());
        let (wire, session) = handshake::shake_hands(Wire::new(stream), target)?;
        let mut connection = Self { wire, session, said_goodbye: false };
        for statement in &target.session {
            connection
                .exec_drop(statement)
                .map_err(|cause| Error::Session { statement: statement.clone(), cause: Box::new(cause) })?;
        }
        Ok(connection)
    }

    /// Says goodbye and waits until the server has closed its side, so that over TCP the port that is
    /// taken for a minute (TIME_WAIT) is the server's, of which it needs but one.
    pub fn quit(mut self) {
        self.said_goodbye = true;
        // Whoever is gone already need not be waited for.
        if self.wire.send_command(&[COM_QUIT]).is_ok() {
            let _ = self.wire.stream().await_end(CLOSE_WITHIN);
        }
    }

    /// Sends one text (several statements where separated by `;`) and reads all its results; those
    /// of the first statement are returned.
    pub fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        self.command(COM_QUERY, sql.as_bytes())?;
        rows::read_results(&mut self.wire, self.session.form)
    }

    /// Runs a statement for its effect.
    pub fn exec_drop(&mut self, sql: &str) -> Result<(), Error> {
        self.query(sql).map(drop)
    }

    /// The same for a text that need not be UTF-8, and may be large.
    pub fn exec_bytes(&mut self, sql: &[u8]) -> Result<(), Error> {
        self.command(COM_QUERY, sql)?;
        rows::read_results(&mut self.wire, self.session.form).map(drop)
    }

    pub fn ping(&mut self) -> Result<(), Error> {
        self.command(COM_PING, &[])?;
        rows::read_results(&mut self.wire, self.session.form).map(drop)
    }

    /// As the server greeted, without MariaDB's `5.5.5-`: `10.11.19-MariaDB-...`, `8.0.15`.
    pub fn server_version(&self) -> &str {
        &self.session.server_version
    }

    pub fn is_mariadb(&self) -> bool {
        self.session.server_version.contains("MariaDB")
    }

    /// What SHOW PROCESSLIST and KILL call this session.
    pub fn connection_id(&self) -> u32 {
        self.session.connection_id
    }

    /// A statement that stays silent for longer fails with [`Error::Lost`]; `None` waits for ever.
    pub fn set_read_timeout(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let set = self.wire.stream_mut().set_timeouts(limit, limit);
        set.map_err(|cause| Error::Lost { doing: "setting a timeout", cause })
    }

    /// Prepares a statement on the server; the answer is its id.
    pub fn prepare(&mut self, sql: &str) -> Result<u32, Error> {
        self.command(COM_STMT_PREPARE, sql.as_bytes())?;
        rows::read_prepared(&mut self.wire, self.session.form)
    }

    /// Access for callers that send and scan by themselves. Whole commands only.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    pub fn stream(&self) -> &Stream {
        self.wire.stream()
    }

    /// From now on its calls answer at once, with what there is.
    pub fn set_nonblocking(&mut self) -> std::io::Result<()> {
        self.wire.stream_mut().set_nonblocking()
    }

    pub fn scanner(&self) -> Scanner {
        Scanner::new(self.session.form)
    }

    fn command(&mut self, command: u8, argument: &[u8]) -> Result<(), Error> {
        let mut payload = Vec::with_capacity(argument.len() + 1);
        payload.push(command);
        payload.extend_from_slice(argument);
        self.wire.send_command(&payload).map_err(|cause| Error::Lost { doing: "sending a statement", cause })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.said_goodbye {
            return;
        }
        // The server may be gone; then there is nobody to say goodbye to, nor to wait for.
        let _ = self.wire.stream_mut().set_timeouts(None, Some(Duration::from_millis(100)));
        let _ = self.wire.send_command(&[COM_QUIT]);
    }
}
