//! Opening and closing of the test setup, in order.

use super::data::LoadProgress;
use super::rig::{self, BuildPhase, Rig};
use super::{Testbed, cgroup_limits, existing_server, sandbox};
use crate::host;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toll_journal::{Journal, Undo};
use toll_model::placeholders::PlaceholderValues;
use toll_model::plan::TestbedFacts;
use toll_mysql::Target;
use toll_record::{HeldIn, Host, Setup};
use toll_server::AllowedChanges;
use toll_sys::cancel::CancelToken;
use toll_sys::program::own_program_path;
use toll_sys::{cgroup, private_file};

/// Choice of the server for a run.
#[derive(Debug, Clone)]
pub enum ServerChoice {
    /// The host alone, or what the rig adds to it.
    None,
    Sandbox {
        program: Option<PathBuf>,
    },
    /// An existing server, and the changes that the user agreed to.
    External {
        target: Box<Target>,
        defaults_file: Option<PathBuf>,
        agreed: AllowedChanges,
        /// On which each treatment is on while it is off on the first.
        second: Option<Box<SecondServer>>,
    },
}

/// The other one of two servers between which treatments cross over.
#[derive(Debug, Clone)]
pub struct SecondServer {
    pub target: Target,
    pub defaults_file: Option<PathBuf>,
}

/// The open test setup, and the capabilities found.
#[derive(Debug)]
pub struct OpenTestbed {
    pub testbed: Testbed,
    pub facts: TestbedFacts,
    pub host: Host,
}

/// Opens the test setup: starts and fills servers, or finds one and fills its schema; then makes the rig.
///
/// # Errors
/// A requirement of the whole run is missing. Everything made until then is undone.
pub fn open(
    choice: &ServerChoice,
    setup: &Setup,
    dir: &Path,
    journal: Journal,
    progress: &dyn LoadProgress,
    cancel: &CancelToken,
) -> anyhow::Result<OpenTestbed> {
    let dir = std::path::absolute(dir).context("cannot resolve the path of the run directory")?;
    let work_dir = dir.join("private");
    journal.record(Undo::Path { path: work_dir.clone() })?;
    private_file::create_dir(&work_dir)?;
    let limited = setup
        .limits
        .as_ref()
        .map(|limits| cgroup_limits::create_limit_groups(limits, &journal))
        .transpose()?
        .unwrap_or_default();
    let mut testbed = Testbed {
        cgroup: match &limited.parent {
            Some(group) => Some(group.clone()),
            None => make_cgroup(&journal)?,
        },
        limit_groups: limited,
        journal,
        cancel: cancel.clone(),
        setup: setup.clone(),
        servers: Vec::new(),
        rig: Rig::default(),
        placeholders: PlaceholderValues::default(),
        work_dir,
        artefact_dir: dir.join("artefacts"),
    };
    let held_in = if testbed.cgroup.is_some() { HeldIn::ControlGroup } else { HeldIn::ProcessGroup };
    let mut facts = TestbedFacts {
        host: host::for_planning(held_in),
        setup: setup.clone(),
        servers: Vec::new(),
        rig_missing: BTreeMap::new(),
    };
    testbed.define_placeholder("toll", &own_program_path()?.display().to_string());
    rig::open(&setup.rig, BuildPhase::BeforeServers, &mut testbed)?;
    match choice {
        ServerChoice::None => {}
        ServerChoice::Sandbox { .. } => sandbox::open(&mut testbed, progress, &mut facts)?,
        ServerChoice::External { target, defaults_file, agreed, second } => {
            let of_first = (target.as_ref(), defaults_file);
            let of_second = second.as_ref().map(|server| (&server.target, &server.defaults_file));
            for (target, defaults_file) in std::iter::once(of_first).chain(of_second) {
                existing_server::open(
                    target,
                    defaults_file.clone(),
                    agreed,
                    progress,
                    &mut testbed,
                    &mut facts,
                )?;
            }
        }
    }
    rig::open(&setup.rig, BuildPhase::AfterServers, &mut testbed)?;
    facts.rig_missing.clone_from(&testbed.rig.missing);
    let variables = facts.baseline_server().map(|server| server.variables.clone()).unwrap_or_default();
    let host = host::describe_host(&dir, &variables);
    if cancel.is_cancelled() {
        close(testbed)?;
        bail!("interrupted before the first trial");
    }
    Ok(OpenTestbed { testbed, facts, host })
}

/// Restores everything and ends the servers that toll started.
///
/// # Errors
/// Names each change that could not be undone; it stays in the journal.
pub fn close(testbed: Testbed) -> anyhow::Result<()> {
    let Testbed { journal, mut servers, .. } = testbed;
    let mut stopped = Ok(());
    for sandbox in servers.iter_mut().filter_map(|standing| standing.sandbox.take()) {
        stopped = stopped.and(sandbox.stop(&journal).map(drop));
    }
    let undone = journal.undo_all();
    // The locks that servers hold outlive what they protect.
    drop(servers);
    stopped?;
    if !undone.failures.is_empty() {
        bail!("cannot undo: {}. Run `toll clean`.", undone.failures.join("; "));
    }
    Ok(())
}

/// Creates the run's control group. `None` if impossible: process groups and marks are then the fallback.
fn make_cgroup(journal: &Journal) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = cgroup::find_parent_group().map(|base| base.join(format!("toll-{}", journal.run_id())))
    else {
        return Ok(None);
    };
    let undo = journal.record(Undo::Cgroup { path: path.clone() })?;
    if std::fs::create_dir(&path).is_ok() {
        return Ok(Some(path));
    }
    journal.mark_done(undo)?;
    Ok(None)
}
