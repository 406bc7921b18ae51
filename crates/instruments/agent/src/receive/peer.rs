//! Handler of one connection at the receiver.
//!
//! Authenticates the sender, reads chunks, writes and acknowledges each. A peer that sends anything else, or
//! nothing, is refused with a message. Other connections are not affected.

use super::Receiver;
use super::incoming::Inflate;
use super::link::{Heard, Hearing, Link};
use super::streams::Attached;
use anyhow::{Context, Result, bail};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use toll_wire::stream_protocol::{MAX_HELLO, MAX_PAYLOAD, Message, MessageError};

/// A sender shows its key within this time, and as long again says what it brings.
const GREETS_WITHIN: Duration = Duration::from_secs(10);
/// A sender that has nothing to send says so more often than this.
const SILENT: Duration = Duration::from_secs(30);
/// A message comes at least so fast, bytes a second, after as long as a silent sender is borne.
const SLOWEST: f64 = 16_384.0;
/// How often it is looked whether to end.
const LOOK: Duration = Duration::from_millis(200);

/// Until it breaks, is refused, or has said everything.
///
/// # Errors
/// Anything but the last, for the receiver's user.
pub fn serve(tcp: TcpStream, receiver: &Receiver) -> Result<()> {
    let link = Arc::new(Link::accept(tcp, &receiver.key, GREETS_WITHIN).context("refused")?);
    let mut hearing = Hearing::of(&link);
    let attached = match greeted(&mut hearing, &link, receiver) {
        Ok(attached) => attached,
        Err(error) => {
            link.refuse(&format!("{error:#}"));
            return Err(error).context("refused");
        }
    };
    let heard = link
        .say(&Message::Welcome { next: attached.next })
        .context("the connection broke")
        .map_err(Ended::Broken)
        .and_then(|()| hear(&mut hearing, &link, &attached, receiver));
    attached.incoming.detach(attached.connection);
    match heard {
        Ok(()) => link.close(),
        Err(Ended::Broken(error)) => return Err(error).context("the connection is no more"),
        Err(Ended::Refused(error)) => {
            link.refuse(&format!("{error:#}"));
            return Err(error).context("refused");
        }
        Err(Ended::Stopped) => link.refuse("the receiver was ended; another one goes on where it stopped"),
    }
    Ok(())
}

/// Why no more is heard.
enum Ended {
    Broken(anyhow::Error),
    /// The sender is told.
    Refused(anyhow::Error),
    Stopped,
}

impl Ended {
    /// Whoever says what is no message is told so; whoever is gone cannot be.
    fn by(error: anyhow::Error) -> Self {
        if error.is::<MessageError>() { Self::Refused(error) } else { Self::Broken(error) }
    }
}

impl From<anyhow::Error> for Ended {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

fn greeted(hearing: &mut Hearing<'_>, link: &Arc<Link>, receiver: &Receiver) -> Result<Attached> {
    match hearing.next(GREETS_WITHIN, MAX_HELLO)? {
        Heard::Message(Message::Hello(hello)) => receiver.streams.admit(&hello, link),
        Heard::Message(_) => bail!("it does not say what it brings"),
        Heard::HungUp => bail!("it hung up before it said what it brings"),
        Heard::Nothing => bail!("it did not say what it brings within {} s", GREETS_WITHIN.as_secs()),
    }
}

fn hear(
    hearing: &mut Hearing<'_>,
    link: &Link,
    attached: &Attached,
    receiver: &Receiver,
) -> Result<(), Ended> {
    let Attached { incoming, connection, .. } = attached;
    let mut inflate = Inflate::new()?;
    let mut last = Instant::now();
    loop {
        if receiver.stops.load(Ordering::Relaxed) {
            return Err(Ended::Stopped);
        }
        let heard = hearing.next(LOOK, MAX_PAYLOAD).map_err(Ended::by)?;
        let below = match heard {
            Heard::Message(Message::Chunk(chunk)) => {
                let received = chunk.frame.len() as u64;
                incoming.chunk(*connection, &chunk, received, &mut inflate).map_err(Ended::Refused)?
            }
            Heard::Message(Message::KeepAlive) => incoming.next(),
            Heard::Message(Message::End(end)) => {
                incoming.end(*connection, &end).map_err(Ended::Refused)?;
                link.say(&Message::Done).context("the connection broke")?;
                return Ok(());
            }
            Heard::Message(_) => {
                return Err(Ended::Refused(anyhow::anyhow!("it does not speak as a sender does")));
            }
            Heard::HungUp => return Err(Ended::Broken(anyhow::anyhow!("it hung up before the end"))),
            Heard::Nothing => {
                is_borne(last, hearing).map_err(Ended::Refused)?;
                continue;
            }
        };
        last = Instant::now();
        link.say(&Message::Acknowledged { below }).context("the connection broke")?;
    }
}

/// Checks the time since the last whole message, at `last`.
///
/// # Errors
/// The unfinished message is too slow, or the peer has been silent for too long.
fn is_borne(last: Instant, hearing: &Hearing<'_>) -> Result<()> {
    match hearing.unfinished() {
        Some((since, length)) => {
            let due = SILENT.as_secs_f64() + length as f64 / SLOWEST;
            if since.as_secs_f64() > due {
                bail!("a message of {length} bytes has been coming for {:.0} s", since.as_secs_f64());
            }
        }
        None if last.elapsed() > SILENT => bail!("nothing came for {} s", SILENT.as_secs()),
        None => {}
    }
    Ok(())
}
