//! Sender thread of a stream: connects, sends, reads acknowledgements, and reconnects.
//!
//! Never changes a chunk: it is sent as it was stored.

use super::kept::{Kept, Message as KeptMessage};
use super::{Shared, Stage};
use crate::receive::{Heard, Hearing, Key, Link, printable};
use anyhow::{Context, Result, anyhow, bail};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use toll_wire::stream_protocol::{End, Hello, MAX_HELLO, Message, StreamContent, StreamId};

/// A host that is there answers within this time; so does a receiver that is asked something.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Where there is nothing to send, a sign of life so often.
const STILL: Duration = Duration::from_secs(5);
/// A receiver that does not even answer those is gone.
const SILENT: Duration = Duration::from_secs(30);
/// Between two attempts to connect: first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why there is no connection.
pub(super) enum Unreached {
    /// Nobody is there, or not yet.
    Absent(String),
    /// It would be no better later.
    Wrong(anyhow::Error),
}

/// Connects, and sees that both ends have one key.
pub(super) fn reach(target: &str, key: &Key) -> Result<Link, Unreached> {
    let addresses = target.to_socket_addrs().map_err(|error| {
        let advice = "write it as HOST:PORT, with a name that this host knows";
        Unreached::Wrong(anyhow!(error).context(advice))
    })?;
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, ANSWERS_WITHIN) {
            Ok(tcp) => return Link::connect(tcp, key, ANSWERS_WITHIN).map_err(Unreached::Wrong),
            Err(error) => why = error.to_string(),
        }
    }
    Err(Unreached::Absent(why))
}

/// Until the other end has everything, or nobody waits for that any more.
pub(super) fn run(shared: &Arc<Shared>, holds: StreamContent, opening: &[u8], mut link: Option<Link>) {
    let mut pauses = Pauses::of(shared.stream);
    let mut trouble = None;
    loop {
        let reached = match link.take() {
            Some(link) => Ok(link),
            None => reach(&shared.target, &shared.key).map_err(|unreached| match unreached {
                Unreached::Absent(why) => anyhow!("nobody receives there ({why})"),
                Unreached::Wrong(error) => error,
            }),
        };
        let ended = reached.and_then(|link| {
            let told = trouble.is_some();
            let (ended, took) = converse(shared, holds, opening, Arc::new(link), || {
                if told {
                    tracing::info!("the stream to {} goes on", shared.target);
                }
            });
            // One that welcomes and then takes nothing (its disk may be full) is asked less and less often.
            if took {
                pauses.begin_anew();
                trouble = None;
            }
            ended
        });
        let Err(error) = ended else { return };
        let said = format!("{error:#}");
        if trouble.as_ref() != Some(&said) && !shared.is_over() {
            tracing::warn!("the stream to {} is interrupted: {said}; it is tried again", shared.target);
            trouble = Some(said);
        }
        shared.detach(error);
        if shared.waits_over(pauses.next()) {
            return;
        }
    }
}

/// One connection, until it breaks (an error) or everything is said and done; and whether the other end took anything of what was
/// kept, or all was taken before. `took`: is called when that shows.
fn converse(
    shared: &Shared,
    holds: StreamContent,
    opening: &[u8],
    link: Arc<Link>,
    took: impl FnOnce() + Send,
) -> (Result<()>, bool) {
    let mut took = Some(took);
    let ended = talk(shared, holds, opening, &link, || {
        if let Some(took) = took.take() {
            took();
        }
    });
    (ended, took.is_none())
}

fn talk(
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
    link.say(&Message::Hello(hello)).context("the connection broke")?;
    let mut hearing = Hearing::of(link);
    match hearing.next(ANSWERS_WITHIN, MAX_HELLO)? {
        Heard::Message(Message::Welcome { next }) => {
            if shared.resume(next)? {
                took();
            }
        }
        Heard::Message(Message::Refused { why }) => bail!("it says: {}", printable(why)),
        Heard::Message(_) => bail!("it does not answer as a receiver does"),
        Heard::HungUp => bail!("it hung up on the greeting"),
        Heard::Nothing => bail!("it does not answer the greeting"),
    }
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let heard = listen(shared, &mut hearing, &mut took);
            if let Err(error) = heard {
                shared.breaks(error);
            }
        });
        let sent = send(shared, link);
        link.close();
        // It panics no more than it hears; then the connection counts as broken.
        let _ = listener.join();
        sent
    })
}

fn send(shared: &Shared, link: &Link) -> Result<()> {
    let mut end_said = false;
    loop {
        let sent = match shared.next(end_said) {
            Next::Chunk(message) => link.send(&message.bytes),
            Next::Still => link.say(&Message::KeepAlive),
            Next::End { chunks, items, lost, closing } => {
                end_said = true;
                link.say(&Message::End(End { chunks, items, lost, file_footer: &closing }))
            }
            Next::Over => return Ok(()),
            Next::Broken(error) => return Err(error),
        };
        if let Err(error) = sent {
            // What the other end said before it hung up tells more.
            return Err(shared.why_broken(Duration::from_secs(1)).unwrap_or_else(|| {
                anyhow!(error).context("the connection broke, or nothing was taken for 10 s")
            }));
        }
    }
}

