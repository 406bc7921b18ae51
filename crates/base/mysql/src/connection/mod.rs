//! Connection to a MySQL or MariaDB server that runs one statement at a time.
//!
//! Blocking, over TCP, a Unix socket, TLS and protocol compression. Results are held as text: for
//! administration and status, not for load.

mod auth;
mod error;
mod frame_codec;
mod handshake;
mod packet_io;
mod rows;
mod scan;
mod stream;

pub use error::{Error, ServerError};
pub use packet_io::PacketIo;
pub use rows::Rows;
pub use scan::{ResponseScanner, ScanStatus};
pub use stream::AbortHandle;

use crate::target::Target;
use crate::usage::OpenSession;
use handshake::SessionInfo;
use std::os::fd::OwnedFd;
use std::time::Duration;
use stream::{Socket, Stream};
use toll_wire::protocol::command::{COM_PING, COM_QUERY, COM_QUIT, COM_STMT_PREPARE};

/// Longest wait for the server to close after COM_QUIT. Servers close at once.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session with a server. Dropping it sends COM_QUIT.
#[derive(Debug)]
pub struct Connection {
    packet_io: PacketIo,
    session: SessionInfo,
    account: OpenSession,
    quit_sent: bool,
}

impl Connection {
    /// Connects, logs in and runs the target's session statements. Afterwards a statement may take as long as it likes; see
    /// [`Self::set_read_timeout`].
    pub fn connect(target: &Target) -> Result<Self, Error> {
        let mut connection = Self::connect_abortable(target, None, |_| {})?;
        connection.set_read_timeout(None)?;
        Ok(connection)
    }

    /// The same, but what follows may take no longer than the target's timeout either. `seen` is
    /// given the socket before the first word is exchanged. Over TCP the client's port is `client_port`, or else the
    /// kernel's choice.
    pub fn connect_abortable(
        target: &Target,
        client_port: Option<u16>,
        seen: impl FnOnce(AbortHandle),
    ) -> Result<Self, Error> {
        let stream = Stream::Plain(Socket::connect(&target.address, client_port, target.connect_timeout)?);
        seen(stream.abort_handle());
        Self::log_in(stream, target)
    }

    /// Logs in over a socket that is connected already, and treats it as one to the target's address.
    pub fn over_socket(socket: OwnedFd, target: &Target) -> Result<Self, Error> {
        Self::log_in(Stream::Plain(Socket::from_fd(socket, &target.address, target.connect_timeout)?), target)
    }

    fn log_in(stream: Stream, target: &Target) -> Result<Self, Error> {
        let (wire, session) = handshake::perform_handshake(PacketIo::new(stream), target)?;
        let mut connection =
            Self { packet_io: wire, session, account: target.usage.open_session(), quit_sent: false };
        if let Some(expected) = &target.identity {
            let found = connection.identity()?;
            if found != *expected {
                let (address, expected) = (target.address.to_string(), expected.clone());
                return Err(Error::AnotherServer { address, expected, found });
            }
        }
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
        self.quit_sent = true;
        // Whoever is gone already need not be waited for.
        if self.packet_io.send_command(&[COM_QUIT]).is_ok() {
            let _ = self.packet_io.stream().wait_for_close(CLOSE_TIMEOUT);
        }
    }

    /// Sends one text and reads all its results; those of the first statement are returned. It may hold several
    /// statements, separated by `;`, where the target has `multi_statements`.
    pub fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        self.send_query(sql.as_bytes())?;
        rows::read_results(&mut self.packet_io, self.session.result_format)
    }

    /// Runs a statement for its effect.
    pub fn exec_drop(&mut self, sql: &str) -> Result<(), Error> {
        self.query(sql).map(drop)
    }

    /// The same for a text that need not be UTF-8, and may be large.
    pub fn exec_bytes(&mut self, sql: &[u8]) -> Result<(), Error> {
        self.send_query(sql)?;
        rows::read_results(&mut self.packet_io, self.session.result_format).map(drop)
    }

    pub fn ping(&mut self) -> Result<(), Error> {
        self.send_command(COM_PING, &[])?;
        rows::read_results(&mut self.packet_io, self.session.result_format).map(drop)
    }

    /// As the server greeted, without MariaDB's `5.5.5-`: `10.11.19-MariaDB-...`, `8.0.15`.
    pub fn server_version(&self) -> &str {
        &self.session.server_version
    }

    pub fn is_mariadb(&self) -> bool {
        self.session.server_version.contains("MariaDB")
    }

    /// What tells this server from any other, and stays through its restarts: MySQL's uuid, or MariaDB's host, port and data
    /// directory.
    pub fn identity(&mut self) -> Result<String, Error> {
        let sql = match self.is_mariadb() {
            true => "SELECT CONCAT(@@GLOBAL.hostname, ':', @@GLOBAL.port, @@GLOBAL.datadir)",
            false => "SELECT @@GLOBAL.server_uuid",
        };
        Ok(self.query(sql)?.scalar().unwrap_or_default().to_owned())
    }

    /// What SHOW PROCESSLIST and KILL call this session.
    pub fn connection_id(&self) -> u32 {
        self.session.connection_id
    }

    /// A statement that stays silent for longer fails with [`Error::ConnectionLost`]; `None` waits for ever.
    pub fn set_read_timeout(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let set = self.packet_io.stream_mut().set_timeouts(limit, limit);
        set.map_err(|cause| Error::ConnectionLost { doing: "setting a timeout", cause })
    }

    /// Prepares a statement on the server; the answer is its id.
    pub fn prepare(&mut self, sql: &str) -> Result<u32, Error> {
        self.send_command(COM_STMT_PREPARE, sql.as_bytes())?;
        rows::read_prepare_response(&mut self.packet_io, self.session.result_format)
    }

    /// Access for callers that send and scan by themselves. Whole commands only.
    pub fn packet_io(&mut self) -> &mut PacketIo {
        &mut self.packet_io
    }

    pub fn stream(&self) -> &Stream {
        self.packet_io.stream()
    }

    /// From now on its calls answer at once, with what there is.
    pub fn set_nonblocking(&mut self) -> std::io::Result<()> {
        self.packet_io.stream_mut().set_nonblocking()
    }

    pub fn scanner(&self) -> ResponseScanner {
        ResponseScanner::new(self.session.result_format)
    }

    fn send_query(&mut self, sql: &[u8]) -> Result<(), Error> {
        self.account.add_query();
        self.send_command(COM_QUERY, sql)
    }

    fn send_command(&mut self, command: u8, argument: &[u8]) -> Result<(), Error> {
        let mut payload = Vec::with_capacity(argument.len() + 1);
        payload.push(command);
        payload.extend_from_slice(argument);
        self.packet_io
            .send_command(&payload)
            .map_err(|cause| Error::ConnectionLost { doing: "sending a statement", cause })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.quit_sent {
            return;
        }
        // The server may be gone; then there is nobody to say goodbye to, nor to wait for.
        let _ = self.packet_io.stream_mut().set_timeouts(None, Some(Duration::from_millis(100)));
        let _ = self.packet_io.send_command(&[COM_QUIT]);
    }
}
