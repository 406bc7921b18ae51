//! Message transport over one TCP connection, with TLS or plain.
//!
//! One thread may send while another receives. TLS is a separate state machine between them, and no lock is
//! held while waiting for the network. Never reconnects by itself.

use super::key::{self, ReceiverKey, SenderKey};
use anyhow::{Context, Result, bail};
use rustls::{AlertDescription, CertificateError, ClientConnection, Connection, Error, ServerConnection};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toll_wire::stream_protocol::{self, Message};

/// A peer that says nothing is looked away from so often, to see whether there is anything else to do.
const READ_TIMEOUT: Duration = Duration::from_millis(200);
/// A peer that takes not a byte for so long takes none any more.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// One that is refused has so long to stop speaking.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that are sealed, or read, at once.
const BLOCK_BYTES: usize = 32 << 10;

/// A connection on which both ends know each other, as far as the key is to tell.
pub struct Link {
    tcp: TcpStream,
    tls: Option<Mutex<Connection>>,
    /// At the receiver: the peer's name, by its key.
    sender: Option<String>,
}

impl Link {
    /// The sender's end.
    ///
    /// # Errors
    /// The other end is another receiver, or does not shake hands `within` this time.
    pub fn connect(tcp: TcpStream, key: &SenderKey, within: Duration) -> Result<Self> {
        let tls = match key {
            SenderKey::Plain => None,
            SenderKey::Own(config) => {
                Some(Connection::Client(ClientConnection::new(Arc::clone(config), key::server_name()?)?))
            }
        };
        Self::handshake(tcp, tls, within)
    }

    /// The receiver's end.
    ///
    /// # Errors
    /// The other end is no sender of this receiver's, or does not shake hands `within` this time.
    pub fn accept(tcp: TcpStream, key: &ReceiverKey, within: Duration) -> Result<Self> {
        let ReceiverKey::Own(config, senders) = key else { return Self::handshake(tcp, None, within) };
        let tls = Connection::Server(ServerConnection::new(Arc::clone(config))?);
        let mut link = Self::handshake(tcp, Some(tls), within)?;
        let name = link.tls.as_ref().and_then(|tls| {
            let tls = lock(tls);
            senders.name(tls.peer_certificates()?.first()?).map(str::to_owned)
        });
        // The verifier took it, so that it is on the list.
        link.sender = Some(name.context("it showed no key")?);
        Ok(link)
    }

    /// Name of the sender at the other end, by its key; `None`: it needs none.
    pub fn sender(&self) -> Option<&str> {
        self.sender.as_deref()
    }

    fn handshake(tcp: TcpStream, tls: Option<Connection>, within: Duration) -> Result<Self> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(READ_TIMEOUT))?;
        tcp.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let Some(mut tls) = tls else { return Ok(Self { tcp, tls: None, sender: None }) };
        let until = Instant::now() + within;
        loop {
            while tls.wants_write() {
                tls.write_tls(&mut &tcp).context("the connection broke during the key exchange")?;
            }
            if !tls.is_handshaking() {
                return Ok(Self { tcp, tls: Some(Mutex::new(tls)), sender: None });
            }
            match tls.read_tls(&mut &tcp) {
                Ok(0) => bail!(
                    "it closed the connection during the key exchange. Check --key and --plain at both ends."
                ),
                Ok(_) => {}
                Err(error) if is_retryable(&error) => {}
                Err(error) => return Err(error).context("the connection broke during the key exchange"),
            }
            if let Err(error) = tls.process_new_packets() {
                // It is told why.
                while tls.wants_write() && tls.write_tls(&mut &tcp).is_ok() {}
                if tcp.shutdown(Shutdown::Write).is_ok() {
                    drain_input(&tcp);
                }
                bail!(describe_tls_error(&error, &tls));
            }
            if Instant::now() > until {
                bail!("it did not finish comparing keys within {} s", within.as_secs());
            }
        }
    }

    /// Sends a whole message. For one thread at a time.
    ///
    /// # Errors
    /// The connection broke, or the other end takes nothing any more.
    pub fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return (&self.tcp).write_all(bytes) };
        let mut sealed = Vec::with_capacity(BLOCK_BYTES + 1_024);
        for part in bytes.chunks(BLOCK_BYTES) {
            sealed.clear();
            let mut tls = lock(tls);
            tls.writer().write_all(part)?;
            while tls.wants_write() {
                tls.write_tls(&mut sealed)?;
            }
            drop(tls);
            (&self.tcp).write_all(&sealed)?;
        }
        Ok(())
    }

    pub fn send_message(&self, message: &Message<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        message.encode_into(&mut bytes);
        self.send_bytes(&bytes)
    }

    /// Says why no more is taken, and sees that it can be read.
    pub fn refuse(&self, why: &str) {
        let said =
            self.send_message(&Message::Refused { why }).and_then(|()| self.tcp.shutdown(Shutdown::Write));
        if said.is_ok() {
            drain_input(&self.tcp);
        }
        self.close();
    }

    /// Closes the connection: all further reads and writes fail.
    pub fn close(&self) {
        // The other end may have been faster.
        let _ = self.tcp.shutdown(Shutdown::Both);
    }

    /// Appends what came; 0: the other end hung up. For one thread at a time.
    fn receive(&self, into: &mut Vec<u8>, scratch: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            let read = (&self.tcp).read(scratch)?;
            into.extend_from_slice(&scratch[..read]);
            return Ok(read);
        };
        let before = into.len();
        // What came together with the end of the handshake waits in there.
        drain(&mut lock(tls), into)?;
        if into.len() == before {
            let read = (&self.tcp).read(scratch)?;
            if read == 0 {
                return Ok(0);
            }
            let mut tls = lock(tls);
            let mut rest = &scratch[..read];
            while !rest.is_empty() {
                tls.read_tls(&mut rest)?;
                tls.process_new_packets()
                    .map_err(|error| io::Error::other(describe_tls_error(&error, &tls)))?;
                drain(&mut tls, into)?;
            }
        }
        // A part of a record is nothing yet.
        if into.len() == before { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(into.len() - before) }
    }
}

