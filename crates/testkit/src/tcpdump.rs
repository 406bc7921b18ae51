//! Capture of one port of this host with tcpdump. Never inspects packets.

use crate::HANG_TIMEOUT;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A capture under way; ended with the test.
pub struct Tcpdump {
    child: Child,
    stderr: BufReader<ChildStderr>,
    file: PathBuf,
    /// Sends to itself the packet that shows how far tcpdump has read.
    mark: UdpSocket,
}

/// What the last packet holds; queries hold no such thing.
const MARK: &[u8; 32] = b"toll: all before this is in file";
/// Before a UDP packet's bytes in the file: its record's header, Ethernet, IPv4 and UDP.
const BEFORE_MARK: usize = 16 + 14 + 20 + 8;

/// What a test needs is a whole capture: made anew where the kernel dropped packets, seen once in some hundred
/// captures (1 of 105,120 packets, with a ring that held all of them).
pub fn capture_without_drops<T>(mut capture: impl FnMut() -> Option<T>) -> T {
    const TRIES: usize = 5;
    (0..TRIES).find_map(|_| capture()).expect("the kernel drops packets from every capture: is memory short?")
}

impl Tcpdump {
    /// Returns once it listens.
    pub fn listen(port: u16, file: PathBuf) -> Self {
        let mark = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mark_port = mark.local_addr().unwrap().port();
        let mut child = Command::new("tcpdump")
            // Room for what comes while it gets no CPU; each packet is in the file once it is read. The ring's
            // blocks are as large as the largest packet that is asked for: without a bound (256 KiB) the kernel
            // finds room for few of them on a host whose memory is in pieces.
            .args(["-i", "lo", "-B", "131072", "-U", "-s", "66000", "-Z", "root", "-w"])
            .arg(&file)
            .arg(format!("tcp port {port} or udp port {mark_port}"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let words = BufReader::new(child.stderr.take().unwrap());
        let mut tcpdump = Self { child, stderr: words, file, mark };
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(tcpdump.stderr.read_line(&mut line).unwrap() > 0, "tcpdump ended before it listened");
        }
        tcpdump
    }

    /// The capture until now; none where tcpdump says that the kernel dropped a packet: such a capture holds
    /// not what was sent, whoever reads it.
    pub fn stop(mut self) -> Option<Vec<u8>> {
        let length = self.read_until_now();
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        assert!(said.contains("dropped by kernel"), "{said}");
        if !said.contains("\n0 packets dropped by kernel") {
            return None;
        }
        std::fs::File::options().write(true).open(&self.file).unwrap().set_len(length).unwrap();
        Some(std::fs::read(&self.file).unwrap())
    }

    /// Returns once every packet that has passed so far is in the file, with the file's length then.
    ///
    /// Packets leave tcpdump's ring in the order in which they came: one of our own is the last.
    fn read_until_now(&mut self) -> u64 {
        self.mark.send_to(MARK, self.mark.local_addr().unwrap()).unwrap();
        let begun = Instant::now();
        let mut seen = 0_usize;
        loop {
            let bytes = std::fs::read(&self.file).unwrap();
            // What was looked through already is not looked through again, but for its end.
            let from = seen.saturating_sub(MARK.len());
            if let Some(at) = bytes[from..].windows(MARK.len()).position(|part| part == MARK) {
                return (from + at - BEFORE_MARK) as u64;
            }
            seen = bytes.len();
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "tcpdump ended by itself: {ended:?}");
            assert!(begun.elapsed() < HANG_TIMEOUT, "tcpdump has not read on");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
