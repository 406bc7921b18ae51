//! Handler of one connection at the receiver.
//!
//! Authenticates the sender, reads chunks, writes and acknowledges each. A peer that sends anything else, or
//! nothing, is refused with a message. Other connections are not affected.

use super::Receiver;
use super::link::{Link, MessageReader, ReadOutcome};
use super::stream_writer::ChunkDecompressor;
use super::streams::AttachedStream;
use anyhow::{Context, Result, bail};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use toll_wire::stream_protocol::{MAX_HELLO, MAX_PAYLOAD, Message, MessageError};

/// A sender shows its key within this time, and as long again says what it brings. A key exchange takes one round trip.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// A sender that has nothing to send says so more often than this.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// A message comes at least so fast, bytes a second, after as long as a silent sender is borne.
const MIN_BYTES_PER_S: f64 = 16_384.0;
/// How often it is looked whether to end.
const STOP_POLL: Duration = Duration::from_millis(200);

/// Until it breaks, is refused, or has said everything. `has_stream` is called once it belongs to a stream.
///
/// # Errors
/// Anything but the last, for the receiver's user.
pub fn serve_connection(tcp: TcpStream, receiver: &Receiver, has_stream: impl FnOnce()) -> Result<()> {
    let link = Arc::new(Link::accept(tcp, &receiver.key, HELLO_TIMEOUT).context("refused")?);
    let mut reader = MessageReader::new(&link);
    let attached = match read_hello(&mut reader, &link, receiver) {
        Ok(attached) => attached,
        Err(error) => {
            link.refuse(&format!("{error:#}"));
            return Err(error).context("refused");
        }
    };
    has_stream();
    let heard = link
        .send_message(&Message::Welcome { next: attached.next_chunk })
        .context("the connection broke")
        .map_err(ConnectionEnd::Broken)
        .and_then(|()| receive_chunks(&mut reader, &link, &attached, receiver));
    attached.incoming.detach(attached.connection);
    match heard {
        Ok(()) => link.close(),
        Err(ConnectionEnd::Broken(error)) => return Err(error).context("the connection is no more"),
        Err(ConnectionEnd::Refused(error)) => {
            link.refuse(&format!("{error:#}"));
            return Err(error).context("refused");
        }
        Err(ConnectionEnd::Stopped) => {
            link.refuse("the receiver was ended; another one goes on where it stopped")
        }
    }
    Ok(())
}

/// Why no more is heard.
enum ConnectionEnd {
    Broken(anyhow::Error),
    /// The sender gets the reason.
    Refused(anyhow::Error),
    Stopped,
}

impl ConnectionEnd {
    /// A peer that sends no valid message gets the reason, unless it has gone.
    fn from_error(error: anyhow::Error) -> Self {
        if error.is::<MessageError>() { Self::Refused(error) } else { Self::Broken(error) }
    }
}

impl From<anyhow::Error> for ConnectionEnd {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

fn read_hello(
    reader: &mut MessageReader<'_>,
    link: &Arc<Link>,
    receiver: &Receiver,
) -> Result<AttachedStream> {
    match reader.read_message(HELLO_TIMEOUT, MAX_HELLO)? {
        ReadOutcome::Message(Message::Hello(hello)) => receiver.streams.admit(&hello, link),
        ReadOutcome::Message(_) => bail!("no hello message"),
        ReadOutcome::Closed => bail!("it closed the connection before the hello message"),
        ReadOutcome::TimedOut => bail!("no hello message within {} s", HELLO_TIMEOUT.as_secs()),
    }
}

fn receive_chunks(
    reader: &mut MessageReader<'_>,
    link: &Link,
    attached: &AttachedStream,
    receiver: &Receiver,
) -> Result<(), ConnectionEnd> {
    let AttachedStream { incoming, connection, .. } = attached;
    let mut inflate = ChunkDecompressor::new()?;
    let mut last = Instant::now();
    loop {
        if receiver.is_stopping.load(Ordering::Relaxed) {
            return Err(ConnectionEnd::Stopped);
        }
        let heard = reader.read_message(STOP_POLL, MAX_PAYLOAD).map_err(ConnectionEnd::from_error)?;
        let below = match heard {
            ReadOutcome::Message(Message::Chunk(chunk)) => {
                let received = chunk.frame.len() as u64;
                incoming
                    .write_chunk(*connection, &chunk, received, &mut inflate)
                    .map_err(ConnectionEnd::Refused)?
            }
            ReadOutcome::Message(Message::KeepAlive) => incoming.next_chunk(),
            ReadOutcome::Message(Message::End(end)) => {
                incoming.finish(*connection, &end).map_err(ConnectionEnd::Refused)?;
                link.send_message(&Message::Done).context("the connection broke")?;
                return Ok(());
            }
            ReadOutcome::Message(_) => {
                return Err(ConnectionEnd::Refused(anyhow::anyhow!("unexpected message from the sender")));
            }
            ReadOutcome::Closed => {
                return Err(ConnectionEnd::Broken(anyhow::anyhow!(
                    "it closed the connection before the end of the stream"
                )));
            }
            ReadOutcome::TimedOut => {
                check_timeout(last, reader).map_err(ConnectionEnd::Refused)?;
                continue;
            }
        };
        last = Instant::now();
        link.send_message(&Message::Acknowledged { below }).context("the connection broke")?;
    }
}

/// Checks the time since the last whole message, at `last`.
///
/// # Errors
/// The unfinished message is too slow, or the peer has been silent for too long.
fn check_timeout(last: Instant, reader: &MessageReader<'_>) -> Result<()> {
    match reader.partial_message() {
        Some((since, length)) => {
            let due = SILENCE_TIMEOUT.as_secs_f64() + length as f64 / MIN_BYTES_PER_S;
            if since.as_secs_f64() > due {
                bail!("timeout: message of {length} bytes not completed within {:.0} s", since.as_secs_f64());
            }
        }
        None if last.elapsed() > SILENCE_TIMEOUT => bail!("nothing came for {} s", SILENCE_TIMEOUT.as_secs()),
        None => {}
    }
    Ok(())
}