/// Reads what the peer still sends, for a moment. A connection that is closed while bytes wait unread takes along what
/// was said last.
fn drain_input(mut tcp: &TcpStream) {
    let until = Instant::now() + REFUSAL_TIMEOUT;
    let mut scratch = vec![0; BLOCK_BYTES];
    while Instant::now() < until {
        match tcp.read(&mut scratch) {
            Err(error) if is_retryable(&error) => {}
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
}

/// A thread that panicked holds no half-made state in there.
fn lock(tls: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    tls.lock().unwrap_or_else(PoisonError::into_inner)
}

fn drain(tls: &mut Connection, into: &mut Vec<u8>) -> io::Result<()> {
    match tls.reader().read_to_end(into) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

fn is_retryable(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// What an error of TLS means for a sender or a receiver.
fn describe_tls_error(error: &Error, tls: &Connection) -> String {
    let is_sender = matches!(tls, Connection::Client(_));
    match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) if is_sender => {
            "the receiver has another key than the one that this sender's key was made for".into()
        }
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
            "its key is none of this receiver's senders".into()
        }
        Error::AlertReceived(AlertDescription::AccessDenied | AlertDescription::BadCertificate)
            if is_sender =>
        {
            "the receiver does not know this sender's key: start it again if the key is new".into()
        }
        Error::AlertReceived(AlertDescription::AccessDenied | AlertDescription::BadCertificate) => {
            "its key was made for another receiver".into()
        }
        Error::InvalidMessage(_) => {
            "the other end does not speak TLS: is it started with --plain, or is it no toll?".into()
        }
        other => format!("TLS: {other}"),
    }
}

/// Reader of messages from the peer.
pub struct MessageReader<'a> {
    link: &'a Link,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were handed out.
    used: usize,
    scratch: Box<[u8]>,
    /// When the first byte of a message came that is not whole yet.
    message_since: Option<Instant>,
}

/// Result of a read.
pub enum ReadOutcome<'a> {
    Message(Message<'a>),
    /// No whole message in this time.
    TimedOut,
    Closed,
}

impl<'a> MessageReader<'a> {
    pub fn new(link: &'a Link) -> Self {
        let scratch = vec![0; BLOCK_BYTES * 2].into_boxed_slice();
        Self { link, buffer: Vec::new(), used: 0, scratch, message_since: None }
    }

    /// How long the message has been coming that is not whole yet, and of how many bytes it is known to be.
    pub fn partial_message(&self) -> Option<(Duration, usize)> {
        let length = stream_protocol::message_length(&self.buffer[self.used..], usize::MAX)
            .ok()
            .flatten()
            .unwrap_or(0);
        self.message_since.map(|since| (since.elapsed(), length))
    }

    /// Waits for the next message, no longer than `wait` and a glance.
    ///
    /// # Errors
    /// The connection broke, or what came is no message or has a payload longer than `longest`.
    pub fn read_message(&mut self, wait: Duration, longest: usize) -> Result<ReadOutcome<'_>> {
        let until = Instant::now() + wait;
        self.buffer.drain(..self.used);
        self.used = 0;
        let whole = loop {
            match stream_protocol::message_length(&self.buffer, longest)? {
                Some(length) if length <= self.buffer.len() => break length,
                Some(length) => self.buffer.reserve_exact(length - self.buffer.len()),
                None => {}
            }
            match self.link.receive(&mut self.buffer, &mut self.scratch) {
                Ok(0) => return Ok(ReadOutcome::Closed),
                Ok(_) => _ = self.message_since.get_or_insert_with(Instant::now),
                Err(error) if is_retryable(&error) => {}
                Err(error) => return Err(error).context("the connection broke"),
            }
            // What has come in the meantime is looked at first.
            let is_whole = stream_protocol::message_length(&self.buffer, longest)?
                .is_some_and(|length| length <= self.buffer.len());
            if !is_whole && Instant::now() >= until {
                return Ok(ReadOutcome::TimedOut);
            }
        };
        self.used = whole;
        self.message_since = (whole < self.buffer.len()).then(Instant::now);
        Ok(ReadOutcome::Message(stream_protocol::parse_message(&self.buffer[..whole])?))
    }
}
