//! Sender and receiver of a test stream, and the proxy between them.

use crate::lab::{HANG_TIMEOUT, Lab};
use serde_json::Value;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use toll_agent::capture::chunk_queue::ChunkSink;
use toll_agent::capture::stream::{SenderKey, StreamSink};
use toll_wire::pcap::{Frame, Interface, Link, write};

/// Key files of a receiver, and of its sender `db1`.
#[derive(Clone)]
pub struct Keys {
    pub receiver: String,
    pub sender: String,
}

/// Files made by `toll receive keygen`.
pub fn new_keys(lab: &Lab) -> Keys {
    let receiver = lab.path("receiver.key");
    let made = lab.toll(&["receive", "keygen", &receiver]);
    assert!(made.status.success(), "{made:?}");
    Keys { sender: new_sender_key(lab, &receiver, "db1"), receiver }
}

/// The key file of another sender.
pub fn new_sender_key(lab: &Lab, receiver: &str, name: &str) -> String {
    let sender = lab.path(&format!("{name}.key"));
    let made = lab.toll(&["receive", "keygen", &sender, "--receiver", receiver]);
    assert!(made.status.success(), "{made:?}");
    sender
}

pub fn new_sender(address: &str, key: &str) -> StreamSink {
    StreamSink::connect(address, &SenderKey::read(Path::new(key)).unwrap()).unwrap()
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG_TIMEOUT, "waited for in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The address that a receiver reports in its messages.
pub fn parse_address(words: &str) -> String {
    let mut address = None;
    wait_until("the receiver listens", || {
        let text = std::fs::read_to_string(words).unwrap_or_default();
        let said = text.split_once("receiving at ").and_then(|(_, rest)| rest.split_once(','));
        address = said.map(|(address, _)| address.to_owned());
        address.is_some()
    });
    address.unwrap()
}

/// `toll receive` into a directory, with a key; ended with the test.
pub struct Receiver<'a> {
    lab: &'a Lab,
    child: RefCell<Child>,
    pub keys: Keys,
    /// The sender's.
    pub key: String,
    pub address: String,
    pub dir: String,
    output: String,
    pub words: String,
}

impl<'a> Receiver<'a> {
    pub fn start(lab: &'a Lab, more: &[&str]) -> Self {
        Self::start_at(lab, "127.0.0.1:0", &new_keys(lab), "captures", more)
    }

    /// Starts in another directory than the earlier receivers, with their key.
    pub fn start_in(lab: &'a Lab, dir: &str) -> Self {
        let (receiver, sender) = (lab.path("receiver.key"), lab.path("db1.key"));
        let keys = if Path::new(&sender).exists() { Keys { receiver, sender } } else { new_keys(lab) };
        Self::start_at(lab, "127.0.0.1:0", &keys, dir, &[])
    }

    pub fn start_at(lab: &'a Lab, listen: &str, keys: &Keys, dir: &str, more: &[&str]) -> Self {
        let (output, words) = (lab.path(&format!("{dir}.json")), lab.path(&format!("{dir}.words")));
        let dir = lab.path(dir);
        let args = ["receive", "--listen", listen, "--key", &keys.receiver, "-w", &dir, "--json"];
        let child = lab.spawn_into(&[&args[..], more].concat(), &output, &words);
        let address = parse_address(&words);
        let key = keys.sender.clone();
        Self { lab, child: RefCell::new(child), keys: keys.clone(), key, address, dir, output, words }
    }

    pub fn words(&self) -> String {
        std::fs::read_to_string(&self.words).unwrap()
    }

    pub fn signal(&self, name: &str) {
        self.lab.signal(&self.child.borrow(), name);
    }

    /// Stops the receiver with STOP, and returns once it has stopped; CONT resumes it.
    pub fn stop(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.child.borrow().id());
        wait_until("the receiver stands still", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    }

    /// Summaries of the ended streams.
    pub fn accounts(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.output).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Summary of the only stream, after its end.
    pub fn one_account(&self) -> Value {
        wait_until("the stream has ended", || !self.accounts().is_empty());
        let mut accounts = self.accounts();
        assert_eq!(accounts.len(), 1, "{accounts:?}");
        accounts.remove(0)
    }

    /// Files in the order of their numbers, without journals.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap());
        let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        let mut files: Vec<_> = shown.map(|entry| entry.path()).collect();
        files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
        files
    }

    pub fn end(self, signal: &str) -> ExitStatus {
        self.end_with_accounts(signal).1
    }

    pub fn end_with_accounts(self, signal: &str) -> (Vec<Value>, ExitStatus) {
        self.signal(signal);
        let ended = self.child.borrow_mut().wait().unwrap();
        (self.accounts(), ended)
    }
}

impl Drop for Receiver<'_> {
    fn drop(&mut self) {
        let _ = self.child.get_mut().kill();
        let _ = self.child.get_mut().wait();
    }
}

/// Content of a stream: one item a chunk, of incompressible bytes.
pub struct SyntheticStream {
    pub opening: Vec<u8>,
    pub chunks: Vec<Vec<u8>>,
    pub closing: Vec<u8>,
}

