//! How does the server of a run come to stand ready, sandbox or not, and how is it left?

use super::{Stage, Standing, Watched};
use crate::conduct::Interrupt;
use crate::host;
use crate::journal::{self, Journal, Undo, cgroup, quoted_name};
use crate::places;
use crate::plan::{Facts, Settled, unavailable};
use crate::run::ServerLock;
use crate::say::tell;
use crate::scenario::ServerWish;
use crate::server::private;
use crate::server::{Agreed, DataSpec, External, Sandbox, SandboxSpec, ServerProgram};
use crate::treatment::{Admin, Fill, LogPlace, Remote};
use crate::workload::{Endpoints, SCHEMA, Tunnel};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use toll_load::{Address, Target};
use toll_record::{HeldIn, Host};

/// Which server the run is about.
#[derive(Debug, Clone)]
pub enum ServerChoice {
    Sandbox {
        program: Option<PathBuf>,
    },
    /// One that is there already, and what may be done with it.
    External {
        target: Box<Target>,
        defaults_file: Option<PathBuf>,
        agreed: Agreed,
    },
}

/// A server, and all that trials need around it.
#[derive(Debug)]
pub struct Opened {
    pub stage: Stage,
    pub facts: Facts,
    pub sandbox: Option<Sandbox>,
    pub host: Host,
}

/// Data is the same for every run of a size, so that it is loaded once and cloned.
const DATA_SEED: u64 = 1;
/// Buffer pool of the documents; a faithful run asks for it, memory permitting.
const FAITHFUL_POOL_BYTES: u64 = 16 << 30;

/// Makes the server ready: started and filled, or found and its schema filled.
pub fn open(
    choice: &ServerChoice,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
    interrupt: &Interrupt,
) -> anyhow::Result<Opened> {
    let opened = match choice {
        ServerChoice::Sandbox { program } => sandbox(program.clone(), settled, dir, journal),
        ServerChoice::External { target, defaults_file, agreed } => {
            external(target, defaults_file.clone(), agreed, settled, dir, journal)
        }
    };
    opened.and_then(|mut opened| {
        if interrupt.raised() {
            close(opened.stage, opened.sandbox.take())?;
            bail!("interrupted before the first trial");
        }
        Ok(opened)
    })
}

/// Puts everything back and ends the sandbox.
///
/// # Errors
/// Names what could not be put back; it stays in the journal.
pub fn close(stage: Stage, sandbox: Option<Sandbox>) -> anyhow::Result<()> {
    // The locks outlive what they protect.
    let Stage { journal, servers: _held, .. } = stage;
    let stopped = sandbox.map_or(Ok(()), |s| s.stop(&journal).map(drop));
    let undone = journal.undo_all();
    stopped?;
    if !undone.failures.is_empty() {
        bail!("could not put back: {}; `toll clean` tries again", undone.failures.join("; "));
    }
    Ok(())
}

fn sandbox(
    program: Option<PathBuf>,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
) -> anyhow::Result<Opened> {
    let found = ServerProgram::find(program.as_deref())?;
    let (tables, rows) = settled.data();
    let mut settings = options(&settled.scenario.server, found.flavour.name());
    // An option that toll has a name for goes by that name.
    let performance_schema = settings.iter().any(|s| s == "performance_schema=ON");
    settings.retain(|s| !s.starts_with("performance_schema="));
    let wants =
        |transport: &str| settled.arms.iter().any(|arm| settled.arm_workload(arm).transport == transport);
    let spec = SandboxSpec {
        program,
        tables,
        rows,
        performance_schema,
        ipv6: wants("ipv6"),
        tls: wants("tls"),
        settings,
        buffer_pool_bytes: if settled.profile_name == "faithful" { FAITHFUL_POOL_BYTES } else { 0 },
        ..SandboxSpec::default()
    };
    let data = DataSpec { tables, rows, seed: DATA_SEED };
    let tell = |text: &str| tell!("toll: {text}");
    let sandbox = Sandbox::start_prepared(&spec, data, &journal, &tell, |target| {
        crate::workload::prepare(target, tables, rows, DATA_SEED)
    })?;
    for warning in sandbox.warnings() {
        tell(warning);
    }
    let schema = Some(crate::workload::SCHEMA.to_owned());
    let endpoints = Endpoints {
        tcp: Some(Target { db: schema.clone(), ..sandbox.target() }),
        unix: Some(Target { db: schema, ..sandbox.unix_target() }),
        tunnel: None,
    };
    let admin = Admin::new(sandbox.unix_target(), None);
    let place = Place {
        server: sandbox.described(),
        watched: Watched::sandbox(sandbox.process()),
        lock: None,
        logs: Ok(LogPlace::of_sandbox(&sandbox.datadir())),
        binary: sandbox.program().path.display().to_string(),
        datadir: sandbox.datadir().display().to_string(),
        socket: sandbox.socket().display().to_string(),
        port: sandbox.port(),
    };
    let (stage, facts, host) = stage(place, admin, endpoints, settled, dir, journal)?;
    Ok(Opened { stage, facts, sandbox: Some(sandbox), host })
}

