//! Sandbox, data and rig that a scenario's variants need, resolved.

use super::{ServerChoice, data};
use anyhow::{bail, ensure};
use std::collections::BTreeMap;
use toll_load::mix::Profile;
use toll_model::data::{DEFAULT_RECIPE, Recipe};
use toll_model::plan::ResolvedScenario;
use toll_model::rig::StepKind;
use toll_model::scenario::{Arm, Subject};
use toll_record::{DataSetup, Limits, SandboxServer, SandboxSetup, Setup};
use toll_server::{ServerProgram, config};
use toll_sys::memory;

/// Resolves the setup: finds a sandbox's program and checks memory for its servers. Starts and changes
/// nothing.
pub fn resolve_setup(resolved: &ResolvedScenario, choice: &ServerChoice) -> anyhow::Result<Setup> {
    let data = resolve_data(resolved)?;
    let sandbox = match (resolved.scenario.subject, choice) {
        (Subject::Server, ServerChoice::Sandbox { program }) => {
            Some(resolve_sandbox(resolved, ServerProgram::find(program.as_deref())?, data.as_ref())?)
        }
        (Subject::Server, ServerChoice::External { .. }) | (Subject::Host, ServerChoice::None) => None,
        (Subject::Server, ServerChoice::None) => bail!("{} needs a server", resolved.scenario.name),
        (Subject::Host, _) => bail!("{} is about the host alone: leave out --server", resolved.scenario.name),
    };
    let mut rig = Vec::new();
    for step in &resolved.scenario.rig {
        let kind = StepKind::by_name(&step.kind)?;
        // What none of the chosen arms needs would only be one thing more on the host.
        if resolved.arms.iter().any(|arm| resolved.required_rig_steps(arm).any(|needed| needed == kind.name))
        {
            rig.push(kind.resolve_step(step)?);
        }
    }
    ensure!(
        resolved.profile.limits.is_none() || !matches!(choice, ServerChoice::External { .. }),
        "the profile {} has `limits`, and those are for servers of toll's own: leave out --server, or choose another \
         profile",
        resolved.profile_name
    );
    let limits = resolved
        .profile
        .limits
        .map(|limits| Limits { cpus: limits.cpus, memory_bytes: limits.memory.map(|memory| memory.0) });
    let crosses_over = matches!(choice, ServerChoice::External { second: Some(_), .. });
    let second = if crosses_over { vec![resolved.scenario.baseline.clone()] } else { Vec::new() };
    Ok(Setup { sandbox, data, rig, limits, second })
}

/// The scenario's data, and the loads' tables: the most tables and rows that any arm's load uses.
///
/// `None` if no arm has a load and the scenario sets no data.
fn resolve_data(resolved: &ResolvedScenario) -> anyhow::Result<Option<DataSetup>> {
    let mut loads: Vec<_> = resolved.arms.iter().map(|arm| resolved.arm_workload(arm)).collect();
    let asked = &resolved.scenario.data;
    if asked.is_none() && loads.iter().all(|load| load.driver == "none") {
        return Ok(None);
    }
    let asked = asked.clone().unwrap_or_default();
    let recipe = Recipe::by_name(&asked.recipe)?;
    ensure!(
        recipe.is_scaled || resolved.profile.scale.is_none(),
        "data of the recipe {} has no scale: set its size with --rows and --tables",
        recipe.name
    );
    if recipe.name != DEFAULT_RECIPE {
        loads.retain(|load| load.driver != "none");
    }
    // A mix of the user's own is taken to write.
    let writes = |profile: &str| Profile::from_name(profile).is_none_or(Profile::writes);
    let writing = loads.iter().filter(|load| load.driver != "none" && writes(&load.profile));
    let mut written_by: Vec<String> = writing.map(|load| load.driver.clone()).collect();
    written_by.sort();
    written_by.dedup();
    let tables = loads.iter().map(|load| load.tables).max().unwrap_or(0);
    let rows = loads.iter().map(|load| load.rows).chain(resolved.profile.table_rows).max().unwrap_or(0);
    Ok(Some(DataSetup {
        recipe: asked.recipe,
        seed: asked.seed,
        scale: recipe.is_scaled.then(|| resolved.profile.scale.or(asked.scale).unwrap_or(1.0)),
        tables,
        rows: if tables == 0 { 0 } else { rows },
        written_by,
    }))
}

fn resolve_sandbox(
    resolved: &ResolvedScenario,
    program: ServerProgram,
    data: Option<&DataSetup>,
) -> anyhow::Result<SandboxSetup> {
    let flavour = program.flavour.name();
    let servers = group_servers(resolved, flavour);
    let wants =
        |transport: &str| resolved.arms.iter().any(|arm| resolved.arm_workload(arm).transport == transport);
    let needed = match data {
        Some(data) => data::build_spec(data)?.bytes,
        None => 0,
    };
    let wanted = resolved.profile.buffer_pool.map_or(0, |pool| pool.0);
    let (buffer_pool_bytes, warning) =
        config::choose_buffer_pool_bytes(wanted, needed, memory::available_bytes(), servers.len() as u64);
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    Ok(SandboxSetup {
        program: program.path.display().to_string(),
        max_connections: config::MAX_CONNECTIONS,
        // An empty server has its dictionary to hold.
        buffer_pool_bytes: buffer_pool_bytes.max(config::MIN_BUFFER_POOL_BYTES),
        ipv6: wants("ipv6"),
        tls: wants("tls"),
        from_far_end: resolved.arms.iter().any(|arm| arm.process_specs().iter().any(|member| member.far)),
        servers,
    })
}

/// A server for each distinct set of options, the baseline's first.
fn group_servers(resolved: &ResolvedScenario, flavour: &str) -> Vec<SandboxServer> {
    let common = resolved.scenario.server.options_for(flavour);
    let mut servers: Vec<SandboxServer> = Vec::new();
    let baseline = |arm: &&Arm| arm.name == resolved.scenario.baseline;
    let ordered =
        resolved.arms.iter().filter(baseline).chain(resolved.arms.iter().filter(|arm| !baseline(arm)));
    for arm in ordered {
        let mut options: BTreeMap<String, String> = common.clone();
        options.extend(arm.server.options_for(flavour));
        // An option that toll has a name for goes by that name.
        let performance_schema = options.remove("performance_schema").is_some_and(|on| on == "ON");
        let same =
            |s: &&mut SandboxServer| s.options == options && s.performance_schema == performance_schema;
        match servers.iter_mut().find(same) {
            Some(server) => server.arms.push(arm.name.clone()),
            None => {
                servers.push(SandboxServer { arms: vec![arm.name.clone()], performance_schema, options });
            }
        }
    }
    servers
}
