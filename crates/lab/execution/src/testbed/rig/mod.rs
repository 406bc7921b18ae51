//! Test rig: the steps around the subject, and what each offers to arms.
//!
//! A scenario lists its steps in order. Each is in the journal before it changes anything. If a step cannot
//! be made here, only the arms that need it are unavailable.

mod far_end;
mod link;
mod packets;
mod ssh;

pub use far_end::FarEnd;
pub use link::{Link, LinkCounters};

use super::Testbed;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::process::Stdio;
use toll_model::rig::StepKind;
use toll_net::pcap::profile::json::ProfileEntry;
use toll_record::RigStep;
use toll_sys::child_process;
use toll_sys::program::missing_program_error;

/// Implementation of one kind of step.
pub struct StepBuilder {
    /// The kind's name in the model.
    kind: &'static str,
    /// Programs that it requires.
    programs: fn() -> &'static [&'static str],
    /// Makes the step. Returns a description for the user.
    open: fn(&RigStep, &mut Testbed) -> anyhow::Result<String>,
}

static STEP_BUILDERS: [StepBuilder; 4] = [far_end::BUILDER, link::BUILDER, packets::BUILDER, ssh::BUILDER];

impl StepBuilder {
    fn for_kind(kind: &StepKind) -> anyhow::Result<&'static Self> {
        let made = STEP_BUILDERS.iter().find(|maker| maker.kind == kind.name);
        made.with_context(|| format!("nothing here makes the rig's step {}", kind.name))
    }
}

/// The steps that were made.
#[derive(Debug, Default)]
pub struct Rig {
    pub far_end: Option<FarEnd>,
    pub link: Option<Link>,
    /// A line for each open step.
    pub step_notes: Vec<String>,
    /// Profiles of the captures that arms may send.
    pub captures: Vec<ProfileEntry>,
    /// The reason why a step could not be made, by its kind.
    pub missing: BTreeMap<String, String>,
}

/// Phase in which a step is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildPhase {
    /// Servers may listen on what it makes.
    BeforeServers,
    /// It leads to the servers.
    AfterServers,
}

/// Makes the steps of this phase, in order.
///
/// # Errors
/// The user ends the run meanwhile. A step that cannot be made is in [`Rig::missing`].
pub fn open(steps: &[RigStep], turn: BuildPhase, testbed: &mut Testbed) -> anyhow::Result<()> {
    for step in steps {
        let kind = StepKind::by_name(&step.kind)?;
        let maker = StepBuilder::for_kind(kind)?;
        let of_kind = if kind.needs_server { BuildPhase::AfterServers } else { BuildPhase::BeforeServers };
        if of_kind != turn {
            continue;
        }
        let lacking = (maker.programs)().iter().find_map(|program| missing_program_error(program));
        let made = match lacking {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => (maker.open)(step, testbed),
        };
        testbed.cancel.check()?;
        match made {
            Ok(told) => testbed.rig.step_notes.push(told),
            Err(why) => {
                testbed.rig.missing.insert(step.kind.clone(), format!("{why:#}"));
            }
        }
    }
    Ok(())
}

/// The value of a resolved step's key.
fn step_key<'a>(step: &'a RigStep, name: &str) -> anyhow::Result<&'a str> {
    let value = step.keys.get(name).map(String::as_str);
    value.with_context(|| format!("the rig's step {} does not say its `{name}`", step.kind))
}

fn run_ip(args: &[&str]) -> anyhow::Result<()> {
    run_program("ip", args)
}

fn run_program(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = child_process::clean_env_command(program)
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
    use toll_model::rig::STEP_KINDS;

    #[test]
    fn every_kind_of_step_has_a_maker_and_no_maker_is_without_a_kind() {
        let kinds = STEP_KINDS.iter().map(|kind| kind.name);
        assert!(kinds.eq(STEP_BUILDERS.iter().map(|maker| maker.kind)));
    }
}
