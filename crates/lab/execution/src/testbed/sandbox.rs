//! Start of a run's sandbox servers.
//!
//! There is one for each distinct set of options that arms need, side by side, with the same data.

use super::data::{self, LoadProgress, SCHEMA};
use super::rig::FarEnd;
use super::{ServerHandle, Testbed, write_client_defaults};
use crate::testbed::restart_detector::RestartDetector;
use crate::treatment::{AdminSession, LogDirectory};
use crate::workload::Endpoints;
use anyhow::Context;
use std::net::Ipv4Addr;
use toll_journal::Journal;
use toll_model::plan::{ServerFacts, TestbedFacts};
use toll_mysql::Target;
use toll_record::{DataSetup, SandboxServer, SandboxSetup, Setup};
use toll_server::{Sandbox, SandboxSpec};
use toll_sys::cancel::CancelToken;

/// Starts all servers. If one fails, only its arms are unavailable, unless the baseline is among them.
pub fn open(
    testbed: &mut Testbed,
    progress: &dyn LoadProgress,
    facts: &mut TestbedFacts,
) -> anyhow::Result<()> {
    let setup = testbed.setup.sandbox.clone().context("the plan has no sandbox server")?;
    for (number, server) in setup.servers.iter().enumerate() {
        match start_server(number, server, &setup, progress, testbed) {
            Ok((standing, found)) => {
                testbed.servers.push(standing);
                facts.servers.push(Ok(found));
            }
            Err(error) => {
                testbed.cancel.check()?;
                if number == 0 {
                    return Err(error);
                }
                facts.servers.push(Err(summarise_error(&format!("{error:#}"))));
            }
        }
    }
    Ok(())
}

fn start_server(
    number: usize,
    server: &SandboxServer,
    setup: &SandboxSetup,
    progress: &dyn LoadProgress,
    testbed: &Testbed,
) -> anyhow::Result<(ServerHandle, ServerFacts)> {
    let mut spec = SandboxSpec {
        link: testbed.rig.far_end.as_ref().filter(|_| setup.from_far_end).and_then(FarEnd::link_ends),
        ..sandbox_spec(server, setup, &testbed.cancel)
    };
    let sandbox = match &testbed.setup.data {
        Some(data) => start_with_data(&mut spec, data, progress, testbed)?,
        None => Sandbox::start(&spec, &testbed.journal)?,
    };
    let db = testbed.setup.data.as_ref().map(|_| SCHEMA.to_owned());
    let within = |target: Target| Some(Target { db: db.clone(), ..target });
    let mut admin = AdminSession::new(sandbox.unix_target(), None);
    let process = sandbox.process();
    testbed.limit_groups.add_process(process.pid, &format!("server-{number}"))?;
    let mut placeholders = testbed.placeholders.clone();
    for (name, value) in [
        ("port", sandbox.port().to_string()),
        ("socket", sandbox.socket().display().to_string()),
        ("datadir", sandbox.datadir().display().to_string()),
        ("server_bin", sandbox.program().path.display().to_string()),
        ("pid", process.pid.to_string()),
        ("schema", db.clone().unwrap_or_default()),
        ("near_ip", spec.link.map_or(Ipv4Addr::LOCALHOST, |link| link.near).to_string()),
        ("client_defaults", write_client_defaults(&testbed.work_dir, number, &sandbox.unix_target())?),
    ] {
        placeholders.set(name, value);
    }
    let found = ServerFacts {
        server: sandbox.describe(),
        variables: admin.query_variables("%")?,
        can_set_global: admin.can_set_global(),
        log_error: None,
        uses_tls: false,
    };
    let standing = ServerHandle {
        number,
        admin,
        endpoints: Endpoints {
            tcp: within(sandbox.target()),
            unix: within(sandbox.unix_target()),
            ..Endpoints::default()
        },
        restart_detector: RestartDetector::sandbox(process),
        lock: None,
        logs: Some(LogDirectory::for_sandbox(&sandbox.datadir())),
        port: sandbox.port(),
        socket: sandbox.socket().display().to_string(),
        placeholders,
        sandbox: Some(sandbox),
    };
    Ok((standing, found))
}

fn sandbox_spec(server: &SandboxServer, setup: &SandboxSetup, cancel: &CancelToken) -> SandboxSpec {
    SandboxSpec {
        program: Some(setup.program.clone().into()),
        buffer_pool_bytes: Some(setup.buffer_pool_bytes),
        max_connections: setup.max_connections,
        performance_schema: server.performance_schema,
        ipv6: setup.ipv6,
        tls: setup.tls,
        settings: server.options.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        cancel: cancel.clone(),
        ..SandboxSpec::default()
    }
}

/// Has the data of all sandbox servers in the cache, so that they start within seconds. Starts none of them.
pub fn prepare_data(
    setup: &Setup,
    journal: &Journal,
    progress: &dyn LoadProgress,
    cancel: &CancelToken,
) -> anyhow::Result<()> {
    let (Some(sandbox), Some(data)) = (&setup.sandbox, &setup.data) else { return Ok(()) };
    let data_spec = data::build_spec(data)?;
    let tell = |text: &str| tracing::info!("{text}");
    for (number, server) in sandbox.servers.iter().enumerate() {
        let spec = sandbox_spec(server, sandbox, cancel);
        let prepared = toll_server::prepare_data(&spec, &data_spec, journal, &tell, |target| {
            data::load(target, data, progress, cancel)
        });
        cancel.check()?;
        // Options that the server refuses are those of some arms: they are reported where these are started.
        if number == 0 {
            prepared?;
        }
    }
    Ok(())
}

fn start_with_data(
    spec: &mut SandboxSpec,
    data: &DataSetup,
    progress: &dyn LoadProgress,
    testbed: &Testbed,
) -> anyhow::Result<Sandbox> {
    let data_spec = data::build_spec(data)?;
    spec.data_bytes = data_spec.bytes;
    let tell = |text: &str| tracing::info!("{text}");
    Sandbox::start_prepared(spec, &data_spec, &testbed.journal, &tell, |target| {
        data::load(target, data, progress, &testbed.cancel)
    })
}

/// The lines of a server's last messages that state the reason.
fn summarise_error(error: &str) -> String {
    let mut lines = error.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let why = lines.filter_map(|line| line.split_once("[ERROR] ")).map(|(_, why)| why.trim().to_owned());
    std::iter::once(first).chain(why).collect::<Vec<_>>().join(" ")
}
