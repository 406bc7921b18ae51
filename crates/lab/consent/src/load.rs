//! The load that a run would put on a server: which, how heavy, and whether somebody has to agree to it.

use toll_execution::run::RunSource;
use toll_execution::testbed::ServerChoice;
use toll_model::plan::ResolvedScenario;
use toll_mysql::{Address, Target};
use toll_record::Workload;
use toll_server::background::BackgroundServer;

/// True if the run puts a load at full speed on an existing server.
pub fn check_is_needed(source: &RunSource, server: &ServerChoice) -> anyhow::Result<bool> {
    Ok(heaviest_load(source, server)?.is_some_and(|load| load.rate_per_s.is_none()))
}

/// The load that a server of others would feel most, if there is one.
pub fn heaviest_load(source: &RunSource, server: &ServerChoice) -> anyhow::Result<Option<Workload>> {
    let ServerChoice::External { target, .. } = server else { return Ok(None) };
    if is_own_server(target) {
        return Ok(None);
    }
    let mut loads = loads_of(source)?;
    loads.retain(|load| load.driver != "none");
    Ok(loads.into_iter().max_by(|a, b| intensity(a).total_cmp(&intensity(b))))
}

/// True for the server of `toll server start`.
pub fn is_own_server(target: &Target) -> bool {
    let Ok(Some(own)) = BackgroundServer::find_running() else { return false };
    match &target.address {
        Address::Unix(path) => *path == own.socket,
        Address::Tcp { host, port } => {
            *port == own.port && ["127.0.0.1", "localhost"].contains(&host.as_str())
        }
    }
}

/// The loads of all arms. A rate that is a share of the capacity is none: the capacity is measured at full speed.
fn loads_of(source: &RunSource) -> anyhow::Result<Vec<Workload>> {
    Ok(match source {
        RunSource::Scenario(scenario, overrides) => {
            let resolved = ResolvedScenario::new(scenario.as_ref().clone(), overrides)?;
            resolved.arms.iter().map(|arm| resolved.arm_workload(arm)).collect()
        }
        RunSource::Plan(plan) => plan.arms.iter().map(|arm| arm.workload.clone()).collect(),
    })
}

/// Events a second; at full speed: more than any rate, and the more the more connections there are.
fn intensity(load: &Workload) -> f64 {
    load.rate_per_s.unwrap_or(1e12 * f64::from(load.threads))
}

/// Kind, connections and pace of a load.
pub fn describe(load: &Workload) -> String {
    let pace = match load.rate_per_s {
        Some(rate) => format!("at {rate} events/s"),
        None => "at full speed: each sends its next query as soon as the last is answered".to_owned(),
    };
    format!("{} connections ({}) {pace}", load.threads, load.profile)
}