/// Time of the first chunk, 2026-01-01. Each chunk is a second later.
const BEGUN_NS: u64 = 1_767_225_600_000_000_000;

fn time_ns(number: usize) -> u64 {
    BEGUN_NS + number as u64 * 1_000_000_000
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

impl SyntheticStream {
    /// A packet in each chunk.
    pub fn pcapng(chunks: usize, bytes: usize) -> Self {
        Self::pcapng_of(0, chunks, bytes)
    }

    /// As [`SyntheticStream::pcapng`], with different packets for each `seed`.
    pub fn pcapng_of(seed: u64, chunks: usize, bytes: usize) -> Self {
        let mut opening = Vec::new();
        write::append_ng_section(&mut opening);
        write::append_ng_interface(&mut opening, &Interface { number: 0, link: 1, snap_len: 0, name: b"lo" });
        let chunk = |number: usize| {
            let mut chunk = Vec::new();
            let payload = noise(seed << 32 | number as u64, bytes);
            let frame = Frame {
                time_ns: time_ns(number),
                link: Link::Ethernet,
                wire_len: bytes as u32,
                bytes: &payload,
            };
            write::append_ng_packet(&mut chunk, 0, &frame);
            chunk
        };
        // An interface's statistics, without options.
        let words = [5u32, 24, 0, 0, 0, 24];
        let closing = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Self { opening, chunks: (0..chunks).map(chunk).collect(), closing }
    }

    pub fn queries(chunks: usize, bytes: usize) -> Self {
        let chunks = (0..chunks).map(|number| noise(number as u64, bytes)).collect();
        Self { opening: b"not pcapng".to_vec(), chunks, closing: Vec::new() }
    }

    pub fn begin(&self, to: &mut StreamSink) {
        to.begin(&self.opening).unwrap();
    }

    pub fn chunks_to(&self, to: &mut StreamSink, numbers: Range<usize>) {
        for number in numbers {
            to.write_chunk(&self.chunks[number], 1, time_ns(number), time_ns(number)).unwrap();
        }
    }

    /// Sends all chunks, and waits until the receiver has them.
    pub fn send(&self, to: &mut StreamSink) {
        self.begin(to);
        self.chunks_to(to, 0..self.chunks.len());
        to.finish(&self.closing).unwrap();
    }

    /// A file that holds these chunks.
    pub fn part(&self, numbers: Range<usize>) -> Vec<u8> {
        [self.opening.clone(), self.chunks[numbers].concat()].concat()
    }

    pub fn whole(&self) -> Vec<u8> {
        [self.part(0..self.chunks.len()), self.closing.clone()].concat()
    }
}

/// Proxy to a receiver that cuts each connection after a number of bytes, until the numbers are used up.
pub struct CuttingProxy {
    pub address: String,
    pub cuts: Arc<AtomicU64>,
}

impl CuttingProxy {
    pub fn before(receiver: &str, after: &[usize]) -> Self {
        Self::of(receiver, after, usize::MAX)
    }

    /// As above, without answers after the sender's greeting: chunks arrive, but no answer to them.
    pub fn without_answers(receiver: &str, after: &[usize]) -> Self {
        Self::of(receiver, after, 2_000)
    }

    fn of(receiver: &str, after: &[usize], answered: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cuts = Arc::new(AtomicU64::new(0));
        let (receiver, mut after) = (receiver.to_owned(), Vec::from(after).into_iter());
        let counted = Arc::clone(&cuts);
        // Ends with the process.
        std::thread::spawn(move || {
            for sender in listener.incoming().flatten() {
                // One at a time: a sender has one connection.
                let after = after.next();
                let Ok(there) = TcpStream::connect(&receiver) else { continue };
                // The last one is a way like any other.
                forward(&sender, &there, after, if after.is_some() { answered } else { usize::MAX });
                counted.fetch_add(u64::from(after.is_some()), Ordering::Relaxed);
            }
        });
        Self { address, cuts }
    }
}

/// Forwards in both directions, until one end hangs up or the sender has sent `most` bytes.
///
/// Answers are forwarded only until the sender has sent `answered` bytes.
fn forward(sender: &TcpStream, receiver: &TcpStream, most: Option<usize>, answered: usize) {
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut some = [0; 8_192];
            while let Ok(read @ 1..) = { receiver }.read(&mut some) {
                let is_heard = sent.load(Ordering::SeqCst) <= answered;
                if is_heard && { sender }.write_all(&some[..read]).is_err() {
                    break;
                }
            }
            let _ = sender.shutdown(Shutdown::Both);
        });
        let (mut left, mut some) = (most.unwrap_or(usize::MAX), [0; 8_192]);
        while left > 0 {
            let most = left.min(some.len());
            let Ok(read @ 1..) = { sender }.read(&mut some[..most]) else { break };
            sent.fetch_add(read, Ordering::SeqCst);
            if { receiver }.write_all(&some[..read]).is_err() {
                break;
            }
            left -= read;
        }
        let _ = receiver.shutdown(Shutdown::Both);
        let _ = sender.shutdown(Shutdown::Both);
    });
}
