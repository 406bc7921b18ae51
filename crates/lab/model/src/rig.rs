//! Kinds of rig step, as scenarios name them: keys, transports, placeholders. Never makes a step.

use crate::scenario::{Arm, Define};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use toll_record::RigStep;

/// One kind of step. A row of the same name in the execution crate's table says how to make it.
pub struct StepKind {
    /// The name in scenarios.
    pub name: &'static str,
    /// Keys that may be set, each with its default.
    pub keys: &'static [(&'static str, &'static str)],
    /// Transports that it offers to loads.
    pub transports: &'static [&'static str],
    pub needs_server: bool,
    /// True if an arm requires it.
    is_required_by: fn(&RigRequirements<'_>) -> bool,
}

pub static STEP_KINDS: [StepKind; 4] = [
    StepKind {
        name: "far-end",
        // The link that the documents assume. A token bucket wants at least rate / HZ: 1.25 MB of 1 Gb/s at
        // HZ 100.
        keys: &[("rate", "1gbit"), ("burst", "1300kb")],
        transports: &[],
        needs_server: false,
        is_required_by: |need| {
            let arm = need.arm;
            let asks = arm.remote_port.is_some() || arm.far_rate.is_some();
            asks || need.mentions_any(&[FAR_IP, RECEIVER_KEY, STREAM_KEY])
                || arm.process_specs().iter().any(|member| member.far)
        },
    },
    StepKind {
        name: "link",
        keys: &[("receive_cpu", ""), (RECEIVE_ON, "")],
        transports: &[],
        needs_server: false,
        is_required_by: |need| need.mentions_any(&["link_device", "link_receive", "link_send"]),
    },
    StepKind {
        name: "packets",
        keys: &[("sets", "http,flash,skype,mixed"), ("seconds", "20"), ("mbps", "20"), ("seed", "1")],
        transports: &[],
        needs_server: false,
        is_required_by: |need| need.mentions_any(&[PACKETS]),
    },
    StepKind {
        name: "ssh",
        keys: &[],
        transports: &[SSH_TO_TCP, SSH_TO_UNIX],
        needs_server: true,
        is_required_by: |need| {
            let by_transport = [SSH_TO_TCP, SSH_TO_UNIX].contains(&need.transport);
            by_transport || need.mentions_any(&[SSH_PORT, SSH_COMPRESSED_PORT])
        },
    },
];

/// Transports and placeholders that rig steps offer.
pub const SSH_TO_TCP: &str = "ssh-tcp";
pub const SSH_TO_UNIX: &str = "ssh-unix";
pub const SSH_PORT: &str = "ssh_port";
pub const SSH_COMPRESSED_PORT: &str = "ssh_compressed_port";
pub const FAR_IP: &str = "far_ip";
pub const STREAM_KEY: &str = "stream_key";
pub const RECEIVER_KEY: &str = "receiver_key";
pub const PACKETS: &str = "packets";
/// Key of the step `link`: the device of this host that receives another host's packets.
pub const RECEIVE_ON: &str = "receive_on";

/// Transports that arms can name wherever there is a server. Rig steps add others.
pub const TRANSPORTS: [&str; 6] = ["tcp", "unix", "tls", "compress", "localhost", "ipv6"];

/// Requirements of an arm on the rig.
pub struct RigRequirements<'a> {
    pub arm: &'a Arm,
    /// Transport of its load.
    pub transport: &'a str,
    /// The scenario's definitions, which may hold placeholders of the rig.
    pub define: &'a BTreeMap<String, Define>,
}

impl RigRequirements<'_> {
    /// True if a command or setting of the arm has one of these placeholders, itself or in a definition.
    pub fn mentions_any(&self, placeholders: &[&str]) -> bool {
        let texts = self.arm.template_texts();
        let mut open: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut seen: Vec<&str> = Vec::new();
        while let Some(text) = open.pop() {
            let has = |name: &str| text.contains(&format!("{{{name}}}"));
            if placeholders.iter().any(|name| has(name)) {
                return true;
            }
            for (name, value) in self.define {
                if has(name) && !seen.contains(&name.as_str()) {
                    seen.push(name);
                    match value {
                        Define::Text(text) => open.push(text),
                        Define::ByFlavour(by) => open.extend(by.values().map(String::as_str)),
                    }
                }
            }
        }
        false
    }

    /// Kinds of step that the arm requires.
    pub fn required_kinds(&self) -> impl Iterator<Item = &'static StepKind> + '_ {
        STEP_KINDS.iter().filter(|kind| (kind.is_required_by)(self))
    }
}

impl StepKind {
    pub fn by_name(name: &str) -> anyhow::Result<&'static Self> {
        STEP_KINDS.iter().find(|kind| kind.name == name).with_context(|| {
            let known: Vec<_> = STEP_KINDS.iter().map(|kind| kind.name).collect();
            format!("kind = {name:?} is no step of a rig: use {}", known.join(", "))
        })
    }

    /// The step with every default filled in.
    ///
    /// # Errors
    /// The step has a key that its kind does not know.
    pub fn resolve_step(&self, step: &RigStep) -> anyhow::Result<RigStep> {
        for key in step.keys.keys() {
            let known: Vec<_> = self.keys.iter().map(|(name, _)| *name).collect();
            ensure!(
                known.contains(&key.as_str()),
                "a step of kind {:?} knows no `{key}`: it {}",
                self.name,
                if known.is_empty() {
                    "has no keys".to_owned()
                } else {
                    format!("takes {}", known.join(", "))
                }
            );
        }
        let value = |(name, default): &(&str, &str)| {
            let given = step.keys.get(*name).cloned();
            ((*name).to_owned(), given.unwrap_or_else(|| (*default).to_owned()))
        };
        Ok(RigStep { kind: step.kind.clone(), keys: self.keys.iter().map(value).collect() })
    }
}

/// All transports that arms may name.
pub fn list_transports() -> Vec<&'static str> {
    let given = STEP_KINDS.iter().flat_map(|kind| kind.transports);
    TRANSPORTS.into_iter().chain(given.copied()).collect()
}

/// Bits a second of a rate as `tc` writes it.
///
/// # Errors
/// The rate is malformed; the message shows the expected form.
pub fn parse_link_rate(rate: &str) -> anyhow::Result<u64> {
    let (digits, unit) = rate.split_at(rate.find(|c: char| !c.is_ascii_digit()).unwrap_or(rate.len()));
    let times = match unit {
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => bail!("a rate is written as 100mbit: kbit, mbit or gbit"),
    };
    let bits =
        digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times)).filter(|bits| *bits > 0);
    bits.context("a rate is a whole number above 0, such as 100mbit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_every_default_and_refuses_what_it_does_not_know() {
        let far_end = StepKind::by_name("far-end").unwrap();
        let slow = BTreeMap::from([("rate".to_owned(), "100mbit".to_owned())]);
        let step = far_end.resolve_step(&RigStep { kind: "far-end".into(), keys: slow }).unwrap();
        assert_eq!(step.keys["rate"], "100mbit");
        assert_eq!(step.keys.len(), far_end.keys.len());
        let odd = BTreeMap::from([("colour".to_owned(), "red".to_owned())]);
        let refused = far_end.resolve_step(&RigStep { kind: "far-end".into(), keys: odd }).unwrap_err();
        assert!(refused.to_string().contains("knows no `colour`: it takes rate, burst"), "{refused}");
        assert!(
            StepKind::by_name("moon")
                .is_err_and(|error| error.to_string().contains("far-end, link, packets, ssh"))
        );
    }
}
