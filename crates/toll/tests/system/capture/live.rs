//! Test support: a running `toll capture`, conversations for it to capture, and the content of its files.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::Duration;
use toll_wire::frame::{self, FIN, RST, SYN};
use toll_wire::pcap::{Format, Link, Reader};

pub const TOLL: &str = env!("CARGO_BIN_EXE_toll");

/// True, with a message, if the test cannot be carried out.
pub fn lacks_root() -> bool {
    let lacks = !nix::unistd::geteuid().is_root();
    if lacks {
        toll_testkit::skip!("captures need root");
    }
    lacks
}

pub fn lacks(tool: &str) -> bool {
    let lacks = toll_sys::program::find_program(tool).is_none();
    if lacks {
        toll_testkit::skip!("this test needs {tool}");
    }
    lacks
}

/// A command with default signal handling, even if the tests were started by nohup.
pub fn command(before: &[&str], arguments: &[&str]) -> Command {
    let words = [before, &["env", "--default-signal=HUP,INT,QUIT,TERM", TOLL, "capture"], arguments].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

/// A running capture, stopped with the test.
pub struct LiveCapture {
    child: Child,
    words: BufReader<ChildStderr>,
    said: String,
}

/// Exit status of a capture, and its messages.
pub struct EndedCapture {
    pub status: ExitStatus,
    pub said: String,
    /// JSON lines with drop counters.
    pub ledgers: Vec<Value>,
}

impl LiveCapture {
    /// Starts a capture, and returns once it captures. It prints its counters as JSON.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_by(&[], arguments)
    }

    /// As [`LiveCapture::start`], through the command `before`.
    pub fn start_by(before: &[&str], arguments: &[&str]) -> Self {
        let arguments = [arguments, &["--json"]].concat();
        let mut child =
            command(before, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let words = BufReader::new(child.stderr.take().unwrap());
        let mut live = Self { child, words, said: String::new() };
        live.wait_for_output("listening on");
        live
    }

    pub fn wait_for_output(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let read = self.words.read_line(&mut line).unwrap();
            self.said.push_str(&line);
            assert!(read > 0, "it ended before it said {text:?}: {}", self.said);
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops it as Ctrl-C does.
    pub fn end(self) -> EndedCapture {
        self.signal("INT");
        self.wait()
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> EndedCapture {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.words.read_to_string(&mut self.said).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), None, "{}", self.said);
        let ledgers = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        EndedCapture { status, said: std::mem::take(&mut self.said), ledgers }
    }
}

impl Drop for LiveCapture {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl EndedCapture {
    /// The last counters, which must add up.
    #[track_caller]
    pub fn ledger(&self) -> &Value {
        let ledger = self.ledgers.last().expect(&self.said);
        assert_eq!(ledger["ended"], true, "{ledger}");
        let count = |value: &Value| value.as_u64().unwrap();
        let lost: u64 = ledger["lost"].as_object().unwrap().values().map(count).sum();
        let known = count(&ledger["captured"]) + lost + count(&ledger["shed"]);
        assert_eq!(count(&ledger["passed"]), known, "{ledger}");
        assert_eq!(ledger["waiting"], 0, "{ledger}");
        ledger
    }

    /// Checks that it ended well and lost nothing.
    #[track_caller]
    pub fn assert_whole(&self) -> u64 {
        assert!(self.status.success(), "{:?}: {}", self.status, self.said);
        let ledger = self.ledger();
        assert_eq!(ledger["captured"], ledger["passed"], "{ledger}");
        assert_eq!(ledger["first_loss_ns"], Value::Null, "{ledger}");
        ledger["captured"].as_u64().unwrap()
    }
}

/// A packet of a capture.
#[derive(Debug, Clone)]
pub struct Packet {
    pub time_ns: u64,
    pub link: Link,
    pub wire_len: u32,
    pub bytes: Vec<u8>,
}

/// The TCP fields of a packet.
#[derive(Debug, Clone)]
pub struct Segment {
    pub from: u16,
    pub to: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// Captured bytes; `length` is their number on the wire.
    pub payload: Vec<u8>,
    pub length: usize,
}

impl Packet {
    pub fn segment(&self) -> Segment {
        let Self { time_ns, link, wire_len, bytes } = self;
        let frame = toll_wire::pcap::Frame { time_ns: *time_ns, link: *link, wire_len: *wire_len, bytes };
        let found = frame::parse_segment(&frame).unwrap();
        let frame::Segment { seq, ack, flags, payload, payload_len } = found.segment;
        let (from, to) = (found.source_port, found.destination_port);
        Segment { from, to, seq, ack, flags, payload: payload.to_vec(), length: payload_len as usize }
    }

    /// True for an acknowledgement without data.
    pub fn is_bare(&self) -> bool {
        let segment = self.segment();
        segment.length == 0 && segment.flags & (FIN | SYN | RST) == 0
    }
}

/// Data sent to `port` on each connection, in order and without retransmissions.
pub fn payloads_to(port: u16, segments: &[Segment]) -> Vec<Vec<u8>> {
    let mut said: Vec<(u16, u32, Vec<u8>)> = Vec::new();
    for segment in segments.iter().filter(|segment| segment.to == port) {
        if segment.flags & SYN != 0 {
            said.push((segment.from, segment.seq.wrapping_add(1), Vec::new()));
        }
        let connection = said.iter_mut().rev().find(|(from, ..)| *from == segment.from);
        let (_, begin, bytes) = connection.expect("what opens the connection");
        let at = segment.seq.wrapping_sub(*begin) as usize;
        if segment.length > 0 {
            assert_eq!(segment.payload.len(), segment.length, "a question was cut");
            bytes.resize(bytes.len().max(at + segment.length), 0);
            bytes[at..at + segment.length].copy_from_slice(&segment.payload);
        }
    }
    said.into_iter().map(|(_, _, bytes)| bytes).collect()
}

/// The packets of a complete capture, and its drop counter.
#[track_caller]
pub fn read(path: impl AsRef<Path>) -> (Vec<Packet>, Option<u64>) {
    packets_in(&std::fs::read(path).unwrap())
}

#[track_caller]
pub fn packets_in(file: &[u8]) -> (Vec<Packet>, Option<u64>) {
    let mut reader = Reader::new(Format::detect(file).expect("a capture"));
    let mut packets = Vec::new();
    let mut take = |frame: &toll_wire::pcap::Frame<'_>| {
        let (time_ns, link, wire_len) = (frame.time_ns, frame.link, frame.wire_len);
        packets.push(Packet { time_ns, link, wire_len, bytes: frame.bytes.to_vec() });
    };
    reader.feed(file, &mut take).unwrap();
    assert_eq!(reader.unread_tail_bytes(), 0, "a packet was cut off");
    (packets, reader.dropped_by_capture())
}

/// Exchanges these bytes over a connection to `at`.
pub fn converse(at: SocketAddr, client_says: &[u8], server_says: &[u8]) {
    // One that was closed may live on for a moment, in a child of another test that is about to become a program.
    let bound = || TcpListener::bind(at).inspect_err(|_| sleep(Duration::from_millis(10))).ok();
    let listener = (0..1000).find_map(|_| bound()).expect("a free port");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut server, _) = listener.accept().unwrap();
            let mut question = Read::by_ref(&mut server).take(client_says.len() as u64);
            std::io::copy(&mut question, &mut std::io::sink()).unwrap();
            server.write_all(server_says).unwrap();
        });
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(client_says).unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        assert!(heard == server_says);
    });
}

/// As [`converse`], on loopback.
pub fn send_query(port: u16, client_says: &[u8]) {
    converse(SocketAddr::from(([127, 0, 0, 1], port)), client_says, b"answer");
}

/// A free port outside the range of client ports, which begins above 32,767.
pub fn free_port(at: &str) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id() as u16 % 8_000;
    let mut candidates =
        (0..10_000).map(|_| 20_000 + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000);
    candidates.find(|port| TcpListener::bind((at, *port)).is_ok()).unwrap()
}

/// A directory that everybody may read, removed with the test.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("toll-capture-").tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self(dir)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Files in the order of their numbers, or names.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort_by_key(|path| {
            let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default().to_owned();
            let number = stem.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
            (number, stem)
        });
        files
    }
}

/// Output of a program that accepts the file without complaint.
#[track_caller]
pub fn program_output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {words}");
    // Both say that they run as root, and tcpdump what it reads.
    let complaint = words.lines().find(|line| {
        !(line.is_empty() || line.starts_with("reading from file") || line.contains("Running as user"))
    });
    assert_eq!(complaint, None, "{program} {arguments:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
