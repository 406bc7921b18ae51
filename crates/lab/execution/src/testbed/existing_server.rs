//! Preparation of an existing server and its data.
//!
//! # Invariants
//! Never creates anything on it that the run does not need and the user has not agreed to.

use super::data::{self, LoadProgress, SCHEMA};
use super::{ServerHandle, Testbed, write_client_defaults};
use crate::testbed::restart_detector::RestartDetector;
use crate::treatment::{AdminSession, LogDirectory};
use crate::workload::Endpoints;
use anyhow::bail;
use std::path::PathBuf;
use toll_journal::Undo;
use toll_model::plan::{ServerFacts, TestbedFacts};
use toll_mysql::{Address, Target, Tls};
use toll_record::DataSetup;
use toll_server::{AllowedChanges, ExternalServer};
use toll_sys::paths;

pub fn open(
    target: &Target,
    defaults_file: Option<PathBuf>,
    agreed: &AllowedChanges,
    progress: &dyn LoadProgress,
    testbed: &mut Testbed,
    facts: &mut TestbedFacts,
) -> anyhow::Result<()> {
    let number = testbed.servers.len();
    let server = ExternalServer::connect(target, defaults_file)?;
    refuse_pending_journal(&server)?;
    let mut admin = AdminSession::new(server.target().clone(), Some(server.server().clone()));
    let lock = admin.lock_server()?;
    let within = match &testbed.setup.data {
        Some(data) => prepare_data(&server, &mut admin, agreed, data, progress, testbed)?,
        None => prepare_without_data(&server, agreed)?,
    };
    let local = server.local();
    let here =
        |path: PathBuf| local.map_or(path.clone(), |local| local.to_host_path(&path)).display().to_string();
    let socket = here(server.socket());
    let logs = LogDirectory::for_server(local, &server.datadir());
    let mut placeholders = testbed.placeholders.clone();
    for (name, value) in [
        ("port", server.port().unwrap_or(0).to_string()),
        ("socket", socket.clone()),
        ("datadir", here(server.datadir())),
        ("server_bin", local.map_or_else(String::new, |local| local.program_path().display().to_string())),
        ("schema", within.db.clone().unwrap_or_default()),
        ("client_defaults", write_client_defaults(&testbed.work_dir, number, &within)?),
    ] {
        placeholders.set(name, value);
    }
    let watched = RestartDetector::external(local, server.target().clone(), server.variables().clone());
    if let Some(pid) = watched.pid() {
        placeholders.set("pid", pid.to_string());
    }
    facts.servers.push(Ok(ServerFacts {
        server: server.describe(),
        variables: admin.query_variables("%")?,
        can_set_global: admin.can_set_global(),
        log_error: logs.as_ref().err().cloned(),
        uses_tls: server.target().tls != Tls::Off,
    }));
    testbed.servers.push(ServerHandle {
        number,
        endpoints: resolve_endpoints(&server, within),
        admin,
        restart_detector: watched,
        lock: Some(lock),
        logs: logs.ok(),
        port: server.port().unwrap_or(0),
        socket,
        placeholders,
        sandbox: None,
    });
    Ok(())
}

/// Addresses of the server. A local one can be reached both ways, a remote one only as given.
fn resolve_endpoints(server: &ExternalServer, within: Target) -> Endpoints {
    // Its identity has been seen; a load that connects for each event would be measured with that question.
    let within = Target { identity: None, ..within };
    let over = |address: Address| Some(Target { address, ..within.clone() });
    let (tcp, unix) = match (&within.address, server.local()) {
        (Address::Tcp { .. }, None) => (Some(within.clone()), None),
        (Address::Tcp { .. }, Some(local)) => {
            let socket = local.to_host_path(&server.socket());
            let unix = if socket.exists() { over(Address::Unix(socket)) } else { None };
            (Some(within.clone()), unix)
        }
        (Address::Unix(_), _) => {
            let tcp = server.port().and_then(|port| over(Address::Tcp { host: "127.0.0.1".into(), port }));
            (tcp, Some(within.clone()))
        }
    };
    Endpoints { tcp, unix, ..Endpoints::default() }
}

/// Refuses a server with changes of a killed run: they would be mistaken for the server's own settings.
fn refuse_pending_journal(server: &ExternalServer) -> anyhow::Result<()> {
    for waiting in toll_journal::pending_runs(&paths::journal_dir()?) {
        if waiting
            .changes
            .iter()
            .filter_map(Undo::server)
            .any(|changed| changed.is_at_same_address(server.server()))
        {
            bail!(
                "run {} was killed and has left changes on this server: put them back first with `toll clean`",
                waiting.run_id
            );
        }
        if let Some(reason) = waiting.unreadable.first() {
            bail!(
                "an undo journal cannot be read, and may hold changes of this server: `toll clean` first. {}: {reason}",
                waiting.run_id
            );
        }
    }
    Ok(())
}

/// Creates no schema and needs none. A schema that the user names is the commands' default.
fn prepare_without_data(server: &ExternalServer, agreed: &AllowedChanges) -> anyhow::Result<Target> {
    server.check_allowed(agreed, false)?;
    let Some(name) = agreed.schema.as_ref().filter(|_| !agreed.may_create_schema) else {
        return Ok(server.target().clone());
    };
    if !server.has_schema(name)? {
        bail!("the server at {} has no schema {name}: check --schema", server.target().address);
    }
    Ok(Target { db: Some(name.clone()), ..server.target().clone() })
}

/// Refuses a run whose load has no tables to work on.
///
/// # Errors
/// There is data to load, and no schema for it was named.
pub fn check_schema_is_given(
    data: Option<&DataSetup>,
    target: &Target,
    agreed: &AllowedChanges,
) -> anyhow::Result<()> {
    if data.is_some() && agreed.schema.is_none() {
        bail!(
            "the load needs tables on the server at {}: let toll make a schema of its own and drop it \
             afterwards (--allow-schema {SCHEMA}), or name one that holds them (--schema NAME)",
            target.address
        );
    }
    Ok(())
}

/// Connects loads to a schema that toll creates, fills and drops after the run, or to an existing one.
///
/// An existing schema is used unchanged if it holds what the loads need.
fn prepare_data(
    server: &ExternalServer,
    admin: &mut AdminSession,
    agreed: &AllowedChanges,
    data: &DataSetup,
    progress: &dyn LoadProgress,
    testbed: &Testbed,
) -> anyhow::Result<Target> {
    check_schema_is_given(Some(data), server.target(), agreed)?;
    let name = agreed.schema.as_deref().unwrap_or(SCHEMA);
    let make = agreed.may_create_schema && !server.has_schema(name)?;
    let writes = !data.written_by.is_empty();
    server.check_allowed(agreed, make || writes)?;
    if make {
        let made = server.create_schema(name, &testbed.journal)?;
        let unlogged = !made.session.is_empty();
        if unlogged && data.written_by.iter().any(|driver| driver == "sysbench") {
            bail!(
                "sysbench cannot keep what it writes out of the binary log: use --driver toll, or a schema \
                 that is there (--schema NAME)"
            );
        }
        let target = Target { db: Some(name.to_owned()), ..made };
        data::load(&target, data, progress, &testbed.cancel)?;
        return Ok(target);
    }
    data::check_data(admin, name, data)?;
    if writes && server.variables().get("log_bin").is_some_and(|on| on == "ON") {
        tracing::warn!(
            "what the load writes to {name} goes to the binary log and the replicas, as any client's writes"
        );
    }
    Ok(Target { db: Some(name.to_owned()), ..server.target().clone() })
}
