//! Where does a capture go that is streamed to another host, and from where is a dump pulled?
//!
//! With root: a network namespace behind a veth pair, shaped both ways. Without: loopback, unshaped, and
//! the run says so.

use super::{Maker, ip, key, run};
use crate::stage::Stage;
use crate::treatment::{Bench, Group, Place};
use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use toll_agent::receive::Key;
use toll_journal::Undo;
use toll_model::rig::{self, STREAM_KEY, link_bits_per_s};
use toll_record::RigStep;
use toll_server::LinkEnds;
use toll_sys::child;

pub const MAKER: Maker = Maker {
    kind: "far-end",
    programs: || if nix::unistd::geteuid().is_root() { &["ip", "tc", "nc"] } else { &["nc"] },
    open,
};

/// The far end of a link.
#[derive(Debug)]
pub struct FarEnd {
    /// Absent: the far end is loopback.
    link: Option<Link>,
    ip: Ipv4Addr,
}

/// A veth pair, one end of it in a namespace of its own.
#[derive(Debug)]
struct Link {
    namespace: String,
    near: String,
    far: String,
    /// As the rig says.
    rate: String,
    burst: String,
}

/// Started in another namespace on a busy host, nc takes its time.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// The kernel's reserved addresses for tests of network gear (RFC 2544): nobody routes them.
const NEAR_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 7, 1);
const FAR_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 7, 2);
/// Smaller than a packet as large as they come with offloads, and nothing passes.
const LEAST_BURST: u64 = 65_536;
/// A bucket holds at least what arrives between two ticks of the kernel's slowest clock (HZ 100), and a little more.
const TICKS_PER_S: u64 = 96;

/// Everything is in the journal before it exists.
fn open(step: &RigStep, stage: &mut Stage) -> anyhow::Result<String> {
    let told = make(step, stage)?;
    if let Some(far_end) = &stage.rig.far_end {
        let ip = far_end.ip().to_string();
        // Gone with the run's working directory.
        let key = stage.work_dir.join("stream.key");
        Key::make(&key)?;
        stage.give(rig::FAR_IP, &ip);
        stage.give(STREAM_KEY, key.to_str().context("the working directory's name is not UTF-8")?);
    }
    Ok(told)
}

fn make(step: &RigStep, stage: &mut Stage) -> anyhow::Result<String> {
    if !nix::unistd::geteuid().is_root() {
        stage.rig.far_end = Some(FarEnd { link: None, ip: Ipv4Addr::LOCALHOST });
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
    let link = Link { namespace, near, far, rate: rate.to_owned(), burst: burst.to_owned() };
    link.shape("add", rate, burst)?;
    stage.rig.far_end = Some(FarEnd { link: Some(link), ip: FAR_IP });
    Ok(format!("far end of streams: network namespace behind a veth pair shaped to {rate}"))
}

impl Link {
    /// Both ways; the devices are the run's own, and end with it.
    fn shape(&self, verb: &str, rate: &str, burst: &str) -> anyhow::Result<()> {
        let rule = |device| {
            ["qdisc", verb, "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"]
        };
        run("tc", &[&["-n", self.namespace.as_str()][..], &rule(&self.far)].concat())?;
        run("tc", &rule(&self.near))
    }
}

impl FarEnd {
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Addresses of a link of its own, where there is one.
    pub fn ends(&self) -> Option<LinkEnds> {
        self.link.as_ref().map(|_| LinkEnds { near: NEAR_IP, far: FAR_IP })
    }

    /// What a command begins with to run there.
    pub fn enter(&self) -> Vec<String> {
        let words = |link: &Link| ["ip", "netns", "exec", &link.namespace].map(String::from).to_vec();
        self.link.as_ref().map(words).unwrap_or_default()
    }

    /// Shapes the link to another rate, or (`None`) to the rig's again; one that is not shaped stays so.
    pub fn shape(&self, rate: Option<&str>) -> anyhow::Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        match rate {
            Some(rate) => {
                let burst = link_bits_per_s(rate)? / 8 / TICKS_PER_S;
                link.shape("change", rate, &burst.max(LEAST_BURST).to_string())
            }
            None => link.shape("change", &link.rate, &link.burst),
        }
    }

    /// A real `nc` that takes one connection and writes it to `file`.
    pub fn listen(&self, port: u16, file: &Path, stem: &str, bench: &Bench<'_>) -> anyhow::Result<Group> {
        let mut words = self.enter();
        words.extend(["nc", "-l", &self.ip.to_string(), &port.to_string()].map(String::from));
        let stem = format!("{stem}-remote");
        let mut group = Group::spawn(&[words], Some(file), Signal::SIGTERM, &stem, &[], Place::Far, bench)?;
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
        let table = match &self.link {
            Some(link) => child::command("ip")
                .args(["netns", "exec", &link.namespace, "cat", "/proc/net/tcp"])
                .output()
                .map(|o| o.stdout),
            None => std::fs::read("/proc/net/tcp"),
        };
        let needle = format!(":{port:04X} 00000000:0000 0A");
        table.is_ok_and(|t| String::from_utf8_lossy(&t).contains(&needle))
    }
}
