//! A run as far as it can be described before it begins: for `--dry-run`.
//!
//! # Invariants
//! Never connects to a server or writes a file. The one program that it starts is a server, for its version.

use super::{ResolvedSource, RunRequest, name};
use crate::host;
use crate::testbed::{ServerChoice, check_schema_is_given, data};
use std::collections::BTreeSet;
use std::path::PathBuf;
use toll_model::placeholders::PlaceholderValues;
use toll_model::plan::{self, Required};
use toll_record::{Arm, HeldIn, Setup};
use toll_server::{Flavour, ServerProgram};

/// What a run would do.
#[derive(Debug)]
pub struct RunPreview {
    pub scenario: String,
    pub question: String,
    pub profile: String,
    /// With their commands. `unavailable`: the reason why one cannot run on this host.
    pub arms: Vec<Arm>,
    pub setup: Setup,
    /// The data in words, and about how many bytes it has.
    pub data: Option<(String, u64)>,
    /// Seconds from the pilot to the last window; `None` if the effect to be found decides.
    pub expected_s: Option<f64>,
    /// True if rates are shares of a capacity, which is measured first.
    pub measures_capacity: bool,
    /// Rounds, if they are not chosen by a pilot.
    pub rounds: Option<u32>,
    /// Directory of the run.
    pub dir: PathBuf,
}

/// Describes the run that `asked` is. `flavour`: of an existing server that was asked; otherwise its commands are shown as
/// for MariaDB where they differ.
///
/// # Errors
/// The run would be refused before it connects to a server.
pub fn preview(asked: &RunRequest, flavour: Option<Flavour>) -> anyhow::Result<RunPreview> {
    let source = ResolvedSource::resolve(&asked.source)?;
    let setup = source.setup(&asked.server)?;
    if let ServerChoice::External { target, agreed, .. } = &asked.server {
        check_schema_is_given(setup.data.as_ref(), target, agreed)?;
    }
    let mut facts = host::for_planning(HeldIn::ProcessGroup);
    let mut arms = match &source {
        ResolvedSource::Scenario(resolved, _) => {
            resolved.preview_arms(expected_flavour(&asked.server, flavour)?, facts.cpus)
        }
        ResolvedSource::Plan(plan) => plan.arms.clone(),
    };
    // A preview starts nothing.
    let is_looked_for = |required: &Required| !matches!(required, Required::Check(_));
    let required = |arm: &Arm| {
        let all = plan::required(arm, &PlaceholderValues::default());
        all.into_iter().filter(is_looked_for).collect::<BTreeSet<_>>()
    };
    facts.missing = host::missing(arms.iter().flat_map(required).collect::<BTreeSet<_>>());
    for arm in &mut arms {
        let missing = required(arm).into_iter().find_map(|required| facts.missing.get(&required).cloned());
        // Virtual machines have a root of their own.
        let needs_root = arm.needs.root && !facts.is_root && source.clock().is_real();
        let no_root = || needs_root.then(|| "needs root: run toll with sudo".to_owned());
        arm.unavailable = arm.unavailable.take().or(missing).or_else(no_root);
    }
    let data = setup.data.as_ref().map(data::build_spec).transpose()?.map(|spec| (spec.what, spec.bytes));
    let dir = asked.out.clone().unwrap_or_else(|| name::new_run_dir(source.scenario()));
    Ok(match source {
        ResolvedSource::Scenario(resolved, _) => RunPreview {
            expected_s: resolved.expected_s(),
            measures_capacity: !resolved.arms_needing_capacity().is_empty(),
            rounds: resolved.times.rounds,
            scenario: resolved.scenario.name,
            question: resolved.scenario.question,
            profile: resolved.profile_name,
            arms,
            setup,
            data,
            dir,
        },
        ResolvedSource::Plan(plan) => RunPreview {
            expected_s: Some(plan::expected_s(&plan)),
            measures_capacity: false,
            rounds: Some(plan.rounds),
            scenario: plan.scenario,
            question: plan.question,
            profile: plan.profile,
            arms,
            setup,
            data,
            dir,
        },
    })
}

fn expected_flavour(server: &ServerChoice, known: Option<Flavour>) -> anyhow::Result<&'static str> {
    Ok(match server {
        ServerChoice::Sandbox { program } => ServerProgram::find(program.as_deref())?.flavour.name(),
        ServerChoice::External { .. } | ServerChoice::None => known.unwrap_or(Flavour::Mariadb).name(),
    })
}
