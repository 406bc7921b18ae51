//! Where does a capture go that is streamed to another host?
//!
//! With root: a network namespace behind a veth pair, shaped both ways. Without: loopback, unshaped, and
//! the run says so.

use super::{Kind, ip, key, run};
use crate::child;
use crate::journal::Undo;
use crate::stage::Stage;
use crate::treatment::{Bench, Group};
use anyhow::bail;
use nix::sys::signal::Signal;
use std::path::Path;
use std::time::{Duration, Instant};
use toll_record::RigStep;

pub const KIND: Kind = Kind {
    name: "far-end",
    // The link that the documents assume. A token bucket wants at least rate / HZ: 1.25 MB of 1 Gb/s at
    // HZ 100.
    keys: &[("rate", "1gbit"), ("burst", "1300kb")],
    transports: &[],
    needs_server: false,
    serves: |need| need.arm.remote_port.is_some(),
    programs: || if nix::unistd::geteuid().is_root() { &["ip", "tc", "nc"] } else { &["nc"] },
    open,
};

/// The far end of a link.
#[derive(Debug)]
pub struct FarEnd {
    namespace: Option<String>,
    ip: String,
}

/// Started in another namespace on a busy host, nc takes its time.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// The kernel's reserved addresses for tests of network gear (RFC 2544): nobody routes them.
const NEAR_IP: &str = "198.18.7.1";
const FAR_IP: &str = "198.18.7.2";

/// Everything is in the journal before it exists.
fn open(step: &RigStep, stage: &mut Stage) -> anyhow::Result<String> {
    if !nix::unistd::geteuid().is_root() {
        stage.rig.far_end = Some(FarEnd { namespace: None, ip: "127.0.0.1".into() });
        return Ok("far end of streams: loopback, not shaped (needs root for a namespace)".into());
    }
    let (rate, burst) = (key(step, "rate")?, key(step, "burst")?);
    let journal = &stage.journal;
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
    let shape = |place: &[&str], device: &str| {
        let rule =
            ["qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"];
        run("tc", &[place, &rule].concat())
    };
    shape(&["-n", &namespace], &far)?;
    shape(&[], &near)?;
    stage.rig.far_end = Some(FarEnd { namespace: Some(namespace), ip: FAR_IP.into() });
    Ok(format!("far end of streams: network namespace behind a veth pair shaped to {rate}"))
}

impl FarEnd {
    pub fn ip(&self) -> &str {
        &self.ip
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
