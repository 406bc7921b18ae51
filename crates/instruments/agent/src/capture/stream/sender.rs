//! Sender thread of a stream: connects, sends, reads acknowledgements, and reconnects.
//!
//! Never changes a chunk: it is sent as it was stored.

use super::resend_buffer::{Message as KeptMessage, ResendBuffer};
use super::{Shared, StreamPhase};
use crate::backoff::Backoff;
use crate::receive::{Link, MessageReader, ReadOutcome, SenderKey, strip_control};
use anyhow::{Context, Result, anyhow, bail};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use toll_wire::stream_protocol::{End, Hello, MAX_HELLO, Message, StreamContent, StreamId};

/// A host that is there answers within this time; so does a receiver that is asked something.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Where there is nothing to send, a sign of life so often.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// A receiver that does not even answer those is gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two attempts to connect: first, and at most.
const BACKOFF_RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why there is no connection.
pub(super) enum ConnectError {
    /// Nobody is there, or not yet.
    Unreachable(String),
    /// It would be no better later.
    Permanent(anyhow::Error),
}

/// Connects, and sees that it is this sender's receiver.
pub(super) fn connect(target: &str, key: &SenderKey) -> Result<Link, ConnectError> {
    let addresses = target.to_socket_addrs().map_err(|error| {
        let advice = "write it as HOST:PORT, with a name that this host knows";
        ConnectError::Permanent(anyhow!(error).context(advice))
    })?;
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT) {
            Ok(tcp) => return Link::connect(tcp, key, RESPONSE_TIMEOUT).map_err(ConnectError::Permanent),
            Err(error) => why = error.to_string(),
        }
    }
    Err(ConnectError::Unreachable(why))
}

/// Until the other end has everything, or nobody waits for that any more.
pub(super) fn run_sender(shared: &Arc<Shared>, holds: StreamContent, opening: &[u8], mut link: Option<Link>) {
    let mut pauses = Backoff::new(BACKOFF_RANGE, seed(shared.stream));
    let mut trouble = None;
    loop {
        let reached = match link.take() {
            Some(link) => Ok(link),
            None => connect(&shared.target, &shared.key).map_err(|unreached| match unreached {
                ConnectError::Unreachable(why) => anyhow!("no receiver ({why})"),
                ConnectError::Permanent(error) => error,
            }),
        };
        let ended = reached.and_then(|link| {
            let was_interrupted = trouble.is_some();
            let (ended, took) = run_connection(shared, holds, opening, Arc::new(link), || {
                if was_interrupted {
                    tracing::info!("the stream to {} goes on", shared.target);
                }
            });
            // One that welcomes and then takes nothing (its disk may be full) is asked less and less often.
            if took {
                pauses.reset();
                trouble = None;
            }
            ended
        });
        let Err(error) = ended else { return };
        let said = format!("{error:#}");
        if trouble.as_ref() != Some(&said) && !shared.is_over() {
            tracing::warn!("the stream to {} is interrupted: {said}; reconnecting", shared.target);
            trouble = Some(said);
        }
        shared.detach(error);
        if shared.wait_until_over(pauses.next_pause()) {
            return;
        }
    }
}

/// Different for each stream: not all who lost the same receiver come back at the same moments.
fn seed([a, b, c, d, e, f, g, h, ..]: StreamId) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// One connection, until it breaks (an error) or everything is said and done; and whether the other end took anything of what was
/// kept, or all was taken before. `took`: is called when that shows.
fn run_connection(
    shared: &Shared,
    holds: StreamContent,
    opening: &[u8],
    link: Arc<Link>,
    took: impl FnOnce() + Send,
) -> (Result<()>, bool) {
    let mut took = Some(took);
    let ended = exchange_messages(shared, holds, opening, &link, || {
        if let Some(took) = took.take() {
            took();
        }
    });
    (ended, took.is_none())
}

fn exchange_messages(
    shared: &Shared,
    holds: StreamContent,
    opening: &[u8],
    link: &Arc<Link>,
    mut took: impl FnMut() + Send,
) -> Result<()> {
    let first = shared.attach(link);
    let host = toll_sys::read_trimmed("/proc/sys/kernel/hostname");
    let hello = Hello {
        stream: shared.stream,
        content: holds,
        begun_ns: shared.begun_ns,
        first,
        host: &host,
        file_header: opening,
    };
    link.send_message(&Message::Hello(hello)).context("the connection broke")?;
    let mut reader = MessageReader::new(link);
    match reader.read_message(RESPONSE_TIMEOUT, MAX_HELLO)? {
        ReadOutcome::Message(Message::Welcome { next }) => {
            if shared.resume_from(next)? {
                took();
            }
        }
        ReadOutcome::Message(Message::Refused { why }) => {
            bail!("the receiver refused: {}", strip_control(why))
        }
        ReadOutcome::Message(_) => bail!("unexpected answer of the receiver to the hello message"),
        ReadOutcome::Closed => bail!("it closed the connection after the hello message"),
        ReadOutcome::TimedOut => bail!("no answer to the hello message"),
    }
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let heard = read_acknowledgements(shared, &mut reader, &mut took);
            if let Err(error) = heard {
                shared.fail(error);
            }
        });
        let sent = send_messages(shared, link);
        link.close();
        // It panics no more than it hears; then the connection counts as broken.
        let _ = listener.join();
        sent
    })
}

