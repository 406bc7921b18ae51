//! Start of a run's sandbox servers.
//!
//! There is one for each distinct set of options that arms need, side by side, with the same data.

use super::data::{self, Loading, SCHEMA};
use super::rig::FarEnd;
use super::{Stage, Standing, client_defaults};
use crate::stage::watched::Watched;
use crate::treatment::{Admin, LogPlace};
use crate::workload::Endpoints;
use anyhow::Context;
use std::net::Ipv4Addr;
use toll_model::plan::{Facts, ServerFacts};
use toll_mysql::Target;
use toll_record::{DataSetup, SandboxServer, SandboxSetup};
use toll_server::{Sandbox, SandboxSpec};

/// Starts all servers. If one fails, only its arms are unavailable, unless the baseline is among them.
pub fn open(stage: &mut Stage, loading: &dyn Loading, facts: &mut Facts) -> anyhow::Result<()> {
    let setup = stage.setup.sandbox.clone().context("the plan says nothing of the sandbox server")?;
    for (number, server) in setup.servers.iter().enumerate() {
        match start(number, server, &setup, loading, stage) {
            Ok((standing, found)) => {
                stage.servers.push(standing);
                facts.servers.push(Ok(found));
            }
            Err(error) => {
                stage.cancel.check()?;
                if number == 0 {
                    return Err(error);
                }
                facts.servers.push(Err(in_short(&format!("{error:#}"))));
            }
        }
    }
    Ok(())
}

fn start(
    number: usize,
    server: &SandboxServer,
    setup: &SandboxSetup,
    loading: &dyn Loading,
    stage: &Stage,
) -> anyhow::Result<(Standing, ServerFacts)> {
    let mut spec = SandboxSpec {
        program: Some(setup.program.clone().into()),
        buffer_pool_bytes: Some(setup.buffer_pool_bytes),
        max_connections: setup.max_connections,
        performance_schema: server.performance_schema,
        ipv6: setup.ipv6,
        tls: setup.tls,
        link: stage.rig.far_end.as_ref().filter(|_| setup.from_far_end).and_then(FarEnd::ends),
        settings: server.options.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        cancel: stage.cancel.clone(),
        ..SandboxSpec::default()
    };
    let sandbox = match &stage.setup.data {
        Some(data) => filled(&mut spec, data, loading, stage)?,
        None => Sandbox::start(&spec, &stage.journal)?,
    };
    let db = stage.setup.data.as_ref().map(|_| SCHEMA.to_owned());
    let within = |target: Target| Some(Target { db: db.clone(), ..target });
    let mut admin = Admin::new(sandbox.unix_target(), None);
    let process = sandbox.process();
    stage.limited.take_in(process.pid, &format!("server-{number}"))?;
    let mut fill = stage.fill.clone();
    for (name, value) in [
        ("port", sandbox.port().to_string()),
        ("socket", sandbox.socket().display().to_string()),
        ("datadir", sandbox.datadir().display().to_string()),
        ("server_bin", sandbox.program().path.display().to_string()),
        ("pid", process.pid.to_string()),
        ("schema", db.clone().unwrap_or_default()),
        ("near_ip", spec.link.map_or(Ipv4Addr::LOCALHOST, |link| link.near).to_string()),
        ("client_defaults", client_defaults(&stage.work_dir, number, &sandbox.unix_target())?),
    ] {
        fill.set(name, value);
    }
    let found = ServerFacts {
        server: sandbox.describe(),
        variables: admin.variables("%")?,
        may_set: admin.may_set_global(),
        no_logs: None,
    };
    let standing = Standing {
        number,
        admin,
        endpoints: Endpoints {
            tcp: within(sandbox.target()),
            unix: within(sandbox.unix_target()),
            ..Endpoints::default()
        },
        watched: Watched::sandbox(process),
        lock: None,
        logs: Some(LogPlace::of_sandbox(&sandbox.datadir())),
        port: sandbox.port(),
        socket: sandbox.socket().display().to_string(),
        fill,
        sandbox: Some(sandbox),
    };
    Ok((standing, found))
}

fn filled(
    spec: &mut SandboxSpec,
    data: &DataSetup,
    loading: &dyn Loading,
    stage: &Stage,
) -> anyhow::Result<Sandbox> {
    let data_spec = data::spec(data)?;
    spec.data_bytes = data_spec.bytes;
    let tell = |text: &str| tracing::info!("{text}");
    Sandbox::start_prepared(spec, &data_spec, &stage.journal, &tell, |target| {
        data::load(target, data, loading, &stage.cancel)
    })
}

/// The lines of a server's last messages that state the reason.
fn in_short(error: &str) -> String {
    let mut lines = error.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let why = lines.filter_map(|line| line.split_once("[ERROR] ")).map(|(_, why)| why.trim().to_owned());
    std::iter::once(first).chain(why).collect::<Vec<_>>().join(" ")
}
