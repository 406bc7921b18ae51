//! Where does a capture go that is streamed to another host?
//!
//! With root: a network namespace behind a veth pair that is shaped to 1 Gb/s both ways.
//! Without: loopback, unshaped, and the run says so.

use super::{Bench, Group};
use crate::child;
use crate::journal::{Journal, Undo};
use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The far end of a link.
#[derive(Debug)]
pub struct Remote {
    namespace: Option<String>,
    ip: String,
}

/// Link speed that the documents assume.
const RATE: &str = "1gbit";
/// TBF wants a bucket of at least rate / HZ; 1 Gb/s at HZ 100 is 1.25 MB.
const BURST: &str = "1300kb";
/// Started in another namespace on a busy host, nc takes its time.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// The kernel's reserved addresses for tests of network gear (RFC 2544): nobody routes them.
const NEAR_IP: &str = "198.18.7.1";
const FAR_IP: &str = "198.18.7.2";

impl Remote {
    /// Makes the namespace and its link; everything is in the journal before it exists.
    pub fn make(journal: &Journal) -> anyhow::Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(Self { namespace: None, ip: "127.0.0.1".into() });
        }
        let id = std::process::id();
        let namespace = format!("toll-{id}");
        let (near, far) = (format!("tolln{id}"), format!("tollf{id}"));
        journal.record(Undo::Netns { name: namespace.clone() })?;
        ip(&["netns", "add", &namespace])?;
        journal.record(Undo::Link { name: near.clone() })?;
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &namespace])?;
        ip(&["addr", "add", &format!("{NEAR_IP}/30"), "dev", &near])?;
        ip(&["link", "set", &near, "up"])?;
        let inside = |args: &[&str]| ip(&[&["-n", namespace.as_str()], args].concat());
        inside(&["addr", "add", &format!("{FAR_IP}/30"), "dev", &far])?;
        inside(&["link", "set", &far, "up"])?;
        inside(&["link", "set", "lo", "up"])?;
        shape(&["-n", &namespace], &far)?;
        shape(&[], &near)?;
        Ok(Self { namespace: Some(namespace), ip: FAR_IP.into() })
    }

    pub fn ip(&self) -> &str {
        &self.ip
    }

    /// What it is, for the run's record.
    pub fn describe(&self) -> String {
        match self.namespace {
            Some(_) => format!("network namespace behind a veth pair shaped to {RATE}"),
            None => "loopback, not shaped (needs root for a namespace)".into(),
        }
    }

    /// A real `nc` that takes one connection and writes it to `file`.
    pub fn listen(&self, port: u16, file: &Path, stem: &str, bench: &Bench<'_>) -> anyhow::Result<Group> {
        let mut words: Vec<String> = Vec::new();
        if let Some(namespace) = &self.namespace {
            words.extend(["ip", "netns", "exec", namespace].map(String::from));
        }
        words.extend(["nc", "-l", &self.ip, &port.to_string()].map(String::from));
        let stem = format!("{stem}-remote");
        let mut group = Group::spawn(&[words], Some(file), Signal::SIGTERM, &stem, &[], bench)?;
        let begun = Instant::now();
        while !self.listens(port) {
            group.check_alive()?;
            if begun.elapsed() > LISTENS_WITHIN {
                bail!("nc does not listen on {}:{port}: is the port taken?", self.ip);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(group)
    }

    /// Looks the port up in the far end's own socket table: connecting would use up the listener.
    fn listens(&self, port: u16) -> bool {
        let table = match &self.namespace {
            Some(name) => child::command("ip")
                .args(["netns", "exec", name, "cat", "/proc/net/tcp"])
                .output()
                .map(|o| o.stdout),
            None => std::fs::read("/proc/net/tcp"),
        };
        let needle = format!(":{port:04X} 00000000:0000 0A");
        table.is_ok_and(|t| String::from_utf8_lossy(&t).contains(&needle))
    }
}

fn shape(namespace: &[&str], device: &str) -> anyhow::Result<()> {
    let rule =
        ["qdisc", "add", "dev", device, "root", "tbf", "rate", RATE, "burst", BURST, "latency", "50ms"];
    run("tc", &[namespace, &rule].concat())
}

fn ip(args: &[&str]) -> anyhow::Result<()> {
    run("ip", args)
}

fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = child::command(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}: install iproute2"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
