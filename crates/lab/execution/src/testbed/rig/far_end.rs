//! Rig step `far-end`: the remote host that receives a streamed capture or pulls a dump.
//!
//! With root it is a network namespace behind a veth pair, shaped in both directions. Without root it is
//! loopback, unshaped, and the run reports that.

use super::{StepBuilder, run_ip, run_program, step_key};
use crate::testbed::Testbed;
use crate::treatment::{ProcessGroup, ProcessHost, RemoteHost, START_TIMEOUT, TreatmentContext};
use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use toll_agent::receive::ReceiverKey;
use toll_journal::Undo;
use toll_model::rig::{self, RECEIVER_KEY, STREAM_KEY, parse_link_rate};
use toll_record::RigStep;
use toll_server::LinkEnds;
use toll_sys::child_process;

pub const BUILDER: StepBuilder = StepBuilder {
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

/// A veth pair with one end in a namespace of its own.
#[derive(Debug)]
struct Link {
    namespace: String,
    near: String,
    far: String,
    /// The rig's rate.
    rate: String,
    burst: String,
}

/// Address reserved for tests of network gear (RFC 2544), which nobody routes.
const NEAR_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 7, 1);
const FAR_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 7, 2);
/// Smallest burst, bytes. A smaller one would block the large packets that offloads produce.
const MIN_BURST_BYTES: u64 = 65_536;
/// Ticks that size a burst: the bucket must hold a tick's data at the kernel's slowest clock (HZ 100), and
/// more.
const TICKS_PER_S: u64 = 96;

/// Makes the step. Everything is in the journal before it exists.
fn open(step: &RigStep, testbed: &mut Testbed) -> anyhow::Result<String> {
    let told = create_link(step, testbed)?;
    if let Some(far_end) = &testbed.rig.far_end {
        let ip = far_end.ip().to_string();
        // Gone with the run's working directory.
        let [receiver, sender] = ["receiver.key", "stream.key"].map(|name| testbed.work_dir.join(name));
        ReceiverKey::create(&receiver)?;
        ReceiverKey::create_sender(&receiver, &sender)?;
        testbed.define_placeholder(rig::FAR_IP, &ip);
        for (placeholder, key) in [(RECEIVER_KEY, &receiver), (STREAM_KEY, &sender)] {
            let path = key.to_str().context("the working directory's name is not UTF-8")?;
            testbed.define_placeholder(placeholder, path);
        }
    }
    Ok(told)
}

fn create_link(step: &RigStep, testbed: &mut Testbed) -> anyhow::Result<String> {
    if !nix::unistd::geteuid().is_root() {
        testbed.rig.far_end = Some(FarEnd { link: None, ip: Ipv4Addr::LOCALHOST });
        return Ok("far end of streams: loopback, not shaped (needs root for a namespace)".into());
    }
    let (rate, burst) = (step_key(step, "rate")?, step_key(step, "burst")?);
    let journal = &testbed.journal;
    let id = std::process::id();
    let namespace = format!("toll-{id}");
    let (near, far) = (format!("tolln{id}"), format!("tollf{id}"));
    journal.record(Undo::Netns { name: namespace.clone() })?;
    run_ip(&["netns", "add", &namespace])?;
    journal.record(Undo::Link { name: near.clone() })?;
    run_ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &namespace])?;
    run_ip(&["addr", "add", &format!("{NEAR_IP}/30"), "dev", &near])?;
    run_ip(&["link", "set", &near, "up"])?;
    let inside = |args: &[&str]| run_ip(&[&["-n", namespace.as_str()], args].concat());
    inside(&["addr", "add", &format!("{FAR_IP}/30"), "dev", &far])?;
    inside(&["link", "set", &far, "up"])?;
    inside(&["link", "set", "lo", "up"])?;
    let link = Link { namespace, near, far, rate: rate.to_owned(), burst: burst.to_owned() };
    link.shape("add", rate, burst)?;
    testbed.rig.far_end = Some(FarEnd { link: Some(link), ip: FAR_IP });
    Ok(format!("far end of streams: network namespace behind a veth pair shaped to {rate}"))
}

impl Link {
    /// Shapes both directions. The devices are the run's own, and end with it.
    fn shape(&self, verb: &str, rate: &str, burst: &str) -> anyhow::Result<()> {
        let rule = |device| {
            ["qdisc", verb, "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"]
        };
        run_program("tc", &[&["-n", self.namespace.as_str()][..], &rule(&self.far)].concat())?;
        run_program("tc", &rule(&self.near))
    }
}

impl FarEnd {
    /// Addresses of the link, if there is one.
    pub fn link_ends(&self) -> Option<LinkEnds> {
        self.link.as_ref().map(|_| LinkEnds { near: NEAR_IP, far: FAR_IP })
    }

    /// True if the port is in the far end's own socket table. Connecting would use up the listener.
    fn is_listening(&self, port: u16) -> bool {
        let table = match &self.link {
            Some(link) => child_process::clean_env_command("ip")
                .args(["netns", "exec", &link.namespace, "cat", "/proc/net/tcp"])
                .output()
                .map(|o| o.stdout),
            None => std::fs::read("/proc/net/tcp"),
        };
        let needle = format!(":{port:04X} 00000000:0000 0A");
        table.is_ok_and(|t| String::from_utf8_lossy(&t).contains(&needle))
    }
}

impl RemoteHost for FarEnd {
    fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    fn enter_command(&self) -> Vec<String> {
        let words = |link: &Link| ["ip", "netns", "exec", &link.namespace].map(String::from).to_vec();
        self.link.as_ref().map(words).unwrap_or_default()
    }

    fn shape(&self, rate: Option<&str>) -> anyhow::Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        match rate {
            Some(rate) => {
                let burst = parse_link_rate(rate)? / 8 / TICKS_PER_S;
                link.shape("change", rate, &burst.max(MIN_BURST_BYTES).to_string())
            }
            None => link.shape("change", &link.rate, &link.burst),
        }
    }

    fn listen(
        &self,
        port: u16,
        file: &Path,
        stem: &str,
        context: &TreatmentContext<'_>,
    ) -> anyhow::Result<ProcessGroup> {
        let mut words = self.enter_command();
        words.extend(["nc", "-l", &self.ip.to_string(), &port.to_string()].map(String::from));
        let stem = format!("{stem}-remote");
        let mut group = ProcessGroup::spawn(
            &[words],
            Some(file),
            Signal::SIGTERM,
            &stem,
            &[],
            ProcessHost::FarEnd,
            context,
        )?;
        let begun = Instant::now();
        while !self.is_listening(port) {
            group.check_alive()?;
            if begun.elapsed() > START_TIMEOUT {
                bail!("nc does not listen on {}:{port}: is the port taken?", self.ip);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(group)
    }
}