/// Where a server is, as commands want to know it.
struct Place {
    server: toll_record::Server,
    watched: Watched,
    lock: Option<ServerLock>,
    logs: Result<LogPlace, String>,
    binary: String,
    datadir: String,
    socket: String,
    port: u16,
}

fn stage(
    place: Place,
    mut admin: Admin,
    mut endpoints: Endpoints,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
) -> anyhow::Result<(Stage, Facts, Host)> {
    let variables = admin.variables("%")?;
    let cgroup = make_cgroup(&journal)?;
    let facts = Facts {
        server: place.server,
        is_root: nix::unistd::geteuid().is_root(),
        may_set: admin.may_set_global(),
        no_logs: place.logs.as_ref().err().cloned(),
        variables,
        held_in: if cgroup.is_some() { HeldIn::ControlGroup } else { HeldIn::ProcessGroup },
    };
    let toll = std::env::current_exe().context("cannot find the toll binary itself")?.display().to_string();
    let mut without_server = Fill::default();
    without_server.set("toll", toll.clone());
    let mut fill = Fill::default();
    fill.set("toll", toll);
    fill.set("port", place.port.to_string());
    fill.set("socket", place.socket.clone());
    fill.set("datadir", place.datadir);
    fill.set("server_bin", place.binary);
    let pid = place.watched.pid();
    if let Some(pid) = pid {
        fill.set("pid", pid.to_string());
    }
    let dir = std::path::absolute(dir).context("cannot tell where the run directory is")?;
    let work_dir = dir.join("private");
    journal.record(Undo::Path { path: work_dir.clone() })?;
    private::dir(&work_dir)?;
    let defaults = work_dir.join("client.cnf");
    let target = endpoints.unix.as_ref().or(endpoints.tcp.as_ref()).context("no way to the server")?;
    write_client_defaults(&defaults, target)?;
    fill.set("client_defaults", defaults.display().to_string());
    fill.set("schema", target.db.clone().unwrap_or_default());
    let wants_remote = settled.arms.iter().any(|arm| arm.remote_port.is_some());
    let remote = if wants_remote { Some(Remote::make(&journal)?) } else { None };
    if pid.is_some() && wants_tunnel(settled, &facts) {
        endpoints.tunnel = Some(Tunnel::open(&journal, &work_dir, place.port, &place.socket)?);
    }
    let host = host::facts(&dir, &facts.variables);
    let standing = Standing {
        admin,
        endpoints,
        server: place.watched,
        lock: place.lock,
        logs: place.logs.ok(),
        port: place.port,
        fill,
    };
    let stage = Stage {
        journal,
        servers: vec![standing],
        cgroup,
        remote,
        fill: without_server,
        work_dir,
        artefact_dir: dir.join("artefacts"),
    };
    Ok((stage, facts, host))
}

/// Where control groups cannot be had, process groups and marks have to do.
fn make_cgroup(journal: &Journal) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = cgroup::base().map(|base| base.join(format!("toll-{}", journal.run_id()))) else {
        return Ok(None);
    };
    let undo = journal.record(Undo::Cgroup { path: path.clone() })?;
    if std::fs::create_dir(&path).is_ok() {
        return Ok(Some(path));
    }
    journal.done(undo)?;
    Ok(None)
}

fn wants_tunnel(settled: &Settled, facts: &Facts) -> bool {
    settled.arms.iter().any(|arm| {
        settled.arm_workload(arm).transport.starts_with("ssh-")
            && settled.resolved(&arm.name, facts).is_ok_and(|arm| unavailable(&arm, facts).is_none())
    })
}

/// An option file for client programs among the treatments, readable by its owner only.
fn write_client_defaults(path: &Path, target: &Target) -> anyhow::Result<()> {
    // Inside double quotes the clients undo a backslash before these two.
    let password = target.password.expose().replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!("[client]\nuser=\"{}\"\npassword=\"{password}\"\n", target.user);
    private::write(path, &text)
}

