//! What stands around the subject, and what does each step of it give to arms?
//!
//! A scenario names steps in an order; each is in the journal before it changes anything. A step that
//! cannot be made here takes only the arms along that need it.

mod far_end;
mod link;
mod packets;
mod ssh;

pub use far_end::FarEnd;
pub use link::{Link, LinkCounters};

use super::Stage;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::process::Stdio;
use toll_model::rig::Kind;
use toll_net::pcap::profile::json::One;
use toll_record::RigStep;
use toll_sys::program::no_program;
use toll_sys::{child, signals};

/// How one kind of step is made.
pub struct Maker {
    /// As the model calls it.
    kind: &'static str,
    /// Programs that it is made of.
    programs: fn() -> &'static [&'static str],
    /// Makes it. The answer is what it is, for the user.
    open: fn(&RigStep, &mut Stage) -> anyhow::Result<String>,
}

static MAKERS: [Maker; 4] = [far_end::MAKER, link::MAKER, packets::MAKER, ssh::MAKER];

impl Maker {
    fn of(kind: &Kind) -> anyhow::Result<&'static Self> {
        let made = MAKERS.iter().find(|maker| maker.kind == kind.name);
        made.with_context(|| format!("nothing here makes the rig's step {}", kind.name))
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
        let maker = Maker::of(kind)?;
        let of_kind = if kind.needs_server { Turn::AfterServers } else { Turn::BeforeServers };
        if of_kind != turn {
            continue;
        }
        let lacking = (maker.programs)().iter().find_map(|program| no_program(program));
        let made = match lacking {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => (maker.open)(step, stage),
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
    use toll_model::rig::KINDS;

    #[test]
    fn every_kind_of_step_has_a_maker_and_no_maker_is_without_a_kind() {
        let kinds = KINDS.iter().map(|kind| kind.name);
        assert!(kinds.eq(MAKERS.iter().map(|maker| maker.kind)));
    }
}
