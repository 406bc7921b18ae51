//! Consent to put a run's load on a server that toll did not start.
//!
//! A load at a given rate is announced. One at full speed takes whatever the server has, and needs `--yes` or an answer
//! at the terminal.

use super::console::eprint_line;
use anyhow::{Context, bail, ensure};
use std::io::{IsTerminal, Write};
use toll_execution::run::RunSource;
use toll_execution::testbed::ServerChoice;
use toll_model::plan::ResolvedScenario;
use toll_mysql::{Address, Target};
use toll_record::Workload;
use toll_server::background::BackgroundServer;

/// Announces the load on an existing server, and asks for consent where it has no rate.
///
/// # Errors
/// The load has no rate, and nobody agreed to it.
pub fn check_load(source: &RunSource, server: &ServerChoice, is_agreed: bool) -> anyhow::Result<()> {
    let ServerChoice::External { target, .. } = server else { return Ok(()) };
    let Some(load) = heaviest_load(source, server)? else { return Ok(()) };
    let (address, what) = (&target.address, describe(&load));
    if load.rate_per_s.is_some() || is_agreed {
        eprint_line!("toll: load on the server at {address}: {what}");
        return Ok(());
    }
    let advice = match source {
        RunSource::Scenario(..) => "Set a rate that is safe for it, such as --rate 300, or use --yes",
        RunSource::Plan(_) => "Use --yes",
    };
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        bail!("load on the server at {address}: {what}. {FULL_SPEED}, and toll did not start it. {advice}");
    }
    eprint_line!("toll: load on the server at {address}: {what}. {FULL_SPEED}. {advice} to be asked no more");
    ensure!(is_answered_yes()?, "nothing was done on the server at {address}");
    Ok(())
}

/// True if the run puts a load at full speed on an existing server.
pub fn check_is_needed(source: &RunSource, server: &ServerChoice) -> anyhow::Result<bool> {
    Ok(heaviest_load(source, server)?.is_some_and(|load| load.rate_per_s.is_none()))
}

/// The load that a server of others would feel most, if there is one.
fn heaviest_load(source: &RunSource, server: &ServerChoice) -> anyhow::Result<Option<Workload>> {
    let ServerChoice::External { target, .. } = server else { return Ok(None) };
    if is_own_server(target) {
        return Ok(None);
    }
    let mut loads = loads_of(source)?;
    loads.retain(|load| load.driver != "none");
    Ok(loads.into_iter().max_by(|a, b| intensity(a).total_cmp(&intensity(b))))
}

const FULL_SPEED: &str = "This slows down every other client of the server";

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

fn is_answered_yes() -> anyhow::Result<bool> {
    let mut terminal = std::io::stderr();
    terminal.write_all(b"Go on? [y/N] ").and_then(|()| terminal.flush()).context("cannot ask")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