/// The options that the scenario wishes for this flavour, `name=value`.
fn options(wish: &ServerWish, flavour: &str) -> Vec<String> {
    ["any", flavour]
        .iter()
        .filter_map(|key| wish.options.get(*key))
        .flatten()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn external(
    target: &Target,
    defaults_file: Option<PathBuf>,
    agreed: &Agreed,
    settled: &Settled,
    dir: &Path,
    journal: Journal,
) -> anyhow::Result<Opened> {
    let server = External::connect(target, defaults_file)?;
    refuse_if_a_journal_waits(&server)?;
    let lock = ServerLock::take(server.target())?;
    let mut admin = Admin::new(server.target().clone(), Some(server.server().clone()));
    let within = schema(&server, &mut admin, agreed, settled, &journal)?;
    let local = server.local();
    let over = |address: Address| Some(Target { address, ..within.clone() });
    // A server on this host can be reached both ways; one elsewhere only as it was given.
    let endpoints = match (&target.address, local) {
        (Address::Tcp { .. }, None) => Endpoints { tcp: Some(within.clone()), unix: None, tunnel: None },
        (Address::Tcp { .. }, Some(local)) => {
            let socket = local.here(&server.socket());
            let unix = if socket.exists() { over(Address::Unix(socket)) } else { None };
            Endpoints { tcp: Some(within.clone()), unix, tunnel: None }
        }
        (Address::Unix(_), _) => Endpoints {
            tcp: server.port().and_then(|port| over(Address::Tcp { host: "127.0.0.1".into(), port })),
            unix: Some(within.clone()),
            tunnel: None,
        },
    };
    let here = |path: PathBuf| local.map_or(path.clone(), |local| local.here(&path)).display().to_string();
    let place = Place {
        server: server.described(),
        watched: Watched::external(local, server.target().clone(), server.variables().clone()),
        lock: Some(lock),
        logs: LogPlace::of(local, &server.datadir()),
        binary: local.map_or_else(String::new, |local| local.binary().display().to_string()),
        datadir: here(server.datadir()),
        socket: here(server.socket()),
        port: server.port().unwrap_or(0),
    };
    let (stage, facts, host) = stage(place, admin, endpoints, settled, dir, journal)?;
    Ok(Opened { stage, facts, sandbox: None, host })
}

/// What a killed run has left on would be taken for the server's own.
fn refuse_if_a_journal_waits(server: &External) -> anyhow::Result<()> {
    for waiting in journal::waiting(&places::journal_dir()?) {
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
    }
    Ok(())
}

/// How loads connect: to a schema that toll makes and fills, and drops after the run; or to one that
/// was there, which is used as it is if its tables are large enough.
fn schema(
    server: &External,
    admin: &mut Admin,
    agreed: &Agreed,
    settled: &Settled,
    journal: &Journal,
) -> anyhow::Result<Target> {
    let Some(name) = &agreed.schema else {
        bail!(
            "the load needs tables on the server at {}: let toll make a schema of its own and drop it \
             afterwards (--allow-schema {SCHEMA}), or name one that holds them (--schema NAME)",
            server.target().address
        );
    };
    let make = agreed.may_make_schema && !server.has_schema(name)?;
    let writes = settled.writes();
    server.check_fit(agreed, make || writes)?;
    let (tables, rows) = settled.data();
    if make {
        let made = server.create_schema(name, journal)?;
        let unlogged = !made.session.is_empty();
        if unlogged && writes && settled.drivers().contains("sysbench") {
            bail!(
                "sysbench cannot keep what it writes out of the binary log: use --driver toll, or a schema \
                 that is there (--schema NAME)"
            );
        }
        let target = Target { db: Some(name.clone()), ..made };
        crate::workload::prepare(&target, tables, rows, DATA_SEED)?;
        return Ok(target);
    }
    let quoted = quoted_name(name);
    for number in 1..=tables {
        let there = admin.number(&format!("SELECT COALESCE(MAX(id), 0) FROM {quoted}.sbtest{number}"));
        if there.is_none_or(|there| there < rows) {
            bail!(
                "the schema {name} has no table sbtest{number} of {rows} rows: prepare it with `toll load prepare` \
                 or sysbench, or let toll make a schema of its own with --allow-schema NAME"
            );
        }
    }
    if writes && server.variables().get("log_bin").is_some_and(|on| on == "ON") {
        tell!(
            "toll: what the load writes to {name} goes to the binary log and the replicas, as any client's writes"
        );
    }
    Ok(Target { db: Some(name.clone()), ..server.target().clone() })
}
