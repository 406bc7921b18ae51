//! What stands around the subject, and what does each step of it give to arms?
//!
//! A scenario names steps in an order; each is in the journal before it changes anything. A step that
//! cannot be made here takes only the arms along that need it.

mod far_end;
mod link;
mod packets;
mod ssh;

pub use far_end::{FarEnd, link_bits_per_s};
pub use link::{Link, LinkCounters, RECEIVE_ON};

use super::Stage;
use crate::child;
use crate::pcap::profile::json::One;
use crate::plan::no_program;
use crate::scenario::{Arm, Define};
use crate::signals;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::process::Stdio;
use toll_record::RigStep;

/// One kind of step.
pub struct Kind {
    /// As scenarios call it.
    pub name: &'static str,
    /// What may be chosen, and what holds where it is not.
    pub keys: &'static [(&'static str, &'static str)],
    /// Transports that it gives to loads.
    pub transports: &'static [&'static str],
    pub needs_server: bool,
    /// Whether an arm cannot do without it.
    serves: fn(&Need<'_>) -> bool,
    /// Programs that it is made of.
    programs: fn() -> &'static [&'static str],
    /// Makes it. The answer is what it is, for the user.
    open: fn(&RigStep, &mut Stage) -> anyhow::Result<String>,
}

pub static KINDS: [Kind; 4] = [far_end::KIND, link::KIND, packets::KIND, ssh::KIND];

/// What an arm asks of the rig.
pub struct Need<'a> {
    pub arm: &'a Arm,
    /// Of its load.
    pub transport: &'a str,
    /// The scenario's definitions, through which it may ask.
    pub define: &'a BTreeMap<String, Define>,
}

impl Need<'_> {
    /// Whether a command or setting of the arm has one of these placeholders, by itself or in a definition.
    pub fn mentions(&self, placeholders: &[&str]) -> bool {
        let texts = self.arm.texts();
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

    /// The kinds of step that the arm cannot do without.
    pub fn kinds(&self) -> impl Iterator<Item = &'static Kind> + '_ {
        KINDS.iter().filter(|kind| (kind.serves)(self))
    }
}

/// What has been made.
#[derive(Debug, Default)]
pub struct Rig {
    pub far_end: Option<FarEnd>,
    pub link: Option<Link>,
    /// A line for each step that stands.
    pub told: Vec<String>,
    /// What the captures are made of that arms may send.
    pub captures: Vec<One>,
    /// Why a step could not be made, by its kind.
    pub missing: BTreeMap<String, String>,
}

impl Kind {
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name).with_context(|| {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            format!("kind = {name:?} is no step of a rig: use {}", known.join(", "))
        })
    }

    /// The step with every default spelled out; an error where it says what its kind does not know.
    pub fn resolved(&self, step: &RigStep) -> anyhow::Result<RigStep> {
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

/// All ways to a server that arms may name.
pub fn transports() -> Vec<&'static str> {
    let given = KINDS.iter().flat_map(|kind| kind.transports);
    crate::workload::TRANSPORTS.into_iter().chain(given.copied()).collect()
}

/// When a step is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Servers may listen on what it makes.
    BeforeServers,
    /// It leads to them.
    AfterServers,
}

/// Makes the steps of this turn, in their order.
///
/// # Errors
/// Where the user ends the run meanwhile; a step that cannot be made is in [`Rig::missing`].
pub fn open(steps: &[RigStep], turn: Turn, stage: &mut Stage) -> anyhow::Result<()> {
    for step in steps {
        let kind = Kind::named(&step.kind)?;
        let of_kind = if kind.needs_server { Turn::AfterServers } else { Turn::BeforeServers };
        if of_kind != turn {
            continue;
        }
        let lacking = (kind.programs)().iter().find_map(|program| no_program(program));
        let made = match lacking {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => (kind.open)(step, stage),
        };
        signals::check()?;
        match made {
            Ok(told) => stage.rig.told.push(told),
            Err(why) => {
                stage.rig.missing.insert(step.kind.clone(), format!("{why:#}"));
            }
        }
    }
    Ok(())
}

/// The key of a resolved step.
fn key<'a>(step: &'a RigStep, name: &str) -> anyhow::Result<&'a str> {
    let value = step.keys.get(name).map(String::as_str);
    value.with_context(|| format!("the rig's step {} does not say its `{name}`", step.kind))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_every_default_and_refuses_what_it_does_not_know() {
        let far_end = Kind::named("far-end").unwrap();
        let slow = BTreeMap::from([("rate".to_owned(), "100mbit".to_owned())]);
        let step = far_end.resolved(&RigStep { kind: "far-end".into(), keys: slow }).unwrap();
        assert_eq!(step.keys["rate"], "100mbit");
        assert_eq!(step.keys.len(), far_end.keys.len());
        let odd = BTreeMap::from([("colour".to_owned(), "red".to_owned())]);
        let refused = far_end.resolved(&RigStep { kind: "far-end".into(), keys: odd }).unwrap_err();
        assert!(refused.to_string().contains("knows no `colour`: it takes rate, burst"), "{refused}");
        assert!(
            Kind::named("moon").is_err_and(|error| error.to_string().contains("far-end, link, packets, ssh"))
        );
    }
}
