//! Rig step `link`: an isolated link between two network namespaces.
//!
//! A veth pair joins the namespaces. Packets of one end arrive at the other, and no other traffic does. If
//! another host sends, the receiving end is a device of this one.

use super::{StepBuilder, run_ip, step_key};
use crate::testbed::Testbed;
use anyhow::{Context, bail, ensure};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::path::Path;
use toll_journal::Undo;
use toll_model::rig::RECEIVE_ON;
use toll_record::RigStep;
use toll_taps::Counters;

pub const BUILDER: StepBuilder = StepBuilder { kind: "link", programs: || &["ip"], open };

/// The device at either end; each end has a namespace of its own.
const DEVICE: &str = "link0";

/// Directory of iproute2's namespaces.
const NAMESPACES: &str = "/run/netns";

/// An open link.
#[derive(Debug, Clone)]
pub struct Link {
    /// `None` if another host sends.
    send: Option<End>,
    receive: End,
}

/// A device, and the name of its namespace.
#[derive(Debug, Clone)]
struct End {
    namespace: String,
    device: String,
}

/// Counters of both ends of a link since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// `None` if the sender is another host.
    pub sender: Option<Counters>,
    pub receiver: Counters,
}

impl Link {
    /// Reads the counters of both ends.
    ///
    /// # Errors
    /// A namespace or a device is gone.
    pub fn read_counters(&self) -> anyhow::Result<LinkCounters> {
        let of = |end: &End| run_in_namespace(&end.namespace, || Ok(Counters::read(&end.device)?));
        Ok(LinkCounters { sender: self.send.as_ref().map(of).transpose()?, receiver: of(&self.receive)? })
    }
}

/// Runs `ask` inside a namespace, on a thread that ends there. toll itself stays in its own namespace.
fn run_in_namespace<T: Send>(
    namespace: &str,
    ask: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let path = Path::new(NAMESPACES).join(namespace);
    let enter = || {
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        setns(file, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter the namespace {namespace}"))?;
        ask()
    };
    std::thread::scope(|scope| match scope.spawn(enter).join() {
        Ok(answer) => answer,
        Err(_) => bail!("who looked into the namespace {namespace} did not come back"),
    })
}

/// Brings both ends up without an address: packets are sent as they are. Removed with its namespaces.
fn open(step: &RigStep, testbed: &mut Testbed) -> anyhow::Result<String> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "a link in namespaces of its own needs root: run toll with sudo"
    );
    let id = std::process::id();
    // Absent in plans of older versions.
    let here = step.keys.get(RECEIVE_ON).map_or("", String::as_str);
    if !here.is_empty() {
        return name_own_namespace(here, &format!("toll-{id}-receive"), testbed);
    }
    let [send, receive] = ["send", "receive"].map(|end| format!("toll-{id}-{end}"));
    for namespace in [&send, &receive] {
        testbed.journal.record(Undo::Netns { name: namespace.clone() })?;
        run_ip(&["netns", "add", namespace])?;
        // The kernel would speak by itself: neighbours and routers are asked for as soon as a device is up.
        let quiet = "f=/proc/sys/net/ipv6/conf/default/disable_ipv6; [ ! -e $f ] || echo 1 >$f";
        run_ip(&["netns", "exec", namespace, "sh", "-c", quiet])?;
    }
    run_ip(&["-n", &send, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", &receive])?;
    for namespace in [&send, &receive] {
        run_ip(&["-n", namespace, "link", "set", DEVICE, "up"])?;
    }
    let cpu = step_key(step, "receive_cpu")?;
    if !cpu.is_empty() {
        steer_received_packets(cpu, &receive)?;
    }
    testbed.define_placeholder("link_device", DEVICE);
    testbed.define_placeholder("link_send", &send);
    testbed.define_placeholder("link_receive", &receive);
    let end = |namespace: &String| End { namespace: namespace.clone(), device: DEVICE.to_owned() };
    testbed.rig.link = Some(Link { send: Some(end(&send)), receive: end(&receive) });
    let on = if cpu.is_empty() { String::new() } else { format!(", packets received on CPU {cpu}") };
    Ok(format!("link: a veth pair between the namespaces {send} and {receive}{on}"))
}

/// Names this host's own namespace, so that commands "at the receiving end" run here.
fn name_own_namespace(device: &str, name: &str, testbed: &mut Testbed) -> anyhow::Result<String> {
    Counters::read(device).with_context(|| format!("--receive-on {device}"))?;
    testbed.journal.record(Undo::Netns { name: name.to_owned() })?;
    run_ip(&["netns", "attach", name, &std::process::id().to_string()])?;
    testbed.define_placeholder("link_device", device);
    testbed.define_placeholder("link_receive", name);
    let receive = End { namespace: name.to_owned(), device: device.to_owned() };
    testbed.rig.link = Some(Link { send: None, receive });
    Ok(format!("link: what another host sends to {device}"))
}

/// Assigns received packets to a CPU other than the sender's (receive packet steering).
///
/// A network card's interrupt would do the same.
fn steer_received_packets(cpu: &str, namespace: &str) -> anyhow::Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let number = cpu.parse::<u32>().ok().filter(|number| (*number as usize) < cpus);
    let number = number.with_context(|| {
        format!("the rig's step link has receive_cpu = {cpu:?}: this host has CPUs 0 to {}", cpus - 1)
    })?;
    // Groups of 32 bits, the highest first (Documentation/networking/scaling.rst).
    let mut mask = format!("{:x}", 1_u32 << (number % 32));
    mask.push_str(&",00000000".repeat(number as usize / 32));
    let set = format!("echo {mask} > /sys/class/net/{DEVICE}/queues/rx-0/rps_cpus");
    run_ip(&["netns", "exec", namespace, "sh", "-c", &set])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_not_there_is_named() {
        let end = |namespace: &str| End { namespace: namespace.to_owned(), device: DEVICE.to_owned() };
        let link = Link { send: Some(end("toll-none-send")), receive: end("toll-none-receive") };
        let said = format!("{:#}", link.read_counters().unwrap_err());
        assert!(said.contains("cannot open /run/netns/toll-none-send"), "{said}");
    }
}