fn listen(shared: &Shared, hearing: &mut Hearing<'_>, took: &mut impl FnMut()) -> Result<()> {
    loop {
        match hearing.next(STILL, MAX_HELLO)? {
            Heard::Message(Message::Acknowledged { below }) => {
                if shared.acknowledged(below)? {
                    took();
                }
            }
            Heard::Message(Message::Done) => return shared.done(),
            Heard::Message(Message::Refused { why }) => bail!("it says: {}", printable(why)),
            Heard::Message(_) => bail!("it does not speak as a receiver does"),
            Heard::HungUp => bail!("it hung up"),
            Heard::Nothing if shared.is_over() => return Ok(()),
            Heard::Nothing => {}
        }
    }
}

/// What is to be sent next.
enum Next {
    Chunk(KeptMessage),
    Still,
    End { chunks: u64, items: u64, lost: u64, closing: Vec<u8> },
    Broken(anyhow::Error),
    Over,
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.lock().stage != Stage::Running
    }

    /// This connection is the one that counts. The answer is the lowest number that can be sent on it.
    fn attach(&self, link: &Arc<Link>) -> u64 {
        let mut state = self.lock();
        if state.stage != Stage::Running {
            link.close();
        }
        state.link = Some(Arc::clone(link));
        state.broken = None;
        state.heard = Instant::now();
        state.kept.first()
    }

    fn detach(&self, error: anyhow::Error) {
        let mut state = self.lock();
        state.broken = Some(error);
        if let Some(link) = state.link.take() {
            link.close();
        }
    }

    /// True if the receiver has written everything, or more than was acknowledged: acknowledgements can be
    /// lost with a connection.
    fn resume(&self, next: u64) -> Result<bool> {
        let (known, is_news) = self.took(|kept| kept.resume(next));
        if !known {
            bail!("it wants chunk {next}, which is not to be had");
        }
        Ok(is_news || self.lock().kept.is_empty())
    }

    /// True if the acknowledgement covers new chunks.
    fn acknowledged(&self, below: u64) -> Result<bool> {
        let (known, is_news) = self.took(|kept| kept.acknowledged(below));
        if !known {
            bail!("it speaks of chunk {below}, which was never sent");
        }
        Ok(is_news)
    }

    /// What `says` answers of what is kept, and whether the other end has taken more of it.
    fn took(&self, says: impl FnOnce(&mut Kept) -> bool) -> (bool, bool) {
        let mut state = self.lock();
        state.heard = Instant::now();
        let first = state.kept.first();
        let known = says(&mut state.kept);
        let is_news = known && state.kept.first() > first;
        if is_news {
            state.took = Instant::now();
        }
        drop(state);
        self.changed.notify_all();
        (known, is_news)
    }

    fn done(&self) -> Result<()> {
        let mut state = self.lock();
        if state.closing.is_none() || !state.kept.is_empty() {
            bail!("it speaks of an end that was not said");
        }
        state.stage = Stage::Whole;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn breaks(&self, error: anyhow::Error) {
        self.lock().broken.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Waits a little for what the listening thread has to say about it.
    fn why_broken(&self, wait: Duration) -> Option<anyhow::Error> {
        let waited = self.changed.wait_timeout_while(self.lock(), wait, |state| state.broken.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.broken.take()
    }

    /// True: over, meanwhile or before.
    fn waits_over(&self, wait: Duration) -> bool {
        let waited =
            self.changed.wait_timeout_while(self.lock(), wait, |state| state.stage == Stage::Running);
        waited.unwrap_or_else(PoisonError::into_inner).0.stage != Stage::Running
    }

    fn next(&self, end_said: bool) -> Next {
        let mut state = self.lock();
        loop {
            if state.stage != Stage::Running {
                return Next::Over;
            }
            if let Some(error) = state.broken.take() {
                return Next::Broken(error);
            }
            if state.heard.elapsed() > SILENT {
                return Next::Broken(anyhow!("nothing was heard from it for {} s", SILENT.as_secs()));
            }
            if let Some(message) = state.kept.take_unsent() {
                return Next::Chunk(message);
            }
            if let Some(closing) = state.closing.clone().filter(|_| !end_said) {
                let chunks = state.kept.next();
                return Next::End { chunks, items: state.items, lost: state.lost, closing };
            }
            let waited = self.changed.wait_timeout(state, STILL).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                return Next::Still;
            }
        }
    }
}

/// How long to wait before the next attempt: twice as long each time, and not as long as everybody else who lost the
/// same receiver at the same moment.
struct Pauses {
    next: Duration,
    /// Different for each stream.
    seed: u64,
}

impl Pauses {
    fn of(stream: StreamId) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = stream;
        Self { next: PAUSES.0, seed: u64::from_le_bytes([a, b, c, d, e, f, g, h]) }
    }

    fn begin_anew(&mut self) {
        self.next = PAUSES.0;
    }

    /// Between half of what is due and one and a half of it.
    fn next(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(PAUSES.1);
        // Knuth's MMIX generator; its upper bits are the good ones.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        due.mul_f64(0.5 + (self.seed >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ_between_streams() {
        let pauses = |seed: u8| {
            let mut pauses = Pauses::of([seed; 16]);
            std::array::from_fn::<Duration, 12, _>(|_| pauses.next())
        };
        let (one, another) = (pauses(1), pauses(2));
        assert_ne!(one, another);
        for (at, pause) in one.into_iter().chain(another).enumerate() {
            let due = (PAUSES.0 * (1 << (at % 12))).min(PAUSES.1);
            assert!(due / 2 <= pause && pause <= due * 3 / 2, "{at}: {pause:?}");
        }
        let mut again = Pauses::of([1; 16]);
        for _ in 0..9 {
            again.next();
        }
        again.begin_anew();
        assert!(again.next() <= PAUSES.0 * 3 / 2);
    }
}