fn send_messages(shared: &Shared, link: &Link) -> Result<()> {
    let mut end_said = false;
    loop {
        let sent = match shared.next_message(end_said) {
            NextMessage::Chunk(message) => link.send_bytes(&message.bytes),
            NextMessage::KeepAlive => link.send_message(&Message::KeepAlive),
            NextMessage::End { chunks, items, lost, closing } => {
                end_said = true;
                link.send_message(&Message::End(End { chunks, items, lost, file_footer: &closing }))
            }
            NextMessage::Finished => return Ok(()),
            NextMessage::Broken(error) => return Err(error),
        };
        if let Err(error) = sent {
            // What the other end said before it hung up tells more.
            return Err(shared.wait_for_error(Duration::from_secs(1)).unwrap_or_else(|| {
                anyhow!(error).context("the connection broke, or nothing was taken for 10 s")
            }));
        }
    }
}

fn read_acknowledgements(
    shared: &Shared,
    reader: &mut MessageReader<'_>,
    took: &mut impl FnMut(),
) -> Result<()> {
    loop {
        match reader.read_message(KEEPALIVE_INTERVAL, MAX_HELLO)? {
            ReadOutcome::Message(Message::Acknowledged { below }) => {
                if shared.acknowledge(below)? {
                    took();
                }
            }
            ReadOutcome::Message(Message::Done) => return shared.finish(),
            ReadOutcome::Message(Message::Refused { why }) => {
                bail!("the receiver refused: {}", strip_control(why))
            }
            ReadOutcome::Message(_) => bail!("unexpected message from the receiver"),
            ReadOutcome::Closed => bail!("it closed the connection"),
            ReadOutcome::TimedOut if shared.is_over() => return Ok(()),
            ReadOutcome::TimedOut => {}
        }
    }
}

/// What is to be sent next.
enum NextMessage {
    Chunk(KeptMessage),
    KeepAlive,
    End { chunks: u64, items: u64, lost: u64, closing: Vec<u8> },
    Broken(anyhow::Error),
    Finished,
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.lock().phase != StreamPhase::Running
    }

    /// This connection is the one that counts. The answer is the lowest number that can be sent on it.
    fn attach(&self, link: &Arc<Link>) -> u64 {
        let mut state = self.lock();
        if state.phase != StreamPhase::Running {
            link.close();
        }
        state.link = Some(Arc::clone(link));
        state.connection_error = None;
        state.last_heard = Instant::now();
        state.resend_buffer.first_number()
    }

    fn detach(&self, error: anyhow::Error) {
        let mut state = self.lock();
        state.connection_error = Some(error);
        if let Some(link) = state.link.take() {
            link.close();
        }
    }

    /// True if the receiver has written everything, or more than was acknowledged: acknowledgements can be
    /// lost with a connection.
    fn resume_from(&self, next: u64) -> Result<bool> {
        let (known, is_news) = self.record_progress(|kept| kept.resume(next));
        if !known {
            bail!("it wants chunk {next}, which is not to be had");
        }
        Ok(is_news || self.lock().resend_buffer.is_empty())
    }

    /// True if the acknowledgement covers new chunks.
    fn acknowledge(&self, below: u64) -> Result<bool> {
        let (known, is_news) = self.record_progress(|kept| kept.acknowledge(below));
        if !known {
            bail!("it speaks of chunk {below}, which was never sent");
        }
        Ok(is_news)
    }

    /// Result of `says` on the resend buffer, and whether the receiver has acknowledged more of it.
    fn record_progress(&self, says: impl FnOnce(&mut ResendBuffer) -> bool) -> (bool, bool) {
        let mut state = self.lock();
        state.last_heard = Instant::now();
        let first = state.resend_buffer.first_number();
        let known = says(&mut state.resend_buffer);
        let is_news = known && state.resend_buffer.first_number() > first;
        if is_news {
            state.last_acknowledged = Instant::now();
        }
        drop(state);
        self.changed.notify_all();
        (known, is_news)
    }

    fn finish(&self) -> Result<()> {
        let mut state = self.lock();
        if state.trailer.is_none() || !state.resend_buffer.is_empty() {
            bail!("it acknowledged an end that was not sent");
        }
        state.phase = StreamPhase::Complete;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn fail(&self, error: anyhow::Error) {
        self.lock().connection_error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Waits a little for what the listening thread has to say about it.
    fn wait_for_error(&self, wait: Duration) -> Option<anyhow::Error> {
        let waited =
            self.changed.wait_timeout_while(self.lock(), wait, |state| state.connection_error.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.connection_error.take()
    }

    /// True: over, meanwhile or before.
    fn wait_until_over(&self, wait: Duration) -> bool {
        let waited =
            self.changed.wait_timeout_while(self.lock(), wait, |state| state.phase == StreamPhase::Running);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase != StreamPhase::Running
    }

    fn next_message(&self, end_said: bool) -> NextMessage {
        let mut state = self.lock();
        loop {
            if state.phase != StreamPhase::Running {
                return NextMessage::Finished;
            }
            if let Some(error) = state.connection_error.take() {
                return NextMessage::Broken(error);
            }
            if state.last_heard.elapsed() > SILENCE_TIMEOUT {
                return NextMessage::Broken(anyhow!(
                    "nothing was heard from it for {} s",
                    SILENCE_TIMEOUT.as_secs()
                ));
            }
            if let Some(message) = state.resend_buffer.take_unsent() {
                return NextMessage::Chunk(message);
            }
            if let Some(closing) = state.trailer.clone().filter(|_| !end_said) {
                let chunks = state.resend_buffer.next_number();
                return NextMessage::End { chunks, items: state.items, lost: state.lost, closing };
            }
            let waited =
                self.changed.wait_timeout(state, KEEPALIVE_INTERVAL).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                return NextMessage::KeepAlive;
            }
        }
    }
}
