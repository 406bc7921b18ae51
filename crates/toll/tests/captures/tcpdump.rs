//! Which packets passed a port of this host? Never looks inside them.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A capture under way; ended with the test.
pub struct Tcpdump {
    child: Child,
    words: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Tcpdump {
    /// Returns once it listens.
    pub fn listen(port: u16, file: PathBuf) -> Self {
        let mut child = Command::new("tcpdump")
            .args(["-i", "lo", "-B", "65536", "-s", "0", "-Z", "root", "-w"])
            .arg(&file)
            .arg(format!("tcp port {port}"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let words = BufReader::new(child.stderr.take().unwrap());
        let mut tcpdump = Self { child, words, file };
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(tcpdump.words.read_line(&mut line).unwrap() > 0, "tcpdump ended before it listened");
        }
        tcpdump
    }

    /// The capture until now. Fails where tcpdump says that it missed a packet.
    pub fn stop(mut self) -> Vec<u8> {
        // Packets wait in the ring for up to a second before tcpdump is woken.
        sleep(Duration::from_millis(2500));
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap();
        let mut said = String::new();
        self.words.read_to_string(&mut said).unwrap();
        assert!(said.contains("\n0 packets dropped by kernel"), "the capture itself is not whole: {said}");
        std::fs::read(&self.file).unwrap()
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
