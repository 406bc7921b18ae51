//! What is a link by itself, with nothing of this host on it?
//!
//! Two network namespaces joined by a veth pair: whatever one end sends arrives at the other, and nothing
//! else does.

use super::{Kind, ip, key};
use crate::journal::Undo;
use crate::stage::Stage;
use anyhow::{Context, ensure};
use toll_record::RigStep;

pub const KIND: Kind = Kind {
    name: "link",
    keys: &[("receive_cpu", "")],
    transports: &[],
    needs_server: false,
    serves: |need| need.mentions(&GIVEN),
    programs: || &["ip"],
    open,
};

/// Placeholders for commands.
const GIVEN: [&str; 3] = ["link_device", "link_receive", "link_send"];
/// The device at either end; each end has a namespace of its own.
const DEVICE: &str = "link0";

/// Both ends come up without an address: packets are sent as they are. Removed with its namespaces.
fn open(step: &RigStep, stage: &mut Stage) -> anyhow::Result<String> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "a link in namespaces of its own needs root: run toll with sudo"
    );
    let id = std::process::id();
    let [send, receive] = ["send", "receive"].map(|end| format!("toll-{id}-{end}"));
    for namespace in [&send, &receive] {
        stage.journal.record(Undo::Netns { name: namespace.clone() })?;
        ip(&["netns", "add", namespace])?;
        // The kernel would speak by itself: neighbours and routers are asked for as soon as a device is up.
        let quiet = "net.ipv6.conf.default.disable_ipv6=1";
        ip(&["netns", "exec", namespace, "sysctl", "-q", "-w", quiet])?;
    }
    ip(&["-n", &send, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", &receive])?;
    for namespace in [&send, &receive] {
        ip(&["-n", namespace, "link", "set", DEVICE, "up"])?;
    }
    let cpu = key(step, "receive_cpu")?;
    if !cpu.is_empty() {
        receive_on(cpu, &receive)?;
    }
    stage.give("link_device", DEVICE);
    stage.give("link_send", &send);
    stage.give("link_receive", &receive);
    let on = if cpu.is_empty() { String::new() } else { format!(", packets received on CPU {cpu}") };
    Ok(format!("link: a veth pair between the namespaces {send} and {receive}{on}"))
}

/// Lets another CPU than the sender's carry packets up from the device (receive packet steering), as a network card's
/// interrupt would.
fn receive_on(cpu: &str, namespace: &str) -> anyhow::Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let number = cpu.parse::<u32>().ok().filter(|number| (*number as usize) < cpus);
    let number = number.with_context(|| {
        format!("the rig's step link has receive_cpu = {cpu:?}: this host has CPUs 0 to {}", cpus - 1)
    })?;
    // Groups of 32 bits, the highest first (Documentation/networking/scaling.rst).
    let mut mask = format!("{:x}", 1_u32 << (number % 32));
    mask.push_str(&",00000000".repeat(number as usize / 32));
    let set = format!("echo {mask} > /sys/class/net/{DEVICE}/queues/rx-0/rps_cpus");
    ip(&["netns", "exec", namespace, "sh", "-c", &set])
}
