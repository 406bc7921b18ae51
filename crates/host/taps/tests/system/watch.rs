//! Socket tap with a decoder, on a thread of its own.

use crate::socket_chunk::to_socket_chunk;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toll_taps::sockets::{SocketCounters, SocketTap, SocketTapOptions, TapError};
use toll_wire::accounting::DecodeAccounting;
use toll_wire::decoder::{Config, Decoder, Limits};
use toll_wire::event::{CommandKind, Event, Sink};

/// No host is so busy that what a server has been asked takes this long to be seen.
const HUNG: Duration = Duration::from_secs(120);

/// True if this test may attach host-wide hooks. The runner starts only one such test at a time.
pub fn may_hook() -> bool {
    let may = nix::unistd::geteuid().is_root();
    if !may {
        toll_testkit::skip!("looking at a server's sockets takes root");
    }
    may
}

/// True if it may attach to perf events of sockets: Linux 6.18 or later, and tracefs.
pub fn has_perf_events() -> bool {
    let has = Path::new("/sys/kernel/tracing/events/sock/sock_recv_length").exists();
    if !has {
        toll_testkit::skip!("no tracefs: mount -t tracefs tracefs /sys/kernel/tracing");
    }
    has && may_hook()
}

/// The process that listens there.
pub fn pid_of(socket: &Path) -> u32 {
    let stream = UnixStream::connect(socket).unwrap();
    let peer = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials).unwrap();
    u32::try_from(peer.pid()).unwrap()
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeenEvent {
    pub start_ns: u64,
    pub kind: CommandKind,
    pub text: Vec<u8>,
    pub text_cut: u64,
    pub user: String,
    pub host: String,
    pub params: String,
    pub timed: bool,
    pub tainted: bool,
}

impl SeenEvent {
    pub fn reads(&self, text: &str) -> bool {
        self.text == text.as_bytes()
    }
}

#[derive(Debug, Default)]
struct EventLog(Vec<SeenEvent>);

impl Sink for EventLog {
    fn on_event(&mut self, event: &Event<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0.push(SeenEvent {
            start_ns: event.start_ns,
            kind: event.kind,
            text: event.text.to_vec(),
            text_cut: event.text_cut,
            user: text(event.user),
            host: text(event.host),
            params: text(event.params),
            timed: event.query_ns.is_some(),
            tainted: event.tainted,
        });
    }
}

/// What came of a watch.
pub struct TapResult {
    pub events: Vec<SeenEvent>,
    pub ledger: DecodeAccounting,
    pub counters: SocketCounters,
    /// Why it ended by itself.
    pub ended: Option<TapError>,
}

impl TapResult {
    pub fn count(&self, text: &str) -> usize {
        self.events.iter().filter(|seen| seen.reads(text)).count()
    }

    pub fn only(&self, text: &str) -> &SeenEvent {
        assert_eq!(self.count(text), 1, "{text:?} among {} events", self.events.len());
        self.events.iter().find(|seen| seen.reads(text)).unwrap()
    }
}

pub struct TapThread {
    end: Arc<AtomicBool>,
    events: Arc<Mutex<EventLog>>,
    thread: JoinHandle<TapResult>,
}

impl TapThread {
    pub fn begin(options: &SocketTapOptions) -> Self {
        Self::on(SocketTap::open(options).unwrap())
    }

    /// Hands what the tap sees to a decoder until it is told to end, or the server has.
    pub fn on(mut tap: SocketTap) -> Self {
        let (end, events) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(EventLog::default())));
        let (told, found) = (Arc::clone(&end), Arc::clone(&events));
        let thread = std::thread::spawn(move || {
            let limits = Limits { text: 8 << 20, ..Limits::default() };
            let mut decoder = Decoder::new(&Config { limits, ..Config::default() });
            let mut ended = None;
            loop {
                let last = told.load(Ordering::Acquire);
                if last {
                    // Once more, for what had been said until then.
                    tap.close();
                }
                // Those who ask what was seen must not wait for what is yet to come.
                let mut new = EventLog::default();
                let taken = tap.poll_records(Duration::from_millis(5), |record| {
                    decoder.decode_socket_chunk(&to_socket_chunk(record), &mut new);
                    Ok::<(), TapError>(())
                });
                found.lock().unwrap().0.append(&mut new.0);
                if let Err(error) = taken {
                    ended = Some(error);
                }
                if last || ended.is_some() {
                    break;
                }
            }
            let mut events = found.lock().unwrap();
            decoder.finish(&mut *events);
            let (ledger, counters) = (decoder.accounting(), tap.counters());
            assert!(ledger.is_consistent(), "{ledger:#?}");
            assert_eq!(counters.passed, counters.delivered + counters.lost, "{counters:?}");
            // An answer that is cut is known to have ended when the next command comes.
            events.0.sort_by_key(|seen| seen.start_ns);
            TapResult { events: std::mem::take(&mut events.0), ledger, counters, ended }
        });
        Self { end, events, thread }
    }

    /// How many events match until now.
    pub fn count_seen(&self, matches: impl Fn(&SeenEvent) -> bool) -> usize {
        self.events.lock().unwrap().0.iter().filter(|seen| matches(seen)).count()
    }

    /// Waits until so many events match.
    pub fn wait_until(&self, count: usize, matches: impl Fn(&SeenEvent) -> bool) {
        let begun = Instant::now();
        loop {
            let found = self.count_seen(&matches);
            if found >= count {
                return;
            }
            assert!(begun.elapsed() < HUNG, "{found} of {count} were seen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a statement was seen.
    pub fn wait_until_seen(&self, text: &str) {
        self.wait_until(1, |seen| seen.reads(text));
    }

    pub fn end(self) -> TapResult {
        self.end.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }

    /// Waits until it ends by itself.
    pub fn end_after_server(self) -> TapResult {
        self.thread.join().unwrap()
    }
}
